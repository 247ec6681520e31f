# How algorithm/operation.py is compiled: the same source, with types that C can reach into.

cdef class Operation:
    cdef readonly object requests
    cdef readonly object need
    cdef readonly double timeout
    cdef readonly int wait
    cdef public object outcome
    cdef object _rest

    cpdef object begin(self)
    cpdef object advance(self, object result)
    cpdef list abort(self)
    cpdef object close(self, object error=*)
    cpdef Operation ask(self, object requests, object need, double timeout, int wait)
    cpdef Operation send(self, object requests)
    cpdef object go_on_with(self, object rest)
    cpdef object resume(self, object result)

cdef class Procedure(Operation):
    cdef object _steps
    cdef object _undo

    cpdef object begin(self)
    cpdef object advance(self, object result)
    cpdef list abort(self)
