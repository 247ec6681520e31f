"""Refill: which masters get the key again, and when not."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from support import bare
from support.inside import core_of
from support.votes import votes

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.algorithm import batch as batches
from redlock_fast.algorithm import procedures
from redlock_fast.algorithm.lease import ExtendOutcome, Lease, lease_of
from redlock_fast.algorithm.lock_kind import FencedKind, LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.algorithm.refill import RECHECK_EVERY, Given, put, taken_back
from redlock_fast.engine.contract import FAULT, NO_REPLY, Batch, BatchVotes, Votes, Wait
from redlock_fast.wire.commands import Verb

N, TTL = 5, 10.0
OK, NO = 1, 0
ALL_MASTERS = 0b11111
URLS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def policy(time: Time) -> Policy:
    return Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(N), clock=time, refill=True)


def held(
    time: Time, sent: int = ALL_MASTERS, extensions: int = 0, lock_kind: type[LockKind] = LockKind
) -> Lease:
    lease = lease_of(lock_kind(b"r"), b"token", sent, TTL, 100.0 + TTL, TTL)
    lease.extensions = extensions
    time.now = 104.0
    return lease


def run(procedure: Generator[Any, Any, Any], *answers: Any) -> tuple[Any, list[Any]]:
    """What it returns, and its effects; what is not answered is sent None, exceptions are thrown into it."""
    left, effects, answer = list(answers), [], None
    try:
        while True:
            failing = isinstance(answer, BaseException)
            effects.append(procedure.throw(answer) if failing else procedure.send(answer))
            answer = left.pop(0) if left else None
    except StopIteration as end:
        return end.value, effects


def refilled(effects: list[Any]) -> list[int]:
    """The masters of each refill."""
    found = []
    for effect in effects:
        if isinstance(effect.requests, Batch) and effect.requests.verb == Verb.REFILL:
            assert effect.need == 0
            assert effect.requests.resend_for == 0.0
            found += effect.requests.masters
    return found


def extend(policy: Policy, lease: Lease, answer: Votes) -> tuple[ExtendOutcome, list[int]]:
    (outcome, _), effects = run(procedures.extend(policy, lease, TTL, []), [answer])
    return outcome, refilled(effects)


# --- one lease ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "masks"),
    [
        ((OK, OK, OK, OK, OK), []),
        ((OK, OK, OK, NO_REPLY, NO_REPLY), []),
        ((OK, NO, OK, OK, NO_REPLY), [0b00010]),
        ((NO, OK, OK, OK, NO), [0b10001]),
        ((OK, OK, OK, FAULT, NO), [0b10000]),
    ],
)
def test_a_master_that_reports_it_missing_is_sent_it(
    policy: Policy, time: Time, values: tuple[int, ...], masks: list[int]
) -> None:
    assert extend(policy, held(time), votes(*values)) == (ExtendOutcome.EXTENDED, masks)


def test_same_token_and_the_lease_of_the_extension(policy: Policy, time: Time) -> None:
    _, effects = run(procedures.extend(policy, held(time), 20.0, []), [votes(OK, OK, OK, NO, NO_REPLY)])
    assert effects[1].requests.args == ([b"r"], [b"token"], [b"20000"])


@pytest.mark.parametrize("values", [(OK, OK, NO, NO, FAULT), (OK, OK, NO, NO, NO)])
def test_nothing_without_a_confirmation(policy: Policy, time: Time, values: tuple[int, ...]) -> None:
    outcome, masks = extend(policy, held(time), votes(*values))
    assert (outcome is ExtendOutcome.EXTENDED, masks) == (False, [])


def test_nothing_after_the_lease_has_ended(policy: Policy, time: Time) -> None:
    lease = held(time)
    procedure = procedures.extend(policy, lease, TTL, [])
    next(procedure)
    time.now = lease.deadline + 0.001
    with pytest.raises(StopIteration) as end:
        procedure.send([votes(OK, OK, OK, NO, NO)])
    assert end.value.value[0] is ExtendOutcome.LOST


def test_a_master_that_was_not_asked_before_is_sent_it_and_released(policy: Policy, time: Time) -> None:
    lease = held(time, sent=0b00111)
    assert extend(policy, lease, votes(OK, OK, OK, FAULT, FAULT)) == (ExtendOutcome.EXTENDED, [0b11000])
    assert lease.sent == ALL_MASTERS


def test_the_unheard_are_sent_it_now_and_then(policy: Policy, time: Time) -> None:
    lease = held(time, extensions=RECHECK_EVERY - 1)
    assert extend(policy, lease, votes(OK, OK, OK, NO_REPLY, FAULT)) == (ExtendOutcome.EXTENDED, [0b01000])


def test_off(time: Time) -> None:
    policy = Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(N), clock=time)
    assert extend(policy, held(time, extensions=3), votes(OK, OK, OK, NO, NO_REPLY)) == (
        ExtendOutcome.EXTENDED,
        [],
    )


class OtherKind(LockKind):
    batchable = False
    refillable = False


def test_other_kinds_are_left_alone(policy: Policy, time: Time) -> None:
    lease = held(time, lock_kind=OtherKind)
    assert extend(policy, lease, votes(OK, OK, OK, NO, NO)) == (ExtendOutcome.EXTENDED, [])


def test_what_is_released_in_between_is_taken_back(policy: Policy, time: Time) -> None:
    """Another thread's release went out between the extension and the refill."""
    lease, given = held(time), list[Given]()
    procedure = procedures.extend(policy, lease, TTL, given)
    next(procedure)
    refill = procedure.send([votes(OK, NO, OK, OK, OK)])
    run(bare.release(policy, lease), [votes(OK, NO, OK, OK, OK)])
    (release,) = procedure.send(None).requests
    ((again,),) = taken_back(given)  # if an exception ends the extension
    assert (again.verb, again.args, again.masters) == (release.verb, release.args, release.masters)
    assert (refill.requests.verb, release.verb) == (Verb.REFILL, Verb.RELEASE)
    assert (release.args, release.masters, release.resend_for) == ((b"r", b"token"), 0b00010, TTL)
    with pytest.raises(StopIteration):
        procedure.send(None)


# --- many ---------------------------------------------------------------------------------------------


def tally(*granted: int, sent: int = ALL_MASTERS, **odd: Votes) -> BatchVotes:
    return BatchVotes(list(granted), [sent] * len(granted), {int(at[1:]): one for at, one in odd.items()})


def extend_many(
    policy: Policy, leases: list[Lease], answer: BatchVotes, thorough: bool
) -> tuple[list[ExtendOutcome], list[int], Any]:
    procedure = batches.extend(policy, leases, [TTL] * len(leases), [], thorough=thorough)
    outcomes, effects = run(procedure, answer)
    return outcomes, refilled(effects), effects[0]


def test_renewal_waits_for_all_and_fills_up_what_is_missing_anywhere(policy: Policy, time: Time) -> None:
    leases = [held(time) for _ in range(3)]
    answer = tally(5, 4, 2, _2=votes(OK, OK, NO, NO, FAULT))
    outcomes, masks, first = extend_many(policy, leases, answer, thorough=True)
    assert outcomes == [ExtendOutcome.EXTENDED, ExtendOutcome.EXTENDED, ExtendOutcome.INCONCLUSIVE]
    assert masks == [ALL_MASTERS]
    assert first.wait is Wait.ALL
    assert first.timeout <= (leases[0].ttl - 4.0) / 2


def test_renewal_waits_for_no_reply_when_time_is_short(policy: Policy, time: Time) -> None:
    lease = held(time)
    time.now = lease.deadline - 3.0
    _, masks, first = extend_many(policy, [lease], tally(3), thorough=True)
    assert (masks, first.wait) == ([], Wait.CERTAIN)


def test_votes_show_exactly_which_masters_lack_it(policy: Policy, time: Time) -> None:
    answer = tally(3, _0=votes(OK, NO, OK, OK, FAULT))
    assert extend_many(policy, [held(time)], answer, thorough=True)[1] == [0b00010]


def test_many_now_and_then(policy: Policy, time: Time) -> None:
    leases = [held(time), held(time, extensions=RECHECK_EVERY - 1)]
    _, masks, first = extend_many(policy, leases, tally(3, 3), thorough=False)
    assert (masks, first.wait) == ([ALL_MASTERS], Wait.CERTAIN)
    assert leases[0].sent == ALL_MASTERS


def test_batches_release_too(policy: Policy, time: Time) -> None:
    leases = [held(time), held(time)]
    batches.undo_leases(leases[:1])
    run(batches.release(policy, leases[1:]), tally(5))
    assert [lease.released for lease in leases] == [True, True]


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "refill"),
    [
        ({}, True),
        ({"restart_guard": "marker"}, True),
        ({"restart_guard": "off"}, False),
        ({"refill": False}, False),
        ({"refill": True, "restart_guard": "strict"}, True),
    ],
)
def test_on_together_with_the_restart_guard(options: dict[str, Any], refill: bool) -> None:
    client = FastRedlock(URLS, **options)
    assert core_of(client).policy.refill is refill
    client.close()


@pytest.mark.parametrize("options", [{"refill": True, "restart_guard": "off"}, {"refill": 1.0}])
def test_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="refill"):
        FastRedlock(URLS, **options)


# --- put: after a change of the masters ---------------------------------------------------------------


def changed(policy: Policy, until: float = 200.0) -> MasterLists:
    """From masters 0, 1 and 2 to these and 3 and 4: a quorum of each."""
    lists = policy.voters.lists = MasterLists(N, 0b11111, 0b00111, partly=0b11000, settled_at=until)
    return lists


def test_masters_that_a_lease_did_not_ask_get_its_token_first(policy: Policy, time: Time) -> None:
    lists, lease = changed(policy), held(time, sent=0b00111)
    (outcome, _), effects = run(
        procedures.extend(policy, lease, TTL, []), None, [votes(1, 1, NO, 1, NO_REPLY)]
    )
    assert outcome is ExtendOutcome.EXTENDED
    put, extension = effects[:2]
    assert [(one.verb, one.args, one.masters) for one in put.requests] == [
        (Verb.ACQUIRE, (b"r", b"token", b"10000"), 0b11000)
    ]
    assert (put.need, extension.need) == (0, lists.need)
    assert (extension.requests[0].verb, extension.requests[0].masters) == (Verb.EXTEND, 0b11111)
    assert lease.sent == 0b11111


def test_masters_of_one_list_get_it_again_until_the_lists_are_settled(policy: Policy, time: Time) -> None:
    changed(policy, until=104.0 + TTL)
    lease = held(time)
    assert lists_put(run(procedures.extend(policy, lease, TTL, []), None, [votes(*[1] * N)])[1]) == [0b11000]
    time.now += TTL
    lease.deadline += 9 * TTL
    assert lists_put(run(procedures.extend(policy, lease, 20 * TTL, []), [votes(*[1] * N)])[1]) == []


def lists_put(effects: list[Any]) -> list[int]:
    """The masters of each put."""
    every = [effect.requests for effect in effects if not isinstance(effect.requests, Batch)]
    return [one.masters for requests in every for one in requests if one.verb == Verb.ACQUIRE]


@pytest.mark.parametrize("put_first", [True, False])
def test_a_refusal_by_new_masters_is_no_loss_before_the_lists_are_settled(
    policy: Policy, time: Time, put_first: bool
) -> None:
    """Another acquire may have them for a moment; the quorum of the old list still has the token."""
    changed(policy, until=200.0 if put_first else 0.0)
    answers = [None] * put_first + [[votes(1, 1, NO, NO, NO)]]
    (outcome, _), _ = run(procedures.extend(policy, held(time), TTL, []), *answers)
    assert outcome is (ExtendOutcome.INCONCLUSIVE if put_first else ExtendOutcome.LOST)


def test_a_master_that_may_have_forgotten_locks_is_not_given_the_token(policy: Policy, time: Time) -> None:
    changed(policy)
    policy.voters.mask = 0b01111
    lease = held(time, sent=0b00111)
    _, effects = run(procedures.extend(policy, lease, TTL, []), None, [votes(1, 1, 1, 1, FAULT)])
    assert lists_put(effects) == [0b01000]


def test_no_extension_by_a_master_that_restarted_after_it_got_the_token(policy: Policy, time: Time) -> None:
    changed(policy)
    procedure = procedures.extend(policy, held(time, sent=0b00111), TTL, [])
    next(procedure)
    procedure.send(None)
    policy.voters.mask = 0b01111
    with pytest.raises(StopIteration) as done:
        procedure.send([votes(*[1] * N)])
    assert done.value.value[0] is ExtendOutcome.INCONCLUSIVE


def test_the_fencing_token_goes_along(policy: Policy, time: Time) -> None:
    changed(policy)
    lease = lease_of(FencedKind(b"r", b"9", b"3"), b"token", 0b00111, TTL, 100.0 + TTL, TTL, 7)
    time.now = 104.0
    _, effects = run(procedures.extend(policy, lease, TTL, []), None, [votes(*[1] * N)])
    assert [(one.verb, one.masters) for one in effects[0].requests] == [
        (Verb.FENCE, 0b11000),
        (Verb.RAISE_FENCE, 0b11000),
    ]
    assert effects[0].requests[1].args[2] == b"7"


def test_a_lease_that_is_released_while_it_is_put_is_released_there(policy: Policy, time: Time) -> None:
    lists, lease = changed(policy), held(time, sent=0b00111)
    lease.released = True
    every, effects = run(put(policy, lists, [(lease, TTL)], 104.0, []))
    assert every == 0b11000
    assert [(effect.requests[0].verb, effect.requests[0].masters) for effect in effects] == [
        (Verb.ACQUIRE, 0b11000),
        (Verb.RELEASE, 0b11000),
    ]


def test_a_batch_puts_what_each_lease_lacks(policy: Policy, time: Time) -> None:
    changed(policy)
    leases = [held(time, sent=0b00111), held(time, sent=0b01111)]
    tally = BatchVotes([5, 5], [ALL_MASTERS] * 2, {})
    outcomes, effects = run(batches.extend(policy, leases, [TTL] * 2, []), None, tally)
    assert outcomes == [ExtendOutcome.EXTENDED] * 2
    assert lists_put(effects) == [0b11000, 0b11000]
    assert effects[1].requests.masters == ALL_MASTERS
