# How locks/operations.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lease cimport Lease, lease_of
from redlock_fast.algorithm.lock_kind cimport LockKind
from redlock_fast.algorithm.operations cimport Acquire, Release
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport finish_release, start_release, undo_lease
from redlock_fast.engine.messages cimport Votes
from redlock_fast.locks.bodies cimport Body
from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.masters.client_state cimport ClientState

cdef class LockAcquire(Acquire):
    cdef readonly LockState lock
    cdef readonly Body body
    cdef readonly Lease ended
    cdef readonly object reports
    cdef readonly double began

    @cython.locals(lock=LockState, state=ClientState)
    cpdef object begin(self)
    cpdef object retries(self, Votes votes)
    cpdef object on_granted(self, Lease lease)
    cpdef list abort(self)
    cpdef object close(self, object error=*)

cdef class TakeOver(LockAcquire):
    cdef readonly object handover

    cpdef object begin(self)
    cpdef object request(self)
    cpdef object advance(self, object result)
    cpdef object retries(self, Votes votes)
    cpdef object on_granted(self, Lease lease)
    cpdef list abort(self)

@cython.locals(made=LockAcquire, kind=LockKind)
cpdef LockAcquire new_acquire(LockState lock, object blocking, object timeout, Body body=*)

@cython.locals(made=TakeOver)
cpdef TakeOver new_take_over(LockState lock, double ttl, object wait=*, Body body=*)

@cython.locals(policy=Policy)
cdef object _fill(
    LockAcquire made, LockState lock, LockKind kind, double ttl, object wait, bytes token, Body body)

cdef class LockRelease(Release):
    cdef readonly LockState lock
    cdef readonly Lease only
    cdef readonly bint of_token
    cdef readonly object reports
    cdef readonly double began

    @cython.locals(lock=LockState)
    cpdef object begin(self)
    cpdef object advance(self, object result)
    @cython.locals(lock=LockState, lease=Lease)
    cpdef object finish(self, list answers)
    cpdef object report(self, Lease lease, object error)
    @cython.locals(lease=Lease)
    cpdef list abort(self)
    cpdef object close(self, object error=*)

@cython.locals(made=LockRelease)
cpdef LockRelease new_release(LockState lock, Lease only=*)
