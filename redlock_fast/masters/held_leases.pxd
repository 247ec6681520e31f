# How masters/held_leases.py is compiled: the same source, with types that C can reach into.

from redlock_fast._stats cimport Stats

cdef class Ledger:
    cdef object __weakref__
    cdef public long generation
    cdef public bint closed
    cdef public bint ready
    cdef public set held
    cdef public object mutex
    cdef readonly Stats counts
    cdef public object observer

    cpdef object hold(self, object lease)
    cpdef object let_go(self, object lease)
