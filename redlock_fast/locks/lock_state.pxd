# How locks/lock_state.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lock_kind cimport LockKind
from redlock_fast.algorithm.keys cimport key_of
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.locks.bodies cimport Body, has_lease, remove_ended
from redlock_fast.masters.client_state cimport ClientState
from redlock_fast.algorithm.policy cimport Policy

cdef class LockState:
    cdef object __weakref__
    cdef public object resource
    cdef readonly object _core
    cdef readonly Policy _policy
    cdef readonly ClientState _client_state
    cdef public LockKind _lock_kind
    cdef readonly double _ttl
    cdef public object _timeout
    cdef public object _max_extensions
    cdef public object _auto_extension
    cdef public Lease _lease
    cdef public object _acquiring
    cdef public list _bodies
    cdef public long _generation
    cdef public double _granted_at
    cdef public object _handover
    cdef int _at_exit
    cdef public object _label

    @cython.locals(lease=Lease, generation=long)
    cpdef Lease _mark_acquiring(self, object me)
    cpdef object _on_granted(self, Lease lease, Body body=*)
    cpdef bint _acquired(self, object outcome) except -1
    cpdef object _waiting_time(self, object blocking, object timeout)
    cpdef Lease _own_lease(self)
    @cython.locals(lease=Lease)
    cpdef Lease _start_release(self, Lease only=*)
    cpdef object _forget_lease(self, Lease lease)
    cpdef object _drop_lease(self, Lease lease)
    cpdef bint _note_release(self, Lease lease, bint alive) except -1
    cpdef object _give_lease(self, Body body, Lease lease)
    cpdef object _begin_body(self, Body body)
    @cython.locals(bodies=list)
    cpdef Body _end_body(self, object owner, bint destroyed=*)
    cpdef bint _in_another_body(self, Lease lease, object owner=*) except -1

@cython.locals(one=LockState)
cpdef LockState lock_of(
    type kind, object core, Policy policy, ClientState client_state, object resource, LockKind lock_kind, double ttl, Lease lease=*)

@cython.locals(policy=Policy, lock_kind=LockKind, seconds=double)
cpdef LockState plain_lock(type kind, object core, object resource, object ttl)
