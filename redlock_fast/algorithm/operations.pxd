# How algorithm/operations.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.lock_kind cimport FencedKind, LockKind
from redlock_fast.algorithm.master_lists cimport MasterLists
from redlock_fast.algorithm.operation cimport Operation
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport (
    Attempt, finish_attempt, finish_release, start_attempt, start_release, trusted_votes, undo_lease)
from redlock_fast.engine.messages cimport Votes

cdef double NO_END

cdef class Acquire(Attempt):
    cdef readonly bint blocking
    cdef readonly double seconds
    cdef public double give_up_at
    cdef public unsigned long long sent
    cdef unsigned long long _sent_before
    cdef readonly Lease lease
    cdef object _retry_loop

    cpdef object limit(self, object seconds)
    @cython.locals(policy=Policy, kind=LockKind)
    cpdef object begin(self)
    @cython.locals(policy=Policy, timeout=double)
    cpdef Operation attempt_again(self)
    cpdef object request(self)
    @cython.locals(votes=Votes, granted=bint)
    cpdef object advance(self, object result)
    @cython.locals(votes=Votes)
    cpdef Votes count(self, list answers)
    @cython.locals(lease=Lease)
    cpdef bint grant(self, object fencing) except -1
    cpdef object retries(self, Votes votes)
    cpdef object on_granted(self, Lease lease)
    cpdef list undo(self)
    cpdef list abort(self)
    cpdef object close(self, object error=*)

cdef class Release(Operation):
    cdef readonly Policy policy
    cdef readonly Lease lease

    cpdef object begin(self)
    @cython.locals(policy=Policy)
    cpdef Operation ask_all(self, Lease lease)
    cpdef object advance(self, object result)
    cpdef list abort(self)
