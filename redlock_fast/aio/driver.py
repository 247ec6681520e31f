"""Runs procedures in an event loop, and the first exchange of a lock without its procedure.

The fast path is the same as in ``threads/fast_path.py``, which explains it. Here it is a future and no
coroutine: ``FirstExchange``, compiled with the types of ``aio/driver.pxd``. As a coroutine around a future it
took 2,800 instructions more for a lock (of 58,400; 64 tasks, Python 3.11, callgrind, 2026-11-26).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import Attempt, finish_release, start_release
from ..locks.handover import HandoverKind
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, release_lock
from .future import ExchangeFuture
from .loop import LoopBinding

Result = TypeVar("Result")


class FirstExchange(ExchangeFuture):
    """An acquire or a release, to be awaited at once, where it is made. Then ``outcome`` has the result.

    It is the future of the first exchange. If that does not decide, or is interrupted, ``_rest`` is the
    coroutine that continues, and this object is an iterator over what that awaits.
    """

    __slots__ = ("_binding", "_lock", "_rest", "outcome")

    def _prepare(self, lock: LockState, binding: LoopBinding) -> None:
        """In place of ``__init__``: constructors, compiled, take 5,000 instructions more for a lock."""
        self._set_up(binding, binding.loop)
        self._lock = lock
        self._binding = binding
        self._rest: Coroutine[Any, Any, Any] | None = None
        self.outcome: Any = None

    def _start(self) -> None:
        """Submit the exchange, or set ``outcome`` or ``_rest``."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Set ``outcome`` by ``answers``, or ``_rest``."""
        raise NotImplementedError

    def _after(self, error: BaseException) -> Coroutine[Any, Any, Any]:
        """The coroutine that takes back what was sent, and raises ``error``."""
        raise NotImplementedError

    def __next__(self) -> Any:
        if self._rest is None:
            try:
                if self.answers is not None:
                    self._finish()
                else:
                    if self.ticket is None:
                        self._start()
                    if self.ticket is not None:
                        self._asyncio_future_blocking = True
                        return self
            except BaseException as error:
                self._rest = self._after(error)
        if self._rest is not None:
            try:
                return self._rest.send(None)
            except StopIteration as done:
                self.outcome = done.value
        raise StopIteration

    def throw(self, kind: Any, error: Any = None, trace: Any = None) -> Any:
        """Continue with an exception that is thrown into the coroutine."""
        if error is None:
            error = kind() if isinstance(kind, type) else kind
        if self._rest is None:
            self.drop()
            self._rest = self._after(error)
            return self.__next__()
        try:
            return self._rest.throw(error)
        except StopIteration as done:
            self.outcome = done.value
        raise StopIteration

    def close(self) -> None:
        """End: the coroutine is destroyed, and nothing can be awaited."""
        if self._rest is None:
            self.drop()
            self._rest = self._after(GeneratorExit())
            with contextlib.suppress(GeneratorExit):
                self._rest.send(None)
        else:
            self._rest.close()


class FirstAttempt(FirstExchange):
    """An acquire; see ``acquire_lock`` for the arguments, the ``outcome`` and what is raised."""

    __slots__ = ("_attempt", "_blocking", "_timeout")

    _blocking: bool
    _timeout: float | None
    _attempt: Attempt | None
    outcome: Any

    def _start(self) -> None:
        lock, binding = self._lock, self._binding
        attempt = lock._start_attempt(self._blocking, self._timeout)
        if attempt is None:
            self._rest = drive(acquire_lock(lock, self._blocking, self._timeout), binding)
            return
        policy = lock._policy
        self._attempt = attempt
        lock._mark_acquiring_unlocked(attempt)
        binding.start(self, attempt.requests, attempt.lists.need, policy.node_timeout, policy.wait)

    def _finish(self) -> None:
        lock, attempt = self._lock, self._attempt
        assert attempt is not None
        lease = lock._finish_attempt(attempt, self.answers[0])
        if lease is None:
            self._rest = _continue(lock, self._blocking, self._timeout, attempt, self._binding, self.answers)
        else:
            lock._acquiring = None
            self.outcome = lease

    def _after(self, error: BaseException) -> Coroutine[Any, Any, Any]:
        return _continue(self._lock, self._blocking, self._timeout, self._attempt, self._binding, error)


async def _continue(
    lock: LockState,
    blocking: bool,
    timeout: float | None,
    attempt: Attempt | None,
    binding: LoopBinding,
    first: Any,
) -> Lease | AcquireFailure:
    """Continue an acquire whose ``attempt`` did not decide it. ``first``: its answers, or what was raised."""
    try:
        if isinstance(first, BaseException):
            raise first
        outcome: Lease | AcquireFailure = await drive(
            acquire_lock(lock, blocking, timeout, attempt), binding, first
        )
        lock._acquiring = None
        return outcome
    except BaseException as error:
        if attempt is not None and lock._acquiring is attempt:
            try:
                await abort(acquire_lock(lock, blocking, timeout, attempt), binding, error)
            finally:
                lock._acquiring = None
        raise
    finally:
        first = None  # otherwise an exception would refer to itself, by its traceback


class FirstRelease(FirstExchange):
    """A release. ``outcome``: whether a quorum still had the lease."""

    __slots__ = ("_lease",)

    _lease: Lease
    outcome: Any

    def _start(self) -> None:
        lock, policy = self._lock, self._lock._policy
        lease = lock._start_release()
        if lease is not None:
            self._lease = lease
            need = policy.voters.lists.need
            self._binding.start(self, start_release(lease), need, policy.node_timeout, policy.certain)
        elif type(lock._lock_kind) is HandoverKind:
            self._rest = drive(release_lock(lock), self._binding)
        else:
            self.outcome = False

    def _finish(self) -> None:
        lock, lease = self._lock, self._lease
        self.outcome = lock.note_release(lease, finish_release(lock._policy, lease, self.answers))

    def _after(self, error: BaseException) -> Coroutine[Any, Any, Any]:
        return _aborted(release_lock(self._lock), self._binding, error)


async def _aborted(
    procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException
) -> None:
    try:
        await abort(procedure, binding, error)
        raise error
    finally:
        del error  # as in _continue


def acquire(lock: LockState, blocking: bool, timeout: float | None) -> FirstAttempt:
    """Acquire ``lock`` when awaited. Raises WrongLoop."""
    call = FirstAttempt.__new__(FirstAttempt)
    call._prepare(lock, binding_of(lock))
    call._blocking = blocking
    call._timeout = timeout
    call._attempt = None
    return call


def release(lock: LockState) -> FirstRelease:
    """Release ``lock`` when awaited. Raises WrongLoop."""
    call = FirstRelease.__new__(FirstRelease)
    call._prepare(lock, binding_of(lock))
    return call


def binding_of(lock: LockState) -> LoopBinding:
    """``loop_binding()`` of the lock's client, without that call of Python where there is a binding."""
    core: Any = lock._core
    binding: LoopBinding | None = core.bound
    if binding is None or not binding.is_current():
        binding = core.loop_binding()
    return binding


async def abort(procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException) -> None:
    """Throw ``error`` into ``procedure`` in place of its first exchange; the procedure cleans up."""
    if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
        with contextlib.suppress(StopIteration):
            procedure.send(None)
            drive_now(procedure, binding, asyncio.CancelledError())
    else:
        await drive(procedure, binding, error)


async def drive(
    procedure: Generator[Effect, Any, Result], binding: LoopBinding, first_result: Any = None
) -> Result:
    """Run ``procedure`` to its end and return its result.

    An exception that is raised while an effect is performed is thrown into the procedure; so is a
    cancellation. The procedure takes back what it has sent before it raises the exception again. That
    clean-up waits for nothing, so it is complete even if the task is never resumed.
    ``first_result``: the result of the first effect if that was performed already: answers or an exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:
                effect = resume(argument)
                resume, argument = procedure.send, None
                if first_result is not None:
                    resume = procedure.throw if isinstance(first_result, BaseException) else procedure.send
                    argument, first_result = first_result, None
                elif type(effect) is not Exchange:
                    argument = await _wait(effect, binding)
                elif effect.need:
                    argument = await binding.exchange(effect)
                else:
                    binding.send(effect)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except GeneratorExit:
            drive_now(procedure, binding, asyncio.CancelledError())
            raise
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended with this exception
            resume, argument, first_result = procedure.throw, error, None


async def _wait(effect: Effect, binding: LoopBinding) -> Any:
    """Perform an effect that is no plain exchange."""
    if type(effect) is WaitForChange:
        return await binding.watch(effect)
    if type(effect) is Sleep:
        await binding.pause(effect.seconds)
    elif type(effect) is WaitForReconnect:
        await binding.reconnect(effect.seconds, effect.disconnected)
    elif type(effect) is WaitForTurn:
        await binding.wait_for_turn(effect.entry, effect.seconds)
    else:
        await binding.wait_for_quorum(effect.timeout)  # type: ignore[union-attr]
    return None


def drive_now(
    procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException | None = None
) -> None:
    """Run ``procedure`` up to its first effect that waits; for a task that is destroyed and cannot wait.

    ``error``: thrown into the procedure first. If the garbage collector destroys the task, the connections
    may be closed already.
    """
    with contextlib.suppress(StopIteration, asyncio.CancelledError, OSError, ValueError):
        effect = procedure.throw(error) if error else procedure.send(None)
        while type(effect) is Exchange and not effect.need:
            binding.engine.submit(effect.requests, 0, 0.0, effect.wait, 0.0, None)
            binding.engine.flush()
            effect = procedure.send(None)
