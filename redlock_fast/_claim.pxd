# How _claim.py is compiled: the same source, with fields that C can reach.

cdef class Claim:
    cdef public bytes key

cdef class Fenced(Claim):
    cdef public bytes counter
    cdef public bytes retention
