"""How cost grows with masters, callers and distance, as docs/scaling.md explains.

    python benchmarks/scaling.py [--quick] [--write] [--only masters,callers,distance,mixed]

Starts its own masters; a delay line (delay.py) makes them far away. Prints Markdown tables; --write puts
them between the scaling marks of benchmarks/NOTES.md. A figure is the median over rounds in which every
cell has one turn.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import document
import libraries
import redis
from closed_loop import tasks, threads
from delay import delayed
from libraries import Opened
from progress import Progress
from scaling_tables import TABLES, Cell, Figures
from workloads import batch

from redlock_fast import embedded

MASTERS = 7

#: ms. To connect at a longer distance takes longer than the rest of a quick cell.
SLOW = 80.0

#: Long: the question is how long an exchange takes, not when a far master times out.
OPTIONS: dict[str, Any] = {"engine": "native", "node_timeout": 5.0, "connect_timeout": 20.0}


def main() -> None:
    options = parse()
    load = os.getloadavg()[0]
    cells = list(dict.fromkeys(cell for name in options.only for cell in TABLES[name][0]))
    if options.quick:
        cells = [cell for cell in cells if SLOW not in cell.distances]
    distances = sorted({far for cell in cells for far in cell.distances if far is not None})
    with embedded.Masters(MASTERS, password="") as masters, contextlib.ExitStack() as stack:
        ports: dict[float | None, list[int]] = {None: [master.port for master in masters]}
        routes = [(port, far / 1000) for far in distances for port in ports[None]]
        lines = stack.enter_context(delayed(routes))
        for at, far in enumerate(distances):
            ports[far] = lines[at * MASTERS : (at + 1) * MASTERS]
        trips = {far: round_trip(there[0]) for far, there in ports.items()}
        directs = [stack.enter_context(redis.Redis(unix_socket_path=one.socket_path)) for one in masters]
        turns = take_turns(cells, ports, directs, options)
        text = describe(masters.binary, load, options)
    for name in options.only:
        text += "\n" + "\n".join(["", *TABLES[name][1](turns, trips)])
    print(text)
    if options.write:
        document.paste(document.NOTES, "scaling", text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How cost grows with masters, callers and distance.")
    parser.add_argument("--quick", action="store_true", help="does it run? The figures mean little")
    parser.add_argument("--write", action="store_true", help="into benchmarks/NOTES.md")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--rounds", type=int, help="turns of each cell (3)")
    parser.add_argument("--seconds", type=float, help="measured in each turn (0.8)")
    options = parser.parse_args()
    if unknown := set(options.only) - TABLES.keys():
        parser.error(f"no {', '.join(unknown)}; there are: {', '.join(TABLES)}")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (0.2 if options.quick else 0.8)
    return options


def take_turns(
    cells: list[Cell], ports: dict[float | None, list[int]], directs: list[redis.Redis], options: Any
) -> dict[Cell, list[Figures]]:
    """``ports``: the ports of all masters, by distance."""
    turns: dict[Cell, list[Figures]] = {cell: [] for cell in cells}
    seconds = {cell: time_for(cell, options.seconds) for cell in cells}
    with Progress(options.rounds * sum(map(sum, seconds.values()))) as progress:
        for number in range(options.rounds):
            for cell in cells:
                progress.step(sum(seconds[cell]), f"round {number + 1} of {options.rounds}: {cell.name}")
                urls = [f"redis://127.0.0.1:{ports[far][at]}" for at, far in enumerate(cell.distances)]
                turns[cell].append(measure(cell, urls, directs[: len(urls)], *seconds[cell]))
    return turns


def time_for(cell: Cell, seconds: float) -> tuple[float, float]:
    """Seconds of warm-up and of measurement: whole cycles and a little, as distant callers keep step."""
    cycle = 2 * max(far or 0.0 for far in cell.distances) / 1000
    if cycle:
        seconds = max(3, math.ceil(seconds / cycle)) * cycle * 1.03
    return max(0.1, 0.25 * seconds, 1.5 * cycle), seconds


# --- one turn -------------------------------------------------------------------------------------


class Meter:
    """CPU seconds of this process and of each master, and the seconds in which they were spent.

    It measures from the last enter to the first exit, while all clients of a cell run.
    """

    def __init__(self, directs: list[redis.Redis]) -> None:
        self._directs = directs
        self.wall = self.client = self.server = 0.0

    def look(self) -> tuple[float, float, float]:
        states = [direct.info("cpu") for direct in self._directs]
        server = sum(one["used_cpu_user"] + one["used_cpu_sys"] for one in states)
        return time.perf_counter(), time.process_time(), server / len(states)

    def __enter__(self) -> None:
        self._before = self.look()

    def __exit__(self, *_: object) -> None:
        if self.wall:
            return
        spent = (after - before for before, after in zip(self._before, self.look(), strict=True))
        self.wall, self.client, self.server = spent


def measure(
    cell: Cell, urls: list[str], directs: list[redis.Redis], warmup: float, seconds: float
) -> Figures:
    meter = Meter(directs)
    options = {**OPTIONS, "decide": cell.decide}

    @contextlib.contextmanager
    def opener() -> Iterator[Opened]:
        with libraries.redlock_fast(urls, **options) as opened, meter:
            yield opened

    @contextlib.asynccontextmanager
    async def aio_opener() -> AsyncIterator[Opened]:
        async with libraries.redlock_fast_aio(urls, **options) as opened:
            with meter:
                yield opened

    if cell.workload == "batch":
        done = batch(opener, size=cell.callers, warmup=warmup, seconds=seconds)
    elif cell.workload == "tasks":
        done = tasks(aio_opener, callers=cell.callers, warmup=warmup, seconds=seconds)
    else:
        own = cell.workload == "clients"
        done = threads(opener, callers=cell.callers, warmup=warmup, seconds=seconds, own=own)
    if done["failed"] or not done["samples"]:
        raise SystemExit(f"{cell}: {len(done['samples'])} cycles, {done['failed']} failed: {done['error']}")
    share = meter.wall * done["locks"] / seconds  # locks while the meter ran, warm-up included
    p50 = statistics.median(done["samples"]) / 1e9
    return Figures(done["locks"] / done["seconds"], p50, meter.client / share, meter.server / share)


def round_trip(port: int, pings: int = 15) -> float:
    """The median seconds from a PING to its reply, which may differ from the nominal delay."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(pings):
            start = time.perf_counter()
            sock.sendall(b"PING\r\n")
            sock.recv(64)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def describe(binary: str, load: float, options: argparse.Namespace) -> str:
    server = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10).stdout
    rounds = f"{options.rounds} round{'s' * (options.rounds > 1)} of {options.seconds:g} s a cell"
    return (
        f"Native engine, {' '.join(server.split()[:3])}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores for clients and masters together, "
        f"load average before {load:.2f}, {rounds}, {time.strftime('%Y-%m-%d')}."
    )


if __name__ == "__main__":
    main()
