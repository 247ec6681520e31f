"""The lock for asyncio on real masters: what callers are told, and what is on the masters then."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.event_loops import at_full_strength, clean, on_loops, until
from support.keys import TTL, calls, occupy, paused, values
from support.waiting import DEADLINE

import redlock_fast
from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    ConfigError,
    Contended,
    FastRedlock,
    Lock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
)
from redlock_fast.embedded import Masters

MakeClient = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


# --- the same as for threads --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"), [(AsyncFastRedlock, FastRedlock), (AsyncLock, Lock)], ids=["client", "lock"]
)
def test_same_names_and_arguments(ours: type, theirs: type) -> None:
    """Whoever knows the one knows the other: what only tasks have comes on top."""

    def face(kind: type) -> dict[str, list[Any]]:
        public = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {
            name: [
                (p.name, p.kind, p.default)
                for p in inspect.signature(value).parameters.values()
                if p.name != "cancel_on_loss"
            ]
            for name, value in public.items()
            if inspect.isfunction(value)
        }

    assert face(theirs).items() <= face(ours).items()
    assert {"AsyncFastRedlock", "AsyncLock", "WrongLoop"} <= set(redlock_fast.__all__)


@on_loops
async def test_life_of_a_lock(masters: Masters, aclient: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    async with aclient(masters) as c:
        await at_full_strength(c)
        lock = c.lock("orders:42", ttl=20)
        assert isinstance(lock, AsyncLock)
        assert (lock.locked(), lock.token, lock.validity, lock.remaining()) == (False, None, 0.0, 0.0)
        assert await lock.acquire() is True
        assert lock.token is not None
        assert len(lock.token) == 20
        await until(lambda: values(nodes, "orders:42") == [lock.token] * 5, "all masters have the key")
        assert 0 < lock.remaining() <= lock.validity < 20 * 0.99
        lock.check()
        assert await c.locked("orders:42") is True
        assert "held for" in repr(lock)
        assert await lock.extend(50) > 20
        await until(lambda: min(node.pttl("orders:42") for node in nodes) > 20_000, "all are extended")
        assert await lock.release() is True
        assert await lock.release() is False
        assert (lock.locked(), lock.token) == (False, None)
        with pytest.raises(LockLost):
            lock.check()
        await clean(masters)
        assert await c.locked("orders:42") is False
        stats = c.stats()
        assert (stats.acquired, stats.extended, stats.released, stats.faults) == (1, 1, 1, 0)
        assert [master.connections for master in c.health()] == [1] * 5


@on_loops
async def test_names_and_prefix(valkey: Masters, aclient: MakeClient, raw: Raw) -> None:
    async with aclient(valkey, key_prefix="l\u00f6ck:") as c:
        await at_full_strength(c)
        for resource in ("gr\u00fc\u00dfe", b"\r\n$3\r\n\x00\xff", "x" * 65_536):
            key = b"l\xc3\xb6ck:" + (resource.encode() if isinstance(resource, str) else resource)
            async with c.lock(resource) as lock:
                assert raw(valkey)[0].get(key) == lock.token or await c.locked(resource)
        await clean(valkey)


# --- `async with` and the decorator -------------------------------------------------------------


async def outlive(masters: Masters, lock: AsyncLock, end: Exception | None = None) -> None:
    """A body that takes longer than its lease."""
    async with lock:
        await until(lambda: not lock.locked(), "the lease ends")
        await clean(masters)
        if end:
            raise end


@on_loops
async def test_body_never_runs_unlocked(masters: Masters, aclient: MakeClient) -> None:
    ran: list[str] = []
    async with aclient(masters, node_timeout=0.5) as c:
        await at_full_strength(c)

        @c.synchronized("body", TTL, timeout=0)
        async def body() -> None:
            ran.append("decorator")

        async def enter() -> None:
            async with c.lock("body", TTL, timeout=0):
                ran.append("with")

        holder = await c.acquire("body", TTL, timeout=DEADLINE)
        assert holder
        for use in (enter, body):
            with pytest.raises(Contended) as held:
                await use()
            assert set(held.value.masters) <= {master.name for master in c.health()}
        await holder.release()
        with paused(masters, 0, 1, 2):
            for use in (enter, body):
                with pytest.raises(QuorumUnavailable):
                    await use()
        assert ran == []
        await clean(masters)


@on_loops
async def test_exception_of_the_body_is_kept(valkey: Masters, aclient: MakeClient) -> None:
    """Also where the lease ended before it."""
    async with aclient(valkey) as c:
        with pytest.raises(ZeroDivisionError):
            async with c.lock("body", TTL):
                raise ZeroDivisionError
        await clean(valkey)
        with pytest.raises(ZeroDivisionError):
            await outlive(valkey, c.lock("body", 0.2), ZeroDivisionError())


@on_loops
async def test_lost_lock_is_told_at_the_end_of_the_body(masters: Masters, aclient: MakeClient) -> None:
    async with aclient(masters) as c:
        with pytest.raises(LockLost, match="before the body did"):
            await outlive(masters, c.lock("body", 0.2))
        await clean(masters)


@on_loops
async def test_decorator(valkey: Masters, aclient: MakeClient) -> None:
    async with aclient(valkey) as c:

        @c.synchronized(lambda number, **_: f"job:{number}", ttl=TTL)
        async def job(number: int, *, plus: int = 0) -> int:
            """Adds."""
            assert await c.locked(f"job:{number}")
            return number + plus

        assert inspect.iscoroutinefunction(job)
        assert (job.__name__, job.__doc__) == ("job", "Adds.")
        assert await job(1, plus=1) == 2
        assert await asyncio.gather(*[job(number % 3) for number in range(9)]) == [0, 1, 2] * 3
        await clean(valkey)
        with pytest.raises(ConfigError):
            c.synchronized("job", ttl=-1)
        with pytest.raises(ConfigError):
            await c.synchronized(lambda: "")(body)()


async def body() -> None:
    pytest.fail("the body ran")


# --- whose lock it is ---------------------------------------------------------------------------


@on_loops
async def test_two_tasks_on_one_object(valkey: Masters, aclient: MakeClient, raw: Raw) -> None:
    """The second is told; it overwrites no token, neither while the first waits nor while it holds."""
    nodes = raw(valkey)
    occupy(nodes, "r")
    async with aclient(valkey) as c:
        await at_full_strength(c)
        for node in nodes:
            node.config_resetstat()
        lock = c.lock("r", TTL)
        first = asyncio.create_task(lock.acquire())
        await until(lambda: max(calls(nodes, "set")), "the first one tries")
        assert not first.done()
        for again in (lock.acquire, lock.__aenter__):
            with pytest.raises(LockAlreadyHeld):
                await again()
        assert [node.delete("r") for node in nodes] == [1] * 5
        assert await first is True
        token = lock.token
        for again in (lock.acquire, lambda: lock.acquire(timeout=0), lock.__aenter__):
            with pytest.raises(LockAlreadyHeld):
                await again()
        assert lock.token == token
        assert await lock.release() is True
        assert await lock.acquire(timeout=0) is True
        assert await lock.release() is True
        # The same at the same moment: one of them gets it.
        both = await asyncio.gather(lock.acquire(), lock.acquire(), return_exceptions=True)
        assert sorted(map(str, map(type, both))) == sorted(map(str, [bool, LockAlreadyHeld]))
        assert await lock.release() is True
        await clean(valkey)


@on_loops
async def test_lock_belongs_to_its_object(masters: Masters, aclient: MakeClient) -> None:
    """Not to a task: another task may release it, another object in the same task may not."""
    async with aclient(masters) as c:
        mine, other = c.lock("object", TTL), c.lock("object", TTL)
        assert await asyncio.create_task(mine.acquire())
        assert (other.locked(), other.token) == (False, None)
        assert await other.release() is False
        assert await asyncio.create_task(other.release()) is False
        with pytest.raises(LockLost):
            await other.extend()
        assert mine.locked()
        assert await c.locked("object")
        assert await asyncio.create_task(mine.release()) is True
        await clean(masters)


@on_loops
async def test_tokens_differ(valkey: Masters, aclient: MakeClient) -> None:
    """Of all locks of all tasks at all times."""
    tokens: list[bytes | None] = []
    async with aclient(valkey) as c:

        async def use(number: int) -> None:
            lock = c.lock(f"token:{number}", TTL)
            for _ in range(5):
                assert await lock.acquire()
                tokens.append(lock.token)
                assert await lock.release()

        await asyncio.gather(*map(use, range(40)))
    assert len(set(tokens)) == 200
