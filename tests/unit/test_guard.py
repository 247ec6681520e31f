"""Which masters may have forgotten locks, and that their yes does not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlock_fast._commands import Mark
from redlock_fast._engine import FAULT, SILENT
from redlock_fast._guard import Electorate, Guard

MAX_TTL = 60.0


def silence(
    mode: str,
    before: str | None,
    *,
    uptime: float = 0.0,
    durable: bool = False,
    away: float = 0.0,
    promoted: bool = False,
) -> float:
    return Guard(mode, MAX_TTL).silence(before, "this", uptime, durable, away, promoted)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_restarted_master_is_silent_until_all_that_it_forgot_has_ended(mode: str) -> None:
    assert silence(mode, "another") == MAX_TTL
    assert silence(mode, "another", uptime=11, away=100) == MAX_TTL - 10, "uptime may be a second too much"
    assert silence(mode, "another", uptime=1e9, away=7) == MAX_TTL - 7, "its wall clock may have jumped"
    assert silence(mode, "another", uptime=1e9, away=1e9) == 0
    assert silence(mode, "this", uptime=3) == 0, "the same process: only the connection was new"
    assert silence(mode, "another", durable=True) == 0, "it has forgotten nothing"
    assert Guard(mode, MAX_TTL).silence("", "", 1e9, False, 5.0) == MAX_TTL - 5, "unknown counts as new"


def test_the_first_contact() -> None:
    assert silence("auto", None, uptime=3) == 0
    assert silence("strict", None, uptime=3) == MAX_TTL - 2
    assert silence("strict", None, uptime=0) == MAX_TTL
    assert silence("strict", None, uptime=MAX_TTL + 1) == 0
    assert silence("strict", None, durable=True) == 0


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_promoted_replica_is_silent_from_now_on(mode: str) -> None:
    """Its uptime says nothing; and its master may have made promises to others after it was lost to us."""
    assert silence(mode, "its master", uptime=1e9, away=1e9, promoted=True) == MAX_TTL
    assert silence(mode, "this", uptime=1e9, away=1e9, promoted=True) == 0, "it is known already"
    assert silence(mode, None, uptime=1e9, promoted=True) == (MAX_TTL if mode == "strict" else 0)


@pytest.mark.parametrize("mode", ["off", "marker"])
def test_the_other_modes_ask_nobody_or_the_master(mode: str) -> None:
    assert silence(mode, "another") == silence(mode, None) == 0


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_guard_is_never_shorter_than_what_a_lease_may_have_left(uptime: float, away: float) -> None:
    """The process is at most ``away`` old, so it cannot have been there when older leases were granted."""
    left = silence("auto", "another", uptime=uptime, away=away)
    assert 0 <= MAX_TTL - away <= left or away > MAX_TTL
    assert left <= MAX_TTL


def test_the_mark() -> None:
    assert Guard("marker", 1.5).mark("run", True) == Mark("run", 1500, True)
    assert Guard("marker", 1.5).mark("", True) == Mark("", 1500, False), "who cannot tell processes apart"
    assert Guard("auto", 1.5).mark("run", True) is None
    assert Mark("run", 1500, True).words == (b"run", b"1500", b"1")
    assert Mark("run", 1500, False).trusted == b"run 0 0"


def test_votes_of_who_may_not_vote_any_more_are_not_heard() -> None:
    electorate = Electorate(4)
    assert electorate.mask == 0b1111
    assert electorate.heard((7, 0, SILENT, 1)) == (7, 0, SILENT, 1)
    electorate.mask = 0b0110
    assert electorate.heard((7, 0, SILENT, 1)) == (FAULT, 0, SILENT, FAULT)
