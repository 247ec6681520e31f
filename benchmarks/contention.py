"""What a grant costs while many clients want one lock, and what each of them waits.

    python benchmarks/contention.py [--only plain,fair] [--processes 1,8,32,100] [--hold 0,1,10]
                                    [--callers 100] [--seconds 3] [--engine native]
    python benchmarks/contention.py --verdicts [--write]
    python benchmarks/contention.py --peers [--write]

Five Valkey masters. Each process has one client with one caller, which acquires, holds the lock for some
milliseconds, releases it, and acquires again. "100 x 100" is 100 clients with 100 callers each, as asyncio
tasks of four processes. Commands are all that the masters executed, those inside scripts included: they do
not depend on the machine. Rates are given as a part of the rate of one process in the same run.

``--verdicts`` also prints the numbers that were set as bars for one waiter that is woken, and whether each is
reached; ``--write`` puts the table into benchmarks/NOTES.md, with a plot. The time from a release to the next
grant is that of waiting.py. ``--peers`` measures other libraries, each in an environment of its own as
compare.py does: it waits in its own way, and is asked again until it has the lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import callers
import document
import plot
import redis
from callers import KEY, Part, Window, contend, cpu_time, received
from implementations import HERE, Peer, UnavailableError, last_line
from scenarios import ONE_MASTER, POTTERY, REDLOCK_NG, REDLOCK_PY

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.embedded import Masters

TTL, PERMITS = 60.0, 4
#: Seconds from the start of all callers to the measurement: all of them know of each other by then.
SETTLE = 1.5
#: Seconds after the measurement in which the callers of another library must end.
LONGEST = 30.0
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
    "fenced": lambda client, number: client.lock(KEY, TTL, fencing=True),
    "write lock": lambda client, number: client.rwlock(KEY, TTL).write(),
    "rwlock, half readers": lambda client, number: (
        client.rwlock(KEY, TTL).write() if number % 2 else client.rwlock(KEY, TTL).read()
    ),
    f"semaphore of {PERMITS}": lambda client, number: client.semaphore(KEY, PERMITS, TTL),
    "multilock of 2": lambda client, number: client.multilock([KEY, f"{KEY}-2"], TTL),
}


#: Other libraries. The last one has no Redlock, and one master only.
PEERS: dict[str, Peer] = {
    "redlock-py": REDLOCK_PY,
    "redlock-ng": REDLOCK_NG,
    "pottery": POTTERY,
    "redis-py, one master": ONE_MASTER,
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


# --- one process --------------------------------------------------------------------------------------


def thread_caller(urls: list[str], engine: str, cell: Cell, number: int, window: Window) -> Part:
    """A process with one client and one caller."""
    with FastRedlock(urls, engine=engine, node_timeout=5.0) as client:
        client.connect()
        lock = KINDS[cell.kind](client, number)
        return contend(
            lambda seconds: lock.acquire(timeout=seconds), lambda held: lock.release(), cell.hold, window
        )


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


# --- one cell -----------------------------------------------------------------------------------------


def measure(masters: Masters, cell: Cell, seconds: float, engine: str = "native") -> Row:
    """Start the processes of a cell, let them contend, and add up what they found."""
    nodes = [redis.Redis(unix_socket_path=master.socket_path) for master in masters]
    with contending(masters.urls, engine, cell, seconds) as (window, collect):
        time.sleep(window.begin - time.monotonic())
        before, cpu_before = executed(nodes), server_cpu(nodes)
        time.sleep(window.end - time.monotonic())
        commands, cpu = executed(nodes) - before, server_cpu(nodes) - cpu_before
        parts = collect()
    for node in nodes:
        node.flushall()
        node.close()
    return summary(parts, commands, cpu, seconds)


@contextmanager
def contending(
    urls: list[str], engine: str, cell: Cell, seconds: float
) -> Iterator[tuple[Window, Callable[[], list[Part]]]]:
    """Start all callers of ``cell``. Yields when they contend, and what waits for what they measured."""
    if cell.kind in PEERS:
        peer = PEERS[cell.kind]
        job = {"library": peer.package, "urls": urls, "processes": cell.clients, "hold": cell.hold}
        program = [peer.python(install=False), str(HERE / "callers.py"), json.dumps(job)]
        pipe = subprocess.PIPE
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            window = soon(cell, seconds)
            process.stdin.write(f"{json.dumps(window)}\n")
            process.stdin.flush()
            yield window, lambda: parts_of(process)
        return
    window = soon(cell, seconds)
    if cell.callers > 1:
        shares = [len(range(n, cell.clients, HOSTS)) for n in range(min(HOSTS, cell.clients))]
        runs = [(task_callers, urls, engine, cell, share) for share in shares]
    else:
        runs = [(thread_caller, urls, engine, cell, number) for number in range(cell.clients)]
    with callers.started([(*run, window) for run in runs]) as pipes:
        yield window, lambda: received(pipes)


def soon(cell: Cell, seconds: float) -> Window:
    """When all processes of ``cell`` have started."""
    start = time.monotonic() + 1.0 + 0.1 * cell.clients + (2.0 if cell.callers > 1 else 0.0)
    return Window(start, start + SETTLE, start + SETTLE + seconds)


def parts_of(process: subprocess.Popen[str]) -> list[Part]:
    """What callers.py printed. Raises UnavailableError: the library did not stand it."""
    try:
        output, errors = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        raise UnavailableError(f"it did not end within {LONGEST:g} s") from None
    if process.returncode:
        raise UnavailableError(last_line(errors))
    return [Part(*part) for part in json.loads(output)]


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
    if row.longest == math.inf:
        waits = "no grant"
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
    lines: list[str] = []
    print(HEADER, flush=True)

    def add(cell: Cell) -> None:
        try:
            if cell.kind in PEERS:
                PEERS[cell.kind].python(install=True)
            with Masters(5, password="") as masters:
                rows[cell] = measure(masters, cell, options.seconds, options.engine)
            lines.append(line(cell, rows[cell], rows.get(cell._replace(clients=1))))
        except UnavailableError as error:
            lines.append(f"| {cell.kind} | {cell.clients} | {cell.hold:g} ms | failed: {error} | | | | | |")
        print(lines[-1], flush=True)

    for kind in options.only:
        for hold in options.hold:
            for processes in options.processes:
                add(Cell(kind, processes, 1, hold))
        if options.callers:
            add(Cell(kind, options.callers, options.callers, 0.0))
    if options.verdicts:
        print("\n" + "\n".join(verdicts(rows)))
    if options.write:
        block = "contention-peers" if options.peers else "contention"
        document.paste(document.NOTES, block, "\n".join([describe(options), "", HEADER, *lines]))
        if not options.peers:
            plot.record({"contention": {**plot.recorded()["contention"], **grants(rows)}})


def grants(rows: dict[Cell, Row]) -> dict[str, dict[str, float]]:
    """Grants a second by the number of processes, for the plot."""
    found: dict[str, dict[str, float]] = {}
    for cell, row in rows.items():
        if cell.callers == 1 and cell.hold == 1:
            found.setdefault(cell.kind, {})[str(cell.clients)] = row.rate
    return found


def describe(options: argparse.Namespace) -> str:
    setting = (
        f"five Valkey masters, {options.engine} engine, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {options.seconds:g} s for each line. "
    )
    if options.peers:
        versions = ", ".join(f"{peer.package} {peer.version}" for peer in PEERS.values())
        return (
            f"`python benchmarks/contention.py --peers --write`: {setting}{versions}, each as its documents "
            "show, and asked again until it has the lock."
        )
    return (
        f"`python benchmarks/contention.py --verdicts --write`: {setting}"
        "Each client is a process with one caller, which holds the lock and asks for it again; of 100 x 100, "
        "a client with 100 tasks. Commands: all that the five masters executed, those in scripts included."
    )


def parse() -> argparse.Namespace:
    def numbers(kind: type) -> Callable[[str], list[Any]]:
        return lambda text: [kind(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["plain", "fair"])
    parser.add_argument("--processes", type=numbers(int), help="default: 1,8,32,100; of --peers 8,32,100")
    parser.add_argument("--hold", type=numbers(float), default=[1.0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", type=int, default=0)
    parser.add_argument("--engine", default="native", choices=("native", "python"))
    parser.add_argument(
        "--verdicts", action="store_true", help="plain and fair, 1 to 100 processes, 100 x 100"
    )
    parser.add_argument("--peers", action="store_true", help="other libraries beside plain and fair locks")
    parser.add_argument("--write", action="store_true", help="into benchmarks/NOTES.md")
    options = parser.parse_args()
    if options.verdicts:
        options.only, options.processes, options.hold, options.callers = (
            list(BARS),
            [1, 8, 32, 100],
            [1.0],
            100,
        )
    if options.peers:
        options.only = [*BARS, *PEERS]
    options.processes = options.processes or [1, 8, 32, 100][options.peers :]
    only = options.only
    options.only = [kind for kind in (*KINDS, *PEERS) if {kind, kind.split()[0].strip(",")} & {*only}]
    return options


if __name__ == "__main__":
    main()
