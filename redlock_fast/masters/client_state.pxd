# How masters/client_state.py is compiled: the same source, with types that C can reach into.

cimport process

from redlock_fast.masters.stats cimport Stats

cdef class ClientState:
    cdef object __weakref__
    cdef object _masters
    cdef readonly long known_generation
    cdef long _process
    cdef public bint closed
    cdef public bint ending
    cdef public bint ready
    cdef public set held
    cdef public set batches
    cdef public object mutex
    cdef readonly Stats counts
    cdef public object events
    cdef public object observer

    cpdef long generation(self) except -1
    cpdef object add_lease(self, object lease)
    cpdef object remove_lease(self, object lease)
