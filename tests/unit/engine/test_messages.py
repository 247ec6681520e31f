"""Quorums: what one list or two lists of masters need, and when they can have it no more."""

from __future__ import annotations

from itertools import product

import pytest

from redlock_fast.engine.contract import FAULT, MAX_MASTERS, NO_REPLY, Quorums

#: Three masters in the first list, three in the second; master 2 is in both. Master 5 is in no list.
OLD, NEW = (0b00111, 2), (0b11100, 2)
JOINT = Quorums((OLD, NEW))
VOTES = (1, 0, FAULT, NO_REPLY)


def test_each_list_must_have_its_quorum() -> None:
    assert JOINT.granted((1, 0, 1, 0, 1))  # the master of both lists counts in both
    assert not JOINT.granted((1, 1, 0, 0, 1))
    assert not JOINT.granted((0, 0, 1, 1, 1))
    assert Quorums((OLD,)).granted((1, 1, 0, 0, 0))


def test_votes_of_masters_in_no_list_count_for_nothing() -> None:
    assert not JOINT.granted((1, 0, 0, 0, 1, 1, 1))
    assert not JOINT.impossible((1, NO_REPLY, NO_REPLY, NO_REPLY, 1, 0, FAULT), True)


def test_one_list_that_cannot_have_its_quorum_is_enough() -> None:
    assert JOINT.impossible((1, 1, 1, 0, 0), False)
    assert not JOINT.impossible((1, 1, 1, 0, FAULT), False)
    assert JOINT.impossible((1, 1, 1, 0, FAULT), True)
    assert not JOINT.impossible((0, 1, 1, 1, 0), True)


def test_granted_and_impossible_exclude_each_other_and_one_comes_with_the_last_vote() -> None:
    for values in product(VOTES, repeat=5):
        granted, impossible = JOINT.granted(values), JOINT.impossible(values, True)
        assert not (granted and impossible)
        assert granted or impossible or NO_REPLY in values
        assert JOINT.impossible(values, False) <= impossible


def test_lists_that_can_never_or_always_have_their_quorum_are_refused() -> None:
    too_many = 1 << MAX_MASTERS
    for lists in ((), (OLD, NEW, OLD), ((0b11, 3),), ((0b11, 0),), ((0, 0),), ((-1, 1),), ((too_many, 1),)):
        with pytest.raises(ValueError, match="masters"):
            Quorums(lists)


def test_quorums_are_values() -> None:
    same = Quorums((OLD, NEW))
    assert same == JOINT
    assert hash(same) == hash(JOINT)
    assert same != Quorums((NEW, OLD))
    with pytest.raises(AttributeError):
        same.lists = (OLD,)  # type: ignore[misc]
