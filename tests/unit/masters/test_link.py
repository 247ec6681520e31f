"""How rarely a master is connected again that ended its connections."""

from __future__ import annotations

import pytest

from redlock_fast.engine.contract import PROTOCOL_ERROR
from redlock_fast.masters.link import (
    MAX_BACKOFF,
    MAX_PAUSES,
    MAX_URGENT_INTERVAL,
    READ_WITHIN,
    SHORT_CONNECTION,
    SHORT_CONNECTION_VIOLATION,
    URGENT_INTERVAL,
    Link,
    Silence,
)

LOST, VIOLATED = "connection closed by the master", f"{PROTOCOL_ERROR}: a reply that no request is owed"


def after(connections: int, lived: float, why: str) -> tuple[float, float]:
    """Seconds until the next attempt, after so many connections that lived so long and ended for ``why``:
    while no caller waits for a quorum, and while one does.
    """
    now, link = 1000.0, Link()
    for _ in range(connections):
        link.connected_at = now
        link.on_attached()
        now += lived
        link.on_disconnected(why, now)
    return link.next_try - now, link.next_urgent_try - now


@pytest.mark.parametrize(
    ("lived", "why"),
    [
        (SHORT_CONNECTION / 2, LOST),
        (SHORT_CONNECTION / 2, VIOLATED),
        (SHORT_CONNECTION_VIOLATION - 1, VIOLATED),
    ],
)
def test_brief_connections_are_made_ever_more_rarely(lived: float, why: str) -> None:
    assert after(12, lived, why)[0] >= MAX_BACKOFF / 2


@pytest.mark.parametrize(
    ("lived", "why"), [(SHORT_CONNECTION + 1, LOST), (SHORT_CONNECTION_VIOLATION + 1, VIOLATED)]
)
def test_other_connections_are_made_again_at_once(lived: float, why: str) -> None:
    assert after(12, lived, why)[0] < MAX_BACKOFF / 10


def test_violations_delay_no_caller_that_waits_for_a_quorum() -> None:
    assert after(12, SHORT_CONNECTION + 1, VIOLATED)[1] == 0.0
    assert after(12, SHORT_CONNECTION / 2, VIOLATED)[1] >= 12 * URGENT_INTERVAL


def test_a_caller_that_waits_dials_at_once_and_then_ever_more_rarely() -> None:
    """At first again after 20 ms, later at most four times a second, and processes of a fleet not in step."""
    lost_at, link, intervals = 1000.0, Link(attached=True, connected_at=940.0), []
    link.on_disconnected(LOST, lost_at)
    now = lost_at
    while now < lost_at + 10.0:
        intervals.append(link.next_urgent_try - now)
        now = link.next_urgent_try
        link.on_failure(len(intervals), False, now)
    assert intervals[0] == 0.0
    assert URGENT_INTERVAL <= intervals[1] <= 1.5 * URGENT_INTERVAL
    assert all(MAX_URGENT_INTERVAL <= interval <= 1.5 * MAX_URGENT_INTERVAL for interval in intervals[-10:])
    assert len(set(intervals[-10:])) == 10
    assert len(intervals) < 100


def test_silence_begins_again_after_a_pause_of_this_process() -> None:
    """It may have been stopped, and what the master has sent is not read yet.

    Catches: a master that hangs is never given up on a machine on which each look is late.
    """
    silence, now = Silence(), 1000.0
    assert not silence.lasts(True, now, paused=False)
    assert not silence.lasts(True, now + READ_WITHIN / 2, paused=False)
    assert silence.lasts(True, now + READ_WITHIN, paused=False)
    for _ in range(MAX_PAUSES - 1):
        now += READ_WITHIN
        assert not silence.lasts(True, now, paused=True)
    assert silence.lasts(True, now + READ_WITHIN, paused=True)
    assert not silence.lasts(False, now + READ_WITHIN, paused=False), "it replies"
    assert not silence.lasts(True, now + READ_WITHIN, paused=False), "it is silent from now on"
