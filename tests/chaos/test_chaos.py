"""Every schedule for a short time, both engines and both kinds of client against each other.

For longer, and with strict limits on time: ``make chaos SECONDS=600``.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from chaos import clocks
from chaos.environment import Topology, workers
from chaos.run import run_schedule
from chaos.schedules import SCHEDULES, Schedule
from chaos.verdict import GENEROUS, Verdict
from support.engines import engines
from support.thorough import FULL, amount

SECONDS = amount(0.4, 1.0, twice=1.0)
#: Processes of the schedule that wants many; ``make chaos`` has 64.
CROWD = amount(6, 24, twice=8)
SERVERS = ["valkey", "redis"] if shutil.which("redis-server") else ["valkey"]
SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 30)))


def contending(turn: int) -> tuple[tuple[str, str], ...]:
    """The workers' engines and ways to wait. Of four combinations two, by turns; with FULL all of them."""
    each = workers(engines())
    return each if FULL or len(each) < 4 else (each[turn % 2], each[3 - turn % 2])


def run(
    schedule: Schedule,
    server: str,
    folder: Path,
    seconds: float = SECONDS,
    seed: int = SEED,
    masters: int = 5,
) -> Verdict:
    if schedule.settings.clocks and clocks.COMPILER is None:
        pytest.skip("no C compiler for the clocks")
    pairs = contending(list(SCHEDULES).index(schedule.name))
    topology = Topology(pairs, server, seconds=seconds, seed=seed, masters=masters, crowd=CROWD)
    verdict = run_schedule(schedule, topology, folder, GENEROUS)
    print(f"seed {seed}, {server}: {verdict}")
    return verdict


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name: str, tmp_path: Path) -> None:
    """On one kind of server and the other in turn."""
    server = SERVERS[list(SCHEDULES).index(name) % len(SERVERS)]
    verdict = run(SCHEDULES[name], server, tmp_path)
    assert not verdict.problems, f"seed {SEED}\n{verdict}"


@pytest.mark.parametrize("masters", [3, 7])
def test_masters_without_records_beside_a_minority_that_is_down(masters: int, tmp_path: Path) -> None:
    """``test_schedule`` has five masters."""
    verdict = run(SCHEDULES["blank_beside_dead"], SERVERS[-1], tmp_path, masters=masters)
    assert not verdict.problems, f"seed {SEED}\n{verdict}"
