# How algorithm/outcome.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.algorithm.lock_kind cimport Claim
from redlock_fast.algorithm.lease cimport Lease, lease_of
from redlock_fast.engine.messages cimport Votes
from redlock_fast.algorithm.quorum cimport deadline
from redlock_fast.algorithm.policy cimport Rules

@cython.locals(end=double, validity=double)
cpdef Lease granted_lease(
    Rules rules, Claim claim, double start, bytes token, unsigned long long sent, double ttl, int granted,
    object fencing=*)

@cython.locals(votes=Votes)
cpdef bint released(Rules rules, Lease lease, list answers) except -1

cpdef bint still_alive(Rules rules, Lease lease, Votes votes) except -1
