"""How rarely a master is connected again that ended its connections."""

from __future__ import annotations

import pytest

from redlock_fast.engine.contract import PROTOCOL_ERROR
from redlock_fast.masters import state
from redlock_fast.masters.address import target
from redlock_fast.masters.probe import Server
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.masters.state import (
    MAX_BACKOFF,
    MAX_URGENT_INTERVAL,
    SHORT_CONNECTION,
    SHORT_CONNECTION_VIOLATION,
    URGENT_INTERVAL,
    MasterState,
)

LOST, VIOLATED = "connection closed by the master", f"{PROTOCOL_ERROR}: a reply that no request is owed"


class Time:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def after(connections: int, lived: float, why: str, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Seconds until the next attempt, after so many connections that lived so long and ended for ``why``:
    while no caller waits for a quorum, and while one does.
    """
    clock, master_state = Time(), MasterState(target("redis://localhost"))
    monkeypatch.setattr(state, "time", clock)
    for _ in range(connections):
        master_state.on_connected(Server(run_id="a"), Guard("off", 60.0), clock.now)
        master_state.attached = True
        clock.now += lived
        master_state.on_disconnected(why)
    return master_state.next_try - clock.now, master_state.next_urgent_try - clock.now


@pytest.mark.parametrize(
    ("lived", "why"),
    [
        (SHORT_CONNECTION / 2, LOST),
        (SHORT_CONNECTION / 2, VIOLATED),
        (SHORT_CONNECTION_VIOLATION - 1, VIOLATED),
    ],
)
def test_brief_connections_are_made_ever_more_rarely(
    lived: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after(12, lived, why, monkeypatch)[0] >= MAX_BACKOFF / 2


@pytest.mark.parametrize(
    ("lived", "why"), [(SHORT_CONNECTION + 1, LOST), (SHORT_CONNECTION_VIOLATION + 1, VIOLATED)]
)
def test_other_connections_are_made_again_at_once(
    lived: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after(12, lived, why, monkeypatch)[0] < MAX_BACKOFF / 10


def test_violations_delay_no_caller_that_waits_for_a_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(12, SHORT_CONNECTION + 1, VIOLATED, monkeypatch)[1] == 0.0
    assert after(12, SHORT_CONNECTION / 2, VIOLATED, monkeypatch)[1] >= 12 * URGENT_INTERVAL


def test_a_caller_that_waits_dials_at_once_and_then_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """At first again after 20 ms, later at most four times a second, and processes of a fleet not in step."""
    clock, master_state = Time(), MasterState(target("redis://localhost"))
    monkeypatch.setattr(state, "time", clock)
    master_state.attached = True
    master_state.connected_at = clock.now - 60.0
    master_state.on_disconnected(LOST)
    lost_at, intervals = clock.now, []
    while clock.now < lost_at + 10.0:
        intervals.append(master_state.next_urgent_try - clock.now)
        clock.now = master_state.next_urgent_try
        master_state.fail("connection refused", len(intervals))
    assert intervals[0] == 0.0
    assert URGENT_INTERVAL <= intervals[1] <= 1.5 * URGENT_INTERVAL
    assert all(MAX_URGENT_INTERVAL <= interval <= 1.5 * MAX_URGENT_INTERVAL for interval in intervals[-10:])
    assert len(set(intervals[-10:])) == 10
    assert len(intervals) < 100
