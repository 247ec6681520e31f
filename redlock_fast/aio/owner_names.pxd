# How aio/owner_names.py is compiled: the same source, with types that C can reach into.

cimport cython

@cython.final
cdef class RunningTask:
    cdef public object loop

cpdef bytes _cached_part(str name)
