# How _lease.py is compiled: the same source, with fields that C can reach.

cdef class Lease:
    cdef readonly bytes key
    cdef readonly bytes token
    cdef public unsigned long long sent
    cdef public double ttl
    cdef public double deadline
    cdef public double validity
    cdef public int extensions
    cdef public bint lost
    cdef public bint released
    cdef int _asking
    cdef double _asked

cdef class KindLease(Lease):
    cdef public object claim
    cdef readonly object fencing
