"""Acquiring many resources at once, in virtual time: what is granted, and what is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast.algorithm import batch as batches
from redlock_fast.algorithm.batch import MOST, MOST_BYTES, Completion, UnfinishedBatch
from redlock_fast.algorithm.lease import Lease, lease_of
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import FAULT, BatchVotes, Votes
from redlock_fast.errors import ClientClosed
from redlock_fast.locks.multilock import MultiLeaseKind
from redlock_fast.wire.commands import Verb

N, NEED, TTL = 5, 3, 10.0
ALL_MASTERS = 0b11111
GRANTED = Votes((1, 1, 1, 1, 1), ALL_MASTERS, 5, 0, 0, {})
REFUSED = Votes((0, 0, 0, 1, 1), ALL_MASTERS, 2, 3, 0, {})


class Acquiring:
    """An acquire of as many keys as ``granted`` has, which the masters answer after ``takes`` seconds."""

    def __init__(self, *granted: int, takes: float = 0.001, forgetful: int = 0) -> None:
        self.now = 100.0
        voters = VotingMasters(N)
        policy = Policy(0.05, 0.01, 1.0, Retry(), voters, clock=lambda: self.now)
        self.keys = [b"%d" % number for number in range(len(granted))]
        self.held: list[Lease | None] = []
        odd = {number: REFUSED for number, yes in enumerate(granted) if yes < NEED}
        procedure = batches.acquire(policy, self.keys, TTL, self.held, UnfinishedBatch(Completion()))
        self.undone: list[bytes] = []
        effect: Any = next(procedure)
        answer: BatchVotes | None = BatchVotes(list(granted), [ALL_MASTERS] * len(granted), odd)
        self.now += takes
        voters.mask &= ~forgetful
        try:
            while True:
                effect = procedure.send(answer)  # type: ignore[arg-type]
                assert effect.requests.verb == Verb.RELEASE
                self.undone += effect.requests.args[0]
                answer = None
        except StopIteration as end:
            self.undecided: tuple[int, Votes] | None = end.value

    def granted(self) -> list[bool]:
        return [lease is not None for lease in self.held]


def test_each_resource_needs_a_quorum_of_its_own() -> None:
    """What too few masters granted is none, and is taken back."""
    world = Acquiring(3, 2, 5, 0)
    assert world.granted() == [True, False, True, False]
    assert world.undone == [b"1", b"3"]
    assert world.undecided is None, "others hold them"


def test_a_batch_that_is_answered_after_its_leases_have_ended_is_not_granted() -> None:
    world = Acquiring(5, 3, takes=TTL)
    assert world.granted() == [False, False]
    assert world.undone == world.keys
    assert world.undecided is not None


def test_no_master_of_a_batch_may_restart_between_question_and_answer() -> None:
    """Only grants are counted: which of them are from the master that has forgotten is not known."""
    world = Acquiring(5, 3, forgetful=0b00010)
    assert world.granted() == [False, False]
    assert world.undone == world.keys
    assert world.undecided is not None
    number, votes = world.undecided
    assert (number, votes.values) == (0, (0, FAULT, 0, 0, 0))


LONG = b"x" * (MOST_BYTES // 4)


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ([], []),
        ([b"k"] * MOST, [MOST]),
        ([b"k"] * (2 * MOST + 1), [MOST, MOST, 1]),
        ([LONG] * 4, [4]),
        ([LONG] * 9, [4, 4, 1]),
        ([LONG * 5, b"k", LONG * 5], [1, 1, 1]),
    ],
    ids=["none", "one part", "many", "bytes of one part", "many bytes", "each too long"],
)
def test_a_batch_goes_out_in_parts_that_are_small_enough(keys: list[bytes], sizes: list[int]) -> None:
    parts = [keys[part] for part in batches.parts(keys)]
    assert [len(part) for part in parts] == sizes
    assert [key for part in parts for key in part] == keys


def test_each_lock_has_the_answers_to_its_own_requests() -> None:
    """Released together: one of two resources, and one of one that another client has by now."""
    policy = Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(N), clock=lambda: 100.0)
    both = lease_of(MultiLeaseKind(b"both", (b"a", b"b")), b"t" * 20, ALL_MASTERS, TTL, 109.0, 9.0)
    one = lease_of(MultiLeaseKind(b"c", (b"c",)), b"t" * 20, ALL_MASTERS, TTL, 109.0, 9.0)
    procedure = batches.release(policy, [both, one])
    requests = next(procedure).requests
    assert [request.args[0] for request in requests] == [b"a", b"b", b"c"]  # type: ignore[union-attr]
    with pytest.raises(StopIteration) as end:
        procedure.send([GRANTED, GRANTED, REFUSED])
    assert end.value.value == [True, False]


def test_the_first_decides_whether_a_call_is_completed() -> None:
    completed, cancelled = Completion(), Completion()
    completed.check()
    completed.complete()
    assert completed.cancel() is False
    completed.check()
    assert cancelled.cancel() is cancelled.cancel() is True
    for decided in (cancelled.check, cancelled.complete, cancelled.check):
        with pytest.raises(ClientClosed):
            decided()
