"""``python -m tests.simulation``: many runs on all cores, or one of them to be read.

RUNS            that many runs, on all cores; fails if one of them breaks a rule
--seed N        the run of that seed, with its trace
--replay LIST   the run of these choices, with its trace
--shrink        of --seed or --replay: a simpler run that breaks the same rule
--variant NAME  the same for code that is broken on purpose; --variant list names them
"""

from __future__ import annotations

import argparse
import sys
import time

from .choices import recorded, seeded
from .many_runs import Report, explain, on_all_cores, replay, simplest
from .variants import VARIANTS


def many(count: int, first_seed: int) -> int:
    began = time.monotonic()
    report = on_all_cores(count, first_seed)
    show(report, time.monotonic() - began)
    for seed, rule, how in report.failed[:3]:
        print(f"\nseed {seed}: {rule}: {how}; the simplest run like it:")
        print(explain(simplest(replay(seeded(seed)).choices.taken, rule)))
    return 1 if report.failed else 0


def show(report: Report, seconds: float) -> None:
    counts = report.counts
    for name in sorted(counts):
        print(f"{counts[name]:>12,}  {name}")
    faults = sum(counts[name] for name in counts if name.startswith("fault: "))
    print(
        f"{counts['runs']:,} runs in {seconds:.0f} s: {counts['holds']:,} holds, {faults:,} faults injected, "
        f"{report.violations('S1')} overlaps, {report.violations('L2')} orphans, "
        f"{len(report.failed)} runs with violations"
    )


def one(options: argparse.Namespace) -> int:
    first = VARIANTS[options.variant].first if options.variant else ()
    choices = recorded(options.replay) if options.replay else seeded(options.seed, first)
    result = replay(choices, options.variant)
    if options.shrink and result.violations:
        result = simplest(result.choices.taken, result.violations[0][0], options.variant)
    print(explain(result, options.variant))
    return 1 if result.violations else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="?", type=int, default=20_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--replay")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--variant")
    options = parser.parse_args()
    if options.variant == "list":
        print("\n".join(VARIANTS))
        return 0
    if options.replay is None and options.seed is None:
        return many(options.runs, 0)
    return one(options)


if __name__ == "__main__":
    sys.exit(main())
