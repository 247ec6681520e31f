# How _straight.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast._claim cimport Claim
from redlock_fast._holder cimport Holder
from redlock_fast._lease cimport Lease
from redlock_fast._rules cimport Rules
from redlock_fast._verdict cimport released, to_be_noted

@cython.locals(rules=Rules, first=tuple, claim=Claim, answers=list)
cpdef object acquire(Holder lock, bint blocking, object timeout, object fleet)

@cython.locals(rules=Rules, lease=Lease, answers=list)
cpdef bint release(Holder lock, object fleet) except -1
