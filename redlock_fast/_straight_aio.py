"""Acquire and release without detours, for asyncio: one exchange decides, as it nearly always does.

What a lock does is said by its procedures, whatever happens. Here their first exchange is made without
them, for generators and effects cost more than that. Where it was not the end, or was interrupted, the
procedure is run up to that exchange, which has been made, and goes on with what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

from ._claim import wire_ttl
from ._drive_aio import Pump, drive, drive_now
from ._effects import Effect
from ._lease import Lease, Refusal
from ._lock import LockState
from ._procedures import released

Result = TypeVar("Result")


async def acquire(lock: LockState, blocking: bool, timeout: float | None, pump: Pump) -> Lease | Refusal:
    first = lock._first(blocking, timeout)
    if first is None:
        return await drive(lock._attempt(blocking, timeout), pump)
    rules = lock._core.rules
    try:
        lock._begin(first)
        requests = [lock._claim.ask(first[1], wire_ttl(lock._ttl), first[2])]
        answer = pump.ask(requests, rules.need, rules.node_timeout, rules.wait)
        await answer
        outcome: Lease | Refusal | None = lock._settle(first, answer.answers[0])
        if outcome is None:
            outcome = await drive(lock._attempt(blocking, timeout, first), pump, answer.answers)
        lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is first:
            try:
                await interrupted(lock._attempt(blocking, timeout, first), pump, error)
            finally:
                lock._acquiring = None
        raise


async def release(lock: LockState, pump: Pump) -> bool:
    lease = lock._leaving()
    if lease is None:
        return False
    rules = lock._core.rules
    try:
        requests = lease.claim.undo(lease.token, lease.sent, lease.ttl)
        answer = pump.ask(requests, rules.need, rules.node_timeout, rules.certain)
        await answer
        return lock.note_release(lease, released(rules, lease, answer.answers))
    except BaseException as error:
        await interrupted(lock._release(), pump, error)
        raise


async def interrupted(procedure: Generator[Effect, Any, Any], pump: Pump, error: BaseException) -> None:
    """Its first exchange ended with ``error``: let it clean up; usually it raises the error again."""
    if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
        with contextlib.suppress(StopIteration):
            procedure.send(None)
            drive_now(procedure, pump, asyncio.CancelledError())
    else:
        await drive(procedure, pump, error)
