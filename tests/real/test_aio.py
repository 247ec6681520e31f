"""The lock for asyncio on real masters: what callers are told, and what is on the masters then."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.keys import SOMEBODY, TTL, calls, nothing_left, occupy, paused, sizes, values, with_keys
from support.loops import on_loops, until
from support.waiting import DEADLINE

import redlock_fast
from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    ClientClosed,
    ConfigError,
    Contended,
    FastRedlock,
    Lock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    Retry,
    TooManyExtensions,
)
from redlock_fast.embedded import Masters

MakeClient = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


async def connect(client: AsyncFastRedlock) -> None:
    """To all masters: the first call will reach them all."""
    await client.connect()
    await until(lambda: all(m.state == "connected" for m in client.health()), "all masters connect")


async def clean(masters: Masters) -> None:
    await until(lambda: not with_keys(masters), "no key of ours is left")


# --- the same as for threads --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"), [(AsyncFastRedlock, FastRedlock), (AsyncLock, Lock)], ids=["client", "lock"]
)
def test_same_names_and_arguments(ours: type, theirs: type) -> None:
    """Whoever knows the one knows the other."""

    def face(kind: type) -> dict[str, list[Any]]:
        public = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(value).parameters.values()]
            for name, value in public.items()
            if inspect.isfunction(value)
        }

    assert face(theirs).items() <= face(ours).items()
    assert {"AsyncFastRedlock", "AsyncLock", "WrongLoop"} <= set(redlock_fast.__all__)


@on_loops
async def test_life_of_a_lock(masters: Masters, aclient: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    async with aclient(masters) as c:
        await connect(c)
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
        await connect(c)
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
        await connect(c)

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
        await connect(c)
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


# --- waiting ------------------------------------------------------------------------------------


@on_loops
async def test_timeouts(valkey: Masters, aclient: MakeClient, raw: Raw) -> None:
    """A fraction of a second is a fraction of a second; 0 is one attempt, and enough for a free lock."""
    async with aclient(valkey) as c:
        await connect(c)
        occupy(raw(valkey), "held")
        lock = c.lock("held", TTL)
        assert await lock.acquire(blocking=False) is False
        assert await lock.acquire(False) is False
        assert await lock.acquire(timeout=0) is False
        assert await c.acquire("held", TTL, blocking=False) is None
        for timeout in (0.1, 0.3):
            began = time.monotonic()
            assert await lock.acquire(timeout=timeout) is False
            assert await c.lock("held", TTL, timeout=timeout).acquire() is False
            assert timeout <= time.monotonic() - began + 0.05 < DEADLINE
        for wrong in ({"blocking": False, "timeout": 1}, {"timeout": -2}, {"timeout": float("nan")}):
            with pytest.raises(ConfigError, match="timeout"):
                await lock.acquire(**wrong)
        free = c.lock("free", TTL)
        for enough in ({"blocking": False}, {"timeout": 0}, {"timeout": -1}, {"timeout": DEADLINE}, {}):
            assert await free.acquire(**enough) is True
            assert await free.release() is True


@on_loops
async def test_waits_until_the_holder_releases(masters: Masters, aclient: MakeClient) -> None:
    """And others go on meanwhile: no wait of one task is a wait of the loop."""
    async with aclient(masters) as c:
        holder = await c.acquire("r", TTL)
        assert holder
        waiting = asyncio.create_task(c.acquire("r", TTL))
        for number in range(50):
            async with c.lock(f"other:{number}", TTL):
                assert not waiting.done()
        assert await holder.release()
        lock = await waiting
        assert lock
        assert await lock.release() is True
        await clean(masters)


@on_loops
async def test_last_attempt_comes_with_the_end_of_the_time(
    valkey: Masters, aclient: MakeClient, raw: Raw
) -> None:
    """However long the pauses are."""
    async with aclient(valkey, retry=Retry(min_delay=300.0, max_delay=600.0)) as c:
        await connect(c)
        holder = await c.acquire("pause", TTL)
        assert holder
        node = raw(valkey)[0]
        node.config_resetstat()
        waiting = asyncio.create_task(c.lock("pause", TTL).acquire(timeout=1.0))
        await until(lambda: calls([node], "set") != [0], "it is tried while the lock is held")
        assert await holder.release()
        assert await waiting is True


@on_loops
async def test_masters_that_are_down(aclient: MakeClient) -> None:
    """Told from a lock that others hold, with the cause for each."""
    async with aclient([f"redis://127.0.0.1:{port}" for port in (1, 2, 3)], connect_timeout=0.1) as c:
        assert await c.connect(timeout=0.05) is False
        for use in (c.lock("r").acquire, lambda: c.acquire("r", blocking=False), lambda: c.locked("r")):
            with pytest.raises(QuorumUnavailable, match=r"(?i)refused") as caught:
                await use()
            assert [cause.master for cause in caught.value.causes] == [m.name for m in c.health()]
        assert c.stats().unavailable == 2
        assert {master.state for master in c.health()} <= {"down", "connecting"}


# --- extending ----------------------------------------------------------------------------------


@on_loops
async def test_extension_is_done_lost_or_unknown(masters: Masters, aclient: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    async with aclient(masters, node_timeout=0.5, decide="all") as c:
        await connect(c)
        lock = c.lock("r", TTL / 2, max_extensions=2)
        assert await lock.acquire()
        assert await lock.extend(TTL / 2 + 5) == lock.validity > TTL / 2
        with paused(masters, 0, 1, 2):
            with pytest.raises(QuorumUnavailable, match="held for"):
                await lock.extend(TTL)
            assert 0 < lock.remaining() <= TTL / 2 + 5, "inconclusive: the old deadline stands"
        await connect(c)
        assert values(nodes, "r") == [lock.token] * 5
        while lock.remaining() < TTL / 2 + 5:  # lagging masters may need another attempt
            try:
                await lock.extend(TTL)
            except QuorumUnavailable:
                await asyncio.sleep(0.01)
        with pytest.raises(TooManyExtensions):
            await lock.extend(TTL)
        assert lock.locked()
        lost = c.lock("lost", TTL / 2)
        assert await lost.acquire(timeout=DEADLINE)
        for node in nodes[:3]:
            node.set("lost", SOMEBODY)
        with pytest.raises(LockLost):
            await lost.extend(TTL)
        assert not lost.locked()
        assert await lost.release() is False
        assert values(nodes[:3], "lost") == [SOMEBODY] * 3
        with pytest.raises(LockLost):
            await c.lock("never").extend()
        assert await lock.release() is True


@on_loops
async def test_extend_never_acquires_anew(masters: Masters, aclient: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    async with aclient(masters, decide="all") as c:
        lock = c.lock("r", 0.3)
        assert await lock.acquire()
        await clean(masters)
        with pytest.raises(LockLost):
            await lock.extend(TTL)
        assert sizes(masters) == [0] * 5
        occupy(nodes, "r")
        with pytest.raises(LockLost):
            await lock.extend(TTL)
        assert await lock.release() is False
        assert values(nodes, "r") == [SOMEBODY] * 5


# --- bad input, and the end ---------------------------------------------------------------------


def test_bad_settings_before_any_loop() -> None:
    for masters, options in (
        ([], {}),
        (["redis://a", "redis://a"], {}),
        (["nonsense"], {}),
        (["redis://a"], {"ttl": 0}),
        (["redis://a"], {"engine": "rust"}),
        (["redis://a"], {"unheard_of": 1}),
    ):
        with pytest.raises(ConfigError):
            AsyncFastRedlock(masters, **options)  # type: ignore[arg-type]
    client = AsyncFastRedlock(["redis://127.0.0.1:1"])
    for resource, more in (("", {}), (7, {}), ("r", {"ttl": -1}), ("r", {"timeout": -2}), ("r", {"x": 1})):
        with pytest.raises(ConfigError):
            client.lock(resource, **more)  # type: ignore[arg-type]


@on_loops
async def test_closed_client(valkey: Masters, aclient: MakeClient) -> None:
    async with aclient(valkey) as c:
        lock = c.lock("r", TTL)
        assert await lock.acquire()
    await c.close()
    assert lock.locked(), "it stays held until its lease ends"
    assert await lock.release() is False
    for use in (
        c.lock("s").acquire, lock.extend, c.connect, lambda: c.acquire("s"), lambda: c.locked("s"),
        c.lock("s").__aenter__,
    ):  # fmt: skip
        with pytest.raises(ClientClosed):
            await use()
    assert len(c.health()) == 5
    assert c.stats().acquired == 1
    unused = aclient(valkey)
    await unused.close()
    with pytest.raises(ClientClosed):
        await unused.connect()
    assert sizes(valkey)[0] <= 1
    nothing_left_but_that = [valkey[n].ask("DEL r") for n in range(5)]
    assert nothing_left_but_that.count(":1") >= 3
    nothing_left(valkey)
