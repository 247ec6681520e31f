# How algorithm/master_lists.py is compiled: the same source, with fields that C can reach.

from redlock_fast.engine.messages cimport Votes

cdef class MasterLists:
    cdef readonly object masters  # no int of C, which has no 63 bits to shift
    cdef readonly tuple lists
    cdef readonly unsigned long long all
    cdef readonly object need
    cdef readonly int counted
    cdef readonly int least
    cdef readonly unsigned long long partly
    cdef readonly double settled_at
    cdef readonly bint shards
    cdef readonly unsigned long long elsewhere
    cdef public unsigned long long unlisted
    cdef int _need
    cdef int _most_against
    cdef int _most_refusals
    cdef object _quorums

    cpdef bint granted(self, Votes votes) except -1
    cpdef bint refused(self, Votes votes) except -1
    cpdef bint failed(self, Votes votes) except -1
    cpdef bint hopeless(self, Votes votes) except -1
