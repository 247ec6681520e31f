# How _ledger.py is compiled: the same source, with types that C can reach into.

cdef class Ledger:
    cdef object __weakref__
    cdef public long generation
    cdef public bint closed
    cdef public bint ready
    cdef public set held
    cdef public object mutex

    cpdef object hold(self, object lease)
    cpdef object let_go(self, object lease)
