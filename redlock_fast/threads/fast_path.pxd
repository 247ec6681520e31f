# How threads/fast_path.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.policy cimport Rules
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release
from redlock_fast.masters.faults cimport to_be_noted

@cython.locals(rules=Rules, attempt=Attempt, answers=list)
cpdef object acquire(LockState lock, bint blocking, object timeout, object fleet)

@cython.locals(rules=Rules, lease=Lease, answers=list)
cpdef bint release(LockState lock, object fleet) except -1
