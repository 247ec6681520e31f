"""The cells that scaling.py measures, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Round trips in ms, by master. NEAR: without the delay line. 0.0: shows the cost of the delay line itself.
Distances = tuple[float | None, ...]
NEAR = None
FAR = (0.0, 0.2, 1.0, 10.0, 80.0)
MIXED = (
    (0.2, 0.2, 1.0, 10.0, 10.0),
    (0.2, 0.2, 0.2, 80.0, 80.0),
    (1.0, 1.0, 1.0, 80.0, 80.0),
    (0.2, 0.2, 10.0, 80.0, 80.0),
    (0.2, 0.2, 80.0, 80.0, 80.0),
)
FLEETS = (1, 3, 5, 7)


@dataclass(frozen=True)
class Cell:
    """``callers``: threads or tasks of one client; or clients with a thread each; or locks in a batch."""

    workload: str
    callers: int
    distances: Distances = (NEAR,) * 5
    decide: str = "quorum"

    @property
    def name(self) -> str:
        if self.workload == "batch":
            return f"`acquire_many` of {self.callers}"
        return f"{self.callers} {self.workload}".removesuffix("s" if self.callers == 1 else "")


@dataclass(frozen=True)
class Figures:
    """The figures of one turn. ``rate``: locks/s. ``p50``: seconds of a cycle. ``client``, ``server``: CPU
    seconds of a lock, of this process and of each master."""

    rate: float
    p50: float
    client: float
    server: float


#: Each cell's turns, and the measured round trip (seconds) at each distance.
Turns = Mapping[Cell, Sequence[Figures]]
Trips = Mapping[float | None, float]

THREADS = [Cell("threads", callers) for callers in (1, 8, 32, 64)]
TASKS = [Cell("tasks", callers) for callers in (1, 64, 512)]
CALLERS = [Cell("clients", 32), *THREADS, *TASKS, Cell("batch", 256)]


def masters(turns: Turns, trips: Trips) -> Iterable[str]:
    yield "| masters | 1 thread: p50 µs | locks/s | 32 threads: locks/s | client CPU µs | CPU µs a master |"
    yield "|--:|--:|--:|--:|--:|--:|"
    for n in FLEETS:
        one, many = (turns[cell] for cell in fleet(n))
        yield (
            f"| {n} | {us(one, 'p50')} | {thousands(one)} | {thousands(many)} "
            f"| {us(many, 'client')} | {us(many, 'server')} |"
        )


def fleet(n: int) -> list[Cell]:
    return [Cell("threads", callers, (NEAR,) * n) for callers in (1, 32)]


def callers(turns: Turns, trips: Trips) -> Iterable[str]:
    yield "| five masters | locks/s | p50 µs | client CPU µs | CPU µs a master |"
    yield "|---|--:|--:|--:|--:|"
    for cell in CALLERS:
        own = turns[cell]
        times = " | ".join(us(own, name) for name in ("p50", "client", "server"))
        yield f"| {cell.name} | {thousands(own)} | {times} |"


def distance(turns: Turns, trips: Trips) -> Iterable[str]:
    yield "| round trip ms | measured | 1 thread: p50 ms | round trips* | locks/s | 64 threads | 512 tasks |"
    yield "|--:|--:|--:|--:|--:|--:|--:|"
    own = median(turns[at(FAR[0])[0]], "p50")
    for far in FAR:
        if not measured(turns, at(far)):
            continue
        one, threads, tasks = (turns[cell] for cell in at(far))
        p50 = median(one, "p50")
        trips_taken = f"{(p50 - own) * 1000 / far:.2f}" if far else ""
        yield (
            f"| {far:g} | {ms(trips[far])} | {ms(p50)} | {trips_taken} "
            f"| {thousands(one)} | {thousands(threads)} | {thousands(tasks)} |"
        )
    yield ""
    yield "\\* p50 less that of the first line, which is what the delay line itself takes, in round trips."


def at(far: float) -> list[Cell]:
    return [Cell(load, n, (far,) * 5) for load, n in (("threads", 1), ("threads", 64), ("tasks", 512))]


def mixed(turns: Turns, trips: Trips) -> Iterable[str]:
    yield '| round trips ms | third | twice that | p50 ms | twice the last | p50 ms, decide="all" |'
    yield "|---|--:|--:|--:|--:|--:|"
    for distances in MIXED:
        if not measured(turns, either(distances)):
            continue
        quorum, all_masters = (median(turns[cell], "p50") for cell in either(distances))
        third, last = sorted(distances)[len(distances) // 2], max(distances)
        text = " + ".join(f"{far:g}" for far in distances)
        yield (
            f"| {text} | {third:g} | {ms(2 * trips[third])} | {ms(quorum)} "
            f"| {ms(2 * trips[last])} | {ms(all_masters)} |"
        )


def either(distances: Distances) -> list[Cell]:
    return [Cell("threads", 1, distances, decide) for decide in ("quorum", "all")]


#: Of each table its cells, and the function that makes its lines.
TABLES: dict[str, tuple[list[Cell], Callable[[Turns, Trips], Iterable[str]]]] = {
    "masters": ([cell for n in FLEETS for cell in fleet(n)], masters),
    "callers": (CALLERS, callers),
    "distance": ([cell for far in FAR for cell in at(far)], distance),
    "mixed": ([cell for distances in MIXED for cell in either(distances)], mixed),
}


def measured(turns: Turns, cells: Sequence[Cell]) -> bool:
    return all(cell in turns for cell in cells)


def median(turns: Sequence[Figures], name: str) -> float:
    return float(statistics.median(getattr(one, name) for one in turns))


def us(turns: Sequence[Figures], name: str) -> str:
    found = median(turns, name) * 1e6
    return f"{found:,.1f}" if found < 100 else f"{found:,.0f}"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def thousands(turns: Sequence[Figures]) -> str:
    return f"{median(turns, 'rate'):,.0f}"
