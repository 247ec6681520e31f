"""The thresholds: what must be reached, what is aimed for, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scenarios import AIO, AIO_PEER_HIREDIS, AIO_PEERS, AIO_TIMEOUT, ALL, OWN, REDLOCK_PY_HIREDIS, TIMEOUT
from stats import Turns, over_rounds, ratio

from redlock_fast.engine.contract import MAX_OWED

MET, MISSED, OPEN = "met", "MISSED", "not measured"


@dataclass(frozen=True)
class Threshold:
    """Limits the number ``name`` of ``label`` in ``scenario``, or its ratio to the best of ``against``.

    The number must be at most ``must``, with ``least`` at least. ``pick`` combines the rounds of a number
    without a ratio: the median, or the worst (max) if a single failure is too much.
    """

    case: str
    scenario: str
    name: str
    label: str
    must: float
    aim: float
    against: tuple[str, ...] = ()
    least: bool = False
    unit: str = "x"
    pick: Callable[[list[float]], float] | None = None

    def measured(self, turns: Turns) -> float | None:
        scenario = turns.get(self.scenario, {})
        if self.against:
            return ratio(scenario, self.name, self.label, *self.against)
        picked = (self.pick,) if self.pick else ()
        return over_rounds(scenario.get(self.label, []), self.name, *picked)

    def reached(self, value: float, limit: float) -> bool:
        return value >= limit if self.least else value <= limit

    def judged(self, turns: Turns) -> dict[str, Any]:
        value = self.measured(turns)
        verdict = OPEN if value is None else MET if self.reached(value, self.must) else MISSED
        aimed = value is not None and self.reached(value, self.aim)
        sign = "≥" if self.least else "≤"
        return {
            "case": self.case,
            "must": f"{sign} {number(self.must, self.unit)}",
            "aim": f"{sign} {number(self.aim, self.unit)}",
            "measured": value,
            "is": "" if value is None else number(value, self.unit),
            "verdict": verdict,
            "aim reached": aimed,
        }


def number(value: float, unit: str) -> str:
    """Three digits at most, with the unit."""
    digits = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
    if unit == "x":
        digits = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return f"{digits} {unit}".strip()


# --- kinds of thresholds -----------------------------------------------------------------------


def p50_at_most(case: str, scenario: str, label: str, must: float, aim: float) -> Threshold:
    """Of the ratio of the p50 of ``label`` to that of the floor."""
    return Threshold(f"{case}: p50 by the floor's", scenario, "p50", label, must, aim, ("floor",))


def peer_slower(case: str, peer: str, ours: str, must: float, aim: float) -> Threshold:
    return Threshold(f"{case}: p50 of {peer} by ours", "caller", "p50", peer, must, aim, (ours,), least=True)


def rate_at_least(case: str, scenario: str, label: str, must: float, aim: float, *against: str) -> Threshold:
    return Threshold(f"{case}: locks/s", scenario, "locks/s", label, must, aim, against, least=True)


def threads(callers: int, must: float, aim: float) -> Threshold:
    case = f"{callers} threads against own connections per thread"
    return rate_at_least(case, f"threads-{callers}", "native", must, aim, OWN.label)


def batch(size: int, must: float) -> Threshold:
    case = f"acquire_many + release_many of {size} against the floor of that batch"
    return rate_at_least(case, f"batch-{size}", "native", must, 1.0, "floor")


def stopped(callers: str) -> tuple[Threshold, ...]:
    label, case = f"native, {callers}", f"one master stopped, {callers}"
    return (
        Threshold(f"{case}: locks/s against before", "stopped", "of before", label, 0.9, 1.0, least=True),
        Threshold(f"{case}: failed acquires", "stopped", "failed", label, 0, 0, unit="", pick=max),
        Threshold(f"{case}: replies owed", "stopped", "owed", label, MAX_OWED, MAX_OWED, unit="", pick=max),
    )


def memory(engine: str) -> tuple[Threshold, ...]:
    return (
        Threshold(f"memory of a held lock, {engine}", "memory", "per lock", engine, 600, 300, unit="B"),
        Threshold(f"memory of a client, {engine}", "memory", "per client kB", engine, 2048, 512, unit="kB"),
    )


def imported() -> tuple[Threshold, ...]:
    label = "import redlock_fast"
    return (
        Threshold(label, "import", "ms", label, 60, 30, unit="ms"),
        Threshold(f"{label}: heavy modules that come with it", "import", "heavy", label, 0, 0, unit=""),
    )


THRESHOLDS: tuple[Threshold, ...] = (
    p50_at_most("1 thread, decided at quorum", "caller", "native", 0.90, 0.80),
    p50_at_most("1 thread, all replies awaited", "caller", ALL.label, 1.08, 1.03),
    p50_at_most("1 thread, pure Python", "caller", "python", 1.35, 1.15),
    peer_slower("1 thread", "redlock-py", "native", 6, 8),
    peer_slower("1 thread", REDLOCK_PY_HIREDIS.label, "native", 4.5, 6),
    peer_slower("1 thread", "pottery", "native", 15, 20),
    peer_slower("1 thread, pure Python", "redlock-py", "python", 2, 3),
    threads(8, 1.6, 2.5),
    threads(32, 3.3, 6),
    threads(64, 4.2, 8),
    rate_at_least("32 threads against floor32", "threads-32", "native", 0.35, 0.55, "floor"),
    rate_at_least(
        "32 threads with a timeout against those without", "threads-32", TIMEOUT.label, 0.8, 0.95, "native"
    ),
    p50_at_most("asyncio, 1 task", "caller", AIO.label, 1.35, 1.1),
    rate_at_least("asyncio, 64 tasks against floor64", "tasks-64", AIO.label, 0.6, 0.8, "floor"),
    rate_at_least(
        "asyncio, 64 tasks against the best asyncio peer",
        "tasks-64",
        AIO.label,
        22,
        40,
        *(peer.label for peer in AIO_PEERS),
    ),
    rate_at_least(
        f"asyncio, 64 tasks against {AIO_PEER_HIREDIS.label}",
        "tasks-64",
        AIO.label,
        22,
        40,
        AIO_PEER_HIREDIS.label,
    ),
    rate_at_least(
        "asyncio, 64 tasks with a timeout against those without",
        "tasks-64",
        AIO_TIMEOUT.label,
        0.8,
        0.95,
        AIO.label,
    ),
    batch(64, 0.90),
    batch(256, 0.90),
    batch(1024, 0.85),
    p50_at_most(
        "1 thread, one master 20 ms late, the floor's all healthy", "late", "native, one late", 1.0, 0.9
    ),
    *stopped("1 thread"),
    *stopped("32 threads"),
    *memory("native"),
    *memory("python"),
    *imported(),
    Threshold(
        "no contention, 1 waiter: release to the next grant in another process (push)",
        "waiting",
        "ms",
        "native, push",
        3,
        1.2,
        unit="ms",
    ),
)


def judged(turns: Turns, whole: bool = True) -> list[dict[str, Any]]:
    """The verdicts of all thresholds; after a part of the scenarios, of the measured ones."""
    verdicts = [threshold.judged(turns) for threshold in THRESHOLDS]
    return [one for one in verdicts if whole or one["measured"] is not None]
