"""Many runs, on all cores if wanted, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field

from .choices import Choices, recorded, seeded, shrunk
from .scenario import Result, run
from .variants import VARIANTS

#: Seeds that one process takes at once.
SHARE = 1000


@dataclass
class Report:
    """``failed``: of each run with a violation, the seed and the first violation."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.counts += other.counts
        self.failed += other.failed

    def violations(self, rule: str) -> int:
        return sum(one == rule for _, one, _ in self.failed)


def runs(seeds: Iterable[int], first: tuple[int, ...] = ()) -> Report:
    """The real code, with each of the seeds, after the choices that come ``first``."""
    report = Report()
    for seed in seeds:
        result = run(seeded(seed, first))
        report.counts += result.counts
        if result.violations:
            rule, how = result.violations[0]
            report.failed.append((seed, rule, how))
    return report


def on_all_cores(count: int, first_seed: int = 0) -> Report:
    shares = [
        range(start, min(start + SHARE, first_seed + count))
        for start in range(first_seed, first_seed + count, SHARE)
    ]
    report = Report()
    with ProcessPoolExecutor() as pool:
        for share in pool.map(runs, shares):
            report.add(share)
    return report


def replay(choices: Choices, variant: str | None = None, tracing: bool = True) -> Result:
    """One run, with its trace; of a broken variant, if one is named."""
    broken = VARIANTS[variant] if variant else None
    with broken.applied() if broken else nullcontext():
        return run(choices, tracing, careless=broken is not None and broken.careless)


def simplest(choices: list[int], rule: str, variant: str | None = None) -> Result:
    """A simpler run that breaks the same rule, with its trace."""

    def fails(candidate: list[int]) -> bool:
        return rule in replay(recorded(candidate), variant, tracing=False).broken()

    return replay(recorded(shrunk(choices, fails)), variant)


def explain(result: Result, variant: str | None = None) -> str:
    """The trace, the violations, and how to see it again."""
    option = f" --variant {variant!r}" if variant else ""
    lines = [result.story, *(f"{rule}: {how}" for rule, how in result.violations)]
    return "\n".join([*lines, f"python -m tests.simulation{option} --replay {result.choices.to_replay()}"])
