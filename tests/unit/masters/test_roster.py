"""The masters of a client by number: which numbers they get, and which of them its lists have."""

from __future__ import annotations

import pytest

from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import VotingMasters
from redlock_fast.engine.contract import MAX_MASTERS
from redlock_fast.errors import ConfigError
from redlock_fast.masters.address import target
from redlock_fast.masters.former_lists import FormerLists
from redlock_fast.masters.master import Master
from redlock_fast.masters.no_vote import NoVote
from redlock_fast.masters.roster import Roster

N = 3


@pytest.fixture
def roster() -> Roster:
    masters = [Master(target(f"redis://m{n}")) for n in range(N)]
    return Roster(masters, VotingMasters(N), FormerLists(60.0))


def test_a_master_that_comes_back_has_its_number_again(roster: Roster) -> None:
    """Catches: a master that comes back has two numbers, and so two votes."""
    rooms: list[int] = []
    roster.replace_lists(MasterLists(N, 0b011))
    roster.masters[2].gone = True
    back, other = target("redis://m2"), target("redis://m9")
    lists = [[target("redis://m0"), other]]
    assert roster.number(lists, rooms.append) == [0b101], "the number of one that is gone is free"
    assert roster.names() == ["m0:6379/0", "m1:6379/0", "m9:6379/0"]
    assert roster.number([[back, other]], rooms.append) == [0b1100]
    roster.replace_lists(MasterLists(4, 0b0011))
    assert roster.masters[3].left_at > 0
    assert roster.number([[back]], rooms.append) == [0b1000]
    assert (roster.masters[3].left_at, rooms) == (0.0, [3, 4, 4])


def test_a_number_is_not_free_while_a_thread_connects_its_master(roster: Roster) -> None:
    """Catches: the connection of the former master is attached as that of the new one."""
    roster.replace_lists(MasterLists(N, 0b011))
    roster.masters[2].gone = roster.masters[2].link.connecting = True
    assert roster.number([[target("redis://m9")]], lambda count: None) == [0b1000]


def test_more_masters_than_the_engine_has_numbers(roster: Roster) -> None:
    """Catches: a change that fails half-way, when some of its masters have numbers."""
    many = [target(f"redis://n{n}") for n in range(MAX_MASTERS)]
    with pytest.raises(ConfigError, match="former masters leave"):
        roster.number([many], lambda count: None)
    assert len(roster.masters) == N


def test_a_connected_master_without_a_vote_is_none_of_a_quorum(roster: Roster) -> None:
    """Catches: a caller goes on with a quorum of connections that has no quorum of votes."""
    for master in roster.masters[:2]:
        master.link.on_attached()
    assert (roster.connected(), roster.has_quorum(), roster.all_tried()) == (0b011, True, False)
    roster.masters[0].record.no_vote = NoVote.RECORD
    roster.masters[2].on_failure("refused")
    assert (roster.connected(), roster.has_quorum(), roster.all_tried()) == (0b010, False, True)
    assert roster.own(MasterLists(N, 0b100)).keys() == {2}
