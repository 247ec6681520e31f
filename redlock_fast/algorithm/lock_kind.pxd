# How algorithm/lock_kind.py is compiled: the same source, with fields that C can reach.

from redlock_fast.engine.messages cimport Request, request

cdef class Claim:
    cdef public bytes key

    cpdef object ask(self, bytes token, bytes ttl, unsigned long long masters)
    cpdef Claim granted(self)
    cpdef object undo(self, bytes token, unsigned long long masters, double keep)

cdef class Fenced(Claim):
    cdef public bytes counter
    cdef public bytes retention
    cdef public bytes step

cpdef list release(bytes key, bytes token, unsigned long long masters, double keep)
