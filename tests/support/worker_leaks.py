"""A process that measures what clients and locks cost it, and how much of that they give back.

``python -m support.worker_leaks '<settings as JSON>'`` prints its numbers as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes  # noqa: F401  # libffi 3.8 opens its own file with the first import, and keeps it open
import gc
import json
import logging
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from redlock_fast import FastRedlock, Lock, LockLost, LockNotAcquired, QuorumUnavailable

TTL = 60.0
PATIENCE = 20.0
#: Locks in Python's books.
TRACED = 400
PAGE = os.sysconf("SC_PAGE_SIZE")

Numbers = dict[str, Any]


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def threads_and_fds() -> list[int]:
    return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]


def back_to(before: list[int]) -> list[int]:
    """Threads and descriptors, as soon as they are no more than ``before``, or after long enough."""
    end = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        now = threads_and_fds()
        if all(a <= b for a, b in zip(now, before, strict=True)) or time.monotonic() > end:
            return now
        time.sleep(0.005)


def connect(setting: Numbers) -> FastRedlock:
    client = FastRedlock(
        setting["urls"],
        engine=setting["engine"],
        node_timeout=5.0,
        connect_timeout=PATIENCE,
        check_masters="off",
    )
    client.connect()
    return client


def cycle(client: FastRedlock, key: str) -> None:
    with client.lock(key, TTL):
        pass


def everything(client: FastRedlock, key: str) -> None:
    """All that may be done with a lock, and goes well."""
    lock = client.lock(key, TTL / 2)
    assert lock.acquire()
    lock.extend(TTL)
    assert client.locked(key)
    assert client.acquire(key, TTL, blocking=False) is None
    assert lock.release()
    assert not lock.release()


def failing(client: FastRedlock, dead: FastRedlock, key: str) -> None:
    """All that can end badly: others hold it, the lease ends too soon, masters are down."""
    holder = client.lock(key, TTL)
    assert holder.acquire()
    with contextlib.suppress(QuorumUnavailable):  # the machine may be too busy for so short a time
        assert not client.lock(key).acquire(timeout=0.002)
    assert holder.release()
    with contextlib.suppress(LockLost, LockNotAcquired), client.lock(key, 0.004, timeout=0.004):
        time.sleep(0.004)
    with contextlib.suppress(QuorumUnavailable):
        dead.acquire(key, TTL, blocking=False)


def clients(setting: Numbers, end: Callable[[FastRedlock], None]) -> Numbers:
    """Clients come, are used, and go."""
    before = threads_and_fds()
    most, after, memory = before, before, 0
    for number in range(setting["count"]):
        if number == setting["count"] // 2:
            memory = resident()
        client = connect(setting)
        everything(client, f"client:{number}")
        most = [max(pair) for pair in zip(most, threads_and_fds(), strict=True)]
        end(client)
        del client
        after = back_to(before)  # two that end beside each other take twice the memory
    return {"before": before, "after": after, "most": most, "grown": resident() - memory}


def drop(client: FastRedlock) -> None:
    """The caller's reference is the last one: the client is not closed."""


def cycles(setting: Numbers) -> Numbers:
    """Locks of one client come and go."""
    urls = [*setting["urls"][:2], *setting["dead"]]
    with (
        connect(setting) as client,
        FastRedlock(
            urls, engine=setting["engine"], node_timeout=5.0, connect_timeout=0.02, check_masters="off"
        ) as dead,
    ):

        def work(count: int) -> None:
            for number in range(count):
                cycle(client, f"cycle:{number}")
                if number % 10 == 0:
                    everything(client, f"everything:{number}")
                if number % 100 == 0:
                    failing(client, dead, f"failing:{number}")

        work(setting["count"] // 10)
        before = resident()
        work(setting["count"])
        return {"before": before, "grown": resident() - before}


def hold(client: FastRedlock, count: int) -> list[Lock]:
    locks = [client.lock(b"held:%d" % number, TTL) for number in range(count)]
    assert all(lock.acquire() for lock in locks)
    return locks


def settle(client: FastRedlock) -> None:
    """Wait until no master owes a reply: the engine keeps the requests until then."""
    while any(master.pending for master in client.health()):
        time.sleep(0.01)


def release(locks: list[Lock]) -> None:
    for lock in locks:
        lock.release()


def held(setting: Numbers) -> Numbers:
    """What one held lock costs: in the size of the process, and in Python's books."""
    count = setting["count"]
    with connect(setting) as client:
        for number in range(200):
            everything(client, f"warm:{number}")
        before = resident()
        locks = hold(client, count)
        process = resident() - before
        release(locks)
        tracemalloc.start()
        locks = hold(client, TRACED)
        settle(client)
        python = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        release(locks)
    return {"process": process / count, "python": python / TRACED}


MODES: dict[str, Callable[[Numbers], Numbers]] = {
    "closed": lambda setting: clients(setting, FastRedlock.close),
    "dropped": lambda setting: clients(setting, drop),
    "cycles": cycles,
    "held": held,
}


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    print(json.dumps(MODES[setting["mode"]](setting)))


if __name__ == "__main__":
    main()
