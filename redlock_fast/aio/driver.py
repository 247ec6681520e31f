"""Runs operations in an event loop.

The steps of an operation between two pauses of its coroutine are one function each, so that they are compiled
with the types of ``aio/driver.pxd``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.operation import Message, Operation
from ..locks.lock_state import LockState
from ..locks.operations import new_acquire, new_release
from .future import ExchangeFuture
from .loop import LoopBinding


def acquire(
    lock: LockState, blocking: bool, timeout: float | None, binding: LoopBinding
) -> Coroutine[Any, Any, Lease | AcquireFailure]:
    """Acquire ``lock``. Returns the lease, or why there is none. (A coroutine within another one costs.)"""
    return run(new_acquire(lock, blocking, timeout), binding)


def release(lock: LockState, binding: LoopBinding) -> Coroutine[Any, Any, bool]:
    """Release ``lock``. True: a quorum still had the lease."""
    return run(new_release(lock), binding)


async def run(operation: Operation, binding: LoopBinding) -> Any:
    """Perform ``operation``. Returns its outcome.

    What ends it early, such as a cancellation, waits for nothing: what it may have left on the masters is
    sent off at once, also if the task is destroyed.
    """
    try:
        pending: Any = begin(operation, binding)
        while pending is not None:
            if type(pending) is ExchangeFuture:
                await pending
                pending = complete(operation, pending, binding)
            else:
                pending = advance(operation, await _wait(pending, binding), binding)
        return operation.outcome
    except BaseException as error:
        clean_up(operation, binding, error)
        raise


def begin(operation: Operation, binding: LoopBinding) -> Any:
    return submit(operation, operation.begin(), binding)


def complete(operation: Operation, future: ExchangeFuture, binding: LoopBinding) -> Any:
    return submit(operation, operation.advance(future.answers), binding)


def advance(operation: Operation, result: Any, binding: LoopBinding) -> Any:
    return submit(operation, operation.advance(result), binding)


def submit(operation: Operation, effect: Any, binding: LoopBinding) -> Any:
    """Submit the exchange that ``effect`` is. Returns what to wait for; None: there is an outcome."""
    while True:
        if effect is operation:
            if operation.need:
                return binding.submit(operation.requests, operation.need, operation.timeout, operation.wait)
            binding.send(operation.requests)
        elif type(effect) is Exchange:
            if effect.need:
                return binding.submit(effect.requests, effect.need, effect.timeout, effect.wait, effect.stall)
            binding.send(effect.requests)
        else:
            if effect is None:
                operation.close()
            return effect
        effect = operation.advance(None)


def clean_up(operation: Operation, binding: LoopBinding, error: BaseException) -> None:
    """Send what ``operation``, which ``error`` ends, must not leave undone."""
    try:
        for requests in operation.abort():
            if isinstance(error, GeneratorExit):  # the task is destroyed, perhaps with its loop
                send_now(requests, binding)
            elif requests:
                binding.send(requests)
    finally:
        operation.close(error)


def send_now(requests: Message, binding: LoopBinding) -> None:
    """Send ``requests`` of a task that is destroyed: the connections may be closed already."""
    if requests:
        with contextlib.suppress(OSError, ValueError):
            binding.engine.submit(requests, 0, 0.0, 0, 0.0, None)
            binding.engine.flush()


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
