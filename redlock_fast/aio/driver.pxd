# How aio/driver.py is compiled: the same source, with types that C can reach into.

from redlock_fast.aio.future cimport ExchangeFuture
from redlock_fast.aio.loop cimport LoopBinding
from redlock_fast.algorithm.operation cimport Operation
from redlock_fast.locks.operations cimport new_acquire, new_release

cpdef object begin(Operation operation, LoopBinding binding)

cpdef object complete(Operation operation, ExchangeFuture future, LoopBinding binding)

cpdef object advance(Operation operation, object result, LoopBinding binding)

cpdef object submit(Operation operation, object effect, LoopBinding binding)

cpdef object clean_up(Operation operation, LoopBinding binding, object error)

cpdef object send_now(object requests, LoopBinding binding)
