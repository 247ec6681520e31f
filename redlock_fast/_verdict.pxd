# How _verdict.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast._claim cimport Claim
from redlock_fast._lease cimport Lease, lease_of
from redlock_fast._messages cimport Votes
from redlock_fast._quorum cimport deadline
from redlock_fast._rules cimport Rules

@cython.locals(end=double, validity=double)
cpdef Lease granted_lease(
    Rules rules, Claim claim, double start, bytes token, unsigned long long sent, double ttl, int granted,
    object fencing=*)

@cython.locals(votes=Votes)
cpdef bint released(Rules rules, Lease lease, list answers) except -1

cpdef bint still_alive(Rules rules, Lease lease, Votes votes) except -1

@cython.locals(votes=Votes)
cpdef bint to_be_noted(object answers, object masters) except -1
