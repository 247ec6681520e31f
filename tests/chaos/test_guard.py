"""The restart guard under what it is for; and that these runs can see what it prevents."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from chaos.schedules import SCHEDULES
from chaos.test_chaos import SEED, SERVERS, run
from support.thorough import amount

#: Seconds: the least that convicts most unguarded clients.
SECONDS = 2.5
#: On a busy machine a master is often connected again only after the hold has ended.
ATTEMPTS = 20


@pytest.mark.parametrize("guard", ["auto", "strict"][: amount(1, 2, twice=2)])
def test_clients_that_saw_the_restart_keep_their_locks(guard: str, tmp_path: Path) -> None:
    """As the schedule itself shows for ``marker``."""
    verdict = run(SCHEDULES["amnesia"].guarded(guard), SERVERS[-1], tmp_path, SECONDS)
    assert not verdict.problems, f"seed {SEED}\n{verdict}"


@pytest.mark.parametrize("name", ["amnesia", "flushall"][: amount(1, 2, twice=2)])
def test_without_a_guard_two_hold_the_lock(name: str, tmp_path: Path) -> None:
    for attempt in itertools.count():
        assert attempt < ATTEMPTS, f"no overlap in {ATTEMPTS} runs: they cannot show that a guard works"
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if run(SCHEDULES[name].guarded("off"), SERVERS[0], folder, SECONDS, SEED + attempt).overlaps:
            return
