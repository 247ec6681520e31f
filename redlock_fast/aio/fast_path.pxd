# How aio/fast_path.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.aio.future cimport Answer
from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.aio.loop cimport Pump
from redlock_fast.algorithm.policy cimport Rules
from redlock_fast.algorithm.redlock cimport Attempt, finish_release, start_release

@cython.locals(rules=Rules)
cpdef Answer ask(LockState lock, Attempt attempt, Pump pump)

@cython.locals(rules=Rules)
cpdef Answer ask_back(LockState lock, Lease lease, Pump pump)

@cython.locals(lease=Lease)
cpdef Lease granted(LockState lock, Attempt attempt, Answer answer)

cpdef bint ended(LockState lock, Lease lease, Answer answer) except -1
