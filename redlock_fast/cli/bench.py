"""``redlock-fast bench``: measures how fast locks are with the user's masters, from this machine.

All keys have a random prefix of this run, and are deleted at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import ENGINE
from ..aio.client import AsyncFastRedlock
from ..algorithm.keys import prefix_of
from ..errors import QuorumUnavailable
from ..masters.key_scan import Servers, escape_pattern
from ..threads.client import FastRedlock
from . import exit_codes
from .progress_bar import ProgressBar
from .settings import Reading, Settings, load
from .tables import show

#: Seconds. Keys that an interrupted run leaves expire after TTL.
TTL = 5.0
#: Options of the client. The command is called with any list of masters: it must not record that one.
DEFAULTS: dict[str, Any] = {"ttl": TTL, "node_timeout": 1.0, "connect_timeout": 2.0, "check_masters": "off"}
TICK = 0.1
#: Names of each caller, used in turn: callers do not contend, and memory is bounded.
NAMES = 1000
#: More keys than a run can leave.
MANY = 1 << 20
#: Seconds to wait after a lock that was not granted.
PAUSE = 0.01


@dataclass
class Tally:
    """The measurements of one part of the run, in seconds."""

    callers: int
    acquires: list[float] = field(default_factory=list)
    cycles: list[float] = field(default_factory=list)
    failed: int = 0
    seconds: float = 0.0

    def add(self, start: float, acquired: float, end: float) -> None:
        self.acquires.append(acquired - start)
        self.cycles.append(end - start)

    def result(self) -> dict[str, Any]:
        done = len(self.cycles)
        return {
            "callers": self.callers,
            "locks": done,
            "failed": self.failed,
            "locks_per_second": round(done / self.seconds, 1),
            "acquire_us": percentiles(self.acquires) if done else {},
            "cycle_us": percentiles(self.cycles) if done else {},
        }


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile of ``samples``, which are seconds, in microseconds."""
    ordered = sorted(samples)
    return {f"p{percent}": round(ordered[len(ordered) * percent // 100] * 1e6, 1) for percent in (50, 99)}


class Bench:
    """A run of so many ``parts``, each of so many ``seconds``: its settings, key prefix and progress bar."""

    def __init__(self, settings: Settings, seconds: float, parts: int) -> None:
        prefix = prefix_of(settings.options.get("key_prefix", ""))
        self.prefix: bytes = prefix + b"redlock-fast:bench:" + os.urandom(8).hex().encode() + b":"
        self._arguments = settings.client(**DEFAULTS) | {"key_prefix": self.prefix}
        self._seconds = seconds
        self._done = 0.0
        self._bar = ProgressBar(parts * seconds)

    def threads(self, callers: int) -> dict[str, Any]:
        """Acquire and release repeatedly in ``callers`` threads with one client; returns the measurements."""
        tally, stop = Tally(callers), threading.Event()
        with FastRedlock(**self._arguments) as client:
            if not client.connect():
                client.locked("a lock")  # raises QuorumUnavailable with the reason
            group = [
                threading.Thread(target=_call, args=(client, number, tally, stop))
                for number in range(callers)
            ]
            try:
                start = time.perf_counter()
                for one in group:
                    one.start()
                while (elapsed := time.perf_counter() - start) < self._seconds:
                    self._show(elapsed, f"{callers} thread{'s' * (callers > 1)}, {len(tally.cycles):,} locks")
                    time.sleep(min(TICK, self._seconds - elapsed))
            finally:
                stop.set()
                for one in group:
                    if one.ident is not None:
                        one.join()
            tally.seconds = time.perf_counter() - start
        self._done += self._seconds
        return tally.result()

    def tasks(self, callers: int) -> dict[str, Any]:
        """As ``threads``, in ``callers`` tasks of an event loop."""
        result = asyncio.run(self._tasks(Tally(callers)))
        self._done += self._seconds
        return result

    async def _tasks(self, tally: Tally) -> dict[str, Any]:
        async with AsyncFastRedlock(**self._arguments) as client:
            await client.connect()
            stop = asyncio.Event()
            start = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number in range(tally.callers):
                    group.create_task(_call_async(client, number, tally, stop))
                while (elapsed := time.perf_counter() - start) < self._seconds:
                    self._show(elapsed, f"{tally.callers} tasks, {len(tally.cycles):,} locks")
                    await asyncio.sleep(min(TICK, self._seconds - elapsed))
                stop.set()
            tally.seconds = time.perf_counter() - start
        return tally.result()

    def _show(self, elapsed: float, text: str) -> None:
        self._bar.show(self._done + elapsed, text)

    def end(self) -> None:
        self._bar.end()


def _call(client: FastRedlock, number: int, tally: Tally, stop: threading.Event) -> None:
    round_ = 0
    while not stop.is_set():
        round_ += 1
        lock = client.lock(f"{number}:{round_ % NAMES}")
        start = time.perf_counter()
        try:
            got = lock.acquire(blocking=False)
        except QuorumUnavailable:
            got = False
        if not got:
            tally.failed += 1
            time.sleep(PAUSE)
            continue
        acquired = time.perf_counter()
        lock.release()
        tally.add(start, acquired, time.perf_counter())


async def _call_async(client: AsyncFastRedlock, number: int, tally: Tally, stop: asyncio.Event) -> None:
    round_ = 0
    while not stop.is_set():
        round_ += 1
        lock = client.lock(f"{number}:{round_ % NAMES}")
        start = time.perf_counter()
        try:
            got = await lock.acquire(blocking=False)
        except QuorumUnavailable:
            got = False
        if not got:
            tally.failed += 1
            await asyncio.sleep(PAUSE)
            continue
        acquired = time.perf_counter()
        await lock.release()
        tally.add(start, acquired, time.perf_counter())


# --- the command ---------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Print the measurements. Returns 0, or 1 if a lock was not granted."""
    settings = load(options)
    bench = Bench(settings, options.seconds, parts=3)
    try:
        results = {
            "one": bench.threads(1),
            "threads": bench.threads(options.threads),
            "tasks": bench.tasks(options.tasks),
        }
    finally:
        bench.end()
        clean_up(settings.reading(), bench.prefix)
    if options.json:
        print(json.dumps({"engine": ENGINE, "masters": len(settings.masters), **results}))
    else:
        _table(results)
    return exit_codes.FAILED if any(result["failed"] for result in results.values()) else 0


def clean_up(reading: Reading, prefix: bytes) -> None:
    """Delete the keys that an interrupted run, or the failure of a master, has left."""
    with Servers(reading.targets, reading.timeout) as servers:
        deadline = time.monotonic() + TTL  # the keys expire by then
        pattern = escape_pattern(prefix) + b"*"
        list(servers.each(lambda one: one.delete(list(one.names(pattern, MANY, deadline))), 2 * TTL))


def _table(results: dict[str, dict[str, Any]]) -> None:
    columns = ["callers", "locks/s", "acquire p50", "p99", "with release p50", "p99", "failed"]
    words = {"one": "one", "threads": "{callers} threads", "tasks": "{callers} tasks"}
    show(columns, [_row(words[name].format(**result), result) for name, result in results.items()])


def _row(callers: str, result: dict[str, Any]) -> list[str]:
    times = [result[what].get(share) for what in ("acquire_us", "cycle_us") for share in ("p50", "p99")]
    shown = ["-" if one is None else f"{one:,.0f} µs" for one in times]
    return [callers, f"{result['locks_per_second']:,.0f}", *shown, f"{result['failed']:,}"]
