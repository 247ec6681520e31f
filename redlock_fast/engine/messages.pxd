# How engine/messages.py is compiled: the same source, with fields that C can reach.

cdef class Request:
    cdef readonly int verb
    cdef readonly tuple args
    cdef readonly unsigned long long masters
    cdef readonly double resend_for
    cdef public bint awaited

cdef class Votes:
    cdef readonly tuple values
    cdef readonly unsigned long long sent
    cdef readonly int granted
    cdef readonly int refused
    cdef readonly int faulty
    cdef readonly dict details
