"""Jobs that run once in a fleet, with both clients, on real masters."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.clients import both_clients
from support.clocks import Jumping
from support.inside import core_of
from support.keys import TTL, nothing_left, paused, values, wipe, with_keys
from support.makers import Raw
from support.proxy import Proxy, fixed
from support.python_process import PythonProcess
from support.renewing import THIRD, MakeClient, renewed
from support.waiting import DEADLINE, PATIENT, answered, eventually

from redlock_fast import ConfigError, Contended, LockAlreadyHeld, LockLost
from redlock_fast.embedded import Masters
from redlock_fast.masters.masters import release_held

pytestmark = pytest.mark.usefixtures("all_masters")

WORKER = Path(__file__).parents[2] / "support" / "worker_single_run.py"


# --- when the lock is taken -----------------------------------------------------------------------


@both_clients
def test_a_job_that_runs_elsewhere_is_skipped(
    masters: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "redlock_fast")
    one, two, ran = connected(masters), connected(masters), []

    @two.single_run(lambda number: f"job:{number}")
    def job(number: int) -> int:
        ran.append(number)
        return number

    with one.single_run("job:1") as lock:
        assert lock is not None
        assert lock.locked()
        assert lock.lost.is_set() is False, "it is extended in the background"
        assert job(1) is None
        assert job(2) == 2
        with two.single_run("job:1") as skipped:
            assert skipped is None
    assert job(1) == 1
    assert ran == [2, 1]
    skipped_runs = [vars(one) for one in caplog.records if vars(one).get("event") == "run-skipped"]
    assert [(one["resource"], one["reason"]) for one in skipped_runs] == [("job:1", "held")] * 2
    nothing_left(masters)


@both_clients
@pytest.mark.parametrize("options", [{"if_taken": "raise"}, {"if_taken": "wait", "timeout": 0.01}])
def test_a_job_that_runs_elsewhere_raises(
    masters: Masters,
    connected: MakeClient,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = connected(masters), connected(masters)
    run = two.single_run("job", **options)

    def enter() -> bool:
        with run as lock:
            return lock is not None

    with one.single_run("job"), pytest.raises(Contended):
        answered(enter)
    assert answered(enter)
    nothing_left(masters)
    refused = [vars(one) for one in caplog.records if vars(one).get("event") == "run-refused"]
    assert {(one["resource"], one["reason"]) for one in refused} == {("job", "held")}


@both_clients
def test_a_job_raises(masters: Masters, connected: MakeClient) -> None:
    """Another process may run it at once, also with ``once_per``."""
    c = connected(masters)

    @c.single_run("job", once_per=TTL)
    def job() -> None:
        raise ValueError("a job that fails")

    for _ in range(2):
        with pytest.raises(ValueError, match="a job that fails"):
            job()
    nothing_left(masters)


@both_clients
@pytest.mark.parametrize("if_taken", ["skip", "raise"])
def test_votes_that_are_split_skip_no_job(
    masters: Masters, connected: MakeClient, raw: Raw, if_taken: str
) -> None:
    """Two other clients have the token of a minority each, so no client holds the lock."""
    c, nodes = connected(masters), raw(masters)
    for number, node in enumerate(nodes[:4]):
        assert node.set("job", f"the token of client {number // 2}")

    def other_attempts_end() -> float:
        for node in nodes[:4]:
            node.delete("job")
        return 0.0

    core_of(c).policy.chance = other_attempts_end
    with c.single_run("job", if_taken=if_taken) as lock:
        assert lock is not None
    nothing_left(masters)


@both_clients
@pytest.mark.parametrize("left_behind", [True, False])
def test_votes_that_stay_split(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch, left_behind: bool
) -> None:
    """A token that stays is that of a holder which lost masters. Other tokens each time show no holder."""
    monkeypatch.setattr("redlock_fast.algorithm.refusals.SPLIT_TIMEOUT", 0.2)
    c, nodes = connected(masters, node_timeout=0.04), raw(masters)
    numbers = itertools.count()

    def others_try() -> float:
        for number, node in enumerate(nodes[:4]):
            fixed = left_behind and not number
            assert node.set("job", "a token that stays" if fixed else f"token {next(numbers)}")
        return 0.0

    others_try()
    core_of(c).policy.chance = others_try
    if left_behind:
        with c.single_run("job") as lock:
            assert lock is None
    else:
        with pytest.raises(Contended), c.single_run("job"):
            raise AssertionError("it has no lock")


@pytest.fixture
def zones(valkey: Masters) -> Iterator[list[list[str]]]:
    """The URLs of three masters for a client in each of their zones: other zones are 20 ms away, one way."""
    with contextlib.ExitStack() as stack:
        yield [
            [
                stack.enter_context(Proxy(master.port, fixed(0.0 if here == there else 0.02))).url
                for there, master in enumerate(valkey[n] for n in range(3))
            ]
            for here in range(3)
        ]


@both_clients
@pytest.mark.parametrize("wait", ["auto", "poll"])
def test_a_job_runs_although_its_processes_are_in_distant_zones(
    zones: list[list[str]], connected: MakeClient, wait: str
) -> None:
    """Each zone's client is first at its own master, so the first attempts of all split the votes."""
    clients = [connected(urls, wait=wait, node_timeout=0.5) for urls in zones]
    barrier = threading.Barrier(len(clients))

    def runs(c: Any, name: str) -> bool:
        barrier.wait(DEADLINE)
        with c.single_run(name, once_per=TTL) as lock:
            return lock is not None

    with ThreadPoolExecutor(len(clients)) as pool:
        for number in range(3):
            ran = list(pool.map(lambda c, name=f"job:{number}": runs(c, name), clients))  # type: ignore[misc]
            assert ran.count(True) == 1


# --- once per period ------------------------------------------------------------------------------


@both_clients
@pytest.mark.parametrize("fencing", [False, True])
def test_the_lock_stays_for_the_period(
    masters: Masters, connected: MakeClient, raw: Raw, fencing: bool
) -> None:
    c = connected(masters, ttl=TTL / 4)
    with c.single_run("job", once_per=TTL, fencing=fencing) as lock:
        assert lock is not None
        token = lock.token
    assert not lock.locked()
    release_held()
    nodes = raw(masters)
    eventually(lambda: all(TTL / 2 < node.pttl("job") / 1000 <= TTL for node in nodes), "each has the key")
    c.close()
    assert values(nodes, "job") == [token] * len(nodes)
    with connected(masters).single_run("job") as skipped:
        assert skipped is None
    assert c.stats().released == 0


@both_clients
def test_a_lease_is_no_longer_than_the_period(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    with connected(masters).single_run("job", TTL, once_per=TTL / 2):
        assert all(node.pttl("job") / 1000 <= TTL / 2 for node in raw(masters))


@both_clients
def test_a_job_takes_longer_than_the_period(masters: Masters, connected: MakeClient, clock: Jumping) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    with c.single_run("job", once_per=TTL) as lock:
        assert lock is not None
        for count in range(1, 5):
            clock.jump(THIRD)
            renewed(c, count)
    nothing_left(masters)
    assert c.stats().released == 1


@both_clients
@pytest.mark.parametrize("once_per", [None, TTL])
def test_a_lost_lock_is_reported(masters: Masters, connected: MakeClient, once_per: float | None) -> None:
    c = connected(masters)

    @c.single_run("job", once_per=once_per, auto_extend=False)
    def job() -> None:
        for master in masters:
            wipe(master)

    with pytest.raises(LockLost):
        job()
    nothing_left(masters)


@both_clients
def test_too_few_masters_answer_at_the_end(
    masters: Masters, connected: MakeClient, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """The job has run, so the lock stays for the rest of its lease."""
    c, nodes = connected(masters), raw(masters)

    def no_time_for_another_extension() -> float:
        core_of(c).policy.node_timeout = TTL
        return 0.0

    with contextlib.ExitStack() as stack:
        with c.single_run("job", TTL / 4, once_per=TTL, auto_extend=False) as lock:
            assert lock is not None
            core_of(c).policy.node_timeout = 0.1
            core_of(c).policy.chance = no_time_for_another_extension
            stack.enter_context(paused(masters, 0, 1, 2))
        assert not lock.locked()
    assert "once-per-shortened" in caplog.text
    eventually(lambda: None not in values(nodes, "job"), "each has the key")


@both_clients
def test_too_few_masters_answer_for_a_while(
    masters: Masters, connected: MakeClient, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """The extension to the rest of the period is repeated."""
    c, nodes = connected(masters), raw(masters)
    stack = contextlib.ExitStack()

    def masters_answer_again() -> float:
        stack.close()
        core_of(c).policy.node_timeout = PATIENT["node_timeout"]
        return 0.0

    with stack, c.single_run("job", TTL / 4, once_per=TTL, auto_extend=False) as lock:
        assert lock is not None
        stack.enter_context(paused(masters, 0, 1, 2))
        core_of(c).policy.node_timeout = 0.02
        core_of(c).policy.chance = masters_answer_again
    assert "once-per-shortened" not in caplog.text
    eventually(lambda: all(node.pttl("job") > 500 * TTL for node in nodes), "each has the key")


@both_clients
def test_a_client_is_closed_in_the_job(
    masters: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The job has run, so the lock stays for the rest of its lease."""
    c = connected(masters)
    with c.single_run("job", TTL / 4, once_per=TTL) as lock:
        assert lock is not None
        c.close()
    assert "once-per-shortened" in caplog.text
    assert with_keys(masters)


# --- bad use --------------------------------------------------------------------------------------


@both_clients
def test_an_object_is_for_one_run_at_a_time(masters: Masters, connected: MakeClient) -> None:
    run = connected(masters).single_run("job")
    with run, pytest.raises(LockAlreadyHeld), run:
        raise AssertionError("it is entered twice")
    with run as lock:
        assert lock is not None
    nothing_left(masters)


@both_clients
def test_the_end_of_a_skipped_run_releases_no_lock(masters: Masters, connected: MakeClient) -> None:
    """Another thread or task may enter the object while the body of the skipped run goes on."""
    one, two = connected(masters), connected(masters)
    run = one.single_run("job")
    with two.lock("job"):
        assert run.__enter__() is None
    with pytest.raises(LockAlreadyHeld):
        run.__enter__()
    run.__exit__(None, None, None)
    with run as lock:
        assert lock.locked()
    nothing_left(masters)


@both_clients
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"if_taken": "jump"}, "if_taken must be one of skip, wait, raise, not 'jump'"),
        ({"timeout": 1.0}, 'if_taken="skip" does not wait'),
        ({"timeout": -1}, 'if_taken="skip" does not wait'),
        ({"timeout": False}, "timeout must be an int or a float"),
        ({"timeout": ""}, "timeout must be an int or a float"),
        ({"timeout": False, "if_taken": "wait"}, "timeout must be an int or a float"),
        ({"once_per": 0.0}, "once_per must be more than 0"),
        ({"once_per": 61.0}, "once_per must be more than 0 and at most 60"),
        ({"fair": True}, "fair"),
        ({"token": b"x"}, "token"),
        ({"ttl": -1.0}, "ttl"),
        ({"colour": 1}, "colour"),
    ],
)
def test_bad_settings(client: MakeClient, options: dict[str, Any], complaint: str) -> None:
    c = client(["redis://127.0.0.1:1"])
    for name in ("job", lambda: "job"):
        with pytest.raises(ConfigError, match=complaint):
            c.single_run(name, **options)


@both_clients
def test_its_text_names_the_job(client: MakeClient, masters: Masters) -> None:
    c = client(masters)
    run = c.single_run("job")
    own = getattr(run, "target", run)
    name = type(own).__name__
    assert repr(own) == f"<{name} 'job': not entered>"
    with run:
        assert repr(own) == f"<{name} 'job': entered>"
    of_calls = c.single_run(nothing_left)
    assert repr(getattr(of_calls, "target", of_calls)) == f"<{name} nothing_left: not entered>"


@both_clients
def test_a_name_for_calls_is_for_decorators(client: MakeClient) -> None:
    c = client(["redis://127.0.0.1:1"])
    with pytest.raises(ConfigError, match="is a decorator only"), c.single_run(lambda: "job"):
        pass


# --- a fleet --------------------------------------------------------------------------------------


@contextlib.contextmanager
def fleet(count: int, engine: str, log: Path, period: str, masters: Masters) -> Iterator[list[Any]]:
    log.touch()
    with contextlib.ExitStack() as stack:
        arguments = [sys.executable, str(WORKER), engine, str(log), period, *masters.urls]
        yield [stack.enter_context(PythonProcess(arguments, stdin=subprocess.PIPE)) for _ in range(count)]


def runs(log: Path) -> list[Run]:
    """The runs that have begun, in their order."""
    lines = (line.split() for line in log.read_text().splitlines())
    return sorted(Run(*map(float, line)) for line in lines)


class Run(NamedTuple):
    """One line of the log: when the job began, the begin of its acquire, its process."""

    began: float
    asked: float
    pid: float


def test_a_fleet_runs_a_job_once_in_each_period(valkey: Masters, engine_name: str, tmp_path: Path) -> None:
    """A master dies after the first run."""
    log, period = tmp_path / "log", 0.8
    with fleet(4, engine_name, log, str(period), valkey):
        eventually(lambda: runs(log), "a first run", deadline=3 * DEADLINE)
        valkey[0].kill()
        eventually(lambda: len(runs(log)) >= 4, "a run in each of four periods", deadline=3 * DEADLINE)
    # A master's clock may be faster by the drift that leases allow.
    assert all(
        later.began - earlier.asked > period * 0.98 for earlier, later in itertools.pairwise(runs(log))
    ), runs(log)


def test_a_process_dies_in_the_job(valkey: Masters, engine_name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with fleet(3, engine_name, log, "", valkey) as processes:
        eventually(lambda: runs(log), "a first run", deadline=3 * DEADLINE)
        [first] = runs(log)
        next(process for process in processes if process.pid == first.pid).kill()
        eventually(lambda: len(runs(log)) > 1, "another process runs it", deadline=3 * DEADLINE)
        for process in processes:
            process.stdin.close()
    assert first.pid not in [run.pid for run in runs(log)[1:]]
