# How algorithm/redlock.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lease cimport Lease, granted_leases, lease_of
from redlock_fast.algorithm.lock_kind cimport Claim
from redlock_fast.algorithm.policy cimport Rules
from redlock_fast.algorithm.quorum cimport deadline
from redlock_fast.engine.messages cimport Votes

@cython.final
@cython.freelist(8)
cdef class Attempt:
    cdef readonly Rules rules
    cdef readonly Claim claim
    cdef readonly double ttl
    cdef readonly double start
    cdef public double end
    cdef readonly unsigned long long masters
    cdef readonly object token
    cdef readonly object requests

@cython.locals(attempt=Attempt)
cpdef Attempt start_attempt(Rules rules, Claim claim, double ttl, bytes token)

@cython.locals(attempt=Attempt)
cpdef Attempt start_attempts(Rules rules, list keys, double ttl)

@cython.locals(attempt=Attempt)
cpdef Attempt _attempt(Rules rules, double ttl)

@cython.locals(now=double)
cpdef double validity_left(Attempt attempt) except? -1

cpdef unsigned long long restarted(Attempt attempt) except? 0

cpdef Votes trusted_votes(Attempt attempt, Votes votes)

@cython.locals(rules=Rules, validity=double)
cpdef Lease finish_attempt(Attempt attempt, int granted, unsigned long long sent, object fencing=*)

@cython.locals(rules=Rules, validity=double, need=int, forgetful=cython.ulonglong)
cpdef tuple finish_attempts(Attempt attempt, object keys, object tally)

cpdef list start_release(Lease lease)

@cython.locals(votes=Votes)
cpdef bint finish_release(Rules rules, Lease lease, list answers) except -1

cpdef bint was_alive(Rules rules, Lease lease, int granted, Votes votes) except -1

cpdef bint still_alive(Rules rules, Lease lease, Votes votes) except -1
