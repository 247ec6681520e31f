"""The algorithm in virtual time: procedures driven by a script instead of masters."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from support import bare
from support.scripted_votes import World
from support.votes import votes

from redlock_fast.algorithm import batch as batches
from redlock_fast.algorithm import procedures
from redlock_fast.algorithm.effects import Exchange
from redlock_fast.algorithm.lease import AcquireFailure, ExtendOutcome, Lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import drift, quorum
from redlock_fast.engine.contract import FAULT, MAX_MASTERS, NO_REPLY, BatchVotes, Votes, Wait
from redlock_fast.locks.fair import fair_kind
from redlock_fast.wire.commands import Verb

KEY = b"orders:42"
N = 5
OK, NO = 1, 0


GRANTED = votes(OK, OK, OK, NO_REPLY, NO_REPLY)
HELD = votes(NO, NO, NO, OK, NO_REPLY)
DOWN = votes(OK, FAULT, FAULT, FAULT, NO_REPLY)
HUNG = votes(OK, OK, NO_REPLY, NO_REPLY, NO_REPLY)


def acquire(
    world: World, ttl: float = 10.0, *, until: float | None = None, rounds: int | None = None, **policy: Any
) -> Any:
    run = bare.acquire(world.policy(**policy), LockKind(KEY), ttl, until, rounds, world.kept.append)
    return world.run(run)


def held(world: World, ttl: float = 10.0, sent: int = 0b11111) -> Lease:
    return Lease(KEY, b"t" * 20, sent, ttl, world.now + ttl - drift(ttl, 0.01), ttl)


# --- acquire --------------------------------------------------------------------------------------


def test_masks_have_room_for_all_masters() -> None:
    """Catches: numbers of C that are too small for them."""
    for masters in range(1, MAX_MASTERS + 1):
        voters = VotingMasters(masters)
        assert voters.lists.all == 2**masters - 1
        assert voters.mask == 2**masters - 1


def test_grant_counts_the_lease_from_before_the_first_byte() -> None:
    world = World(GRANTED, takes=0.03)
    lease = acquire(world)
    assert lease.deadline == pytest.approx(100.0 + 10.0 - 0.102)
    assert lease.validity == pytest.approx(10.0 - 0.03 - 0.102)
    assert (lease.token, lease.sent) == (b"token-%014d" % 1, 0b11111)
    assert world.verbs() == [Verb.ACQUIRE]
    assert world.kept == [lease], "handed over before anything can interrupt"
    assert world.sent[0].args == (KEY, lease.token, b"10000")
    assert world.sent[0].resend_for == 0, "an acquire is never sent again"


def test_wire_ttl_is_rounded_up_and_validity_counts_exactly() -> None:
    world = World(GRANTED, takes=0.0)
    lease = acquire(world, ttl=1.0001)
    assert world.sent[0].args[2] == b"1001"
    assert lease.validity == pytest.approx(1.0001 - drift(1.0001, 0.01))


def test_quorum_reached_after_the_lease_has_run_out_is_a_failure() -> None:
    world = World(GRANTED, takes=0.04)
    refusal = acquire(world, ttl=0.03, rounds=1)
    assert isinstance(refusal, AcquireFailure)
    assert world.verbs() == [Verb.ACQUIRE, Verb.RELEASE]


def test_each_round_has_a_token_of_its_own_and_undoes_exactly_what_it_sent() -> None:
    partly = votes(NO, NO, NO, FAULT, OK, sent=0b10111)
    world = World(partly, HELD, GRANTED)
    lease = acquire(world)
    assert world.verbs() == [Verb.ACQUIRE, Verb.RELEASE, Verb.ACQUIRE, Verb.RELEASE, Verb.ACQUIRE]
    tokens = [request.args[1] for request in world.sent]
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3] != tokens[4] == lease.token
    assert [request.masters for request in world.sent if request.verb == Verb.RELEASE] == [0b10111, 0b11111]
    assert all(request.resend_for == 10.0 for request in world.sent if request.verb == Verb.RELEASE)
    assert [exchange.need for exchange in world.exchanges] == [3, 0, 3, 0, 3]


def test_pauses_are_within_the_bounds_and_grow() -> None:
    world = World(*[HELD] * 8, GRANTED)
    acquire(world)
    assert len(world.pauses) == 8
    assert all(0.01 <= pause <= 0.1 for pause in world.pauses)
    assert world.pauses == sorted(world.pauses)
    assert world.pauses[-1] > world.pauses[0]


def test_pause_is_never_shorter_than_a_round_takes() -> None:
    world = World(HELD, GRANTED, takes=0.04)
    acquire(world, chance=lambda: 0.0)
    assert world.pauses == [pytest.approx(0.04)]


def test_attempts_are_bounded() -> None:
    world = World(*[HELD] * 10)
    refusal = acquire(world, rounds=4)
    assert (refusal.rounds, refusal.unavailable) == (4, False)
    assert len(world.pauses) == 3


def test_time_is_bounded_and_used_to_the_end() -> None:
    world = World(*[HELD] * 1000)
    refusal = acquire(world, until=100.5)
    assert isinstance(refusal, AcquireFailure)
    assert 100.45 < world.now <= 100.5
    assert len(world.pauses) > 4


def test_no_round_is_given_more_time_than_is_left() -> None:
    world = World(*[HUNG] * 1000, takes=1.0)
    acquire(world, until=100.12)
    assert world.now <= 100.12 + 1e-9
    assert all(exchange.timeout <= 0.05 for exchange in world.exchanges)


def test_the_first_round_is_given_no_more_time_than_there_is() -> None:
    world = World(HUNG, takes=1.0)
    assert isinstance(acquire(world, until=100.02), AcquireFailure)
    assert world.exchanges[0].timeout == pytest.approx(0.02)
    assert world.now == pytest.approx(100.02)


def test_round_cut_short_by_the_deadline_does_not_blame_the_masters() -> None:
    world = World(HELD, *[HUNG] * 100, takes=0.002)
    refusal = acquire(world, until=100.03)
    assert not refusal.unavailable
    assert refusal.votes is HELD


@pytest.mark.parametrize(
    ("answer", "unavailable"),
    [
        (HELD, False),
        (DOWN, True),
        (HUNG, True),
        (votes(NO, FAULT, FAULT, OK, NO_REPLY), True),
        (votes(NO, FAULT, FAULT, OK, NO), False),
        (votes(NO, NO, FAULT, NO_REPLY, NO_REPLY), True),
        (votes(NO, NO, FAULT, NO, NO_REPLY), False),
        (votes(OK, OK, NO, FAULT, FAULT), False),
        (votes(NO, FAULT, FAULT, FAULT, NO_REPLY), True),
    ],
)
def test_contention_and_failing_masters_are_distinguished(answer: Votes, unavailable: bool) -> None:
    world = World(*[answer] * 1000)  # where no quorum is connected it tries again for a moment
    assert acquire(world, rounds=1).unavailable is unavailable


def test_without_a_deadline_it_waits_for_others_but_not_for_dead_masters() -> None:
    world = World(*[HELD] * 500, *[DOWN] * 1000)
    refusal = acquire(world, outage_timeout=2.0)
    assert refusal.unavailable
    assert refusal.rounds > 500
    down_for = world.now - 100.0 - sum(world.pauses[:500]) - 500 * 0.001
    assert 2.0 < down_for < 2.3


def test_masters_that_come_back_in_time_are_forgiven() -> None:
    world = World(*([DOWN] * 5 + [HELD]) * 20, GRANTED)
    assert isinstance(acquire(world, outage_timeout=0.5), Lease)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("handler"), SystemExit(1)])
def test_interrupted_acquire_undoes_on_all_masters_and_raises(error: BaseException) -> None:
    world = World(error)
    with pytest.raises(type(error)):
        acquire(world)
    assert world.verbs() == [Verb.ACQUIRE, Verb.RELEASE]
    assert world.sent[1].args == world.sent[0].args[:2]
    assert world.sent[1].masters == 0b11111


def test_interrupted_undo_is_sent_again() -> None:
    world = World(HELD)
    real = world.perform
    interrupts = [KeyboardInterrupt()]

    def perform(effect: Any) -> Any:
        result = real(effect)
        if isinstance(effect, Exchange) and effect.need == 0 and interrupts:
            raise interrupts.pop()
        return result

    world.perform = perform  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        acquire(world)
    assert world.verbs() == [Verb.ACQUIRE, Verb.RELEASE, Verb.RELEASE]


def test_clock_that_jumps_while_the_masters_answer_leaves_no_lock() -> None:
    world = World(GRANTED, takes=0.001)
    jumps = iter([0.0, 60.0])

    def clock() -> float:
        return world.now + next(jumps, 60.0)

    assert isinstance(acquire(world, rounds=1, clock=clock), AcquireFailure)
    assert world.verbs()[-1] == Verb.RELEASE


# --- release --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        (votes(OK, OK, OK, NO_REPLY, NO_REPLY), True),
        (votes(NO, NO, NO, OK, OK), False),
        (votes(OK, OK, FAULT, FAULT, FAULT), True),
        (votes(OK, OK, NO, NO, FAULT), True),
        (votes(*[NO_REPLY] * 5), True),
    ],
)
def test_release_within_the_lease(answer: Votes, alive: bool) -> None:
    world = World(answer)
    lease = held(world, sent=0b01111)
    assert world.run(bare.release(world.policy(), lease)) is alive
    assert [request.masters for request in world.sent] == [0b01111]
    assert world.sent[0].resend_for == 10.0


def test_release_after_the_lease_is_decided_by_the_clock_when_masters_do_not() -> None:
    world = World(votes(OK, OK, FAULT, FAULT, FAULT))
    lease = held(world)
    world.now += 20.0
    assert world.run(bare.release(world.policy(), lease)) is False


def test_release_of_a_lost_lease_is_no_success_whatever_the_masters_say() -> None:
    """It was reported lost: another client may have held the lock since, and released it."""
    world = World(GRANTED)
    lease = held(world)
    lease.mark_lost(world.now)
    assert world.run(bare.release(world.policy(), lease)) is False
    assert world.verbs() == [Verb.RELEASE]


# --- extend ---------------------------------------------------------------------------------------


def extend(world: World, lease: Lease, ttl: float = 10.0) -> ExtendOutcome:
    outcome: ExtendOutcome = world.run(procedures.extend(world.policy(), lease, ttl, []))[0]
    return outcome


def test_extension_counts_from_before_its_first_byte() -> None:
    world = World(GRANTED, takes=0.02)
    lease = held(world)
    world.now += 5.0
    assert extend(world, lease) is ExtendOutcome.EXTENDED
    assert lease.deadline == pytest.approx(105.0 + 10.0 - 0.102)
    assert lease.validity == pytest.approx(10.0 - 0.102 - 0.02)
    assert lease.extensions == 1


def test_extension_decided_after_the_lease_ended_is_a_loss_even_from_a_quorum() -> None:
    world = World(GRANTED, takes=0.04)
    lease = held(world)
    world.now = lease.deadline - 0.03
    old = lease.deadline
    assert extend(world, lease) is ExtendOutcome.LOST
    assert lease.deadline == old
    assert world.exchanges[0].timeout == pytest.approx(0.03), "no exchange waits beyond the lease"


def test_ended_lease_is_not_extended_and_nothing_is_sent() -> None:
    world = World()
    lease = held(world)
    world.now = lease.deadline
    assert extend(world, lease) is ExtendOutcome.LOST
    assert world.sent == []


def test_lost_when_so_many_refuse_that_no_quorum_is_ours() -> None:
    world = World(HELD)
    assert extend(world, held(world), ttl=20.0) is ExtendOutcome.LOST


@pytest.mark.parametrize("answer", [DOWN, HUNG, votes(OK, OK, NO, NO, FAULT)])
def test_inconclusive_leaves_the_old_deadline_and_deletes_nothing(answer: Votes) -> None:
    world = World(answer)
    lease = held(world)
    old = lease.deadline
    assert extend(world, lease, ttl=20.0) is ExtendOutcome.INCONCLUSIVE
    assert lease.deadline == old
    assert world.verbs() == [Verb.EXTEND]


def test_lease_is_never_shortened() -> None:
    world = World()
    lease = held(world)
    old = lease.deadline
    assert extend(world, lease, ttl=1.0) is ExtendOutcome.EXTENDED
    assert (lease.deadline, world.sent) == (old, [])
    assert lease.validity == pytest.approx(old - 100.0)


def test_extension_goes_to_the_masters_that_were_sent_the_lock_only() -> None:
    world = World(GRANTED)
    extend(world, held(world, sent=0b00111), ttl=20.0)
    assert world.sent[0].masters == 0b00111


EXTENSIONS: dict[str, Callable[[Policy, Lease], Generator[Any, Any, Any]]] = {
    "one": lambda policy, lease: procedures.extend(policy, lease, 20.0, []),
    "many": lambda policy, lease: batches.extend(policy, [lease], [20.0], []),
}


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_a_master_whose_record_forbids_the_lists_extends_nothing(kind: str) -> None:
    world = World()
    policy = world.policy()
    policy.voters.lists.unlisted = 0b01001
    exchange = next(EXTENSIONS[kind](policy, held(world)))
    asked = exchange.requests.masters if kind == "many" else exchange.requests[0].masters
    assert asked == 0b10110


@pytest.mark.parametrize("kind", EXTENSIONS)
@pytest.mark.parametrize(("unlisted", "outcome"), [(0, "EXTENDED"), (0b00001, "INCONCLUSIVE")])
def test_a_record_that_forbids_the_lists_ends_an_extension_under_way(
    kind: str, unlisted: int, outcome: str
) -> None:
    world = World()
    policy, lease = world.policy(), held(world)
    before, extension = lease.deadline, EXTENSIONS[kind](policy, lease)
    next(extension)
    policy.voters.lists.unlisted = unlisted
    with pytest.raises(StopIteration) as end:
        extension.send(BatchVotes([5], [0b11111], {}) if kind == "many" else [GRANTED])
    assert end.value.value[0] is ExtendOutcome[outcome]
    assert (lease.deadline > before) == (outcome == "EXTENDED")


def test_release_after_a_longer_extension_is_kept_as_long_as_the_key_may_live() -> None:
    world = World(DOWN, GRANTED)
    lease = held(world)
    extend(world, lease, ttl=50.0)
    world.run(bare.release(world.policy(), lease))
    assert world.sent[-1].resend_for == 50.0


# --- masters that may have forgotten locks ----------------------------------------------------------


def test_a_guarded_master_is_not_asked() -> None:
    world = World(votes(OK, OK, FAULT, OK, FAULT, sent=0b01011))
    voters = VotingMasters(N)
    voters.mask = 0b01011
    lease = acquire(world, voters=voters)
    assert [request.masters for request in world.sent] == [0b01011]
    assert lease.sent == 0b01011


@pytest.mark.parametrize("rounds", [None, 1])
def test_a_master_that_restarts_between_question_and_answer_does_not_count(rounds: int | None) -> None:
    """Other masters may have granted: an acquire of one round asks them again, too."""
    voters = VotingMasters(N)
    world = World(GRANTED, votes(OK, OK, OK, OK, FAULT, sent=0b11110))
    perform = world.perform

    def restarting(effect: Any) -> Any:
        answer = perform(effect)
        voters.mask = 0b11110
        return answer

    world.perform = restarting  # type: ignore[method-assign]
    lease = acquire(world, voters=voters, rounds=rounds)
    assert world.verbs() == [Verb.ACQUIRE, Verb.RELEASE, Verb.ACQUIRE]
    assert [request.masters for request in world.sent] == [0b11111, 0b11111, 0b11110]
    assert lease.token == b"token-%014d" % 2


# --- fair locks ------------------------------------------------------------------------------------------


def waits(ticket: int, rank: int = 0) -> int:
    """The vote of a master that gave a place in its queue."""
    return -1 - (64 * ticket + rank)


def test_a_ticket_is_from_so_many_masters_that_every_quorum_has_one() -> None:
    """Catches: two refusals and a dead master, which decide that others hold it, round after round."""
    world = World(votes(waits(8), waits(5), waits(3), FAULT, NO_REPLY), GRANTED)
    lock_kind = fair_kind(KEY, fencing=False)
    lease = world.run(bare.acquire(world.policy(), lock_kind, 10.0, None, None, world.kept.append))
    assert isinstance(lease, Lease)
    first, second = (one for one in world.exchanges if one.requests[0].verb == Verb.FAIR)
    assert first.wait == second.wait == Wait.CERTAIN
    assert (first.requests[0].args[-1], second.requests[0].args[-1]) == (b"", b"8")


def test_what_is_kept_over_the_rounds_is_taken_back_from_all_that_were_asked() -> None:
    """Catches: a place in the queue of a master that the last round did not reach."""
    reached = votes(waits(3), waits(3), waits(2), NO_REPLY, NO_REPLY)
    world = World(reached, votes(waits(3), waits(3), waits(3), FAULT, FAULT, sent=0b00111))
    lock_kind = fair_kind(KEY, fencing=False)
    refusal = world.run(bare.acquire(world.policy(), lock_kind, 10.0, None, 2, world.kept.append))
    assert isinstance(refusal, AcquireFailure)
    assert world.verbs() == [Verb.FAIR, Verb.RELEASE, Verb.FAIR, Verb.FAIR_LEAVE]
    assert world.sent[-1].masters == 0b11111
    first, _, second, left = world.sent
    assert first.args[1] != second.args[1] == left.args[1], "what holds the key is new in each round"
    assert first.args[5] == second.args[5] == left.args[5], "the place is not"


@pytest.mark.parametrize("masters", range(1, 8))
def test_a_ticket_from_fewer_masters_is_none(masters: int) -> None:
    """As many as leave no quorum among the others: those may have given larger tickets."""
    enough = masters - quorum(masters) + 1
    for answered in range(masters + 1):
        lock_kind = fair_kind(KEY, fencing=False).for_attempt()
        seen = votes(*[waits(5)] * answered, *[FAULT] * (masters - answered))
        lock_kind.observe(seen, MasterLists(masters))
        assert lock_kind.ticket == (b"5" if answered >= enough else b"")
        lock_kind.observe(votes(*[NO_REPLY] * (masters - 1), waits(8)), MasterLists(masters))
        assert lock_kind.ticket == (b"5" if answered >= enough else b"8" if answered + 1 == enough else b"")


def test_two_masters_of_five_are_too_few_for_a_ticket() -> None:
    """A quorum may have the larger ticket of another client, and share neither of them."""
    lock_kind = fair_kind(KEY, fencing=False).for_attempt()
    lock_kind.observe(votes(waits(8), waits(5), FAULT, FAULT, NO_REPLY), MasterLists(N))
    assert lock_kind.ticket == b""
    lock_kind.observe(votes(FAULT, NO_REPLY, NO_REPLY, waits(10), NO_REPLY), MasterLists(N))
    assert lock_kind.ticket == b"10"


@pytest.mark.parametrize("far", [2**33, 2**52, 2**53])
def test_tickets_of_a_bad_minority_are_not_taken(far: int) -> None:
    """Catches: tickets from 2**53 on, which are equal as doubles: then no order is left on any master."""
    for masters in range(1, 8):
        most = masters - quorum(masters)
        for bad in range(1, most + 1):
            for good in range(most + 1 - bad, masters - bad + 1):
                lock_kind = fair_kind(KEY, fencing=False).for_attempt()
                tickets = [*range(6, 6 + good), *[far] * bad]
                lock_kind.observe(votes(*map(waits, tickets)), MasterLists(masters))
                assert lock_kind.ticket == b"%d" % (5 + good), (masters, tickets)


def test_a_ticket_that_one_master_lacks_is_taken() -> None:
    """Others have long queues, which the new master does not know."""
    for far in (10**6, 10**9):
        lock_kind = fair_kind(KEY, fencing=False).for_attempt()
        lock_kind.observe(votes(waits(1), waits(1 + far), waits(1 + far), NO_REPLY, NO_REPLY), MasterLists(N))
        assert lock_kind.ticket == b"%d" % (far + 1)


def test_a_ticket_of_either_list_is_taken() -> None:
    lock_kind = fair_kind(KEY, fencing=False).for_attempt()
    seen = votes(*map(waits, (9, 9, 2**53, 4, 4, 2**53)))
    lock_kind.observe(seen, MasterLists(6, 0b000111, 0b111000))
    assert lock_kind.ticket == b"9"


def test_a_confirmed_deadline_stays_where_an_earlier_extension_is_answered_later() -> None:
    world = World()
    lease = held(world, 20.0)
    before = lease.deadline
    assert (
        procedures.extended(world.policy(), MasterLists(N), lease, 10.0, world.now, True, None)
        is ExtendOutcome.EXTENDED
    )
    assert lease.deadline == before


def test_a_lost_lease_is_not_extended() -> None:
    """Neither before the masters are asked, nor where another thread finds it lost first."""
    world = World()
    lease = held(world)
    lease.lost = True
    assert procedures.extended_already(world.policy(), lease, 20.0, world.now) is ExtendOutcome.LOST
    assert (
        procedures.extended(world.policy(), MasterLists(N), lease, 20.0, world.now, True, None)
        is ExtendOutcome.LOST
    )
    assert lease.deadline <= world.now
