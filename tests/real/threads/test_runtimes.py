"""Clients for threads beside trio, and in spawned processes. docs/runtimes.md lists all runtimes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import pytest
from support.spawned import keep_lock, try_lock
from support.waiting import DEADLINE, answered

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

#: Seconds that a lock is waited for, the part of it for which other tasks may stand still, and how often that
#: is tried: a busy machine holds up the whole process, but not each time.
WAIT, SHARE, TRIES = 1.0, 0.25, 5


@pytest.mark.skipif(find_spec("trio") is None, reason="trio (pip install trio) is missing")
def test_trio_through_a_thread(valkey: Masters, connected: Callable[..., FastRedlock]) -> None:
    """Other tasks run while one waits, and many tasks take turns."""
    import trio

    c = connected(valkey)
    inside = most = done = 0

    async def enter() -> None:
        nonlocal inside, most, done
        lock = c.lock("turns")
        assert await trio.to_thread.run_sync(lock.acquire)
        inside += 1
        most = max(most, inside)
        await trio.sleep(0.001)
        inside -= 1
        done += 1
        assert await trio.to_thread.run_sync(lock.release)

    async def longest_gap(stop: trio.CancelScope) -> float:
        longest, last = 0.0, time.monotonic()
        with stop:
            while True:
                await trio.sleep(0.005)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
        return longest

    async def still() -> float:
        """The part of one wait for which this thread's loop stood still."""
        stop, gaps = trio.CancelScope(), []

        async def tick() -> None:
            gaps.append(await longest_gap(stop))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            start = time.monotonic()
            waiting = c.lock("held")
            assert not await trio.to_thread.run_sync(answered, lambda: waiting.acquire(True, WAIT))
            waited = time.monotonic() - start
            stop.cancel()
        return gaps[0] / waited

    async def main() -> None:
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(enter)
        shares = [await still()]
        while shares[-1] >= SHARE and len(shares) < TRIES:
            shares.append(await still())
        assert shares[-1] < SHARE

    holder = c.lock("held", 60.0)
    assert holder.acquire()
    trio.run(main)
    assert (most, done) == (1, 10)
    assert holder.release()


def test_spawned_processes_have_clients_of_their_own(
    valkey: Masters, connected: Callable[..., FastRedlock], engine_name: str
) -> None:
    c = connected(valkey)
    lock = c.lock("held", 60.0)
    assert lock.acquire()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        got = [pool.submit(try_lock, valkey.urls, engine_name, name) for name in ("held", "free")]
        assert [one.result(3 * DEADLINE) for one in got] == [False, True]
    assert lock.release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("method", "released"), [("spawn", True), ("fork", False)])
def test_the_end_of_a_process_of_multiprocessing(
    valkey: Masters, connected: Callable[..., FastRedlock], engine_name: str, method: str, released: bool
) -> None:
    """With fork such a process forgets the functions that this package has registered with atexit. Whether a
    forkserver has imported the package differs from Python to Python.
    """
    c = connected(valkey)
    process = multiprocessing.get_context(method).Process(
        target=keep_lock, args=(valkey.urls, engine_name, method)
    )
    process.start()
    process.join(3 * DEADLINE)
    assert process.exitcode == 0
    assert c.locked(method) is not released
