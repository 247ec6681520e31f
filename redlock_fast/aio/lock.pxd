# How aio/lock.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.aio.future cimport ExchangeFuture
from redlock_fast.aio.loop cimport LoopBinding
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release
from redlock_fast.locks.lock_state cimport LockState

cdef class AsyncLock(LockState):
    @cython.locals(policy=Policy)
    cpdef ExchangeFuture _submit_acquire(self, Attempt attempt, LoopBinding binding)
    @cython.locals(lease=Lease)
    cpdef Lease _complete_acquire(self, Attempt attempt, ExchangeFuture future)
    @cython.locals(policy=Policy)
    cpdef ExchangeFuture _submit_release(self, Lease lease, LoopBinding binding)
    cpdef bint _complete_release(self, Lease lease, ExchangeFuture future) except -1
