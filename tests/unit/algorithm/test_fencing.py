"""The fencing token of a grant, by the counters that masters tell."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest
from support import bare
from support.scripted_votes import N, World
from support.votes import votes

from redlock_fast.algorithm.fencing import agreed_number
from redlock_fast.algorithm.lease import AcquireFailure
from redlock_fast.algorithm.lock_kind import FencedKind
from redlock_fast.algorithm.policy import VotingMasters
from redlock_fast.algorithm.server_queue import ServerQueueEntries
from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Wait
from redlock_fast.errors import ClientClosed
from redlock_fast.wire.commands import Verb

KEY = b"orders:42"


def fenced(world: World, **policy: Any) -> Any:
    lock_kind = FencedKind(KEY, b"86400000", b"30000")
    return world.run(bare.acquire(world.policy(**policy), lock_kind, 10.0, None, 1, world.kept.append))


def test_equal_counters_are_one_round_trip() -> None:
    world = World(votes(7, 7, 7, NO_REPLY, NO_REPLY))
    assert fenced(world).fencing == 7
    assert world.verbs() == [Verb.FENCE]
    args = (KEY, b"token-%014d" % 1, b"10000", b"{orders:42}:f", b"86400000", b"30000")
    assert world.sent[0].args == args


def test_which_number_needs_no_further_request() -> None:
    """The first exchange decides then; of all other votes ``fence`` decides."""
    numbers, agreed = (7, 8, 9, 0, FAULT, NO_REPLY), 0
    for values in combinations_with_replacement(numbers, N):
        world = World(votes(*values), *[votes(0, 0, 0, 0, 0)] * N)
        lease = fenced(world, wait=Wait.ALL)
        number = agreed_number(world.policy().voters.lists, votes(*values))
        if world.verbs() == [Verb.FENCE]:
            assert lease.fencing == number
            agreed += 1
        else:
            assert number is None
    assert agreed > 10


def test_a_master_that_is_behind_is_raised_before_the_lock_counts() -> None:
    world = World(votes(9, 7, 8, NO_REPLY, NO_REPLY), votes(FAULT, 1, 1, FAULT, FAULT))
    assert fenced(world).fencing == 9
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE]
    assert (world.sent[1].masters, world.sent[1].args[2]) == (0b11110, b"9"), "it may be on its way to two"
    assert world.exchanges[1].need == 2


def test_a_master_that_is_behind_is_raised_unawaited_where_enough_vouch() -> None:
    world = World(votes(9, 9, 9, 7, NO_REPLY))
    assert fenced(world).fencing == 9
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE]
    assert (world.sent[1].masters, world.exchanges[1].need) == (0b01000, 0)


def test_a_lease_that_too_few_vouch_for_is_none() -> None:
    world = World(votes(9, 7, 8, NO_REPLY, NO_REPLY), votes(FAULT, 1, 0, FAULT, FAULT))
    assert isinstance(fenced(world), AcquireFailure)
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE, Verb.RELEASE]
    assert world.kept == []


def test_a_master_that_is_ahead_does_not_vouch() -> None:
    """All five answered: the third largest is the token, and the two above belong to no holder yet."""
    world = World(votes(12, 11, 9, 9, 9))
    assert fenced(world, wait=Wait.ALL).fencing == 9
    assert world.verbs() == [Verb.FENCE]


def test_a_master_that_is_ahead_does_not_stand_in_for_those_that_have_to_be_raised() -> None:
    """A larger counter was moved by another holder: that number is free for a third one."""
    lost = votes(FAULT, 0, 0, 0, FAULT)
    world = World(votes(12, 11, 9, 7, NO_REPLY), votes(FAULT, FAULT, 1, 0, FAULT), lost)
    assert isinstance(fenced(world, wait=Wait.ALL), AcquireFailure)
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE, Verb.RAISE_FENCE, Verb.RELEASE]
    assert world.exchanges[1].need == 2
    world = World(votes(12, 11, 9, 7, NO_REPLY), votes(FAULT, FAULT, 1, 1, FAULT))
    assert fenced(world, wait=Wait.ALL).fencing == 11


def test_fencing_interrupted_is_undone() -> None:
    world = World(votes(9, 7, 8, NO_REPLY, NO_REPLY), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fenced(world)
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE, Verb.RELEASE]
    assert world.kept == []


def test_a_larger_counter_does_not_vouch_for_the_token() -> None:
    """Three counters are as large as the token, and one grant alone made it: two masters are missing."""
    world = World(votes(12, 11, 9, 8, 8), votes(FAULT, FAULT, FAULT, 1, 1))
    assert fenced(world, wait=Wait.ALL).fencing == 9
    assert world.verbs() == [Verb.FENCE, Verb.RAISE_FENCE]
    assert (world.sent[1].masters, world.exchanges[1].need) == (0b11000, 2)


AHEAD = 2**53 - 20


@pytest.mark.parametrize(
    ("granted", "refusals", "raised"),
    [
        ((AHEAD, 9, 9, NO_REPLY, NO_REPLY), (FAULT, -9, -9, -9, -9), None),
        ((AHEAD, 9, 8, NO_REPLY, NO_REPLY), (FAULT, -9, -8, -9, FAULT), (FAULT, FAULT, 1, FAULT, FAULT)),
        ((AHEAD, AHEAD + 1, 9, NO_REPLY, NO_REPLY), (1, FAULT, -9, -9, -9), None),
    ],
    ids=["equal", "one is down", "two are ahead"],
)
def test_a_minority_that_is_ahead_decides_nothing(granted: Any, refusals: Any, raised: Any) -> None:
    """The refusals tell the counters of the other masters, which decide."""
    reported: list[int] = []
    world = World(votes(*granted), votes(*refusals), *([votes(*raised)] if raised else []))
    assert fenced(world, report=lambda master, why: reported.append(master)).fencing == 9
    assert world.sent[1].args[2] == b"%d" % max(granted)
    assert world.exchanges[1].wait == Wait.CERTAIN, "a failing master ends no round that others may decide"
    assert reported == [n for n, value in enumerate(granted) if value >= AHEAD]


def test_a_master_that_is_ahead_and_one_that_is_down_are_no_quorum() -> None:
    reported: list[int] = []
    policy = {"voters": VotingMasters(3), "report": lambda master, why: reported.append(master)}
    world = World(votes(AHEAD, 9, NO_REPLY), votes(FAULT, -9, NO_REPLY))
    assert isinstance(fenced(world, **policy), AcquireFailure)
    assert reported == [0]


def test_a_larger_counter_is_the_token_where_a_master_that_is_behind_does_not_follow() -> None:
    """Whatever it replies: to be raised no more, or another counter each time."""
    for refused in (0, -3, -7, FAULT):
        world = World(votes(3, 8, 9), votes(refused, FAULT, FAULT), votes(refused, 1, FAULT))
        assert fenced(world, voters=VotingMasters(3), wait=Wait.ALL).fencing == 9
        assert [request.args[2] for request in world.sent[1:3]] == [b"8", b"9"]


def test_each_number_is_tried_once() -> None:
    world = World(votes(3, 8, 9), *[votes(-3, -8, -9)] * 2)
    assert isinstance(fenced(world, voters=VotingMasters(3), wait=Wait.ALL), AcquireFailure)
    assert [request.args[2] for request in world.sent[1:3]] == [b"8", b"9"]
    assert world.verbs()[3:] == [Verb.RELEASE]


def test_a_master_that_has_no_vote_any_more_is_not_raised() -> None:
    voters = VotingMasters(N)
    refusals = votes(FAULT, -7, -8, -8, NO_REPLY)
    world = World(votes(AHEAD, 7, 8, NO_REPLY, NO_REPLY), refusals, votes(FAULT, 1, FAULT, FAULT, FAULT))
    perform = world.perform

    def restarting(effect: Any) -> Any:
        if world.verbs() == [Verb.FENCE]:
            voters.mask = 0b01111
        return perform(effect)

    world.perform = restarting  # type: ignore[method-assign]
    assert fenced(world, voters=voters).fencing == 8
    assert [request.masters for request in world.sent[1:3]] == [0b11110, 0b00010]


def test_a_grant_that_close_has_released_is_none() -> None:
    """Closed while a counter is raised, which succeeds. Catches: a lease whose key is gone."""
    entries = ServerQueueEntries()
    world = World(votes(9, 7, 8, NO_REPLY, NO_REPLY), votes(FAULT, 1, 1, FAULT, FAULT))
    perform, released = world.perform, list[Request]()

    def closing(effect: Any) -> Any:
        if world.verbs() == [Verb.FENCE]:
            released.extend(entries.close())
        return perform(effect)

    world.perform = closing  # type: ignore[method-assign]
    with pytest.raises(ClientClosed):
        fenced(world, server_entries=entries)
    assert [(one.verb, one.args[0], one.masters) for one in released] == [(Verb.RELEASE, KEY, 0b11111)]
    assert world.kept == []
    assert entries.wait_for_rounds(0.0)
