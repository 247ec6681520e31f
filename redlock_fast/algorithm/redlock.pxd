# How algorithm/redlock.py is compiled: the same source, with types that C can reach into.

cimport cython
cimport machine

from redlock_fast.algorithm.lease cimport Lease, granted_leases, lease_of
from redlock_fast.algorithm.lock_kind cimport LockKind
from redlock_fast.algorithm.master_lists cimport MasterLists
from redlock_fast.algorithm.operation cimport Operation
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.quorum cimport deadline
from redlock_fast.engine.messages cimport Votes

cdef class Attempt(Operation):
    cdef public Policy policy
    cdef public LockKind lock_kind
    cdef public double ttl
    cdef readonly double start
    cdef public double end
    cdef readonly MasterLists lists
    cdef readonly unsigned long long masters
    cdef public object token

@cython.locals(policy=Policy)
cpdef object start_attempt(Attempt attempt)

@cython.locals(attempt=Attempt)
cpdef Attempt start_attempts(Policy policy, list keys, double ttl)

cpdef double validity_left(Attempt attempt) except? -1

cpdef double _now(Policy policy) except? -1

cpdef unsigned long long distrusted(Attempt attempt) except? 0

cpdef Votes trusted_votes(Attempt attempt, Votes votes)

@cython.locals(validity=double)
cpdef Lease finish_attempt(Attempt attempt, bint granted, unsigned long long sent, object fencing=*)

@cython.locals(lists=MasterLists, validity=double, need=int, mask=cython.ulonglong)
cpdef tuple finish_attempts(Attempt attempt, object keys, object tally)

cpdef list start_release(Lease lease)

cpdef list undo_lease(Lease lease)

@cython.locals(lists=MasterLists, votes=Votes)
cpdef bint finish_release(Policy policy, Lease lease, list answers) except -1

cpdef bint was_alive(
    Policy policy, MasterLists lists, Lease lease, bint granted, Votes votes) except -1

@cython.locals(now=double)
cpdef bint still_alive(Policy policy, MasterLists lists, Lease lease, Votes votes) except -1
