"""Many tasks, threads and clients at once: at most one holder."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import pytest
import redis
from support.event_loops import at_full_strength, clean, on_loops, until
from support.keys import TTL, nothing_left, paused
from support.proxy import Proxy, fixed, jitter
from support.waiting import DEADLINE, start

from redlock_fast import AsyncFastRedlock, FastRedlock, QuorumUnavailable, Retry
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: Tasks that want the same lock should meet often.
EAGER = Retry(min_delay=0.0005, max_delay=0.01)


class Counter:
    """Two that add at the same time lose one."""

    def __init__(self) -> None:
        self.value = 0

    async def add(self) -> None:
        before = self.value
        for _ in range(random.randrange(1, 4)):
            await asyncio.sleep(0)
        self.value = before + 1

    def add_in_thread(self) -> None:
        before = self.value
        time.sleep(0.0002)
        self.value = before + 1


async def together(*works: Awaitable[Any]) -> list[Any]:
    """All of these at once, within their time."""
    async with asyncio.timeout(4 * DEADLINE):
        return list(await asyncio.gather(*works))


async def add_under_lock(c: AsyncFastRedlock, counter: Counter, times: int) -> None:
    for _ in range(times):
        async with c.lock("counter", TTL):
            await counter.add()


def add_in_thread(c: FastRedlock, counter: Counter, times: int) -> None:
    for _ in range(times):
        with c.lock("counter", TTL):
            counter.add_in_thread()


# --- mutual exclusion ---------------------------------------------------------------------------


@on_loops
async def test_tasks_of_one_client(masters: Masters, aclient: MakeAio) -> None:
    counter = Counter()
    async with aclient(masters, retry=EAGER) as c:
        await together(*(add_under_lock(c, counter, 10) for _ in range(16)))
        assert counter.value == c.stats().acquired == c.stats().released == 160
        assert c.stats().contended == c.stats().expired == 0
        await clean(masters)


@on_loops
async def test_tasks_of_two_clients(masters: Masters, aclient: MakeAio) -> None:
    """On one loop: each has connections of its own."""
    counter = Counter()
    async with aclient(masters, retry=EAGER) as one, aclient(masters, retry=EAGER) as other:
        await together(*(add_under_lock(c, counter, 10) for c in [one, other] * 6))
        assert counter.value == one.stats().acquired + other.stats().acquired == 120
        await clean(masters)


class Redlock:
    """As redlock-py and its kin do it: the bare resource, SET NX on one master after the other."""

    def __init__(self, nodes: list[redis.Redis]) -> None:
        self.nodes = nodes
        self.token = os.urandom(10).hex()

    def __enter__(self) -> None:
        end = time.monotonic() + 2 * DEADLINE
        while True:
            granted = [bool(node.set("counter", self.token, nx=True, px=60_000)) for node in self.nodes]
            if sum(granted) > len(granted) // 2:
                return
            self.__exit__()
            assert time.monotonic() < end, "it never got the lock"
            time.sleep(random.uniform(0.0, 0.01))

    def __exit__(self, *_: object) -> None:
        script = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"
        for node in self.nodes:
            node.eval(script, 1, "counter", self.token)


@on_loops
async def test_tasks_threads_and_other_libraries(
    masters: Masters, aclient: MakeAio, client: MakeClient, raw: Raw
) -> None:
    """One key, one counter: AsyncFastRedlock, FastRedlock, and raw SET NX."""
    counter = Counter()
    for_threads, nodes = client(masters, retry=EAGER), raw(masters)

    def other_library() -> None:
        for _ in range(15):
            with Redlock(nodes):
                counter.add_in_thread()

    async with aclient(masters, retry=EAGER) as c:
        threads = [start(partial(add_in_thread, for_threads, counter, 15)) for _ in range(3)]
        threads.append(start(other_library))
        await together(
            *(add_under_lock(c, counter, 15) for _ in range(6)),
            *(asyncio.wrap_future(one) for one in threads),
        )
        assert counter.value == 15 * 6 + 15 * 3 + 15
        await clean(masters)


@on_loops
async def test_threads_work_beside_the_loop(valkey: Masters, aclient: MakeAio, connected: MakeClient) -> None:
    """Each with a client of its own kind, on free keys: neither waits for the other, nothing fails."""
    for_threads, stop = connected(valkey), threading.Event()

    def cycles(name: int) -> int:
        done = 0
        while not stop.is_set():
            with for_threads.lock(f"thread:{name}", TTL):
                done += 1
        return done

    async with aclient(valkey) as c:

        async def use(name: int) -> None:
            for _ in range(50):
                async with c.lock(f"task:{name}", TTL):
                    pass

        threads = [start(partial(cycles, name)) for name in range(4)]
        try:
            await together(*map(use, range(32)))
        finally:
            stop.set()
        assert min(await together(*map(asyncio.wrap_future, threads))) > 0
        assert c.stats().released == 32 * 50
        await clean(valkey)


# --- a thousand ---------------------------------------------------------------------------------


@on_loops
async def test_a_thousand_tasks(masters: Masters, aclient: MakeAio) -> None:
    """Free keys: all in one breath, over the same five connections."""
    async with aclient(masters) as c:
        locks = [c.lock(f"thousand:{number}", TTL / 2) for number in range(1000)]
        assert await together(*(lock.acquire() for lock in locks)) == [True] * 1000
        assert len({lock.token for lock in locks}) == 1000
        assert await together(*(lock.extend(TTL) for lock in locks)) == [lock.validity for lock in locks]
        assert await together(*(c.locked(lock.resource) for lock in locks)) == [True] * 1000
        assert await together(*(lock.release() for lock in locks)) == [True] * 1000
        assert [(master.faults, master.connections) for master in c.health()] == [(0, 1)] * 5
        await clean(masters)


@on_loops
async def test_a_thousand_tasks_on_few_keys(valkey: Masters, aclient: MakeAio) -> None:
    """One attempt each: each key has at most one holder, and a refused task leaves nothing."""
    async with aclient(valkey) as c:
        for turn in range(3):
            locks = [c.lock(f"few:{turn}:{number % 50}", TTL) for number in range(1000)]
            granted = await together(*(lock.acquire(blocking=False) for lock in locks))
            winners = [lock for lock, won in zip(locks, granted, strict=True) if won]
            assert granted == [lock.locked() for lock in locks]
            # Sent first, executed first, on each connection: the first of each key wins everywhere.
            assert len(winners) == len({lock.resource for lock in winners}) == 50
            assert await together(*(lock.release() for lock in winners)) == [True] * 50
        await clean(valkey)


# --- masters on a bad day -----------------------------------------------------------------------


async def work_until(stop: asyncio.Event, c: AsyncFastRedlock, name: int) -> int:
    done = 0
    while not stop.is_set():
        lock = c.lock(f"work:{name}", TTL)
        assert await lock.acquire(blocking=False) is True
        assert await lock.release() is True
        done += 1
    return done


@pytest.mark.parametrize("trouble", ["killed", "hung", "cut off"])
@on_loops
async def test_one_master_fails_in_the_middle(masters: Masters, aclient: MakeAio, trouble: str) -> None:
    """No acquire and no release fails for that."""
    with Proxy(masters[2].port) as proxy:
        urls = [*masters.urls[:2], proxy.url, *masters.urls[3:]]
        async with aclient(urls, node_timeout=30.0) as c:
            await c.connect()
            stop = asyncio.Event()
            tasks = [asyncio.create_task(work_until(stop, c, name)) for name in range(16)]
            for _ in range(2):
                await progress(c, 200, tasks)
                if trouble == "killed":
                    masters[2].kill()
                elif trouble == "hung":
                    masters[2].pause()
                else:
                    proxy.cut()
                await progress(c, 500, tasks)
                if trouble == "killed":
                    masters[2].restart()
                masters[2].resume()
            stop.set()
            assert min(await together(*tasks)) > 0
            await until(lambda: all(m.state == "connected" for m in c.health()), "it comes back")
            await clean(masters)


async def progress(c: AsyncFastRedlock, cycles: int, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait until ``tasks`` have made so many cycles. Raises what one of them has raised."""
    enough = c.stats().released + cycles
    try:
        await until(
            lambda: c.stats().released >= enough or any(task.done() for task in tasks),
            f"another {cycles} cycles, {enough} in all",
        )
        for task in tasks:
            if task.done():
                task.result()
    except BaseException as error:
        error.add_note(f"{c.stats()}, {c.health()}")
        raise


@pytest.mark.parametrize("delay", [fixed(0.02), jitter(1, 0.02)], ids=["late", "jitter"])
@on_loops
async def test_late_masters_leave_no_key(
    valkey: Masters, aclient: MakeAio, delay: Callable[[], float]
) -> None:
    """Their SETs are on the way when the others' keys are released. Catches: a release that overtakes
    its SET.
    """
    with Proxy(valkey[3].port, delay) as three, Proxy(valkey[4].port, delay) as four:
        async with aclient([*valkey.urls[:3], three.url, four.url]) as c:
            await at_full_strength(c)

            async def use(name: int) -> None:
                for number in range(30):
                    lock = c.lock(f"late:{name}:{number}", TTL)
                    assert await lock.acquire(blocking=False) is True
                    assert await lock.release() is True

            await together(*map(use, range(32)))
            await clean(valkey)


@on_loops
async def test_all_masters_down_and_back(masters: Masters, aclient: MakeAio) -> None:
    """Tasks that do not give up get their locks when the masters are back; the client is as before."""
    async with aclient(masters, connect_timeout=1.0, restart_guard="off") as c:
        await at_full_strength(c)
        async with c.lock("before", TTL):
            pass
        for master in masters:
            master.kill()
        results = await asyncio.gather(
            *(c.acquire(f"down:{number}", TTL, timeout=0.2) for number in range(10)), return_exceptions=True
        )
        assert all(isinstance(result, QuorumUnavailable) for result in results)
        patient = [asyncio.create_task(insist(c, number)) for number in range(10)]
        for master in masters:
            master.restart()
        await together(*patient)
        await until(lambda: all(m.state == "connected" for m in c.health()), "all come back")
        async with c.lock("after", TTL):
            pass
        await clean(masters)


async def insist(c: AsyncFastRedlock, number: int) -> None:
    end = time.monotonic() + 2 * DEADLINE
    while time.monotonic() < end:
        try:
            async with c.lock(f"insist:{number}", TTL):
                return
        except QuorumUnavailable:
            await asyncio.sleep(0.01)
    pytest.fail("the masters are back, and give no lock")


@on_loops
async def test_majority_hung_is_reported_and_leaves_nothing(masters: Masters, aclient: MakeAio) -> None:
    async with aclient(masters, node_timeout=0.2) as c:
        await at_full_strength(c)
        with paused(masters, 0, 2, 4):
            results = await asyncio.gather(
                *(c.acquire(f"hung:{number}", TTL, blocking=False) for number in range(50)),
                return_exceptions=True,
            )
            assert all(isinstance(result, QuorumUnavailable) for result in results)
            for result in results:
                assert isinstance(result, QuorumUnavailable)
                assert len(result.causes) >= 3
        await clean(masters)
    nothing_left(masters)
