"""Which masters may have forgotten locks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlock_fast.masters.address import target
from redlock_fast.masters.master import Master
from redlock_fast.masters.probe import Server
from redlock_fast.masters.restart_guard import JUDGING, Guard
from redlock_fast.wire.dialect import RestartMarker

MAX_TTL = 60.0
MASTER = Server(run_id="run", replid="history", role="master")


def silence(
    mode: str,
    before: str | None,
    *,
    now: str = "this",
    replid: str = "history",
    uptime: float = 0.0,
    away: float = 0.0,
    durable: bool = False,
    max_lag: float = 0.0,
    **options: Any,
) -> float:
    """``before``: the process of the last contact; its data's history was "history"."""
    server = MASTER._replace(persistence="aof always" * durable, min_replicas=1, max_lag=max_lag)
    known = None if before is None else server._replace(run_id=before)
    met = server._replace(run_id=now, replid=replid, uptime=uptime)  # type: ignore[arg-type]
    return Guard(mode, MAX_TTL).quarantine(known, met, away=away, **options)


@pytest.mark.parametrize("mode", JUDGING)
def test_a_restarted_master_is_silent_until_all_that_it_forgot_has_ended(mode: str) -> None:
    assert silence(mode, "another") == MAX_TTL
    assert silence(mode, "another", uptime=11, away=100) == MAX_TTL - 10, "uptime may be a second too much"
    assert silence(mode, "another", uptime=1e9, away=7) == MAX_TTL - 7, "its wall clock may have jumped"
    assert silence(mode, "another", uptime=1e9, away=1e9) == 0
    assert silence(mode, "this", uptime=3) == 0, "the same process: only the connection was new"
    assert silence(mode, "", now="", uptime=1e9, away=5) == MAX_TTL - 5, "unknown counts as new"
    assert silence(mode, "", now="", away=5, durable=True) == MAX_TTL, "and as such it has no disk"


@pytest.mark.parametrize("mode", JUDGING)
def test_only_the_mode_for_durable_disks_trusts_them(mode: str) -> None:
    believed = mode == "durable"
    assert silence(mode, "another", durable=True) == (0 if believed else MAX_TTL)
    assert silence(mode, "another", replid="other", durable=True) == (0 if believed else MAX_TTL)


@pytest.mark.parametrize("mode", JUDGING)
def test_other_data_in_the_same_process_is_of_a_moment_ago(mode: str) -> None:
    """It was a replica in between; until when its own leases were granted is not known."""
    assert silence(mode, "this", replid="other", uptime=1e9, away=1e9) == MAX_TTL
    assert silence(mode, "this", replid="other", uptime=1e9, away=1e9, durable=True) == MAX_TTL
    assert silence(mode, "this", replid="other", promoted=True, max_lag=10.0) == MAX_TTL + 12


@pytest.mark.parametrize("mode", JUDGING)
def test_a_flush_is_a_restart(mode: str) -> None:
    assert silence(mode, "this", flushed=True, uptime=1e9, away=1e9, durable=True) == MAX_TTL
    assert silence(mode, None, flushed=True, uptime=1e9) == MAX_TTL, "also while it is met"


def test_the_first_contact() -> None:
    assert silence("auto", None, uptime=3) == silence("durable", None, uptime=3) == 0
    assert silence("strict", None, uptime=3) == MAX_TTL - 2
    assert silence("strict", None, uptime=0) == MAX_TTL
    assert silence("strict", None, uptime=MAX_TTL + 1) == 0
    assert silence("strict", None, durable=True) == MAX_TTL
    for fresh in ("auto", "strict"):
        known = Guard(fresh, MAX_TTL, assume_fresh=True)
        assert known.quarantine(None, Server(run_id="this"), away=9.0) == 0


@pytest.mark.parametrize("mode", ["auto", "durable"])
def test_the_first_contact_after_an_attempt_in_vain(mode: str) -> None:
    """A process that is younger than the attempt was started after it, in place of another one."""
    assert silence(mode, None, uptime=3, away=10) == MAX_TTL - 2
    assert silence(mode, None, uptime=0, away=10) == MAX_TTL
    assert silence(mode, None, uptime=11, away=10) == 0, "it was there, and could not be reached"
    assert silence(mode, None, uptime=0, away=0.0) == 0, "no attempt failed"


@pytest.mark.parametrize("mode", JUDGING)
def test_a_promoted_replica_is_silent_from_now_on(mode: str) -> None:
    """Its uptime says nothing; and its master may have made promises after it was lost to this client."""
    old: Any = {"uptime": 1e9, "away": 1e9, "promoted": True}
    assert silence(mode, "its master", **old) == MAX_TTL
    assert silence(mode, "its master", max_lag=10.0, **old) == MAX_TTL + 12
    assert silence(mode, "this", **old) == 0, "it is known already"
    assert silence(mode, None, **old) == 0, "at the first contact its marker decides"


@pytest.mark.parametrize("mode", ["off", "marker"])
def test_the_other_modes_guard_nothing_or_ask_the_master(mode: str) -> None:
    assert silence(mode, "another") == silence(mode, None) == 0


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_guard_is_never_shorter_than_what_a_lease_may_have_left(uptime: float, away: float) -> None:
    """The process is at most ``away`` old, so it cannot have been there when older leases were granted."""
    left = silence("auto", "another", uptime=uptime, away=away)
    assert 0 <= MAX_TTL - away <= left or away > MAX_TTL
    assert left <= MAX_TTL


def test_the_mark() -> None:
    lagging = MASTER._replace(min_replicas=1, max_lag=10.0)
    promoted = MASTER._replace(promoted=True)
    assert Guard("marker", 1.5).marker(MASTER, None) == RestartMarker("run", 1500)
    assert Guard("marker", 1.5).marker(lagging, None) == RestartMarker("run", 13_500)
    assert Guard("marker", 1.5).marker(lagging._replace(promoted=True), None) == RestartMarker(
        "run/history", 13_500
    )
    for mode in JUDGING:
        guard = Guard(mode, 1.5)
        assert guard.marker(MASTER, None) is None
        assert guard.marker(promoted, None, key_prefix=b"a:") == RestartMarker(
            "run/history", 1500, b"a:redlock-fast:marker"
        )
        assert guard.marker(promoted, MASTER) is None, "it is known already"
        # One that was promoted without data does not show it.
        assert guard.marker(MASTER, None, failed_over=True) == RestartMarker("run", 1500)
        never = guard.marker(MASTER, None, failed_over=False)
        assert never == (RestartMarker("run", 1500) if mode == "strict" else None)
    assert Guard("off", 1.5).marker(promoted, None) is None
    assert RestartMarker("run", 1500).words == (b"run", b"1500")
    assert RestartMarker("run", 1500).trusted == b"run 0"


@pytest.mark.parametrize(
    ("before", "now", "silent"),
    [
        ("aof always", "aof always", False),
        ("aof everysec", "aof always", True),
        ("aof not on rewrite", "aof always", True),
        ("no aof", "aof always", True),
        ("aof always", "aof everysec", True),
        ("aof always", "aof not on rewrite", True),
        ("", "", True),
    ],
)
def test_a_disk_is_believed_that_was_written_to_all_the_time(before: str, now: str, silent: bool) -> None:
    """What it answered before it was made durable may be lost; what it answers now is not what it forgot."""
    guard = Guard("durable", MAX_TTL)
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", persistence=before), guard, 1000.0)
    assert not master_state.guard.until
    master_state.on_connected(Server(run_id="b", persistence=now), guard, 1000.0)
    assert bool(master_state.guard.until) == silent


@pytest.mark.parametrize(
    ("before", "now", "silent"),
    [(b"x", b"x", False), (b"x", b"y", True), (b"x", b"", True), (b"", b"", True)],
)
def test_a_flush_of_another_database_took_no_lock(before: bytes, now: bytes, silent: bool) -> None:
    guard = Guard("auto", MAX_TTL)
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", flushes=3, data=before), guard, 1000.0)
    master_state.guard.flushed = True
    master_state.on_connected(Server(run_id="a", flushes=4, data=now), guard, 1000.0)
    assert (bool(master_state.guard.until), master_state.guard.flushed) == (silent, False)


@pytest.mark.parametrize(("url", "port", "guarded"), [
    ("redis+sentinel://m0/locks", 2, MAX_TTL + 12),
    ("redis+sentinel://m0/locks", 1, 0.0),
    ("redis://m0", 2, 0.0),
])  # fmt: skip
def test_another_server_of_a_service_was_promoted(url: str, port: int, guarded: float) -> None:
    """One that was promoted before it had data does not show that it was a replica."""
    guard = Guard("auto", MAX_TTL)
    master_state = Master(target(url))
    master_state.on_connected(Server(run_id="a", where=("m", 1)), guard, 1000.0)
    there = Server(run_id="b", where=("m", port), uptime=10**9, min_replicas=1, max_lag=10.0)
    master_state.on_connected(there, guard, 2000.0)
    assert master_state.guard.until == (2000.0 + guarded if guarded else 0.0)


def test_the_first_attempt_in_vain_is_remembered() -> None:
    """By the lease clock, which goes on while the machine sleeps."""
    state = Master(target("redis://m0"))
    state.on_failure("down", began=5.0)
    state.on_failure("down", began=9.0)
    assert state.guard.first_failure == 5.0
    state.on_connected(Server(run_id="a", uptime=1), Guard("auto", MAX_TTL), 1000.0)
    assert state.guard.until == 1000.0 + MAX_TTL


@pytest.mark.parametrize(
    ("process", "flushes", "data", "silent"),
    [
        ("a", 3, b"", False),
        ("a", 4, b"", True),
        ("a", 0, b"", True),
        ("a", 4, b"x", False),
        ("b", 3, b"", True),
    ],
)
def test_a_flush_that_was_not_reported(process: str, flushes: int, data: bytes, silent: bool) -> None:
    """Its process counts flushes. The witness key shows whether this database was flushed."""
    guard = Guard("auto", MAX_TTL)
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", flushes=3, data=data), guard, 1000.0)
    assert not master_state.guard.until
    forked = master_state.copy_after_fork(1000.0)
    for state in (master_state, forked):
        state.on_connected(Server(run_id=process, flushes=flushes, data=data), guard, 1000.0)
        assert bool(state.guard.until) == silent


@pytest.mark.parametrize("mode", ["auto", "durable", "strict", "marker", "off"])
def test_a_flush_that_no_command_made(mode: str) -> None:
    """Its process loaded a dump, which has the witness key and the marker."""
    guard, server = Guard(mode, MAX_TTL), Server(run_id="a", uptime=1000, flushes=3, data=b"x")
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(server, guard, 1000.0)
    master_state.guard.flushed = True
    master_state.on_connected(server, guard, 1000.0)
    assert master_state.guard.until == (0.0 if mode == "off" else 1000.0 + MAX_TTL)


@pytest.mark.parametrize(("now", "silent"), [(b"x", False), (b"y", True), (b"", True)])
def test_a_flush_whose_push_was_not_read(now: bytes, silent: bool) -> None:
    """The connection was given up before the push was read. The witness key shows the flush."""
    guard = Guard("auto", MAX_TTL)
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", data=b"x"), guard, 1000.0)
    master_state.on_connected(Server(run_id="a", data=now), guard, 1000.0)
    assert bool(master_state.guard.until) == silent


def test_the_marker_of_the_master_is_obeyed() -> None:
    """What the interview has read. The master itself refuses acquires only: nothing else asks the marker."""
    guard = Guard("marker", MAX_TTL)
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", guarded=3.0), guard, 1000.0)
    assert master_state.guard.until == 1003.0
    master_state.on_connected(Server(run_id="a", guarded=1.0), guard, 1001.0)
    assert master_state.guard.until == 1003.0, "it does not end earlier"
    master_state.on_connected(Server(run_id="a", guarded=5.0), guard, 1001.0)
    assert master_state.guard.until == 1006.0


def test_a_child_of_fork_goes_by_the_guard_of_its_parent() -> None:
    master_state = Master(target("redis://localhost"))
    master_state.on_connected(Server(run_id="a", guarded=3.0), Guard("marker", MAX_TTL), 1000.0)
    assert master_state.copy_after_fork(1001.0).guard.until == 1003.0


@pytest.mark.parametrize(
    ("mode", "uptime", "durable", "seconds"),
    [
        ("auto", 11, False, 50.0),
        ("auto", 11, True, 50.0),
        ("strict", 61, False, 0.0),
        ("durable", 11, False, 50.0),
        ("durable", 11, True, 0.0),
        ("marker", 0, False, 0.0),
        ("off", 0, False, 0.0),
    ],
)
def test_how_long_running_clients_keep_a_master_out(
    mode: str, uptime: int, durable: bool, seconds: float
) -> None:
    """Catches: the command reports durable masters as kept out, which vote at once after a restart."""
    assert Guard(mode, MAX_TTL).kept_out(uptime, durable) == seconds
