"""An interpreter that ends gives back what it holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from support.keys import sizes
from support.python_process import PythonProcess
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Masters

Raw = Callable[[Masters], list[redis.Redis]]
WORKER = Path(__file__).parents[2] / "support" / "worker_exit.py"


def end(
    masters: Masters,
    how: str,
    engine: str,
    release: str = "yes",
    before_end: Callable[[], object] = lambda: None,
) -> int:
    """How many keys a worker held on each master before it ended.

    One that ends in the usual way is a fresh interpreter, the others are children of the fork server.
    """
    process: Any = subprocess.Popen if how == "end" and release == "yes" else PythonProcess
    arguments = [sys.executable, str(WORKER), how, engine, release, *masters.urls]
    with process(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "held\n"
        before = max(sizes(masters))
        before_end()
        _, errors = worker.communicate("end\n", timeout=DEADLINE)
    assert worker.returncode == (how == "error")
    assert errors == "" or how == "error", "also of daemon threads, whose calls the end has cancelled"
    assert ("on purpose" in errors) == (how == "error")
    assert "Exception ignored" not in errors
    return before


@pytest.mark.parametrize("how", ["end", "exit", "error", "thread", "asyncio"])
def test_what_is_held_is_released(masters: Masters, engine_name: str, how: str) -> None:
    assert end(masters, how, engine_name) == 24
    assert sizes(masters) == [0] * 5, "before the process was gone"


def test_a_waiting_thread_of_the_process_does_not_get_them(masters: Masters, engine_name: str) -> None:
    assert end(masters, "waiters", engine_name) == 24
    assert sizes(masters) == [0] * 5


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_work_to_the_end(valkey: Masters, engine_name: str, turn: int) -> None:
    """Catches: a lease that a thread gives up, or is granted, after those that are held were looked for."""
    assert end(valkey, "working", engine_name) == 0
    assert sizes(valkey) == [0] * 5, f"before the process was gone, turn {turn}"


def test_a_lock_that_a_thread_asks_for_is_not_granted(valkey: Masters, engine_name: str) -> None:
    """Three of five masters are stopped. Catches: a client that stays open because it holds nothing yet."""
    stopped = valkey[:3]
    try:
        assert end(valkey, "asking", engine_name, before_end=lambda: [m.pause() for m in stopped]) == 0
    finally:
        for master in stopped:
            master.resume()
    eventually(lambda: sizes(valkey) == [0] * 5, "all execute the undo behind the acquire")


def test_parts_of_a_batch_are_released(valkey: Masters, engine_name: str) -> None:
    """A daemon thread was granted the first part of two. Catches: grants that only its call knows of."""
    assert end(valkey, "batch", engine_name) == 0
    assert sizes(valkey) == [0] * 5, "before the process was gone"


def test_jobs_of_daemon_threads_keep_their_locks(valkey: Masters, engine_name: str) -> None:
    """They go on while other functions that were registered with atexit run."""
    assert end(valkey, "jobs", engine_name) == 0
    assert sorted(sizes(valkey))[2] == 4, "on a quorum, to the end of their leases"


def test_jobs_that_end_during_the_exit_keep_nothing(valkey: Masters, engine_name: str) -> None:
    """Their threads go on. Catches: a release that a closed client ignores."""
    assert end(valkey, "ended jobs", engine_name) == 0
    assert sizes(valkey) == [0] * 5


def test_a_stopped_master_does_not_hold_it_up(valkey: Masters, engine_name: str) -> None:
    """It executes what it was sent when it goes on, although the process has ended."""
    assert end(valkey, "end", engine_name, before_end=valkey[4].pause) == 24
    assert [int(master.ask("DBSIZE")[1:]) for master in valkey[:4]] == [0] * 4
    valkey[4].resume()
    eventually(lambda: sizes(valkey) == [0] * 5, "it reads what it was sent")


def test_a_client_may_keep_them(valkey: Masters, engine_name: str) -> None:
    assert end(valkey, "end", engine_name, release="no") == 24
    assert sorted(sizes(valkey))[2] == 24, "on a quorum"
