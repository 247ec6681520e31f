# How locks/lock_state.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lock_kind cimport Claim
from redlock_fast.algorithm.keys cimport key_of
from redlock_fast.algorithm.lease cimport Lease
from redlock_fast.masters.held_leases cimport Ledger
from redlock_fast.engine.messages cimport Votes
from redlock_fast.algorithm.policy cimport Rules
from redlock_fast.algorithm.redlock cimport Attempt, finish_attempt, start_attempt, trusted_votes

cdef class LockState:
    cdef object __weakref__
    cdef public object resource
    cdef readonly object _core
    cdef Rules _rules
    cdef Ledger _masters
    cdef public Claim _claim
    cdef readonly double _ttl
    cdef public object _timeout
    cdef public object _max_extensions
    cdef public object _keeper
    cdef public Lease _lease
    cdef public object _acquiring
    cdef public long _generation

    @cython.locals(rules=Rules, masters=Ledger, claim=Claim)
    cpdef Attempt _first(self, bint blocking, object timeout)
    @cython.locals(lease=Lease)
    cpdef Lease _begin(self, object me)
    @cython.locals(lease=Lease, masters=Ledger)
    cpdef Lease _begin_here(self, object me)
    @cython.locals(lease=Lease)
    cpdef Lease _settle(self, Attempt attempt, Votes votes)
    cpdef object _keep(self, Lease lease)
    cpdef bint _acquired(self, object outcome) except -1
    cpdef Lease _held(self)
    @cython.locals(lease=Lease)
    cpdef Lease _leaving(self)
    cpdef object let_go(self, Lease lease)
    cpdef bint note_release(self, Lease lease, bint alive) except -1

@cython.locals(one=LockState)
cpdef LockState lock_of(
    type kind, object core, Rules rules, Ledger masters, object resource, Claim claim, double ttl, Lease lease=*)

@cython.locals(rules=Rules, claim=Claim, seconds=double)
cpdef LockState plain_lock(type kind, object core, object resource, object ttl)

@cython.locals(lease=Lease, made=list, rules=Rules, masters=Ledger)
cpdef list locks_of(type kind, object core, object resources, object leases)

@cython.locals(one=LockState, lease=Lease)
cpdef object let_go_all(object core, dict held)

cpdef list strangers(object core, object locks)

@cython.locals(one=LockState)
cpdef object stop_keepers(object locks)

@cython.locals(one=LockState, held=dict, generation=long)
cpdef dict held_by(object core, object locks)
