"""How rarely a master is connected again that ended its connections."""

from __future__ import annotations

import pytest

from redlock_fast.masters import state
from redlock_fast.masters.address import target
from redlock_fast.masters.probe import Server
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.masters.state import (
    BRIEF,
    BRIEF_VIOLATION,
    HASTE,
    LONGEST_HASTE,
    MAX_BACKOFF,
    PROTOCOL_ERROR,
    Seat,
)

LOST, VIOLATED = "connection closed by the master", f"{PROTOCOL_ERROR}: a reply that nobody is owed"


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
    clock, seat = Time(), Seat(target("redis://localhost"))
    monkeypatch.setattr(state, "time", clock)
    for _ in range(connections):
        seat.admit(Server(run_id="a"), Guard("off", 60.0), clock.now)
        seat.attached = True
        clock.now += lived
        seat.lose(why)
    return seat.next_try - clock.now, seat.haste()


@pytest.mark.parametrize(
    ("lived", "why"), [(BRIEF / 2, LOST), (BRIEF / 2, VIOLATED), (BRIEF_VIOLATION - 1, VIOLATED)]
)
def test_brief_connections_are_made_ever_more_rarely(
    lived: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after(12, lived, why, monkeypatch)[0] >= MAX_BACKOFF / 2


@pytest.mark.parametrize(("lived", "why"), [(BRIEF + 1, LOST), (BRIEF_VIOLATION + 1, VIOLATED)])
def test_others_are_made_anew_at_once(lived: float, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(12, lived, why, monkeypatch)[0] < MAX_BACKOFF / 10


def test_violations_delay_no_caller_that_waits_for_a_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(12, BRIEF + 1, VIOLATED, monkeypatch)[1] == HASTE
    assert after(12, BRIEF / 2, VIOLATED, monkeypatch)[1] == LONGEST_HASTE
