# How faults.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.engine.messages cimport Votes

@cython.locals(votes=Votes)
cpdef bint has_faults(object answers, object masters) except -1
