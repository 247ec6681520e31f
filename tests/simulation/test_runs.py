"""The real code under every kind of fault: no violation, and enough of everything in the runs."""

from __future__ import annotations

from itertools import product

import pytest
from simulation.choices import seeded
from simulation.many_runs import Report, explain, runs, simplest
from simulation.scenario import KINDS, MASTERS, run
from support.thorough import amount

#: Of each kind of clients, with each number of masters and each way to decide.
RUNS = amount(3, 80, twice=30)

#: How often (per run) something has to happen so that the runs show something.
OFTEN = {
    "holds": 2.0,
    "contended": 0.3,
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
    "masters hung up on": 0.1,
    "fault: crash without memory": 0.05,
    "fault: crash with memory": 0.02,
    "fault: pause client": 0.05,
    "fault: kill client": 0.02,
    "fault: step clock": 0.02,
    "fault: partition": 0.02,
    "guarded": 0.1,
    "undone at giving up": 0.005,
    "refused by the marker": 0.003,
}
#: What only some kinds of clients do.
OFTEN_WHEN = {
    "extending": {"extended": 1.0, "lost": 0.2, "inconclusive": 0.05, "refilled": 0.1},
    "batches": {"extended": 1.0, "lost": 0.2, "inconclusive": 0.05},
    "fencing": {"fencing tokens": 2.0, "counters lifted": 1.0},
    "renewing": {"extended": 1.0, "renewals": 2.0},
    "reentrant": {"extended": 0.5},
    "readwrite": {"extended": 0.5, "downgrades": 0.1},
    "semaphore": {"extended": 0.5},
    "multilock": {"extended": 0.5},
    "fair": {"extended": 0.5},
    "straight": {"extended": 0.5},
    "waiting": {"watches": 2.0, "pushes": 2.0, "turns": 0.02},
}
#: Few runs only have to show what is not rarer than that, and not so often.
RARE, SHARE = (0.0, 1.0) if RUNS >= 30 else (0.3, 0.4)


@pytest.mark.timeout(600)  # some seconds of work, on a machine that may be busy
@pytest.mark.parametrize("kind", KINDS)
def test_real_code_breaks_no_rule(kind: str) -> None:
    report = Report()
    for masters, decide in product(range(len(MASTERS)), range(2)):
        first = masters, decide, KINDS.index(kind)
        found = runs(range(RUNS), first)
        if found.failed:
            seed, rule, _ = found.failed[0]
            worst = simplest(run(seeded(seed, first)).choices.taken, rule)
            pytest.fail(f"{len(found.failed)} of {RUNS} runs; the simplest:\n{explain(worst)}")
        report.add(found)
    often = OFTEN | OFTEN_WHEN.get(kind, {})
    wanted = {name: SHARE * times for name, times in often.items() if times >= RARE}
    per_run = {name: report.counts[name] / report.counts["runs"] for name in wanted}
    seldom = {name: times for name, times in per_run.items() if times < wanted[name]}
    assert not seldom, f"too seldom, per run: {seldom}"
