"""What earlier lists leave behind: masters that come back, and attempts that are held up."""

from __future__ import annotations

import pytest

from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.masters import former_lists as module
from redlock_fast.masters.address import target
from redlock_fast.masters.former_lists import FormerLists
from redlock_fast.masters.master import Master
from redlock_fast.masters.restart_guard import MasterGuard

MAX_TTL = 60.0


def left(number: int) -> Master:
    """A master that was lost at the time ``number``, and is in no list."""
    return Master(
        target(f"redis://m{number}"), guard=MasterGuard(known=True, lost_at=float(number)), gone=True
    )


def test_a_master_that_comes_back_is_known() -> None:
    former = FormerLists(MAX_TTL)
    former.remember([left(1), Master(target("redis://m2"), guard=MasterGuard(known=True))])
    assert former.master_of(target("redis://m1")).guard.lost_at == 1.0
    assert not former.master_of(target("redis://m2")).guard.known, "it is still in a list"


def test_those_that_left_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LEFT", 2)
    former = FormerLists(MAX_TTL)
    for number in (3, 1, 2):
        former.remember([left(number)])
    known = [former.master_of(target(f"redis://m{number}")).guard.known for number in (1, 2, 3)]
    assert known == [False, True, True]


def test_a_new_connection_has_no_vote_for_lists_whose_leases_may_last() -> None:
    former, lists = FormerLists(MAX_TTL), [MasterLists(3), MasterLists(3)]
    former.end(lists[0], 0.0)
    former.end(lists[1], MAX_TTL + 1.0)
    former.forbid(2)
    assert [one.unlisted for one in lists] == [0, 0b100]
