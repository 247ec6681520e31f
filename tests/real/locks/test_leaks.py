"""What clients and locks took, they give back: threads, descriptors, memory, keys on the masters.

Measured in processes of their own, where nothing else takes and gives. They have one arena of malloc: what
the arenas of threads that connect keep for themselves is no leak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.forking import FREE_THREADED
from support.thorough import amount
from support.waiting import PROCESS_DEADLINE, eventually

from redlock_fast.embedded import Masters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

Measure = Callable[..., dict[str, Any]]

TESTS = Path(__file__).parents[2]
MEGABYTE = 1 << 20
PATHS = os.pathsep.join([str(TESTS.parent), str(TESTS)])


@pytest.fixture
def measure(valkey: Masters, engine_name: str) -> Measure:
    """``measure(mode, count)``: the numbers of support.worker_leaks; the masters have no key afterwards."""

    def run(mode: str, count: int) -> dict[str, Any]:
        dead = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
        setting = {"urls": valkey.urls, "engine": engine_name, "mode": mode, "count": count, "dead": dead}
        done = subprocess.run(
            [sys.executable, "-m", "support.worker_leaks", json.dumps(setting)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PROCESS_DEADLINE,
            env={**os.environ, "PYTHONPATH": PATHS, "MALLOC_ARENA_MAX": "1"},
        )
        assert done.returncode == 0
        eventually(lambda: all(m.ask("DBSIZE") == ":0" for m in valkey), "no key of ours is left")
        numbers: dict[str, Any] = json.loads(done.stdout)
        return numbers

    return run


@pytest.mark.parametrize("mode", ["closed", "dropped"])
def test_clients_come_and_go(measure: Measure, mode: str) -> None:
    """Catches: a connector that keeps its client alive, a socket that is not closed, an engine that is not
    freed (its buffers alone are more than the memory allowed here).
    """
    count = amount(20, 120, twice=60)
    numbers = measure(mode, count)
    assert numbers["after"] == numbers["before"], numbers
    assert numbers["most"][1] < 100, f"descriptors pile up: {numbers}"
    assert numbers["grown"] < min(3 * MEGABYTE, count * MEGABYTE // 16), numbers


@pytest.mark.skipif(FREE_THREADED, reason="each thread has an arena there, and each connect is a thread")
def test_cycles_leave_nothing_behind(measure: Measure) -> None:
    """Good ones and bad ones. Catches: a request that is not freed (some 200 bytes each, two for each
    cycle), or queues that grow.
    """
    numbers = measure("cycles", amount(2_500, 11_000, twice=4_000))
    assert numbers["grown"] < MEGABYTE, numbers


def test_a_held_lock_is_small(measure: Measure, engine_name: str) -> None:
    """At most 600 bytes in Python and C together; its key is 10 of them. Catches: a lock with a dictionary,
    or one that keeps its votes.
    """
    numbers = measure("held", amount(1_500, 4_000, twice=4_000))
    assert numbers["python"] <= 600, numbers
    assert numbers["process"] <= 800, f"also counts what the allocators keep for themselves: {numbers}"
