"""The workloads: what a library does in one turn.

Each workload takes an opener (see libraries.py) and its numbers, and returns the output of the driver:
``samples`` (nanoseconds of each acquire + release), ``locks`` taken and given back within
``seconds``, ``failed`` attempts with the last ``error``, ``numbers`` of its own kind, ``info``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from closed_loop import TOGETHER, Result, Span, Tally, clock, key_of, tasks, threads, together
from libraries import Opened, Opener

# --- ours alone --------------------------------------------------------------------------------


def batch(opener: Opener, *, size: int, warmup: float, seconds: float) -> Result:
    """acquire_many + release_many of ``size`` new keys; making the keys is not measured."""
    span, tally, number, spent = Span(), Tally(), 0, 0
    with opener() as opened:
        client = opened.client
        span.start(warmup, seconds)
        while clock() < span.end or not tally.samples:
            keys = [key_of(number, index) for index in range(size)]
            number += 1
            start = clock()
            locks = client.acquire_many(keys)
            given = client.release_many(locks)
            stop = clock()
            if not all(given):
                raise RuntimeError("a lock of the batch was not acquired, or not released")
            if start >= span.begin:
                tally.samples.append(stop - start)
                spent += stop - start
        result = tally.result(spent / 1e9, opened.paths)
        result["locks"] = size * len(tally.samples)
        return result


def stopped(opener: Opener, *, callers: int, warmup: float, seconds: float, pid: int) -> Result:
    """Throughput before and after the master ``pid`` is stopped, and how many replies it then owes."""
    with (
        opener() as opened,
        Watch(opened.client) as watch,
    ):  # watched before the stop, too, because watching costs time
        before = together([opened], callers, warmup, seconds)
        os.kill(pid, signal.SIGSTOP)
        try:
            after = together([opened], callers, 0.0, seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
    after.failed += before.failed
    rates = len(before.samples) / seconds, len(after.samples) / seconds
    numbers = {"before": rates[0], "of before": rates[1] / rates[0], "owed": watch.owed}
    return after.result(seconds, opened.paths, **numbers)


class Watch:
    """Samples the replies that each master owes, and keeps the largest number."""

    def __init__(self, client: Any) -> None:
        self.owed = 0
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.owed = max(self.owed, *(master.pending for master in self._client.health()))


def memory(opener: Opener, *, locks: int, clients: int, **_: Any) -> Result:
    """The resident memory that a held lock and a connected client add to this process."""
    names = [key_of(0, number) for number in range(locks)]
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(opener())
        client = first.client
        hold(client, names[:BATCH])
        start = resident()
        held = [client.acquire_many(names[at : at + BATCH]) for at in range(BATCH, locks, BATCH)]
        each_lock = (resident() - start) / (locks - BATCH)
        for many in held:
            client.release_many(many)
        start = resident()
        for number in range(clients):
            opened = stack.enter_context(opener())
            opened.release(opened.acquire(key_of(1, number)))
        each_client = (resident() - start) / clients
        numbers = {"per lock": each_lock, "per client kB": each_client / 1024}
        return Tally().result(0.0, first.paths, **numbers)


#: Locks in one call while memory is measured: the warm-up grows the buffers to this.
BATCH = 500


def hold(client: Any, names: list[str]) -> None:
    client.release_many(client.acquire_many(names))


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- contention --------------------------------------------------------------------------------


def contention(opener: Opener, *, processes: int, hold: float, warmup: float, seconds: float) -> Result:
    """``processes`` that all want the same key, and keep it for ``hold`` seconds.

    ``samples``: from the call to the lock. ``numbers``: ``taken``, warm-up included, and ``share``, the
    fewest locks of a process as a part of its fair share.
    """
    fork = multiprocessing.get_context("fork")  # before any import, so processes share nothing
    gate = fork.Barrier(processes)
    queue: Any = fork.SimpleQueue()
    workers = [
        fork.Process(target=contend, args=(opener, gate, queue, hold, warmup, seconds))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    results: list[tuple[Tally, list[str]]] = [queue.get() for _ in workers]
    for worker in workers:
        worker.join()
    tally, paths = results[0]
    fewest = min(len(one.samples) for one, _ in results)
    for one, _ in results[1:]:
        tally.add(one)
    fair = max(len(tally.samples) / processes, 1)
    return tally.result(seconds, paths, taken=tally.taken, share=fewest / fair)


def contend(opener: Opener, gate: Any, queue: Any, hold: float, warmup: float, seconds: float) -> None:
    span, tally, paths = Span(), Tally(), [""]
    try:
        with opener() as opened:
            paths = opened.paths
            gate.wait(TOGETHER)
            span.start(warmup, seconds)
            while (start := clock()) < span.end:
                contend_once(opened, start, hold, span, tally)
    except Exception as error:
        tally.fail(f"{type(error).__name__}: {error}")
    queue.put((tally, paths))


def contend_once(opened: Opened, start: int, hold: float, span: Span, tally: Tally) -> None:
    """One attempt. No lock is not a failure here: many peers give up after a few tries."""
    lock = opened.acquire("bench:contended")
    stop = clock()
    if not lock:
        return
    time.sleep(hold)
    opened.release(lock)
    tally.taken += 1
    if span.begin <= stop <= span.end:
        tally.samples.append(stop - start)


WORKLOADS: dict[str, Callable[..., Result]] = {
    "threads": threads,
    "tasks": tasks,
    "batch": batch,
    "stopped": stopped,
    "memory": memory,
    "contention": contention,
}
