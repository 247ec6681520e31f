# How threads/operations.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.operation cimport Operation
from redlock_fast.locks.bodies cimport Body
from redlock_fast.locks.lock_state cimport LockState
from redlock_fast.locks.operations cimport new_acquire, new_release
from redlock_fast.masters.client_state cimport ClientState
from redlock_fast.masters.faults cimport has_faults

cpdef object acquire(LockState lock, object blocking, object timeout, object masters, Body body=*)

@cython.locals(lease=Lease)
cpdef object release(LockState lock, object masters, Lease only=*)

@cython.locals(state=ClientState, generation=long)
cpdef object run(Operation operation, object masters, object wait=*)

cpdef object perform_each(
    Operation operation, object masters, ClientState state, long generation, object wait)

cpdef object clean_up(Operation operation, object masters, object error)

cpdef object send_off(Operation operation, object masters, object error)

cpdef object exchange(
    object requests, object need, double timeout, int wait, double stall, object masters)

cpdef object send(object requests, object masters)
