# How algorithm/lock_kind.py is compiled: the same source, with fields that C can reach.

from redlock_fast.engine.messages cimport Request

cdef class LockKind:
    cdef public bytes key

    cpdef object acquire_request(self, bytes token, bytes ttl, unsigned long long masters)
    cpdef LockKind held_kind(self)
    cpdef object release_requests(self, bytes token, unsigned long long masters, double resend_for)

cdef class FencedKind(LockKind):
    cdef public bytes counter
    cdef public bytes retention
    cdef public bytes step

cpdef list release(bytes key, bytes token, unsigned long long masters, double resend_for)
