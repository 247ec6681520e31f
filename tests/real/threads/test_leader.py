"""Leader election with threads: forks, the end of the interpreter, the threads of a candidate."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.interruptions import interrupted
from support.makers import MakeClient
from support.starting import fail_start
from support.waiting import DEADLINE, PATIENT, PROCESS_DEADLINE, eventually, start

from redlock_fast import ConfigError, Leader
from redlock_fast.embedded import Masters
from redlock_fast.locks.leader import STEPPED_DOWN, STOPPED


def threads() -> list[str]:
    return [
        one.name
        for one in threading.enumerate()
        if one.name in ("redlock-fast-leader", "redlock-fast-elected")
    ]


def test_a_waiting_candidate_leaves_at_once(valkey: Masters, connected: MakeClient) -> None:
    """It does not wait for the leader, and leaves no thread."""
    one, two = connected(valkey), connected(valkey)
    with one.leader("chair") as leader:
        assert leader.wait(DEADLINE)
        with two.leader("chair") as waiting:
            assert not waiting.wait(0.1)
        assert two.stats().acquired == 0
    eventually(lambda: not threads(), "its threads end")


def test_candidates_of_one_client(valkey: Masters, connected: MakeClient) -> None:
    """The second waits in the queue of the client, and leaves it."""
    c = connected(valkey)
    with c.leader("chair") as leader:
        assert leader.wait(DEADLINE)
        with c.leader("chair") as second, c.leader("chair") as third:
            assert not third.wait(0.1)
            second.stop()
            leader.step_down(pause=60.0)
            assert third.wait(DEADLINE)
    eventually(lambda: not threads(), "their threads end")


def test_work_in_on_elected(valkey: Masters, connected: MakeClient) -> None:
    """The next term begins after the work of the last one."""
    running: list[int] = []
    terms: list[int | None] = []

    def work(leader: Any) -> None:
        running.append(1)
        assert len(running) == 1
        terms.append(leader.fencing_token)
        while leader.is_leader:
            time.sleep(0.005)
        running.pop()

    reasons: list[str] = []
    with connected(valkey).leader(
        "chair", on_elected=work, on_lost=lambda leader, reason: reasons.append(reason)
    ) as leader:
        for count in (1, 2, 3):
            eventually(lambda count=count: len(terms) == count, "it works")
            assert leader.step_down(pause=0.0)
    assert reasons[:3] == [STEPPED_DOWN] * 3
    assert terms == sorted({*terms})
    assert not running


def test_a_stop_in_the_next_campaign_does_not_wait_for_work(valkey: Masters, connected: MakeClient) -> None:
    """It waits for on_lost, which the campaign before has called, and a second for that campaign's work."""
    called, report, go = threading.Event(), threading.Event(), threading.Event()

    def on_lost(leader: Any, reason: str) -> None:
        called.set()
        report.wait(PROCESS_DEADLINE)

    leader = connected(valkey).leader(
        "chair", on_elected=lambda leader: go.wait(PROCESS_DEADLINE), on_lost=on_lost
    )
    leader.start()
    assert leader.wait(DEADLINE)
    stops = [start(leader.stop)]
    try:
        assert called.wait(DEADLINE)
        leader.start()
        stops.append(start(leader.stop))
        with pytest.raises(TimeoutError):
            stops[1].result(0.1)
        report.set()
        for stop in stops:
            stop.result(DEADLINE)
    finally:
        report.set()
        go.set()
    eventually(lambda: not threads(), "its threads end")


def leave(leader: Leader) -> None:
    leader.__exit__(None, None, None)


@pytest.mark.parametrize(("end", "outside"), [(Leader.stop, "call stop"), (leave, "call __exit__")])
def test_a_stop_that_is_interrupted_ends_the_campaign(
    valkey: Masters, connected: MakeClient, end: Callable[[Leader], None], outside: str
) -> None:
    """After the interrupt the process does not stay leader."""
    c = connected(valkey)
    for number in range(1000):
        leader = c.leader("chair")
        leader.start()
        assert leader.wait(DEADLINE)
        moment = interrupted(partial(end, leader), number)
        if moment is None:
            break
        if moment == outside:
            leader.stop()
        eventually(lambda: not threads(), f"its threads end, after {moment}")
        assert not core_of(c).client_state.held, moment
    assert number > 3, "there were moments to interrupt it at"


@needs_fork
def test_a_child_of_fork_does_not_lead(valkey: Masters, connected: MakeClient) -> None:
    c = connected(valkey)
    with c.leader("chair") as leader:
        assert leader.wait(DEADLINE)

        def child() -> None:
            assert not leader.is_leader
            assert leader.fencing_token is None
            assert not leader.step_down()
            leader.stop()
            with pytest.raises(RuntimeError):
                leader.wait()
            with leader:
                assert not leader.wait(0.2), "the parent leads"
            with c.leader("another") as own:
                assert own.wait(DEADLINE)

        assert exit_code(fork_child(child)) == 0
        assert leader.is_leader


def test_the_end_of_the_interpreter(valkey: Masters, engine_name: str, connected: MakeClient) -> None:
    """A leader that nothing stopped is released, and a candidate does not delay the end."""
    script = f"""
from redlock_fast import FastRedlock
options = {PATIENT | {"engine": engine_name}!r}
clients = [FastRedlock({valkey.urls!r}, **options) for _ in "ab"]
leaders = [client.leader("chair", ttl=60.0, on_lost=lambda _, reason: print(reason)) for client in clients]
for leader, seconds in zip(leaders, (20.0, 0.1)):
    leader.start()
    leader.wait(seconds)
assert leaders[0].is_leader
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=3 * DEADLINE
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{STOPPED}\n", "")
    with connected(valkey).leader("chair") as leader:
        assert leader.wait(DEADLINE)


def test_a_candidate_that_begins_at_the_end_of_the_interpreter(valkey: Masters, engine_name: str) -> None:
    """From Python 3.12 on no thread can be started then. Catches: a traceback of a program that ends well."""
    script = f"""
import atexit
from redlock_fast import FastRedlock
client = FastRedlock({valkey.urls!r}, **{PATIENT | {"engine": engine_name}!r})
mutex = client._core.masters.connector.monitor.mutex
mutex.acquire()
leader = client.leader("chair")
leader.start()
atexit.register(leader.wait, 0.5)
atexit.register(mutex.release)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("begun", [False, True])
def test_a_thread_that_cannot_be_started(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Catches: wait() without an end, and a next campaign that ends at once."""
    leader = connected(valkey).leader("chair")
    fail_start(monkeypatch, "redlock-fast-leader", RuntimeError("can't start new thread"), begun=begun)
    with pytest.raises(RuntimeError, match="new thread"):
        leader.start()
    assert not leader.wait(DEADLINE)
    with leader:
        assert leader.wait(DEADLINE)
    eventually(lambda: not threads(), "its threads end")


def test_a_campaign_after_one_that_cannot_be_started(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the work of the last campaign that began."""
    seen: list[str] = []
    go = threading.Event()

    def work(leader: Leader) -> None:
        seen.append("begins")
        go.wait(PROCESS_DEADLINE)
        seen.append("ends")

    leader = connected(valkey).leader("chair", on_elected=work)
    leader.start()
    try:
        eventually(lambda: seen, "it works")
        leader.stop()
        fail_start(monkeypatch, "redlock-fast-leader", RuntimeError("can't start new thread"), begun=False)
        with pytest.raises(RuntimeError, match="new thread"):
            leader.start()
        leader.start()
        assert not leader.wait(0.5)
        go.set()
        eventually(lambda: seen == ["begins", "ends"] * 2, "it works again")
    finally:
        go.set()
        leader.stop()
    eventually(lambda: not threads(), "its threads end")


def test_bad_options(client: MakeClient, valkey: Masters) -> None:
    c = client(valkey)

    async def coroutine(*_: Any) -> None: ...

    wrong: list[dict[str, Any]] = [
        {"notice": 6.0}, {"notice": -1}, {"identity": 5}, {"on_elected": 5}, {"on_lost": "f"}, {"ttl": 61.0},
        {"on_elected": coroutine}, {"on_lost": coroutine}, {"fair": True},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigError, match=next(iter(options))):
            c.leader("chair", **options)
    with pytest.raises(ConfigError, match="resource"):
        c.leader("")
    leader = c.leader("chair")
    for call in (lambda: leader.step_down(pause=-1.0), lambda: leader.wait(timeout=-2.0)):
        with pytest.raises(ConfigError):
            call()
    assert repr(leader) == f"<Leader 'chair': {leader.identity} does not lead>"
