# How threads/fast_path.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release
from redlock_fast.locks.bodies cimport Body
from redlock_fast.masters.faults cimport has_faults

@cython.locals(policy=Policy, attempt=Attempt, answers=list, generation=long, ended=Lease)
cpdef object acquire(LockState lock, object blocking, object timeout, object masters, Body body=*)

@cython.locals(policy=Policy, lease=Lease, answers=list)
cpdef bint release(LockState lock, object masters, Lease only=*) except -1
