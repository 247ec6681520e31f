# How masters/stats.py is compiled: the same source, with fields that C can reach.

cdef class Stats:
    cdef public long long acquired
    cdef public long long contended
    cdef public long long unavailable
    cdef public long long released
    cdef public long long expired
    cdef public long long extended
    cdef public long long inconclusive
    cdef public long long lost
    cdef public long long renewed
    cdef public long long faults
