"""The real code under every kind of fault: 20,000 runs, no violation, and enough of everything in them."""

from __future__ import annotations

import pytest
from simulation.bulk import explain, runs, simplest
from simulation.choices import seeded
from simulation.scenario import KINDS, MASTERS, run

#: With four numbers of masters, two ways to decide and so many kinds of clients.
RUNS = 20_480 // (len(MASTERS) * 2 * len(KINDS))

#: How often (per run) something has to happen so that the runs show something.
OFTEN = {
    "holds": 2.0,
    "contended": 0.5,
    "unavailable": 0.2,
    "time-outs": 0.5,
    "holds that ran out": 0.2,
    "keys deleted": 5.0,
    "releases that found nothing": 5.0,
    "late executions": 1.0,
    "undos": 2.0,
    "replays": 0.15,
    "requests lost": 0.1,
    "replies lost": 0.05,
    "interrupted": 0.1,
    "keys left to expire": 0.05,
    "masters hung up on": 0.005,
    "fault: crash without memory": 0.1,
    "fault: crash with memory": 0.05,
    "fault: pause client": 0.1,
    "fault: kill client": 0.05,
    "fault: step clock": 0.05,
    "fault: partition": 0.05,
    "guarded": 0.1,
    "refused by the marker": 0.03,
}
#: What only some kinds of clients do.
OFTEN_WHEN = {
    "extending": {"extended": 1.0, "lost": 0.2, "inconclusive": 0.05, "refilled": 0.1},
    "batches": {"extended": 1.0, "lost": 0.2, "inconclusive": 0.05},
    "fencing": {"fencing tokens": 2.0, "counters lifted": 1.0},
    "waiting": {"watches": 2.0, "pushes": 2.0, "turns": 0.02},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decide", ["quorum", "all"])
@pytest.mark.parametrize("masters", MASTERS)
def test_real_code_breaks_no_rule(masters: int, decide: str, kind: str) -> None:
    first = MASTERS.index(masters), int(decide == "all"), KINDS.index(kind)
    report = runs(range(RUNS), first)
    if report.failed:
        seed, rule, _ = report.failed[0]
        worst = simplest(run(seeded(seed, first)).choices.taken, rule)
        pytest.fail(f"{len(report.failed)} of {RUNS} runs; the simplest:\n{explain(worst)}")
    wanted = OFTEN | OFTEN_WHEN.get(kind, {})
    per_run = {name: report.counts[name] / RUNS for name in wanted}
    seldom = {name: often for name, often in per_run.items() if often < wanted[name]}
    assert not seldom, f"too seldom, per run: {seldom}"
