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
from ..algorithm.lease import Lease, Refusal
from ..algorithm.redlock import Attempt, finish_release, start_release
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock
from .driver import drive, drive_now
from .future import Answer
from .loop import Pump


async def acquire(lock: LockState, blocking: bool, timeout: float | None, pump: Pump) -> Lease | Refusal:
    attempt = lock._first(blocking, timeout)
    if attempt is None:
        return await drive(acquire_lock(lock, blocking, timeout), pump)
    try:
        answer = ask(lock, attempt, pump)
        await answer
        outcome: Lease | Refusal | None = granted(lock, attempt, answer)
        if outcome is None:
            outcome = await drive(acquire_lock(lock, blocking, timeout, attempt), pump, answer.answers)
            lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is attempt:
            try:
                await interrupted(acquire_lock(lock, blocking, timeout, attempt), pump, error)
            finally:
                lock._acquiring = None
        raise


async def interrupted(procedure: Generator[Effect, Any, Any], pump: Pump, error: BaseException) -> None:
    """Its first exchange ended with ``error``: let it clean up; usually it raises the error again."""
    if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
        with contextlib.suppress(StopIteration):
            procedure.send(None)
            drive_now(procedure, pump, asyncio.CancelledError())
    else:
        await drive(procedure, pump, error)


# What stands between the pauses is compiled in one piece each.


def ask(lock: LockState, attempt: Attempt, pump: Pump) -> Answer:
    lock._begin_here(attempt)
    rules = lock._rules
    return pump.ask(attempt.requests, rules.need, rules.node_timeout, rules.wait)


def granted(lock: LockState, attempt: Attempt, answer: Answer) -> Lease | None:
    lease = lock._settle(attempt, answer.answers[0])
    if lease is not None:
        lock._acquiring = None
    return lease


def ask_back(lock: LockState, lease: Lease, pump: Pump) -> Answer:
    rules = lock._rules
    return pump.ask(start_release(lease), rules.need, rules.node_timeout, rules.certain)


def ended(lock: LockState, lease: Lease, answer: Answer) -> bool:
    return lock.note_release(lease, finish_release(lock._rules, lease, answer.answers))
