# How aio/loop.py is compiled: the same source, with types that C can reach into.

cimport cython
cimport machine

from redlock_fast.aio.future cimport ExchangeFuture
from redlock_fast.masters.client_state cimport ClientState
from redlock_fast.masters.faults cimport has_faults

@cython.final
cdef class LoopBinding:
    cdef object __weakref__
    cdef readonly object masters
    cdef readonly ClientState client_state
    cdef readonly object loop
    cdef readonly object engine
    cdef readonly long generation
    cdef readonly Py_ssize_t _pending
    cdef bint _single
    cdef Py_ssize_t _submitted
    cdef bint _waking
    cdef unsigned long _thread
    cdef object _timer
    cdef double _timer_seconds
    cdef readonly Py_ssize_t _watching
    cdef set _waiting
    cdef object _closed
    cdef object _done
    cdef int _fd

    cpdef bint is_current(self) except -1
    cpdef ExchangeFuture submit(self, object requests, object need, double timeout, int wait, double stall=*)
    cpdef object _flush_soon(self)
    cpdef object flush(self)
    @cython.locals(completed=list, future=ExchangeFuture)
    cpdef object _on_ready(self)
    @cython.locals(future=ExchangeFuture)
    cpdef object _wake(self, object completed)
