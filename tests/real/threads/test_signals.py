"""Signals at any moment: what a handler raises comes out at once, and nothing of ours stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.inside import core_of
from support.keys import paused
from support.makers import MakeClient, Raw
from support.python_process import PythonProcess, support_program
from support.signalling import handling, to_main
from support.starting import fail_start
from support.thorough import amount
from support.waiting import DEADLINE, PROCESS_DEADLINE, eventually, start

from redlock_fast import QuorumUnavailable
from redlock_fast.embedded import Masters

TTL = 60.0
#: Seconds; the times that the worker gives its masters are many times longer.
PROMPT = 5.0


class Worker:
    """support.worker_interrupts as a process."""

    def __init__(self, masters: Masters, engine: str, use: str, count: int, **more: Any) -> None:
        setting = {
            "urls": masters.urls, "engine": engine, "use": use, "count": count,
            "key": "", "longest": 0, "threads": 0, "timeout": None, "seed": os.getpid(), **more,
        }  # fmt: skip
        self.setting = setting
        self.process = PythonProcess(
            **support_program("worker_interrupts", setting),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready\n"

    def work(self) -> dict[str, Any]:
        self._go()
        result: dict[str, Any] = json.loads(self._line())
        return result

    def still_works(self) -> None:
        self._go()
        assert self._line() == "works\n"
        assert self.process.wait(DEADLINE) == 0

    def _line(self) -> str:
        assert self.process.stdout
        line = start(self.process.stdout.readline).result(PROCESS_DEADLINE)
        assert line, "the worker died"
        return line

    def _go(self) -> None:
        assert self.process.stdin
        print(file=self.process.stdin, flush=True)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker(valkey: Masters, engine_name: str) -> Iterator[Callable[..., Worker]]:
    """``worker(use, count, **settings)``"""
    made: list[Worker] = []

    def make(use: str, count: int, **more: Any) -> Worker:
        made.append(Worker(valkey, engine_name, use, count, **more))
        return made[-1]

    yield make
    for one in made:
        one.end()


def keys(masters: Masters) -> set[bytes]:
    """All keys on all masters."""
    found: set[bytes] = set()
    for master in masters:
        with redis.Redis(unix_socket_path=master.socket_path) as server:
            found.update(server.scan_iter(count=10_000))
    return found


def only(masters: Masters, allowed: set[bytes]) -> None:
    eventually(lambda: keys(masters) == allowed, f"only {allowed} stays, not {len(keys(masters))} keys")


@pytest.mark.parametrize(
    ("use", "threads"),
    [
        ("acquire", 0), ("client.acquire", 0), ("release", 0), ("with", 0), ("with", 2), ("rlock", 0),
        ("multilock", 0),
    ],
)  # fmt: skip
def test_interrupts_of_a_free_lock(
    valkey: Masters, worker: Callable[..., Worker], use: str, threads: int
) -> None:
    """At any instruction, alone or while other threads read the replies. Catches: a moment in which no client
    knows of a token that is on its way or was granted.
    """
    count = amount(200, 800, twice=800)
    w = worker(use, count, threads=threads)
    result = w.work()
    assert result["interrupted"] > count // 5, "the signals came too late to test anything"
    assert result["slowest"] < PROMPT
    assert result["errors"] == []
    only(valkey, set())
    w.still_works()
    only(valkey, set())


def test_interrupts_while_others_hold_the_lock(
    valkey: Masters, connected: MakeClient, raw: Raw, worker: Callable[..., Worker]
) -> None:
    """Catches: a pause that hides signals, and a clean-up that touches the owner's key."""
    w = worker("acquire", 80, key="contended", longest=0.02)
    c = connected(valkey)
    owner = c.lock("contended", TTL)
    assert owner.acquire()
    eventually(lambda: all(m.ask("DBSIZE") == ":1" for m in valkey), "all masters have the key")
    result = w.work()
    assert result["interrupted"] >= 80
    assert result["slowest"] < PROMPT
    assert [server.get("contended") for server in raw(valkey)] == [owner.token] * 5
    w.still_works()
    assert owner.release()
    only(valkey, set())


def test_interrupts_while_a_majority_is_hung(valkey: Masters, worker: Callable[..., Worker]) -> None:
    """Catches: an exception that waits for the masters, and requests that are not taken back."""
    w = worker("acquire", 80, longest=0.02)
    with paused(valkey, 0, 2, 4):
        result = w.work()
        assert result["interrupted"] >= 80
        assert result["slowest"] < PROMPT
    only(valkey, set())
    w.still_works()
    only(valkey, set())


@pytest.mark.parametrize("threads", [0, 2])
def test_handler_that_uses_the_client(
    valkey: Masters, worker: Callable[..., Worker], engine_name: str, threads: int
) -> None:
    """Catches: a lock of ours that is held where a handler may run, and that it needs: a deadlock."""
    count = 50 if engine_name == "python" and threads else amount(250, 1000, twice=1000)
    w = worker("nested", count, threads=threads)
    result = w.work()
    assert result["errors"] == []
    assert result["interrupted"] >= count // 5
    assert not result["refused"]
    only(valkey, set())
    w.still_works()
    only(valkey, set())


def test_handler_acquires_while_an_acquire_waits(valkey: Masters, client: MakeClient) -> None:
    """In the pause between two attempts, and while replies are due: the outer one goes on afterwards."""
    c = client(valkey, node_timeout=0.5)
    holder = c.acquire("outer", TTL)
    assert holder
    handled: list[bool | str] = []

    def nested() -> None:
        try:
            with c.lock("inner", TTL, timeout=DEADLINE if expected else 0.3):
                handled.append(True)
        except QuorumUnavailable:
            handled.append(False)

    with handling(nested):
        for expected in (True, False):
            with paused(valkey, *(() if expected else (0, 1, 2))):
                timer = threading.Timer(0.1, to_main)
                timer.start()
                with contextlib.suppress(QuorumUnavailable):
                    assert c.lock("outer", TTL).acquire(timeout=0.6) is False
                timer.join()
            assert handled.pop() is expected
    assert holder.release()
    with c.lock("outer", TTL):
        pass
    only(valkey, set())


def test_handler_releases_what_the_interrupted_acquire_waits_for(valkey: Masters, client: MakeClient) -> None:
    """Catches: an acquire that does not see what happened in a handler while it waited."""
    c = client(valkey)
    holder = c.lock("handed over", TTL)
    assert holder.acquire()
    with handling(holder.release):
        timer = threading.Timer(0.05, to_main)
        timer.start()
        lock = c.lock("handed over", TTL, timeout=DEADLINE)
        assert lock.acquire()
        timer.join()
    assert not holder.locked()
    assert lock.release()
    only(valkey, set())


# --- in the middle of the start of a thread -------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
def test_interrupted_while_the_connector_starts(
    valkey: Masters, client: MakeClient, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Catches: a thread that is taken for one that runs, and a second one beside the first."""
    used, unused = client(valkey), client(valkey)
    before = connectors()
    for c in (used, unused):
        fail_start(monkeypatch, "redlock-fast-connector", KeyboardInterrupt(), begun=begun)
        with pytest.raises(KeyboardInterrupt):
            c.connect()
    unused.close()
    with used.lock("r", TTL):
        eventually(lambda: len(connectors() - before) == 1, "one thread connects")


def connectors() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "redlock-fast-connector"}


def test_a_thread_that_dials_and_cannot_be_started(
    valkey: Masters, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a master that is never connected again."""
    c = client(valkey)
    fail_start(monkeypatch, "redlock-fast-connect", RuntimeError("can't start new thread"), begun=False)
    core_of(c).masters.connector.start()
    eventually(lambda: all(master.state == "connected" for master in c.health()), "all masters connect")
