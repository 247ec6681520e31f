# How voting_masters.py is compiled: the same source, with fields that C can reach.

cdef class VotingMasters:
    cdef public unsigned long long mask
    cdef public bint all_push
