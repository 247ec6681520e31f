"""Runs procedures in an event loop, and the first exchange of a lock without its procedure.

The fast path is the same as in ``threads/fast_path.py``, which explains it. Its steps between two pauses of a
coroutine are one function each, so that they are compiled with the types of ``aio/driver.pxd``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import Attempt, finish_release, start_release
from ..locks.handover import HandoverKind
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, release_lock, release_token
from .future import ExchangeFuture
from .loop import LoopBinding

Result = TypeVar("Result")


async def acquire(
    lock: LockState, blocking: bool, timeout: float | None, binding: LoopBinding
) -> Lease | AcquireFailure:
    """Acquire ``lock``; see ``acquire_lock`` for the arguments, the result and what is raised."""
    attempt = lock._start_attempt(blocking, timeout)
    if attempt is None:
        return await drive(acquire_lock(lock, blocking, timeout), binding)
    try:
        future = submit_acquire(lock, attempt, binding)
        await future
        outcome: Lease | AcquireFailure | None = complete_acquire(lock, attempt, future)
        if outcome is None:
            outcome = await drive(acquire_lock(lock, blocking, timeout, attempt), binding, future.answers)
            lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is attempt:
            try:
                await abort(acquire_lock(lock, blocking, timeout, attempt), binding, error)
            finally:
                lock._acquiring = None
        raise


def submit_acquire(lock: LockState, attempt: Attempt, binding: LoopBinding) -> ExchangeFuture:
    lock._mark_acquiring_unlocked(attempt)
    policy = lock._policy
    return binding.submit(attempt.requests, attempt.lists.need, policy.node_timeout, policy.wait)


def complete_acquire(lock: LockState, attempt: Attempt, future: ExchangeFuture) -> Lease | None:
    lease = lock._finish_attempt(attempt, future.answers[0])
    if lease is not None:
        lock._acquiring = None
    return lease


async def release(lock: LockState, binding: LoopBinding) -> bool:
    """Release ``lock``. True: a quorum still had the lease."""
    lease, handover = lock._lease, lock._lock_kind
    try:
        lease = lock._start_release()
        if lease is None:
            return type(handover) is HandoverKind and await drive(release_lock(lock), binding)
        future = submit_release(lock, lease, binding)
        await future
        return complete_release(lock, lease, future)
    except BaseException as error:
        if lease is not None:  # another task may have acquired the lock since
            await abort(release_lock(lock, lease), binding, error)
        elif type(handover) is HandoverKind and handover.released:
            await abort(release_token(lock, handover), binding, error)
        raise


def submit_release(lock: LockState, lease: Lease, binding: LoopBinding) -> ExchangeFuture:
    policy = lock._policy
    return binding.submit(start_release(lease), policy.voters.lists.need, policy.node_timeout, policy.wait)


def complete_release(lock: LockState, lease: Lease, future: ExchangeFuture) -> bool:
    return lock.note_release(lease, finish_release(lock._policy, lease, future.answers))


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
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                return done.value  # type: ignore[no-any-return]
            # The procedure has not ended: a signal handler raised this.
            resume, argument, first_result = procedure.throw, done, None
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
        await binding.reconnect(effect.seconds, effect.disconnected, effect.silent)
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
