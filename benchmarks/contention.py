"""What a grant costs while many clients want one lock, and what each of them waits.

    python benchmarks/contention.py [--only plain,fair] [--processes 1,8,32,100] [--hold 0,1,10]
                                    [--callers 100] [--seconds 3] [--engine native]
    python benchmarks/contention.py --verdicts [--write]
    python benchmarks/contention.py --only redlock-ng

Five Valkey masters. Each process has one client with one caller, which acquires, holds the lock for some
milliseconds, releases it, and acquires again. "100 x 100" is 100 clients with 100 callers each, as asyncio
tasks of four processes. Commands are all that the masters executed, those inside scripts included: they do
not depend on the machine. Rates are given as a part of the rate of one process in the same run.

``--verdicts`` also prints the numbers that were set as bars for one waiter that is woken, and whether each is
reached; ``--write`` puts the table into docs/waiting.md, with a plot. The time from a release to the next
grant is that of waiting.py. Another library must be installed to be measured: it waits in its own way, and is
asked again until it has the lock.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import document
import libraries
import plot
import redis

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.embedded import Masters

KEY, TTL, PERMITS = "contended", 60.0, 4
#: Seconds from the start of all callers to the measurement: all of them know of each other by then.
SETTLE = 1.5
#: Processes that the clients of "100 x 100" are in.
HOSTS = 4
#: Commands that are no part of a lock.
OTHERS = frozenset(
    ("info", "ping", "hello", "config|get", "client|tracking", "client|setinfo", "auth", "role")
)

#: Makes the lock of caller ``number``.
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "plain": lambda client, number: client.lock(KEY, TTL),
    "fair": lambda client, number: client.lock(KEY, TTL, fair=True),
    "write lock": lambda client, number: client.rwlock(KEY, TTL).write(),
    "rwlock, half readers": lambda client, number: (
        client.rwlock(KEY, TTL).write() if number % 2 else client.rwlock(KEY, TTL).read()
    ),
    f"semaphore of {PERMITS}": lambda client, number: client.semaphore(KEY, PERMITS, TTL),
    "multilock of 2": lambda client, number: client.multilock([KEY, f"{KEY}-2"], TTL),
}


#: Other libraries: how each of them is opened.
PEERS: dict[str, Callable[..., Any]] = {
    "redlock-py": libraries.redlock_py,
    "redlock-ng": libraries.redlock_ng,
    "pottery": libraries.pottery,
    "redis-py, one master": libraries.one_master,
}


class Cell(NamedTuple):
    """A number of ``clients`` with ``callers`` each, which hold the lock for ``hold`` milliseconds."""

    kind: str
    clients: int
    callers: int
    hold: float

    def __str__(self) -> str:
        clients = f"{self.clients} x {self.callers}" if self.callers > 1 else str(self.clients)
        return f"{self.kind}, {clients}, hold {self.hold:g} ms"


class Row(NamedTuple):
    """What was measured. Waits in seconds; processor times in microseconds a grant."""

    rate: float
    commands: float
    p50: float
    p99: float
    longest: float
    share: float
    client_us: float
    server_us: float


class Window(NamedTuple):
    """When all begin, and between which moments (``time.monotonic``) grants count."""

    start: float
    begin: float
    end: float


class Part(NamedTuple):
    """What one process measured: the grants of each of its clients, all waits, its processor time."""

    grants: list[int]
    waits: list[float]
    cpu: float


# --- one process --------------------------------------------------------------------------------------


def cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def thread_caller(urls: list[str], engine: str, cell: Cell, number: int, window: Window) -> Part:
    """A process with one client and one caller."""
    grants, waits, cpu = 0, list[float](), 0.0
    with opened(urls, engine, cell.kind, number) as (acquire, release):
        time.sleep(max(0.0, window.start - time.monotonic()))
        while (asked := time.monotonic()) < window.end:
            cpu = cpu or (cpu_time() if asked >= window.begin else 0.0)
            held = acquire(window.end + 1.0 - asked)
            if not held:
                waits.append(time.monotonic() - max(asked, window.begin))
                break
            if window.begin <= (granted := time.monotonic()) < window.end:
                grants += 1
                waits.append(granted - asked)
            if cell.hold:
                time.sleep(cell.hold / 1e3)
            release(held)
        return Part([grants], waits, cpu_time() - cpu)


@contextmanager
def opened(urls: list[str], engine: str, kind: str, number: int) -> Iterator[tuple[Any, Any]]:
    """``acquire(seconds)``, false when the time has ended, and ``release(what acquire returned)``."""
    if kind in PEERS:
        with PEERS[kind](urls) as peer:

            def again_and_again(seconds: float) -> Any:
                end = time.monotonic() + seconds
                while not (held := peer.acquire(KEY)) and time.monotonic() < end:
                    pass
                return held

            yield again_and_again, peer.release
    else:
        with FastRedlock(urls, engine=engine, node_timeout=5.0) as client:
            client.connect()
            lock = KINDS[kind](client, number)
            yield lambda seconds: lock.acquire(timeout=seconds), lambda held: lock.release()


def task_callers(urls: list[str], engine: str, cell: Cell, clients: int, window: Window) -> Part:
    """A process with ``clients`` clients, each with many tasks."""
    return asyncio.run(_task_callers(urls, engine, cell, clients, window))


async def _task_callers(urls: list[str], engine: str, cell: Cell, clients: int, window: Window) -> Part:
    grants, waits, cpu = [0] * clients, list[float](), 0.0

    async def call(own: int, lock: Any) -> None:
        nonlocal cpu
        while (asked := time.monotonic()) < window.end:
            if not await lock.acquire(timeout=window.end + 1.0 - asked):
                return
            if window.begin <= (granted := time.monotonic()) < window.end:
                cpu = cpu or cpu_time()
                grants[own] += 1
                waits.append(granted - asked)
            if cell.hold:
                await asyncio.sleep(cell.hold / 1e3)
            await lock.release()

    all_clients = [AsyncFastRedlock(urls, engine=engine, node_timeout=5.0) for _ in range(clients)]
    for client in all_clients:
        await client.connect()
    await asyncio.sleep(max(0.0, window.start - time.monotonic()))
    make = KINDS[cell.kind]
    await asyncio.gather(
        *(call(own, make(all_clients[own], n)) for n in range(cell.callers) for own in range(clients))
    )
    spent = cpu_time() - cpu
    for client in all_clients:
        await client.close()
    return Part(grants, waits, spent)


def work(pipe: Any, run: Callable[..., Part], *args: Any) -> None:
    try:
        pipe.send(run(*args))
    except BaseException as error:
        pipe.send(error)
        raise


# --- one cell -----------------------------------------------------------------------------------------


def measure(masters: Masters, cell: Cell, seconds: float, engine: str = "native") -> Row:
    """Start the processes of a cell, let them contend, and add up what they found."""
    nodes = [redis.Redis(unix_socket_path=master.socket_path) for master in masters]
    if cell.callers > 1:
        shares = [len(range(n, cell.clients, HOSTS)) for n in range(min(HOSTS, cell.clients))]
        runs = [(task_callers, masters.urls, engine, cell, share) for share in shares]
    else:
        runs = [(thread_caller, masters.urls, engine, cell, number) for number in range(cell.clients)]
    start = time.monotonic() + 1.0 + 0.03 * cell.clients + (2.0 if cell.callers > 1 else 0.0)
    window = Window(start, start + SETTLE, start + SETTLE + seconds)
    with started([(*run, window) for run in runs]) as pipes:
        time.sleep(window.begin - time.monotonic())
        before, cpu_before = executed(nodes), server_cpu(nodes)
        time.sleep(window.end - time.monotonic())
        commands, cpu = executed(nodes) - before, server_cpu(nodes) - cpu_before
        parts = [pipe.recv() for pipe in pipes]
    for failure in parts:
        if isinstance(failure, BaseException):
            raise failure
    for node in nodes:
        node.flushall()
        node.close()
    return summary(parts, commands, cpu, seconds)


@contextmanager
def started(runs: list[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Children of fork, because a hundred interpreters would take a minute to start."""
    fork = multiprocessing.get_context("fork")
    pipes, children = [], []
    for run in runs:
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=work, args=(theirs, *run), daemon=True)
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    try:
        yield pipes
    finally:
        for child in children:
            child.join(10)
            child.kill()
            child.join()


def executed(nodes: list[redis.Redis]) -> int:
    """The commands of locks that all masters executed, with those inside scripts."""
    total = 0
    for node in nodes:
        for name, one in node.info("commandstats").items():
            if name.removeprefix("cmdstat_") not in OTHERS:
                total += one["calls"]
    return total


def server_cpu(nodes: list[redis.Redis]) -> float:
    used = [node.info("cpu") for node in nodes]
    return sum(one["used_cpu_sys"] + one["used_cpu_user"] for one in used)


def summary(parts: list[Part], commands: int, cpu: float, seconds: float) -> Row:
    grants = [count for part in parts for count in part.grants]
    waits = sorted(wait for part in parts for wait in part.waits)
    total = max(1, sum(grants))
    return Row(
        rate=sum(grants) / seconds,
        commands=commands / total,
        p50=percentile(waits, 0.5),
        p99=percentile(waits, 0.99),
        longest=waits[-1] if waits else math.inf,
        share=min(grants) * len(grants) / total,
        client_us=1e6 * sum(part.cpu for part in parts) / total,
        server_us=1e6 * cpu / total,
    )


def percentile(waits: list[float], part: float) -> float:
    return waits[int(len(waits) * part)] if waits else math.inf


# --- the tables ---------------------------------------------------------------------------------------

HEADER = """\
| kind | clients | hold | grants/s | of 1 process | commands a grant | wait p50 / p99 / max | smallest share \
| client / masters, µs a grant |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"""


def line(cell: Cell, row: Row, one: Row | None) -> str:
    clients = f"{cell.clients} x {cell.callers}" if cell.callers > 1 else str(cell.clients)
    part = f"{row.rate / one.rate:.2f}" if one else ""
    waits = f"{1e3 * row.p50:.1f} / {1e3 * row.p99:.1f} / {1e3 * row.longest:.0f} ms"
    return (
        f"| {cell.kind} | {clients} | {cell.hold:g} ms | {row.rate:.0f} | {part} | {row.commands:.0f} "
        f"| {waits} | {row.share:.2f} | {row.client_us:.0f} / {row.server_us:.0f} |"
    )


class Bars(NamedTuple):
    """What must be reached. ``commands``: a grant. ``rates``: with 32 and 100 processes, of that of one.

    ``wait``: p99 with 100 processes, in seconds; ``turns``: p99 with 32, in turns of all 32; ``share``: the
    smallest; ``milliseconds``: a grant of 100 x 100.
    """

    commands: float
    rates: float
    wait: float
    turns: float
    share: float
    milliseconds: float


BARS = {"plain": Bars(150, 0.80, 0.6, 3.0, 0.7, 2.0), "fair": Bars(250, 0.85, 0.25, 1.3, 0.95, 2.5)}


def verdicts(rows: dict[Cell, Row]) -> Iterator[str]:
    """A line for each bar. ``rows``: with 1, 8, 32 and 100 processes, hold 1 ms, and 100 x 100."""
    yield "| kind | bar | must | measured | |\n|---|---|--:|--:|---|"

    def judged(kind: str, bar: str, must: float, found: float, least: bool = False) -> str:
        held = found >= must if least else found <= must
        sign = "≥" if least else "≤"
        return f"| {kind} | {bar} | {sign} {must:g} | {found:.3g} | {'reached' if held else 'MISSED'} |"

    for kind, bars in BARS.items():
        by_count = {cell.clients: row for cell, row in rows.items() if (cell.kind, cell.callers) == (kind, 1)}
        for count in (8, 32, 100):
            yield judged(kind, f"commands a grant, {count}", bars.commands, by_count[count].commands)
        for count in (32, 100):
            part = by_count[count].rate / by_count[1].rate
            yield judged(kind, f"grants/s, {count} of 1", bars.rates, part, least=True)
        yield judged(kind, "p99 wait, 100 (s)", bars.wait, by_count[100].p99)
        turns = by_count[32].p99 * by_count[32].rate / 32
        yield judged(kind, "p99 wait, 32 (of 32 mean times a grant)", bars.turns, turns)
        share = min(by_count[count].share for count in (8, 32, 100))
        yield judged(kind, "smallest share", bars.share, share, least=True)
        largest = rows[Cell(kind, 100, 100, 0.0)]
        yield judged(kind, "ms a grant, 100 x 100", bars.milliseconds, 1e3 / max(largest.rate, 1e-3))


def main() -> None:
    options = parse()
    rows: dict[Cell, Row] = {}
    print(HEADER, flush=True)
    for kind in options.only:
        for hold in options.hold:
            for processes in options.processes:
                cell = Cell(kind, processes, 1, hold)
                with Masters(5, password="") as masters:
                    rows[cell] = measure(masters, cell, options.seconds, options.engine)
                print(line(cell, rows[cell], rows.get(Cell(kind, 1, 1, hold))), flush=True)
        if options.callers:
            cell = Cell(kind, options.callers, options.callers, 0.0)
            with Masters(5, password="") as masters:
                rows[cell] = measure(masters, cell, options.seconds, options.engine)
            print(line(cell, rows[cell], None), flush=True)
    if options.verdicts:
        print("\n" + "\n".join(verdicts(rows)))
    if options.write:
        lines = [line(cell, row, rows.get(Cell(cell.kind, 1, 1, cell.hold))) for cell, row in rows.items()]
        document.paste(document.WAITING, "contention", "\n".join([describe(options), "", HEADER, *lines]))
        if plot.INSTALLED:
            (document.DOCS / "grants-by-clients.svg").write_text(plot.contention(rows))


def describe(options: argparse.Namespace) -> str:
    return (
        "`python benchmarks/contention.py --verdicts --write`: five Valkey masters, "
        f"{options.engine} engine, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{options.seconds:g} s for each line. "
        "Each client is a process with one caller, which holds the lock and asks for it again; of 100 x 100, "
        "a client with 100 tasks. Commands: all that the five masters executed, those in scripts included."
    )


def parse() -> argparse.Namespace:
    def numbers(kind: type) -> Callable[[str], list[Any]]:
        return lambda text: [kind(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["plain", "fair"])
    parser.add_argument("--processes", type=numbers(int), default=[1, 8, 32, 100])
    parser.add_argument("--hold", type=numbers(float), default=[1.0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", type=int, default=0)
    parser.add_argument("--engine", default="native", choices=("native", "python"))
    parser.add_argument(
        "--verdicts", action="store_true", help="plain and fair, 1 to 100 processes, 100 x 100"
    )
    parser.add_argument("--write", action="store_true", help="into docs/waiting.md")
    options = parser.parse_args()
    if options.verdicts:
        options.only, options.processes, options.hold, options.callers = (
            list(BARS),
            [1, 8, 32, 100],
            [1.0],
            100,
        )
    only = options.only
    options.only = [kind for kind in (*KINDS, *PEERS) if {kind, kind.split()[0].strip(",")} & {*only}]
    return options


if __name__ == "__main__":
    main()
