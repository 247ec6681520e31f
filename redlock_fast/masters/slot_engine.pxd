# How masters/slot_engine.py is compiled: the same source, with fields that C can reach.

import cython

from redlock_fast.engine.messages cimport Request, Votes

cdef class _Asked:
    cdef object again
    cdef object answers
    cdef object context
    cdef double end
    cdef object need
    cdef int redirects
    cdef object requests
    cdef double stall
    cdef object ticket
    cdef int wait

cdef class SlotEngine:
    cdef object _engine
    cdef object _topology
    cdef readonly object flush
    cdef readonly object next_timeout

    @cython.locals(asked=_Asked)
    cpdef object submit(
        self, requests, need, double timeout, int wait, double stall, object context
    )

    cpdef object cancel(self, _Asked ticket)

    @cython.locals(asked=_Asked)
    cpdef object on_ready(self)

    cpdef object _ask_again(self, _Asked asked, dict again, object answers)

    @cython.locals(one=Request, request=Request, masters=cython.ulonglong)
    cpdef object _routed(self, requests)

@cython.locals(votes=Votes)
cpdef bint _is_decided(answers) except -1

cpdef bytes _key(Request request)
