"""What one hostile master of five costs the client, compared with a correct one: time and CPU of a lock.

    python benchmarks/hostile.py [--rounds 5] [--seconds 0.4] [--engine native] [--mode threads]
                                 [--tricks cut,wide]

Four Valkey masters and a hostile one (``tests/support/attacks.py``), which is a process of its own. A client
takes and releases an uncontended lock, in turns: with the polite fifth master, with the hostile one, with the
polite one, and so on. Each ratio compares a turn with the mean of its two polite neighbours. Printed are the
medians over the rounds: locks per second of wall clock, and per second of the client's CPU. Above 1 the
hostile turn is faster; a silent master is skipped and costs nothing. "it" is the share of a processor that
the hostile master takes. All processes share the cores, so only the client's CPU time shows its own cost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.attacks import POLITE_MASTER, TRICKS, Process

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.embedded import Masters

ENGINES, MODES = ("native", "python"), ("threads", "asyncio")
#: Seconds until the connection of the fifth master is made or has failed.
SETTLE = 1.0
TTL = 30.0


@dataclass
class Turn:
    """Seconds of a turn. ``wall``, ``cpu``: of the client, for a lock. ``worst``: the slowest acquire."""

    wall: float
    cpu: float
    worst: float


class Clock:
    """Times the cycles of a turn."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._count, self._worst = 0, 0.0
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._began = 0.0

    def begin(self) -> bool:
        """Whether there is time for another cycle."""
        self._began = time.monotonic()
        return self._began - self._wall < self._seconds or not self._count

    def acquired(self) -> None:
        self._worst = max(self._worst, time.monotonic() - self._began)
        self._count += 1

    def turn(self) -> Turn:
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        return Turn(wall / self._count, cpu / self._count, self._worst)


def settled(health: Callable[[], list[Any]]) -> bool:
    return bool(health()[-1].connections or health()[-1].error)


def threads_turn(urls: list[str], seconds: float, options: dict[str, Any]) -> Turn:
    with FastRedlock(urls, **options) as client:
        client.connect()
        end = time.monotonic() + SETTLE
        while not settled(client.health) and time.monotonic() < end:
            time.sleep(0.01)
        clock = Clock(seconds)
        while clock.begin():
            lock = client.lock("hostile", TTL)
            assert lock.acquire(timeout=10)
            clock.acquired()
            lock.release()
        return clock.turn()


async def asyncio_turn(urls: list[str], seconds: float, options: dict[str, Any]) -> Turn:
    async with AsyncFastRedlock(urls, **options) as client:
        await client.connect()
        end = time.monotonic() + SETTLE
        while not settled(client.health) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        clock = Clock(seconds)
        while clock.begin():
            lock = client.lock("hostile", TTL)
            assert await lock.acquire(timeout=10)
            clock.acquired()
            await lock.release()
        return clock.turn()


def turn(mode: str, urls: list[str], seconds: float, engine: str) -> Turn:
    options = {"engine": engine, "restart_guard": "off"}
    if mode == "threads":
        return threads_turn(urls, seconds, options)
    return asyncio.run(asyncio_turn(urls, seconds, options))


def measure(
    name: str, engine: str, mode: str, urls: list[str], polite: Process, rounds: int, seconds: float
) -> str:
    """A row of the table."""
    with contextlib.closing(Process(name)) as hostile:

        def beside(master: Process) -> Turn:
            return turn(mode, [*urls, master.url], seconds, engine)

        before, walls, cpus, worst, taken = beside(polite), [], [], 0.0, 0.0
        for _ in range(rounds):
            spent, began = hostile.spent(), time.monotonic()
            bad = beside(hostile)
            taken += (hostile.spent() - spent) / (time.monotonic() - began) / rounds
            after = beside(polite)
            walls.append((before.wall + after.wall) / 2 / bad.wall)
            cpus.append((before.cpu + after.cpu) / 2 / bad.cpu)
            worst, before = max(worst, bad.worst), after
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    return f"| {name} | {engine} | {mode} | {wall:.2f} | {cpu:.2f} | {1e3 * worst:.0f} | {taken:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--tricks", help="some of them, with commas between")
    options = parser.parse_args()
    names = options.tricks.split(",") if options.tricks else list(TRICKS)
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    print("| trick | engine | mode | by wall clock, x | by the client's CPU, x | worst acquire, ms | it |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with contextlib.ExitStack() as stack:
        masters = stack.enter_context(Masters(4, server="valkey", password=""))
        polite = stack.enter_context(contextlib.closing(Process(POLITE_MASTER)))
        for name in names:
            for engine in [options.engine] if options.engine else ENGINES:
                for mode in [options.mode] if options.mode else MODES:
                    row = measure(name, engine, mode, masters.urls, polite, options.rounds, options.seconds)
                    print(row, flush=True)


if __name__ == "__main__":
    main()
