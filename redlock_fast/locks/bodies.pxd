# How locks/bodies.py is compiled: the same source, with fields that C can reach.

cimport cython

from redlock_fast.algorithm.lease cimport Lease

cdef class Body:
    cdef readonly object owner
    cdef public Lease lease
    cdef readonly object task

cpdef Body remove_ended(list bodies, object owner, bint destroyed)

@cython.locals(body=Body)
cpdef bint has_lease(list bodies, Lease lease, object owner) except -1
