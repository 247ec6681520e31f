"""Quorums of one list of masters, and of two: the numbers, against their definitions."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.votes import votes

from redlock_fast.algorithm.master_lists import MasterLists, mask_of
from redlock_fast.algorithm.quorum import quorum
from redlock_fast.engine.contract import FAULT, NO_REPLY, Quorums

MASTERS = 6
VOTES = st.lists(st.sampled_from([1, 7, 0, -3, FAULT, NO_REPLY]), min_size=MASTERS, max_size=MASTERS)
LISTS = st.lists(st.integers(1, (1 << MASTERS) - 1), min_size=1, max_size=2)


def members(mask: int) -> list[int]:
    return [master for master in range(MASTERS) if mask >> master & 1]


def quorums(mask: int) -> list[set[int]]:
    """All majorities of the masters of a list."""
    own = members(mask)
    return [set(some) for size in range(quorum(len(own)), len(own) + 1) for some in combinations(own, size)]


@given(LISTS, VOTES)
def test_quorums_by_definition(masks: list[int], values: list[int]) -> None:
    lists, cast = MasterLists(MASTERS, *masks), votes(*values)

    def possible(*bad: bool) -> bool:
        good = {master for master, is_bad in enumerate(bad) if not is_bad}
        return all(any(one <= good for one in quorums(mask)) for mask in masks)

    assert lists.granted(cast) == possible(*[value <= 0 for value in values])
    assert lists.refused(cast) != possible(*[FAULT < value <= 0 for value in values])
    assert lists.failed(cast) != possible(*[value == FAULT for value in values])
    assert lists.hopeless(cast) != possible(*[FAULT <= value <= 0 for value in values])
    granted = mask_of(master for master, value in enumerate(values) if value > 0)
    assert lists.is_quorum(granted) == lists.granted(cast)
    assert lists.in_every_quorum(granted) == all(
        set(members(granted)) & one for mask in masks for one in quorums(mask)
    )


@pytest.mark.parametrize("masters", range(1, 7))
def test_one_list_of_all_masters_by_definition(masters: int) -> None:
    """It compares numbers; also of an even number of masters."""
    lists = MasterLists(masters)
    for values in product((1, 0, FAULT, NO_REPLY), repeat=masters):
        cast, refused, failed = votes(*values), values.count(0), values.count(FAULT)
        assert lists.granted(cast) == (values.count(1) >= quorum(masters))
        assert lists.refused(cast) == (masters - refused < quorum(masters))
        assert lists.failed(cast) == (masters - failed < quorum(masters))
        assert lists.hopeless(cast) == (masters - refused - failed < quorum(masters))


@given(LISTS, VOTES)
def test_the_rest_of_a_quorum(masks: list[int], values: list[int]) -> None:
    """What is left to ask for, where some masters are a part of a quorum already."""
    lists = MasterLists(MASTERS, *masks)
    for part in (0b000000, 0b001001, 0b011110, 0b111111):
        rest = lists.without(part)
        others = votes(*[FAULT if part >> n & 1 else value for n, value in enumerate(values)])
        both = part | mask_of(n for n, value in enumerate(values) if value > 0)
        if isinstance(rest, Quorums):
            assert rest.granted(others.values) == lists.is_quorum(both)
        else:
            assert (others.granted >= rest) == lists.is_quorum(both)
    assert (lists.least, lists.all) == (
        min(
            n
            for n in range(MASTERS + 1)
            if any(map(lists.is_quorum, map(mask_of, combinations(range(6), n))))
        ),
        mask_of(n for n in range(MASTERS) if any(mask >> n & 1 for mask in masks)),
    )


def test_the_rest_of_a_quorum_is_open_until_all_that_were_asked_have_replied() -> None:
    """One master has granted, two refuse: the fourth may be the second one of the larger list."""
    rest = MasterLists(4, 0b0111, 0b1111).without(0b0001)
    assert isinstance(rest, Quorums)
    assert not rest.impossible((FAULT, -9, -9, NO_REPLY), False)


def test_what_an_engine_takes() -> None:
    """A number where all masters of the engine are one list, and a batch counts by it."""
    assert (MasterLists(5).need, MasterLists(5).counted, MasterLists(63).all) == (3, 3, (1 << 63) - 1)
    assert (MasterLists(5, 0b111).need, MasterLists(5, 0b111).counted) == (Quorums(((0b111, 2),)), 1)
    joint = MasterLists(5, 0b11111, 0b111)
    assert (joint.need, joint.counted, joint.least) == (Quorums(((0b11111, 3), (0b111, 2))), 1, 3)


def test_an_error_names_the_list_that_has_no_quorum() -> None:
    one, joint = MasterLists(5), MasterLists(5, 0b11111, 0b111)
    assert one.text([0]) == one.text([]) == "3 of 5 masters"
    assert joint.text([1]) == "2 of 3 masters of the list joint_with"
    assert (
        joint.text([]) == joint.text([0, 1]) == f"3 of 5 masters of the list masters and of {joint.text([1])}"
    )
    assert joint.lacking(0b11001) == joint.failing(votes(FAULT, FAULT, NO_REPLY, NO_REPLY, 1)) == [1]
    assert joint.lacking(0b00011) == joint.failing(votes(1, 1, NO_REPLY, NO_REPLY, NO_REPLY)) == [0]
    assert [joint.names_of(n) for n in (0, 4)] == [("masters", "joint_with"), ("masters",)]


# --- the rank: fencing tokens, and the places of fair locks ----------------------------------------


@pytest.mark.parametrize(
    ("counters", "masters", "token"),
    [
        ([7, 7, 7], 5, 7),
        ([7, 9, 8], 5, 9),  # a bare quorum: the largest
        ([7, 9, 8, 8], 5, 8),
        ([12, 11, 9, 9, 9], 5, 9),  # all: as many above it as a quorum lacks
        ([7, 9], 3, 9),
        ([7, 8, 9], 4, 9),
        ([7, 9, 8, 8], 4, 8),
        ([7, 9], 2, 9),
        ([7], 1, 7),
    ],
)
def test_fencing_token_is_the_qth_smallest(counters: list[int], masters: int, token: int) -> None:
    assert MasterLists(masters).rank(dict(enumerate(counters))) == token


@given(st.integers(1, 9), st.integers(0, 10**16), st.data())
def test_fencing_tokens_rise(masters: int, held: int, data: st.DataObject) -> None:
    """The holder after one with token ``held`` gets a larger one, whichever masters decide."""
    q = quorum(masters)
    raised = data.draw(st.sets(st.integers(0, masters - 1), min_size=q))
    counters = [
        data.draw(st.integers(held + 1, held + 5)) if n in raised else data.draw(st.integers(1, held + 5))
        for n in range(masters)
    ]
    deciding = data.draw(st.sets(st.integers(0, masters - 1), min_size=q))
    token = MasterLists(masters).rank({n: counters[n] for n in deciding})
    assert token is not None
    assert token > held


@given(st.integers(1, 9), st.data())
def test_a_quorum_can_be_raised_to_a_fencing_token(masters: int, data: st.DataObject) -> None:
    counter = st.integers(1, 10**16)
    counters = data.draw(st.lists(counter, min_size=quorum(masters), max_size=masters))
    token = MasterLists(masters).rank(dict(enumerate(counters)))
    assert token is not None
    assert sum(counter <= token for counter in counters) >= quorum(masters)


@given(st.data())
def test_fencing_tokens_rise_through_a_change(data: st.DataObject) -> None:
    """A holder of any step raised a quorum of each of its lists, and the next one has a list of these."""
    old, new = data.draw(LISTS)[0], data.draw(LISTS)[0]
    steps = [MasterLists(MASTERS, old), MasterLists(MASTERS, new, old), MasterLists(MASTERS, new)]
    at = data.draw(st.integers(0, 2))
    before, after = steps[at], steps[min(2, max(0, at + data.draw(st.integers(-1, 1))))]
    held = data.draw(st.integers(1, 9))
    some_masters = st.sets(st.integers(0, MASTERS - 1)).map(mask_of)
    raised = data.draw(some_masters.filter(before.is_quorum))
    counters = [data.draw(st.integers(held + 1 if raised >> n & 1 else 1, held + 9)) for n in range(MASTERS)]
    deciding = data.draw(some_masters.filter(after.is_quorum))
    token = after.rank({n: counters[n] for n in members(deciding)})
    assert token is not None
    assert token > held
    assert after.is_quorum(mask_of(n for n in members(deciding) if counters[n] <= token)), "can be raised"


def test_the_rank_of_too_few_numbers_is_the_largest() -> None:
    assert MasterLists(5).rank({0: 3, 4: 7}) == 7
    assert MasterLists(5).rank({}) is None
    assert MasterLists(5, 0b00111, 0b11100).rank({0: 9, 1: 3, 3: 5}) == 9
    assert MasterLists(5, 0b00111, 0b11100).rank({3: 5}) == 5
