"""Opens each library, and takes and releases its locks.

This module is imported in the environment of one library, so only the library's own opener imports it. An
opener is a context manager that yields ``acquire(key)`` and ``release(what acquire returned)``. A false value
or an exception means: not acquired. Every library is used as its documents show, with one client for all
callers, and without what would slow it down: short timeouts, renewal threads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

#: Seconds, and milliseconds.
TTL = 60.0
TTL_MS = 60_000
#: Seconds that a library waits for a reply, where that is an option: a busy machine that stalls must not
#: look like a dead master.
PATIENCE = 10.0


class Opened(NamedTuple):
    """``paths``: the commands that release. ``client``: ours only, for what no peer has."""

    acquire: Callable[[str], Any]
    release: Callable[[Any], Any]
    paths: list[str]
    client: Any = None


# --- ours ------------------------------------------------------------------------------------


@contextlib.contextmanager
def redlock_fast(urls: list[str], **options: Any) -> Iterator[Opened]:
    from redlock_fast import FastRedlock, Lock

    with FastRedlock(urls, **{"ttl": TTL, "node_timeout": PATIENCE, **options}) as client:
        client.connect(PATIENCE)
        while not all_connected(client):
            time.sleep(0.002)
        yield Opened(client.acquire, Lock.release, release_paths(client), client)


@contextlib.asynccontextmanager
async def redlock_fast_aio(urls: list[str], **options: Any) -> AsyncIterator[Opened]:
    import asyncio

    from redlock_fast import AsyncFastRedlock, AsyncLock

    async with AsyncFastRedlock(urls, **{"ttl": TTL, "node_timeout": PATIENCE, **options}) as client:
        await client.connect(PATIENCE)
        while not all_connected(client):
            await asyncio.sleep(0.002)
        yield Opened(client.acquire, AsyncLock.release, release_paths(client), client)


def all_connected(client: Any) -> bool:
    """Whether all masters are connected; clients begin with a quorum, but all masters are compared."""
    return all(master.state == "connected" for master in client.health())


def release_paths(client: Any) -> list[str]:
    return sorted({master.release_path for master in client.health()})


# --- no client -------------------------------------------------------------------------------


@contextlib.contextmanager
def bare(urls: list[str], *, callers: int, release_path: str) -> Iterator[Opened]:
    from bare import Threads

    with contextlib.closing(Threads(urls, callers, release_path)) as hub:
        yield Opened(hub.acquire, hub.release, [release_path])


@contextlib.asynccontextmanager
async def bare_aio(urls: list[str], *, callers: int, release_path: str) -> AsyncIterator[Opened]:
    from bare import Tasks

    with contextlib.closing(Tasks(urls, callers, release_path)) as hub:
        yield Opened(hub.acquire, hub.release, [release_path])


# --- peers for threads -----------------------------------------------------------------------


@contextlib.contextmanager
def redlock_py(urls: list[str]) -> Iterator[Opened]:
    from redlock import Redlock

    client = Redlock(urls)
    yield Opened(lambda key: client.lock(key, TTL_MS), client.unlock, ["EVAL"])


@contextlib.contextmanager
def redlock(urls: list[str]) -> Iterator[Opened]:
    from redlock import RedLockFactory

    factory = RedLockFactory([{"url": url} for url in urls])

    def acquire(key: str) -> Any:
        lock = factory.create_lock(key, ttl=TTL_MS)
        return lock if lock.acquire() else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])


@contextlib.contextmanager
def redlock_plus(urls: list[str]) -> Iterator[Opened]:
    from redlock_plus import LockFactory

    factory = LockFactory([{"url": url} for url in urls], ttl=TTL_MS)

    def acquire(key: str) -> Any:
        lock = factory(key)
        return lock if lock.acquire(autoextend=False) else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])


@contextlib.contextmanager
def redlock_ng(urls: list[str]) -> Iterator[Opened]:
    from redlock import Redlock, RedlockConfig

    client = Redlock(RedlockConfig(masters=urls, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE))
    yield Opened(lambda key: client.acquire(key, TTL_MS), client.release, ["EVAL"])


@contextlib.contextmanager
def pyredlock(urls: list[str]) -> Iterator[Opened]:
    from pyredlock import Redlock
    from redis import Redis

    client = Redlock([Redis.from_url(url) for url in urls], async_mode=False)
    yield Opened(lambda key: client.lock(key, TTL_MS)[1], client.unlock, ["EVAL"])


@contextlib.contextmanager
def pottery(urls: list[str]) -> Iterator[Opened]:
    from pottery import Redlock
    from redis import Redis

    masters = {Redis.from_url(url) for url in urls}

    def acquire(key: str) -> Any:
        lock = Redlock(key=key, masters=masters, auto_release_time=TTL)
        return lock if lock.acquire() else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])


@contextlib.contextmanager
def one_master(urls: list[str]) -> Iterator[Opened]:
    """redis-py's own lock: no Redlock, one master only."""
    from redis import Redis

    client = Redis.from_url(urls[0])

    def acquire(key: str) -> Any:
        lock = client.lock(key, timeout=TTL, thread_local=False)
        return lock if lock.acquire() else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])


# --- peers for asyncio -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def redlock_ng_aio(urls: list[str]) -> AsyncIterator[Opened]:
    from redlock import AsyncRedlock, RedlockConfig

    config = RedlockConfig(masters=urls, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
    client = AsyncRedlock(config)
    yield Opened(lambda key: client.acquire(key, TTL_MS), client.release, ["EVAL"])


@contextlib.asynccontextmanager
async def pyredlock_aio(urls: list[str]) -> AsyncIterator[Opened]:
    from pyredlock import Redlock
    from redis.asyncio import Redis

    client = Redlock([Redis.from_url(url) for url in urls])

    async def acquire(key: str) -> Any:
        return (await client.alock(key, TTL_MS))[1]

    yield Opened(acquire, client.aunlock, ["EVAL"])


@contextlib.asynccontextmanager
async def pottery_aio(urls: list[str]) -> AsyncIterator[Opened]:
    from pottery import AIORedlock
    from redis.asyncio import Redis

    masters = {Redis.from_url(url) for url in urls}

    async def acquire(key: str) -> Any:
        lock = AIORedlock(key=key, masters=masters, auto_release_time=TTL)
        return lock if await lock.acquire() else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])


@contextlib.asynccontextmanager
async def aioredlock(urls: list[str]) -> AsyncIterator[Opened]:
    from aioredlock import Aioredlock

    client = Aioredlock(urls)

    async def acquire(key: str) -> Any:
        return await client.lock(key, lock_timeout=TTL)

    yield Opened(acquire, client.unlock, ["EVALSHA"])
    await client.destroy()


@contextlib.asynccontextmanager
async def one_master_aio(urls: list[str]) -> AsyncIterator[Opened]:
    from redis.asyncio import Redis

    client = Redis.from_url(urls[0])

    async def acquire(key: str) -> Any:
        lock = client.lock(key, timeout=TTL, thread_local=False)
        return lock if await lock.acquire() else None

    yield Opened(acquire, lambda lock: lock.release(), ["EVALSHA"])
    await client.aclose()


Opener = Callable[..., contextlib.AbstractContextManager[Opened]]
AioOpener = Callable[..., contextlib.AbstractAsyncContextManager[Opened]]

THREADS: dict[str, Opener] = {
    "redlock-fast": redlock_fast,
    "bare": bare,
    "redlock-py": redlock_py,
    "redlock": redlock,
    "redlock-plus": redlock_plus,
    "redlock-ng": redlock_ng,
    "pyredlock": pyredlock,
    "pottery": pottery,
    "redis": one_master,
}

ASYNCIO: dict[str, AioOpener] = {
    "redlock-fast": redlock_fast_aio,
    "bare": bare_aio,
    "redlock-ng": redlock_ng_aio,
    "pyredlock": pyredlock_aio,
    "pottery": pottery_aio,
    "aioredlock": aioredlock,
    "redis": one_master_aio,
}
