# How locks/batch_state.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.algorithm.policy cimport Policy
from redlock_fast.locks.lock_state cimport LockState, lock_of
from redlock_fast.masters.client_state cimport ClientState

@cython.locals(lease=Lease, made=list, policy=Policy, client_state=ClientState)
cpdef list locks_of(type kind, object core, object resources, object leases)

@cython.locals(one=LockState, lease=Lease)
cpdef object remove_leases(object core, dict held)

cpdef list foreign_locks(object core, object locks)

@cython.locals(one=LockState, lease=Lease)
cpdef object stop_auto_extension(dict held)

@cython.locals(one=LockState, lease=Lease, held=dict, generation=long)
cpdef dict held_by(object core, object locks)
