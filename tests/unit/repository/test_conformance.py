"""Histories of plain-lock masters against the model's next-state relation, made by hand: good and bad."""

from __future__ import annotations

import pytest
from support.cases import cases

from proof import conformance
from proof.conformance import (
    ACQUIRE,
    EXISTS,
    EXTEND,
    FENCE,
    FORGOT,
    PTTL,
    RAISE_FENCE,
    RELEASE,
    NotAllowed,
    Step,
    replay,
    steps_of,
)
from redlock_fast.wire.commands import Verb

K, A, B, F = b"k", b"a", b"b", b"f"


def acquire(at: int, token: bytes, reply: int, ttl: int = 100, master: int = 0) -> Step:
    return Step(master, at, ACQUIRE, K, token, ttl, reply)


def extend(at: int, token: bytes, reply: int, ttl: int) -> Step:
    return Step(0, at, EXTEND, K, token, ttl, reply)


def release(at: int, token: bytes, reply: int) -> Step:
    return Step(0, at, RELEASE, K, token, 0, reply)


def fence(at: int, token: bytes, reply: int) -> Step:
    return Step(0, at, FENCE, K, token, 100, reply, F)


def lift(at: int, token: bytes, number: int, reply: int) -> Step:
    return Step(0, at, RAISE_FENCE, K, token, number, reply, F)


@cases(
    "history",
    [
        [],
        [acquire(0, A, 1), acquire(10, B, 0), release(20, A, 1), acquire(30, B, 1)],
        [acquire(0, A, 1), acquire(0, B, 1, master=1)],
        [acquire(0, A, 1), acquire(101, B, 1), release(110, A, 0)],
        [acquire(0, A, 1), acquire(100, B, 0), acquire(100, B, 1)],
        [acquire(0, A, 1), extend(50, A, 1, 100), acquire(140, B, 0), acquire(151, B, 1)],
        [acquire(0, A, 1), extend(50, A, 1, 10), acquire(90, B, 0)],
        [acquire(0, A, 1), extend(50, B, 0, 100), Step(0, 60, EXISTS, K, reply=1)],
        [acquire(0, A, 1), Step(0, 50, FORGOT), acquire(60, B, 1), extend(70, A, 0, 100)],
        [acquire(0, A, 1), Step(0, 40, PTTL, K, reply=60), Step(0, 120, PTTL, K, reply=-2)],
        [acquire(0, A, 1), Step(0, 10, RELEASE, K, A), acquire(20, B, 0)],
        [fence(0, A, 7), lift(10, A, 9, 1), lift(20, A, 8, -9), release(30, A, 1), fence(40, B, 10)],
        [fence(0, A, 7), Step(0, 10, FORGOT), fence(20, B, 3)],
        [acquire(0, A, 1), lift(10, A, 9, 0)],
    ],
)
def test_allowed(history: list[Step]) -> None:
    assert replay(history) == len(history)


@cases(
    "history, why",
    [
        ([acquire(0, A, 1), acquire(10, B, 1)], "granted, though the key is b'a'"),
        ([acquire(0, A, 0)], "refused, though the key is missing"),
        ([acquire(0, A, 1), release(10, B, 1)], "done, though the key is b'a'"),
        ([acquire(0, A, 1), release(10, A, 0)], "refused, though the key has this token"),
        ([acquire(0, A, 1), acquire(200, B, 0)], "refused, though the key is missing"),
        ([acquire(0, A, 1), extend(200, A, 1, 100)], "done, though the key is missing"),
        ([acquire(0, A, 1), extend(10, A, 1, 10), acquire(60, B, 1)], "granted, though the key is b'a'"),
        ([acquire(0, A, 1), Step(0, 9, FORGOT), release(10, A, 1)], "done, though the key is missing"),
        ([acquire(0, A, 1), Step(0, 10, EXISTS, K, reply=0)], "the key is b'a'"),
        ([Step(0, 10, EXISTS, K, reply=1)], "the key is missing"),
        ([acquire(0, A, 1), Step(0, 10, PTTL, K, reply=50)], "50 ms left instead of 90"),
        ([acquire(0, A, 1), Step(0, 10, PTTL, K, reply=-2)], "missing, though"),
        ([Step(0, 10, PTTL, K, reply=5)], "time is left"),
        ([fence(0, A, 7), release(10, A, 1), fence(20, B, 7)], "counted 7 after 7"),
        ([fence(0, A, 7), lift(10, A, 7, 1)], "the counter is raised to 7, though it is 7"),
        ([fence(0, A, 7), lift(10, B, 9, 1)], "done, though the key is b'a'"),
        ([fence(0, A, 7), lift(10, A, 9, 0)], "refused, though the key has this token"),
    ],
)
def test_not_allowed(history: list[Step], why: str) -> None:
    with pytest.raises(NotAllowed, match=f"step {len(history)}, ") as caught:
        replay(history)
    assert why in str(caught.value)


def test_a_refusal_has_the_counter_that_is_not_raised() -> None:
    assert replay([fence(0, A, 7), lift(1, A, 900, -7), lift(2, A, 7, -7)]) == 3
    for reply in (-8, -6, 0):
        with pytest.raises(NotAllowed):
            replay([fence(0, A, 7), lift(1, A, 900, reply)])
    with pytest.raises(NotAllowed):
        replay([fence(0, A, 7), lift(1, B, 900, -7)])


def test_the_slack_is_for_clocks_that_are_read_twice() -> None:
    history = [acquire(0, A, 1), acquire(90, B, 1)]
    with pytest.raises(NotAllowed):
        replay(history)
    assert replay(history, slack=10) == 2


def test_requests_become_steps() -> None:
    assert steps_of(1, 5, "ACQUIRE", (K, A, b"100"), 1) == [acquire(5, A, 1, master=1)]
    assert steps_of(0, 5, "REFILL", (K, A, b"100"), 0) == [acquire(5, A, 0)]
    assert steps_of(0, 5, "FENCE", (K, A, b"100", F, b"86400000"), 7) == [fence(5, A, 7)]
    assert steps_of(0, 5, "RAISE_FENCE", (K, A, b"9", F, b"86400000"), 1) == [lift(5, A, 9, 1)]
    assert steps_of(0, 5, "EXISTS", (K,), None) == [Step(0, 5, EXISTS, K)]
    assert steps_of(0, 5, "RW_READ", (K, A, b"100"), 1) == []


def test_the_verbs_are_those_of_the_commands() -> None:
    assert set(conformance._VERBS) <= {verb.name for verb in Verb}
