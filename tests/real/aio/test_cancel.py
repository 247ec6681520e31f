"""Cancelled at any moment: nothing of ours stays on the masters or in the loop, and the client goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import redis
from support.cancelling import BATCHES, SINGLE, Aim, Use, acquire, several
from support.event_loops import at_full_strength, clean, on_loops, open_files, pending_futures, timers, until
from support.keys import OTHER_CLIENT, TTL, calls, occupy, paused, sizes, values
from support.proxy import Proxy, jitter
from support.thorough import amount
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, QuorumUnavailable, Retry
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

WORKERS = 64


# --- storms ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def as_before(c: AsyncFastRedlock, masters: Masters) -> AsyncIterator[None]:
    """What the block takes, it gives back; and the client works after it."""
    await at_full_strength(c)
    async with c.lock("before", TTL):
        pass
    await clean(masters)
    tasks, futures, files = len(asyncio.all_tasks()), pending_futures(), open_files()
    yield
    await clean(masters)
    assert len(asyncio.all_tasks()) == tasks
    await until(lambda: timers() <= 1, "no timer is left but that of the client")
    assert pending_futures() <= futures
    await until(lambda: open_files() <= files, "no connection is being made")
    await until(lambda: not any(m.pending for m in c.health()), "all replies are read, without a waiter")
    for number in range(20):
        async with c.lock(f"after:{number}", TTL) as lock:
            assert await lock.extend() > 0
    assert c.stats().expired == 0
    assert [(m.faults, m.connections) for m in c.health()] == [(0, 1)] * 5
    await clean(masters)


async def storm(c: AsyncFastRedlock, count: int, uses: list[Use], keys: int = 0) -> Aim:
    """So many uses in all, by WORKERS tasks, each of a key of its own, or of one of ``keys`` keys."""
    aim, numbers = Aim(), itertools.count()

    async def work() -> None:
        while (number := next(numbers)) < count:
            key = f"shared:{number % keys}" if keys else f"free:{number}"
            await uses[number % len(uses)](c, key, aim)

    async with asyncio.timeout(100):
        await asyncio.gather(*(work() for _ in range(WORKERS)))
    return aim


@on_loops
async def test_storm_on_free_keys(valkey: Masters, aclient: MakeAio) -> None:
    count = amount(1_200, 6_000, twice=6_000)
    async with aclient(valkey) as c, as_before(c, valkey):
        aim = await storm(c, count, [acquire])
        assert aim.hits + aim.misses == count
        assert aim.hits > count / 5, "they came too late to test anything"
        assert aim.misses > count / 20, "they came too early to test anything"


@on_loops
async def test_storm_on_contended_keys(valkey: Masters, aclient: MakeAio) -> None:
    """Cancelled while they wait for others, too. Fewer: most of the time is waiting."""
    count = 1000
    async with aclient(valkey, retry=Retry(0.0005, 0.005)) as c, as_before(c, valkey):
        aim = await storm(c, count, [acquire], keys=8)
        assert aim.hits > count / 5
        assert aim.misses > count / 20


@on_loops
async def test_storm_beside_the_key_of_another_client(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """On a minority, or on all: it stays."""
    nodes = raw(valkey)
    async with aclient(valkey, retry=Retry(0.0005, 0.005)) as c:
        await c.connect()
        occupy(nodes, "shared:0")
        occupy(nodes[:2], "shared:1")
        aim = Aim()
        for _ in range(5):
            tasks = [
                aim.at(c.lock(f"shared:{number % 2}", TTL).acquire(timeout=0.05)) for number in range(40)
            ]
            for task in await asyncio.gather(*tasks):
                if not task.cancelled() and not isinstance(task.exception(), QuorumUnavailable):
                    assert task.result() in (True, False)  # else the machine stood still for 50 ms
            occupied = [[OTHER_CLIENT] * 5, [OTHER_CLIENT] * 2]
            assert [values(nodes, "shared:0"), values(nodes[:2], "shared:1")] == occupied
        assert sizes(valkey)[:2] == [2, 2]


@on_loops
async def test_storm_on_late_masters(valkey: Masters, aclient: MakeAio) -> None:
    """Their SETs are still on the way when everything is over."""
    count = amount(600, 2000, twice=2000)
    with Proxy(valkey[3].port, jitter(3, 0.02)) as three, Proxy(valkey[4].port, jitter(4, 0.02)) as four:
        urls = [*valkey.urls[:3], three.url, four.url]
        async with aclient(urls) as c, as_before(c, valkey):
            aim = await storm(c, count, [acquire])
            assert aim.hits > count / 5


@on_loops
async def test_storm_of_everything(masters: Masters, aclient: MakeAio) -> None:
    count = amount(600, 2000, twice=2000)
    async with aclient(masters) as c, as_before(c, masters):
        aim = await storm(c, count, SINGLE + BATCHES)
        assert aim.hits > count / 20


@on_loops
async def test_storm_on_hung_masters(valkey: Masters, aclient: MakeAio) -> None:
    """A majority answers nothing: cancelled tasks end at once, and nothing is there when it goes on."""
    async with aclient(valkey, node_timeout=300.0) as c, as_before(c, valkey):
        with paused(valkey, 0, 2, 4):
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(c.lock(f"hung:{n}", TTL).acquire()) for n in range(200)
            ]
            tasks += [asyncio.create_task(c.acquire_many(several(f"hung:{n}"))) for n in range(200, 220)]
            await asyncio.sleep(0.05)
            for task in tasks:
                assert task.cancel()
            done, waiting = await asyncio.wait(tasks, timeout=DEADLINE)
            assert not waiting
            assert all(task.cancelled() for task in done)
            await until(lambda: {valkey[n].ask("DBSIZE") for n in (1, 3)} == {":0"}, "gone where it can be")


# --- single moments -------------------------------------------------------------------------------


@on_loops
async def test_cancelled_before_the_first_step(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """Nothing is sent, and the object is as before."""
    nodes = raw(valkey)
    assert all(node.ping() for node in nodes)  # they connect
    async with aclient(valkey) as c, as_before(c, valkey):
        for node in nodes:
            node.config_resetstat()
        locks = [c.lock(f"unstarted:{number}", TTL) for number in range(100)]
        tasks = [asyncio.create_task(lock.acquire()) for lock in locks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert calls(nodes, "set") == [0] * 5
        assert await asyncio.gather(*(lock.acquire() for lock in locks)) == [True] * 100
        assert await asyncio.gather(*(lock.release() for lock in locks)) == [True] * 100


@on_loops
async def test_cancelled_lock_can_be_used_again(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """After a wait for others that was cancelled."""
    nodes = raw(valkey)
    async with aclient(valkey) as c:
        await c.connect()
        occupy(nodes, "again")
        for node in nodes:
            node.config_resetstat()
        lock = c.lock("again", TTL)
        task = asyncio.create_task(lock.acquire())
        await until(lambda: calls(nodes[:1], "set") != [0], "it tries")
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert await lock.acquire(blocking=False) is False
        for node in nodes:
            assert node.delete("again") == 1
        assert await lock.acquire() is True
        assert await lock.release() is True
        await clean(valkey)


@on_loops
async def test_cancelled_while_connecting(valkey: Masters, aclient: MakeAio) -> None:
    """The first call waits for masters that do not answer; others wait on, and get their locks."""
    with paused(valkey, *range(5)):
        c = aclient(valkey, connect_timeout=4 * DEADLINE)
        tasks = [asyncio.create_task(c.lock(f"connecting:{n}", TTL).acquire()) for n in range(20)]
        connecting = asyncio.create_task(c.connect())
        await asyncio.sleep(0.05)
        for task in [*tasks[:10], connecting]:
            task.cancel()
        await asyncio.wait([*tasks[:10], connecting], timeout=DEADLINE)
        assert all(task.cancelled() for task in [*tasks[:10], connecting])
        assert not any(task.done() for task in tasks[10:])
    async with c:
        assert await asyncio.gather(*tasks[10:]) == [True] * 10
        cancelled = "EXISTS " + " ".join(f"connecting:{n}" for n in range(10))
        await until(lambda: {master.ask(cancelled) for master in valkey} == {":0"}, "only those have keys")


@on_loops
async def test_cancelled_close(valkey: Masters, aclient: MakeAio) -> None:
    """close() may be called again, and ends; what was held is not released."""
    for turns in range(6):
        c = aclient(valkey)
        async with c.lock("close", TTL):
            pass
        task = asyncio.create_task(c.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await c.close()
    await clean(valkey)


# --- coroutines that do not run to their end ------------------------------------------------------


class ByHand:
    """A coroutine that is run as a task runs it, but one step at a time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.ended = False
        self._waits: asyncio.Future[Any] | None = None

    async def step(self) -> None:
        """When what it waits for is there, go on, until it waits again or ends."""
        if self._waits is not None:
            await asyncio.wait({self._waits})
        try:
            self._waits = self.coroutine.send(None)
        except StopIteration:
            self.ended = True
        if self._waits is not None:
            self._waits._asyncio_future_blocking = False


@pytest.mark.parametrize("held", [False, True])
@on_loops
async def test_closed_coroutine(valkey: Masters, aclient: MakeAio, raw: Raw, held: bool) -> None:
    """``close()``, or the garbage collector, at each place where it waits."""
    async with aclient(valkey) as c:
        await at_full_strength(c)
        if held:
            occupy(raw(valkey), "closed")
        for count in range(7):
            lock = c.lock("closed", TTL)
            hand = ByHand(lock.acquire(timeout=0.5))
            for _ in range(count):
                if not hand.ended:
                    await hand.step()
            if hand.ended:
                assert lock.locked() is not held
                assert await lock.release() is not held
            hand.coroutine.close()
            assert not lock.locked()
            await until(lambda: sizes(valkey) == [int(held)] * 5, f"nothing is left after {count} steps")


@on_loops
async def test_closed_body(valkey: Masters, aclient: MakeAio) -> None:
    """An ``async with`` that is left by ``close()`` cannot wait, and releases all the same."""

    inside = False

    async def use() -> None:
        nonlocal inside
        async with c.lock("closed", TTL):
            inside = True
            await asyncio.get_running_loop().create_future()

    async with aclient(valkey) as c:
        await at_full_strength(c)
        hand = ByHand(use())
        while not inside:
            await hand.step()
        hand.coroutine.close()
        await clean(valkey)
