# How _straight_aio.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast._answer cimport Answer
from redlock_fast._claim cimport Claim
from redlock_fast._holder cimport Holder
from redlock_fast._lease cimport Lease
from redlock_fast._pump cimport Pump
from redlock_fast._rules cimport Rules
from redlock_fast._verdict cimport released

@cython.locals(rules=Rules)
cpdef Answer ask(Holder lock, tuple first, Pump pump)

@cython.locals(rules=Rules)
cpdef Answer ask_back(Holder lock, Lease lease, Pump pump)

@cython.locals(lease=Lease)
cpdef Lease granted(Holder lock, tuple first, Answer answer)

cpdef bint ended(Holder lock, Lease lease, Answer answer) except -1
