"""Attempts and releases: what they send, and what the votes of the masters come to."""

from __future__ import annotations

from typing import Any

from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.lock_kind import ACQUIRE, RELEASE, LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.operations import Acquire
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry, drift
from redlock_fast.algorithm.redlock import (
    distrusted,
    finish_attempt,
    finish_attempts,
    finish_release,
    start_attempts,
    start_release,
    trusted_votes,
    weakest,
)
from redlock_fast.engine.contract import FAULT, MAX_MASTERS, NO_REPLY, BatchVotes, Votes

N, NEED, ALL, TTL = 5, 3, 0b11111, 10.0
GRANTED = Votes((1,) * N, ALL, N, 0, 0, {})
REFUSED = Votes((0,) * N, ALL, 0, N, 0, {})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def started(rules: Policy, lock_kind: LockKind, ttl: float, token: bytes) -> Acquire:
    """An attempt whose request is about to be sent."""
    attempt = Acquire(rules, lock_kind, ttl, None, blocking=True)
    attempt.token = token
    attempt.begin()
    return attempt


def policy(clock: Clock, masters: int = N) -> Any:
    return Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(masters), clock=clock)


def test_an_attempt_asks_the_masters_that_vote() -> None:
    rules = policy(Clock())
    rules.voters.mask = 0b10111
    attempt = started(rules, LockKind(b"r"), TTL, b"token")
    (request,) = attempt.requests
    assert (request.verb, request.args, request.masters) == (ACQUIRE, (b"r", b"token", b"10000"), 0b10111)


def test_a_lease_ends_a_ttl_and_the_drift_after_the_start() -> None:
    clock = Clock()
    attempt = started(policy(clock), LockKind(b"r"), TTL, b"token")
    clock.now += 1.0
    lease = finish_attempt(attempt, True, ALL)
    assert lease is not None
    assert lease.deadline == 100.0 + TTL - drift(TTL, 0.01)
    assert lease.validity == lease.deadline - 101.0


def test_too_few_grants_or_no_validity_are_no_lease() -> None:
    clock = Clock()
    attempt = started(policy(clock), LockKind(b"r"), TTL, b"token")
    assert finish_attempt(attempt, False, ALL) is None
    clock.now += TTL
    assert finish_attempt(attempt, True, ALL) is None


def test_a_master_that_restarted_after_it_was_asked_does_not_count() -> None:
    rules = policy(Clock())
    attempt = started(rules, LockKind(b"r"), TTL, b"token")
    assert trusted_votes(attempt, GRANTED) is GRANTED
    rules.voters.mask = 0b00011
    votes = trusted_votes(attempt, GRANTED)
    assert (votes.granted, votes.refused, votes.faulty) == (2, 0, 3)
    assert votes.values == (1, 1, FAULT, FAULT, FAULT)
    assert votes.details == dict.fromkeys((2, 3, 4), "it restarted after it was asked")
    mixed = trusted_votes(attempt, Votes((1, NO_REPLY, 0, 7, FAULT), ALL, 2, 1, 1, {4: b"-ERR"}))
    assert mixed.values == (1, NO_REPLY, FAULT, FAULT, FAULT)
    assert (mixed.granted, mixed.refused, mixed.faulty, mixed.details[4]) == (1, 0, 3, b"-ERR")


def test_masks_of_distrusted_masters_have_room_for_all() -> None:
    """Catches: numbers of C that are too small for them."""
    rules = policy(Clock(), MAX_MASTERS)
    attempt = started(rules, LockKind(b"r"), TTL, b"token")
    last = MAX_MASTERS - 1
    rules.voters.mask = 1 << last
    assert distrusted(attempt) == (1 << last) - 1
    rules.voters.mask = (1 << last) - 1
    votes = trusted_votes(attempt, Votes((1,) * MAX_MASTERS, 0, MAX_MASTERS, 0, 0, {}))
    assert (votes.values.index(FAULT), votes.granted, votes.faulty) == (last, last, 1)


def test_a_batch_has_no_lease_after_a_restart_and_says_why() -> None:
    rules = policy(Clock())
    attempt = start_attempts(rules, [b"a", b"b"], TTL)
    assert len(set(attempt.token)) == 2
    tally = BatchVotes([N, 2], [ALL, ALL], {})
    leases, why = finish_attempts(attempt, [b"a", b"b"], tally)
    assert [type(lease) for lease in leases] == [Lease, type(None)]
    assert why is None
    rules.voters.mask = 0b11110
    leases, why = finish_attempts(attempt, [b"a", b"b"], tally)
    assert leases == [None, None]
    assert why is not None
    assert why.details == {0: "it restarted after it was asked"}


def test_a_release_goes_to_all_that_may_have_the_key() -> None:
    lease = Lease(b"r", b"token", 0b01011, TTL, 110.0, 9.0)
    (request,) = start_release(lease)
    assert lease.released
    assert (request.verb, request.masters, request.resend_for) == (RELEASE, 0b01011, TTL)


def test_a_release_tells_whether_the_lease_had_ended() -> None:
    rules = policy(Clock())
    lease = Lease(b"r", b"token", ALL, TTL, 110.0, 9.0)
    unknown = Votes((FAULT,) * N, ALL, 0, 0, N, {})
    assert finish_release(rules, lease, [GRANTED])
    assert not finish_release(rules, lease, [REFUSED])
    assert finish_release(rules, lease, [unknown]), "before its deadline"
    rules.clock.now += TTL
    assert not finish_release(rules, lease, [unknown])
    lease.lost = True
    assert not finish_release(rules, lease, [GRANTED])


def test_a_lease_of_several_keys_is_as_weak_as_its_weakest() -> None:
    lists = MasterLists(N)
    some = Votes((1, 1, 1, FAULT, FAULT), ALL, 3, 0, 2, {})
    assert weakest(lists, [GRANTED, some]) is some
    assert weakest(lists, [some, REFUSED, GRANTED]) is REFUSED


def test_at_joint_the_weakest_key_is_one_without_both_quorums() -> None:
    """It may have more grants than another."""
    lists = MasterLists(N, 0b00111, 0b11100)
    few = Votes((FAULT, 1, 1, 1, FAULT), ALL, 3, 0, 2, {})
    more = Votes((1, 1, 1, FAULT, FAULT), ALL, 3, 0, 2, {})
    assert lists.granted(few)
    assert weakest(lists, [few, more]) is more
    assert weakest(lists, [GRANTED, few, more]) is more
