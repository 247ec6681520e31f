# How aio/driver.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.aio.future cimport ExchangeFuture
from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.aio.loop cimport LoopBinding
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release

@cython.locals(policy=Policy)
cpdef ExchangeFuture submit_acquire(LockState lock, Attempt attempt, LoopBinding binding)

@cython.locals(policy=Policy)
cpdef ExchangeFuture submit_release(LockState lock, Lease lease, LoopBinding binding)

@cython.locals(lease=Lease)
cpdef Lease complete_acquire(LockState lock, Attempt attempt, ExchangeFuture future)

cpdef bint complete_release(LockState lock, Lease lease, ExchangeFuture future) except -1
