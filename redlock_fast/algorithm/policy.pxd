# How algorithm/policy.py is compiled: the same source, with fields that C can reach.

from redlock_fast.algorithm.master_lists cimport MasterLists

cdef class VotingMasters:
    cdef public MasterLists lists
    cdef public unsigned long long mask
    cdef public bint all_push

    cpdef unsigned long long asked(self)

cdef class Policy:
    cdef public double node_timeout
    cdef public double drift_factor
    cdef public double outage_timeout
    cdef public object retry
    cdef public VotingMasters voters
    cdef public object wait
    cdef public object clock
    cdef public object chance
    cdef public object token
    cdef public object tokens
    cdef public object retention
    cdef public object step
    cdef public object report
    cdef public bint push
    cdef public bint refill
    cdef public object local_queue
    cdef public object server_entries
    cdef public object contention
    cdef public object crowds
    cdef public dict crowded
    cdef public double ttl
    cdef public bytes wire

    cpdef bytes ttl_on_wire(self, double ttl)
