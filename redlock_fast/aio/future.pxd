# How aio/future.py is compiled: the same source, with fields that C can reach.

cdef class ExchangeFuture:
    cdef object _owner
    cdef public bint _asyncio_future_blocking
    cdef object _context
    cdef readonly object _loop
    cdef object _wakeup
    cdef public object answers
    cdef public object ticket

    cpdef object wake(self, object done=*)
