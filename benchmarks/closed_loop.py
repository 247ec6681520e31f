"""Runs and times callers that take one lock after the other, as threads or as tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from libraries import AioOpener, Opened, Opener

Result = dict[str, Any]
clock = time.perf_counter_ns

#: Seconds that callers wait for each other at the start.
TOGETHER = 30.0


@dataclass
class Span:
    """The measured time, from ``begin`` to ``end``; the time before is warm-up."""

    begin: int = 0
    end: int = 0

    def start(self, warmup: float, seconds: float) -> None:
        self.begin = clock() + int(warmup * 1e9)
        self.end = self.begin + int(seconds * 1e9)


@dataclass
class Tally:
    """The samples of one caller. ``taken``: all locks, warm-up included."""

    samples: list[int] = field(default_factory=list)
    taken: int = 0
    failed: int = 0
    error: str = ""

    def fail(self, error: object) -> None:
        self.failed += 1
        self.error = str(error)

    def add(self, other: Tally) -> None:
        self.samples += other.samples
        self.taken += other.taken
        self.failed += other.failed
        self.error = other.error or self.error

    def result(self, seconds: float, paths: list[str], **numbers: float) -> Result:
        return {
            "samples": self.samples,
            "locks": len(self.samples),
            "seconds": seconds,
            "failed": self.failed,
            "error": self.error,
            "numbers": numbers,
            "info": {"paths": paths},
        }


def key_of(caller: int, number: int) -> str:
    return f"bench:{os.getpid()}:{caller}:{number}"


# --- threads -----------------------------------------------------------------------------------


def threads(opener: Opener, *, callers: int, warmup: float, seconds: float, own: bool = False) -> Result:
    """``callers`` threads, a new key for each lock. ``own``: each has a client of its own."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(opener()) for _ in range(callers if own else 1)]
        tally = together(opened, callers, warmup, seconds)
        return tally.result(seconds, opened[0].paths)


def together(opened: list[Opened], callers: int, warmup: float, seconds: float) -> Tally:
    """Run all callers at once, the first in this thread. The clock starts when each has had a lock.

    Many libraries open the connections of a caller at its first lock.
    """
    span, tallies = Span(), [Tally() for _ in range(callers)]
    gate = threading.Barrier(callers, lambda: span.start(warmup, seconds), TOGETHER)

    def run(caller: int) -> None:
        mine = opened[caller % len(opened)]
        with contextlib.suppress(Exception):  # the same failure is counted below
            mine.release(mine.acquire(key_of(caller, 0)))
        gate.wait()
        cycles(mine, caller, span, tallies[caller])

    others = [threading.Thread(target=run, args=(caller,)) for caller in range(1, callers)]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    for tally in tallies[1:]:
        tallies[0].add(tally)
    return tallies[0]


def cycles(opened: Opened, caller: int, span: Span, tally: Tally) -> None:
    acquire, release = opened.acquire, opened.release
    number = 0
    while (start := clock()) < span.end:
        number += 1
        try:
            lock = acquire(key_of(caller, number))
            if not lock:
                tally.fail("not acquired")
                continue
            release(lock)
        except Exception as error:
            tally.fail(f"{type(error).__name__}: {error}")
            continue
        tally.taken += 1
        if span.begin <= (stop := clock()) <= span.end:
            tally.samples.append(stop - start)


# --- asyncio -----------------------------------------------------------------------------------


def tasks(opener: AioOpener, *, callers: int, warmup: float, seconds: float, uvloop: bool = False) -> Result:
    """``callers`` tasks of one loop, a new key for each lock."""

    async def run() -> Result:
        span, tally = Span(), Tally()
        async with opener() as opened:
            await asyncio.gather(*(first(opened, caller) for caller in range(callers)))
            span.start(warmup, seconds)
            await asyncio.gather(*(aio_cycles(opened, caller, span, tally) for caller in range(callers)))
            return tally.result(seconds, opened.paths)

    with asyncio.Runner(loop_factory=_uvloop() if uvloop else None) as runner:
        return runner.run(run())


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def first(opened: Opened, caller: int) -> None:
    """As in ``together``."""
    with contextlib.suppress(Exception):
        await opened.release(await opened.acquire(key_of(caller, 0)))


async def aio_cycles(opened: Opened, caller: int, span: Span, tally: Tally) -> None:
    acquire, release = opened.acquire, opened.release
    number = 0
    while (start := clock()) < span.end:
        number += 1
        try:
            lock = await acquire(key_of(caller, number))
            if not lock:
                tally.fail("not acquired")
                await asyncio.sleep(0)
                continue
            await release(lock)
        except Exception as error:
            tally.fail(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0)
            continue
        tally.taken += 1
        if span.begin <= (stop := clock()) <= span.end:
            tally.samples.append(stop - start)
