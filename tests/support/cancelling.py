"""Ways to be cancelled: a use of a lock each, cancelled at a random moment, that must leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from support.keys import TTL
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, AsyncLock


class Aim:
    """Random moments to cancel at. They adapt, so that about half of them come in time on any machine."""

    def __init__(self) -> None:
        self.chance = random.Random()
        self.seconds = 0.002
        self.turns = 8.0
        self.hits = self.misses = 0

    def delay(self) -> float:
        """For a timer."""
        return self.chance.uniform(0.0, self.seconds)

    def completed(self, hit: bool) -> None:
        self.hits += hit
        self.misses += not hit
        factor = 1.01 if hit else 0.99
        self.seconds = min(1.0, max(1e-5, self.seconds * factor))
        self.turns = min(1000.0, max(1.0, self.turns * factor))

    async def at(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task for this, when it has ended: cancelled by a timer, or by a task that yields a few times
        (or not at all: before its first step); now and then twice.
        """
        task = asyncio.create_task(coroutine)
        if self.chance.random() < 0.5:
            asyncio.get_running_loop().call_later(self.delay(), task.cancel)
        else:
            for _ in range(int(self.chance.uniform(0.0, self.turns))):
                await asyncio.sleep(0)
            task.cancel()
        if self.chance.random() < 0.2:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        self.completed(task.cancelled())
        return task


# --- ways to be cancelled: each leaves nothing ----------------------------------------------------


async def acquire(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    lock = c.lock(key, TTL)
    await ended(lock, await aim.at(lock.acquire()))


async def ended(lock: AsyncLock, task: asyncio.Task[bool]) -> None:
    """An acquire that was cancelled has no lock, and the result of every other one is right."""
    granted = not task.cancelled() and task.result()
    assert lock.locked() == granted
    if granted:
        assert await lock.release() is True


async def short_way(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    task = await aim.at(c.acquire(key, TTL))
    if not task.cancelled():
        assert await task.result().release() is True


async def release(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    """It releases all the same, once it has begun."""
    lock, begun = c.lock(key, TTL), False
    assert await lock.acquire()

    async def begin() -> None:
        nonlocal begun
        begun = True
        assert await lock.release() is True

    task = await aim.at(begin())
    assert lock.locked() is not begun
    if not begun:
        assert await lock.release() is True
    if not task.cancelled():
        task.result()


async def extend(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    """Held as before, at least."""
    lock = c.lock(key, TTL / 2)
    assert await lock.acquire()
    before = lock.remaining() - DEADLINE
    task = await aim.at(lock.extend(TTL))
    assert lock.remaining() > before
    assert await lock.release() is True
    if not task.cancelled():
        assert task.result() > TTL / 2


async def whole(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    """Entry, body or exit of ``async with``."""

    async def use() -> None:
        async with c.lock(key, TTL):
            await asyncio.sleep(0)

    task = await aim.at(use())
    if not task.cancelled():
        task.result()


async def wait_for(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    lock = c.lock(key, TTL)
    try:
        assert await asyncio.wait_for(lock.acquire(), aim.delay()) is True
    except TimeoutError:
        assert not lock.locked()
    else:
        assert await lock.release() is True


async def timeout(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    lock = c.lock(key, TTL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(aim.delay()), lock:
            await asyncio.sleep(0)
    assert not lock.locked()


async def task_group(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    """Another task of the group fails."""
    lock = c.lock(key, TTL)

    async def fail() -> None:
        await asyncio.sleep(aim.delay())
        raise ZeroDivisionError

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(lock.acquire())
            group.create_task(fail())
    except* ZeroDivisionError:
        await ended(lock, task)
    caller = asyncio.current_task()
    assert caller is not None
    while caller.cancelling():  # before Python 3.13 the group leaves a request; asyncio.timeout counts it
        caller.uncancel()


def several(key: str) -> list[str]:
    return [f"{key}:{number}" for number in range(8)]


async def acquire_many(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    task = await aim.at(c.acquire_many(several(key), TTL))
    if not task.cancelled():
        assert await c.release_many(task.result()) == [True] * 8


async def release_many(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    locks = [lock for lock in await c.acquire_many(several(key), TTL) if lock]
    task = await aim.at(c.release_many(locks))
    if task.cancelled():
        assert len({lock.locked() for lock in locks}) == 1, "all of them, or none where it had not begun"
        await c.release_many([lock for lock in locks if lock.locked()])
    else:
        assert task.result() == [True] * 8


async def extend_many(c: AsyncFastRedlock, key: str, aim: Aim) -> None:
    locks = [lock for lock in await c.acquire_many(several(key), TTL / 2) if lock]
    await aim.at(c.extend_many(locks, TTL))
    assert all(lock.locked() for lock in locks)
    assert await c.release_many(locks) == [True] * 8


Use = Callable[[AsyncFastRedlock, str, Aim], Awaitable[None]]

SINGLE: list[Use] = [acquire, short_way, release, extend, whole, wait_for, timeout, task_group]
BATCHES: list[Use] = [acquire_many, release_many, extend_many]
