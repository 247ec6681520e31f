# How aio/loop.py is compiled: the same source, with types that C can reach into.

cimport cython

from redlock_fast.aio.future cimport Answer, answer_of
from redlock_fast.masters.held_leases cimport Ledger
from redlock_fast.masters.faults cimport to_be_noted

@cython.final
cdef class Pump:
    cdef object __weakref__
    cdef readonly Ledger masters
    cdef readonly object loop
    cdef readonly object engine
    cdef readonly long generation
    cdef readonly Py_ssize_t _pending
    cdef bint _alone
    cdef Py_ssize_t _submitted
    cdef bint _waking
    cdef unsigned long _thread
    cdef object _timer
    cdef double _timer_seconds
    cdef readonly Py_ssize_t _watching
    cdef set _waiting
    cdef object _done
    cdef int _fd

    cpdef bint here(self) except -1
    cpdef Answer ask(self, object requests, int need, double timeout, int wait, double stall=*)
    cpdef object _flush_soon(self)
    cpdef object flush(self)
    @cython.locals(told=list, answer=Answer)
    cpdef object _on_ready(self)
    @cython.locals(answer=Answer)
    cpdef object _wake(self, object told)
