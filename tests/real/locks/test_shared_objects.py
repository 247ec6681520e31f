"""One object that several threads or tasks use, of every class that holds a lock.

The lease of the first one ends inside its body, the next one enters the same object, and only then the first
one leaves. It must hear of its loss, and the lock of the next one must stay.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clocks import Jumping
from support.event_loops import on_loops, until
from support.keys import TTL, forget, with_key
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import (
    AsyncFastRedlock,
    AsyncShardedRedlock,
    FastRedlock,
    LockAlreadyHeld,
    ShardedRedlock,
)
from redlock_fast.compat import aclose_all, pottery, redis_py, redlock
from redlock_fast.embedded import Masters
from redlock_fast.exporters.instrument import instrument

pytestmark = pytest.mark.usefixtures("all_masters")

Options = dict[str, Any]

NAME = "shared"
MILLISECONDS = 1000
#: The class whose object cannot be entered again before the first body has ended.
EXCLUSIVE = "SingleRun"


class NoRecorder:
    """Its class of locks is that of a measured client."""

    slower_than = 0.0

    def record(self, *_: Any) -> None:
        pass

    def held(self, *_: Any) -> None:
        pass


def measured(client: Any) -> Any:
    instrument(client, NoRecorder())
    return client


def of_client(make: Callable[[Any], Any]) -> Callable[[Any, Any, Masters, Options], Any]:
    """An object of a client of one group of masters."""
    return lambda plain, sharded, masters, options: make(plain(masters.urls, **options))


def of_shards(make: Callable[[Any], Any]) -> Callable[[Any, Any, Masters, Options], Any]:
    """An object of a sharded client."""
    return lambda plain, sharded, masters, options: make(sharded({"a": masters.urls}, **options))


def of_masters(make: Callable[[list[str], Options], Any]) -> Callable[[Any, Any, Masters, Options], Any]:
    """An object of a drop-in."""
    return lambda plain, sharded, masters, options: make(masters.urls, options)


LOCKS = {
    "Lock": of_client(lambda c: c.lock(NAME, TTL)),
    "Lock, auto-extended": of_client(lambda c: c.lock(NAME, TTL, auto_extend=True)),
    "Lock, fencing": of_client(lambda c: c.lock(NAME, TTL, fencing=True)),
    "RLock": of_client(lambda c: c.rlock(NAME, TTL)),
    "SingleRun": of_client(lambda c: c.single_run(NAME, TTL, if_taken="raise")),
    "measured Lock": of_client(lambda c: measured(c).lock(NAME, TTL)),
    "sharded Lock": of_shards(lambda c: c.lock(NAME, TTL)),
    "sharded RLock": of_shards(lambda c: c.rlock(NAME, TTL)),
}
SETTINGS: Options = {"ttl": TTL * MILLISECONDS}
FOR_THREADS = LOCKS | {
    "pottery": of_masters(
        lambda urls, o: pottery.Redlock(key=NAME, masters=urls, auto_release_time=TTL, **o)
    ),
    "redlock": of_masters(lambda urls, o: redlock.RedLock(NAME, urls, **SETTINGS, **o)),
    "redlock, reentrant": of_masters(lambda urls, o: redlock.ReentrantRedLock(NAME, urls, **SETTINGS, **o)),
    "redis-py": of_masters(lambda urls, o: redis_py.lock_class(urls, **o)(redis.Redis, NAME, timeout=TTL)),
    "redis-py, not thread_local": of_masters(
        lambda urls, o: redis_py.lock_class(urls, **o)(redis.Redis, NAME, timeout=TTL, thread_local=False)
    ),
}
FOR_TASKS = LOCKS | {
    "pottery": of_masters(
        lambda urls, o: pottery.AIORedlock(key=NAME, masters=urls, auto_release_time=TTL, **o)
    ),
    "redis-py": of_masters(
        lambda urls, o: redis_py.async_lock_class(urls, **o)(redis.Redis, NAME, timeout=TTL)
    ),
    "redis-py, not thread_local": of_masters(
        lambda urls, o: redis_py.async_lock_class(urls, **o)(
            redis.Redis, NAME, timeout=TTL, thread_local=False
        )
    ),
}


def keys_of(masters: Masters) -> int:
    """The number of masters that have the lock: a counter of fencing tokens outlives it."""
    return len(with_key(masters, NAME)) + len(with_key(masters, f"redlock:{NAME}"))


@pytest.mark.parametrize("kind", FOR_THREADS)
def test_a_late_thread_leaves_the_lock_of_the_next_one(
    valkey: Masters, engine_name: str, clock: Jumping, kind: str
) -> None:
    """Catches: a drop-in that knows only the lock of its latest thread, and releases that one."""
    options = {"engine": engine_name, "clock": clock, **PATIENT}
    made: list[Any] = []

    def client(kind_of_client: Any, where: Any, **options: Any) -> Any:
        made.append(kind_of_client(where, **options))
        return made[-1]

    lock = FOR_THREADS[kind](
        lambda where, **options: client(FastRedlock, where, **options),
        lambda where, **options: client(ShardedRedlock, where, **options),
        valkey,
        options,
    )
    lost, entered, leave = threading.Event(), threading.Event(), threading.Event()

    def late() -> None:
        with lock:
            forget(valkey)
            clock.jump(TTL)
            lost.set()
            assert leave.wait(DEADLINE)

    first = start(late)
    assert lost.wait(DEADLINE)

    def next_one() -> None:
        with lock:
            entered.set()
            eventually(first.done, "the late one leaves")
            assert keys_of(valkey) >= 3

    second = start(next_one)
    eventually(lambda: entered.is_set() or second.done(), "the next one enters, or is refused")
    leave.set()
    assert first.exception(DEADLINE) is not None, "it hears of the loss"
    if kind == EXCLUSIVE:
        with pytest.raises(LockAlreadyHeld):
            second.result(DEADLINE)
    else:
        second.result(DEADLINE)
    eventually(lambda: not keys_of(valkey), "the lock is free")
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", FOR_TASKS)
@on_loops
async def test_a_late_task_leaves_the_lock_of_the_next_one(
    valkey: Masters, engine_name: str, clock: Jumping, kind: str
) -> None:
    """As for threads."""
    options = {"engine": engine_name, "clock": clock, **PATIENT}
    made: list[Any] = []

    def client(kind_of_client: Any, where: Any, **options: Any) -> Any:
        made.append(kind_of_client(where, **options))
        return made[-1]

    lock = FOR_TASKS[kind](
        lambda where, **options: client(AsyncFastRedlock, where, **options),
        lambda where, **options: client(AsyncShardedRedlock, where, **options),
        valkey,
        options,
    )
    lost, entered, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late() -> None:
        async with lock:
            forget(valkey)
            clock.jump(TTL)
            lost.set()
            while not leave.is_set():  # a loss cancels the body of an auto-extended lock
                try:
                    await asyncio.wait_for(leave.wait(), DEADLINE)
                except asyncio.CancelledError:
                    continue

    first = asyncio.create_task(late())
    await asyncio.wait_for(lost.wait(), DEADLINE)

    async def next_one() -> None:
        async with lock:
            entered.set()
            await until(first.done, "the late one leaves")
            assert keys_of(valkey) >= 3

    second = asyncio.create_task(next_one())
    await until(lambda: entered.is_set() or second.done(), "the next one enters, or is refused")
    leave.set()
    await asyncio.wait([first, second], timeout=DEADLINE)
    assert first.exception() is not None, "it hears of the loss"
    if kind == EXCLUSIVE:
        with pytest.raises(LockAlreadyHeld):
            second.result()
    else:
        second.result()
    for one in made:
        await one.close()
    await aclose_all()
    eventually(lambda: not keys_of(valkey), "the lock is free")
