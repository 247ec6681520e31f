# How algorithm/lease.py is compiled: the same source, with fields that C can reach.

cimport cython
cimport machine

from redlock_fast.algorithm.lock_kind cimport LockKind, release

cdef class Lease:
    cdef readonly bytes key
    cdef readonly bytes token
    cdef public unsigned long long sent
    cdef public double ttl
    cdef public double deadline
    cdef public double validity
    cdef public int extensions
    cdef public bint lost
    cdef public int released
    cdef public int refused
    cdef public int at_exit
    cdef public unsigned long thread

    cpdef object release_requests(self)
    cpdef object give_up(self)
    cpdef bint refuse(self) except -1

cdef class KindLease(Lease):
    cdef public object lock_kind
    cdef readonly object fencing

cpdef Lease lease_of(
    LockKind lock_kind, bytes token, unsigned long long sent, double ttl, double end, double validity,
    object fencing=*)

@cython.locals(made=Lease)
cpdef Lease plain_lease(
    bytes key, bytes token, unsigned long long sent, double ttl, double end, double validity)

@cython.locals(lease=Lease)
cpdef bint all_plain(object leases) except -1

@cython.locals(lease=Lease)
cpdef list never_lost(object leases)

@cython.locals(lease=Lease)
cpdef list keys_of(object leases)

@cython.locals(lease=Lease, longest=double)
cpdef double begin_release(object leases) except -1

@cython.locals(lease=Lease, keys=list, tokens=list, sent=list, ttls=list)
cpdef tuple columns(object leases)

@cython.locals(need=int, yes=int, to=cython.ulonglong, ttl=double, end=double, validity=double)
cpdef list granted_leases(
    object keys, object tokens, object granted, object sent, int need, double ttl, double end, double validity)
