# How aio/driver.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.aio.future cimport ExchangeFuture
from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.aio.loop cimport LoopBinding
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release

cdef class FirstExchange(ExchangeFuture):
    cdef LockState _lock
    cdef LoopBinding _binding
    cdef object _rest
    cdef readonly object outcome

    cpdef object _prepare(self, LockState lock, LoopBinding binding)
    cpdef object _start(self)
    cpdef object _finish(self)
    cpdef object _after(self, BaseException error)

cdef class FirstAttempt(FirstExchange):
    cdef object _blocking
    cdef object _timeout
    cdef Attempt _attempt

    @cython.locals(lock=LockState, binding=LoopBinding, attempt=Attempt, policy=Policy)
    cpdef object _start(self)
    @cython.locals(lock=LockState, attempt=Attempt, lease=Lease)
    cpdef object _finish(self)

cdef class FirstRelease(FirstExchange):
    cdef Lease _lease

    @cython.locals(lock=LockState, policy=Policy, lease=Lease)
    cpdef object _start(self)
    @cython.locals(lock=LockState, lease=Lease)
    cpdef object _finish(self)

@cython.locals(call=FirstAttempt)
cpdef FirstAttempt acquire(LockState lock, object blocking, object timeout)

@cython.locals(call=FirstRelease)
cpdef FirstRelease release(LockState lock)

@cython.locals(binding=LoopBinding)
cpdef LoopBinding binding_of(LockState lock)
