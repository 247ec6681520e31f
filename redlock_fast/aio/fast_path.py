"""Acquire and release without detours, for asyncio: one exchange decides, as it nearly always does.

What a lock does is said by its procedures, whatever happens. Here their first exchange is made without
them, for generators and effects cost more than that. Where it was not the end, or was interrupted, the
procedure is run up to that exchange, which has been made, and goes on with what came of it. The release is
in ``AsyncLock.release`` itself: a coroutine more would be felt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

from ..algorithm.effects import Effect
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import Attempt, finish_release, start_release
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock
from .driver import drive, drive_now
from .future import ExchangeFuture
from .loop import LoopBinding


async def acquire(
    lock: LockState, blocking: bool, timeout: float | None, binding: LoopBinding
) -> Lease | AcquireFailure:
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


async def abort(procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException) -> None:
    """Its first exchange ended with ``error``: let it clean up; usually it raises the error again."""
    if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
        with contextlib.suppress(StopIteration):
            procedure.send(None)
            drive_now(procedure, binding, asyncio.CancelledError())
    else:
        await drive(procedure, binding, error)


# What stands between the pauses is compiled in one piece each.


def submit_acquire(lock: LockState, attempt: Attempt, binding: LoopBinding) -> ExchangeFuture:
    lock._mark_acquiring_unlocked(attempt)
    policy = lock._policy
    return binding.submit(attempt.requests, policy.need, policy.node_timeout, policy.wait)


def complete_acquire(lock: LockState, attempt: Attempt, future: ExchangeFuture) -> Lease | None:
    lease = lock._finish_attempt(attempt, future.answers[0])
    if lease is not None:
        lock._acquiring = None
    return lease


def submit_release(lock: LockState, lease: Lease, binding: LoopBinding) -> ExchangeFuture:
    policy = lock._policy
    return binding.submit(start_release(lease), policy.need, policy.node_timeout, policy.certain)


def complete_release(lock: LockState, lease: Lease, future: ExchangeFuture) -> bool:
    return lock.note_release(lease, finish_release(lock._policy, lease, future.answers))
