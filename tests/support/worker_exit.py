"""A process that ends while it holds locks: how it ends is the first argument, then engine, keep, URLs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redlock_fast import AsyncFastRedlock, FastRedlock, LockLost
from redlock_fast.algorithm import batch as batches

TTL = 30.0


def hold(client: FastRedlock) -> list[object]:
    lock = client.lock("one", TTL)
    assert lock.acquire()
    several, again = client.multilock(["a", "b"], TTL), client.rlock("again", TTL)
    assert several.acquire()
    assert again.acquire()
    assert again.acquire()
    return [lock, several, again, *client.acquire_many([f"many:{number}" for number in range(20)], TTL)]


async def hold_in_a_loop(client: AsyncFastRedlock) -> list[object]:
    lock = client.lock("one", TTL)
    assert await lock.acquire()
    several, again = client.multilock(["a", "b"], TTL), client.rlock("again", TTL)
    assert await several.acquire()
    assert await again.acquire()
    return [lock, several, again, *await client.acquire_many([f"many:{number}" for number in range(20)], TTL)]


def wait_for_all(client: FastRedlock) -> None:
    """One daemon thread waits for each lock of a batch."""

    def wait(name: str) -> None:
        client.lock(name, TTL).acquire()

    for number in range(20):
        threading.Thread(target=wait, args=(f"many:{number}",), daemon=True).start()
    while len(client._core.policy.local_queue.waiting) < 20:
        time.sleep(0.001)


def start_daemons(*jobs: Callable[[threading.Event], object]) -> None:
    """Run each job in a daemon thread. Returns when each has set its event."""
    begun = [threading.Event() for _ in jobs]
    for job, event in zip(jobs, begun, strict=True):
        threading.Thread(target=job, args=(event,), daemon=True).start()
    for event in begun:
        event.wait()


def work(client: FastRedlock) -> None:
    """Eight daemon threads acquire and release, to the end of the process. Returns when all have begun."""

    def turns(number: int, begun: threading.Event) -> None:
        while True:
            with client.lock(f"busy:{number}", TTL):
                time.sleep(0.0005)
            begun.set()

    start_daemons(*(partial(turns, number) for number in range(8)))


def ask(client: FastRedlock) -> None:
    """A daemon thread asks all masters for a lock. The first of them does not answer."""

    def acquire() -> None:
        client.lock("asked for", TTL).acquire()

    threading.Thread(target=acquire, daemon=True).start()
    while not client.health()[0].pending:
        time.sleep(0.001)


def run_jobs(client: FastRedlock) -> None:
    """Daemon threads run jobs of several kinds, which go on to the end of the process."""

    @client.single_run("single run", TTL)
    def single_run(begun: threading.Event) -> None:
        begun.set()
        threading.Event().wait()

    def body(begun: threading.Event) -> None:
        with client.lock("body", TTL):
            begun.set()
            threading.Event().wait()

    def batch(begun: threading.Event) -> None:
        held = client.acquire_many(["one", "two"], TTL)
        begun.set()
        threading.Event().wait()
        del held

    start_daemons(single_run, body, batch)


def end_jobs(client: FastRedlock) -> None:
    """Daemon threads leave their jobs when the end of the process has closed the client, and go on."""

    def until_closed() -> None:
        while not client._core.client_state.closed:
            time.sleep(0.001)

    def body(begun: threading.Event) -> None:
        with contextlib.suppress(LockLost), client.lock("body", TTL):
            begun.set()
            until_closed()
        threading.Event().wait()

    def batch(begun: threading.Event) -> None:
        held = client.acquire_many(["one", "two"], TTL)
        begun.set()
        until_closed()
        client.release_many([lock for lock in held if lock])
        threading.Event().wait()

    start_daemons(body, batch)


def acquire_many(client: FastRedlock) -> None:
    """A daemon thread acquires a batch of two parts. Returns when it has the first, where it stays."""
    granted, start_attempts = threading.Event(), batches.start_attempts
    numbers = itertools.count()

    def start_or_stay(*args: Any) -> Any:
        if next(numbers) == 1:
            granted.set()
            threading.Event().wait()
        return start_attempts(*args)

    batches.MOST, batches.start_attempts = 10, start_or_stay
    names = [f"part:{number}" for number in range(20)]
    threading.Thread(target=client.acquire_many, args=(names, TTL), daemon=True).start()
    granted.wait()


def main(how: str, engine: str, release: str, *urls: str) -> None:
    options: dict[str, Any] = {"engine": engine, "node_timeout": 5.0, "connect_timeout": 20.0}
    options["release_at_exit"] = release == "yes"
    held: list[object] = []
    at_end: Callable[[FastRedlock], None] | None = None
    if how == "asyncio":
        held += asyncio.run(hold_in_a_loop(AsyncFastRedlock(urls, **options, check_masters="off")))
    elif how == "thread":
        thread = threading.Thread(
            target=lambda: held.extend(hold(FastRedlock(urls, **options, check_masters="off")))
        )
        thread.start()
        thread.join()
    else:
        client = FastRedlock(urls, **options, check_masters="off")
        client.connect()
        if how == "asking":
            at_end = ask
        elif how == "batch":
            at_end = acquire_many
        elif how == "jobs":
            at_end = run_jobs
        elif how == "ended jobs":
            at_end = end_jobs
        elif how == "working":
            at_end = work
        else:
            held += hold(client)
        if how == "waiters":
            wait_for_all(client)
    assert len(held) == (23 if at_end is None else 0)
    assert all(held)
    print("held", flush=True)
    sys.stdin.readline()
    if at_end is not None:
        at_end(client)
    if how == "error":
        raise RuntimeError("on purpose")
    if how == "exit":
        sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
