"""One change of the masters while processes contend, and a change that is wrong.

For longer, with clients that are killed: ``python -m chaos.change --seconds 600``.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from chaos.change import Change, Setting, run
from support.engines import engines
from support.thorough import amount
from support.waiting import eventually

SEED = random.randrange(1 << 30)


def test_masters_change_while_processes_contend(tmp_path: Path) -> None:
    setting = Setting(tuple(engines()), 0.0, SEED, workers=4, holders=amount(1, 2, twice=2), restarts=False)
    result = run(setting, tmp_path)
    assert not result.problems, f"seed {SEED}: {result}"
    assert result.did["old list refused"] + result.did["old list counted as new"] == 1
    assert result.succeeded >= 0.99, f"seed {SEED}: {result}"


def test_two_lists_at_the_same_time_are_convicted(tmp_path: Path) -> None:
    """Three masters and five masters, without records: what the verdict is there to find."""
    unchecked = {"check_masters": "off"}
    setting = Setting(tuple(engines()), 0.0, SEED, workers=2, resources=1)
    with contextlib.ExitStack() as stack:
        change = Change(setting, tmp_path, stack, unchecked)
        for _ in range(2):
            change.workers.append(change.hire([3, 4, 5, 6, 7], None, unchecked))
            assert change.workers[-1].hear() == "ready"
        eventually(lambda: all(path.stat().st_size > 6_000 for path in change.histories), "all hold locks")
        result = change.end()
    assert any("was granted" in problem for problem in result.problems), result
