"""The lock for asyncio on real masters: how long it waits, how it is extended, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import redis
from support.event_loops import at_full_strength, clean, on_loops, until
from support.keys import SOMEBODY, TTL, calls, nothing_left, occupy, paused, sizes, values
from support.waiting import DEADLINE

from redlock_fast import (
    AsyncFastRedlock,
    ClientClosed,
    ConfigError,
    LockLost,
    QuorumUnavailable,
    Retry,
    TooManyExtensions,
)
from redlock_fast.embedded import Masters

MakeClient = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


# --- waiting ------------------------------------------------------------------------------------


@on_loops
async def test_timeouts(valkey: Masters, aclient: MakeClient, raw: Raw) -> None:
    """A fraction of a second is a fraction of a second; 0 is one attempt, and enough for a free lock."""
    async with aclient(valkey) as c:
        await at_full_strength(c)
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
        await at_full_strength(c)
        node = raw(valkey)[0]

        async def taken_over() -> bool:
            holder, lock = await c.acquire("pause", TTL), c.lock("pause", TTL)
            assert holder
            node.config_resetstat()
            waiting = asyncio.create_task(lock.acquire(timeout=1.0))
            await until(lambda: calls([node], "set") != [0], "it is tried while the lock is held")
            assert await holder.release()
            return await waiting and await lock.release()

        for _ in range(5):
            if await taken_over():
                return
        pytest.fail("never taken over; or did the machine stand still each time?")


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
        await at_full_strength(c)
        lock = c.lock("r", TTL / 2, max_extensions=2)
        assert await lock.acquire()
        assert await lock.extend(TTL / 2 + 5) == lock.validity > TTL / 2
        with paused(masters, 0, 1, 2):
            with pytest.raises(QuorumUnavailable, match="held for"):
                await lock.extend(TTL)
            assert 0 < lock.remaining() <= TTL / 2 + 5, "inconclusive: the old deadline stands"
        await at_full_strength(c)
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
            AsyncFastRedlock(masters, **options)
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
