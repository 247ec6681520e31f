"""A lock whose steps are awaited, as of the asyncio client, by an actor that performs their effects."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine
from typing import Any

from redlock_fast.locks.lock_state import LockState

from . import lock_calls


@coroutine
def performed(procedure: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The actor that steps the coroutine gets the effects."""
    return (yield from procedure)


class AwaitedLock(LockState):
    """What a reentrant lock asks of the lock within."""

    __slots__ = ()

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return self._acquired(await performed(lock_calls.acquire(self, blocking, timeout)))

    async def extend(self, ttl: float | None = None) -> float:
        validity: float = await performed(lock_calls.extend(self, ttl))
        return validity

    async def release(self) -> bool:
        alive: bool = await performed(lock_calls.release(self))
        return alive
