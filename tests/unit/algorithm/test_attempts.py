"""Between the rounds of an acquire, in virtual time: whether another follows, and what it waits for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
from support.bare import BareAcquire, acquire
from support.inside import core_of
from support.interruptions import interrupted
from support.votes import votes

from redlock_fast import (
    Contended,
    ContendedTimeout,
    FastRedlock,
    QuorumTimeout,
    QuorumUnavailable,
    Retry,
)
from redlock_fast.algorithm.attempts import MAX_POLL_INTERVAL, POLL_INTERVAL, REARM, RetryLoop, unavailable
from redlock_fast.algorithm.effects import (
    Effect,
    Exchange,
    Sleep,
    WaitForChange,
    WaitForReconnect,
    WaitForTurn,
)
from redlock_fast.algorithm.lease import AcquireFailure
from redlock_fast.algorithm.local_queue import QueueEntry
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import ContentionHistory, wake_jitter
from redlock_fast.algorithm.redlock import start_attempt
from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Votes
from redlock_fast.locks.failures import acquire_error
from redlock_fast.wire.commands import Verb

KEY, N, NEED = b"key", 5, 3
NODE_TIMEOUT = 0.05
#: A round with a reply from each master takes so long.
ROUND = 0.001


HELD = votes(0, 0, 0, 0, 0)
SPLIT = votes(1, 1, 0, 0, NO_REPLY)
DIVIDED = votes(1, 1, 0, 0, 0)
DOWN = votes(FAULT, FAULT, FAULT, NO_REPLY, NO_REPLY)
MUTE = votes(NO_REPLY, NO_REPLY, NO_REPLY, NO_REPLY, NO_REPLY)
GRANTED = votes(1, 1, 1, NO_REPLY, NO_REPLY)
OPEN = votes(NO_REPLY, NO_REPLY, NO_REPLY, NO_REPLY, NO_REPLY)


class Waiter:
    """A caller of acquire, in a client of its own. Time goes by with effects only."""

    def __init__(
        self,
        seconds: float | None = None,
        rounds: int | None = None,
        lock_kind: LockKind | None = None,
        answer: Votes | None = None,
        **policy: Any,
    ) -> None:
        self.now = 100.0
        #: What the masters answer in a round. None: they must not be asked.
        self.answer = answer
        self.chance = 0.5
        self.effects: list[Effect] = []
        #: What a watch sees, and after how long (at most its own time).
        self.seen: tuple[Votes, float] = GRANTED, 0.0
        #: What happens while it waits for its turn.
        self.while_waiting: Callable[[], object] = lambda: None
        settings: dict[str, Any] = {"retry": Retry(0.01, 0.1), "push": True, **policy}
        self.policy = Policy(
            NODE_TIMEOUT,
            0.01,
            1.0,
            voters=VotingMasters(N),
            clock=lambda: self.now,
            chance=lambda: self.chance,
            **settings,
        )
        give_up_at = None if seconds is None else self.now + seconds
        self.acquire = BareAcquire(self.policy, lock_kind or LockKind(KEY), 10.0, give_up_at, rounds)
        start_attempt(self.acquire)
        self.retry_loop = RetryLoop(self.acquire)

    def fails(self, round_votes: Votes = HELD, took: float = ROUND) -> bool:
        """A round that got no lease; whether it was the last."""
        self.now += took
        return self.retry_loop.exhausted(round_votes, self.now - took)

    def waits(self, round_votes: Votes = HELD) -> bool:
        """Until the next round; False: there is no time for one."""
        return bool(self.run(self.retry_loop.wait(round_votes)))

    def run(self, procedure: Generator[Effect, Any, Any]) -> Any:
        resume: Callable[[Any], Effect] = procedure.send
        argument: Any = None
        while True:
            try:
                effect = resume(argument)
            except StopIteration as done:
                return done.value
            self.effects.append(effect)
            try:
                resume, argument = procedure.send, self.perform(effect)
            except BaseException as error:
                resume, argument = procedure.throw, error

    def perform(self, effect: Effect) -> Any:
        if isinstance(effect, WaitForChange):
            self.now += min(self.seen[1], effect.timeout)
            return [self.seen[0]]
        if isinstance(effect, Exchange):
            assert self.answer is not None
            self.now += ROUND
            return [self.answer] if effect.need else None
        if isinstance(effect, WaitForTurn):
            self.while_waiting()
            if not effect.entry.is_first:
                self.now += effect.seconds
        elif isinstance(effect, Sleep):
            self.now += effect.seconds
        return None

    def watched(self) -> float:
        """How long the last watch was to take at most."""
        return [effect.timeout for effect in self.effects if isinstance(effect, WaitForChange)][-1]

    def paused(self) -> float:
        last = self.effects[-1]
        assert isinstance(last, Sleep)
        return last.seconds


# --- what it waits for --------------------------------------------------------------------------------


def test_it_watches_and_lets_others_go_first() -> None:
    waiter = Waiter()
    waiter.policy.contention.note(waiter.now, split=True)
    assert not waiter.fails()
    assert waiter.waits()
    watch, jitter = waiter.effects
    assert isinstance(watch, WaitForChange)
    assert isinstance(watch.requests, list)
    assert [(Verb(r.verb), r.args, r.masters) for r in watch.requests] == [(Verb.WATCH, (KEY,), 0b11111)]
    assert watch.need == NEED
    assert isinstance(jitter, Sleep)
    assert jitter.seconds == pytest.approx(0.5 * 4 * ROUND)


def test_only_masters_with_a_vote_watch() -> None:
    waiter = Waiter()
    waiter.policy.voters.mask = 0b00111
    waiter.fails()
    waiter.waits()
    watch = waiter.effects[0]
    assert isinstance(watch, WaitForChange)
    assert isinstance(watch.requests, list)
    assert watch.requests[0].masters == 0b00111


def test_where_all_masters_push_it_looks_seldom() -> None:
    waiter = Waiter()
    for _ in range(5):
        waiter.fails()
        waiter.waits()
        assert waiter.watched() == REARM


@pytest.mark.parametrize(("chance", "least"), [(0.0, 0.5), (0.999, 0.9995)])
def test_where_a_master_cannot_push_it_looks_more_and_more_seldom(chance: float, least: float) -> None:
    waiter = Waiter()
    waiter.policy.voters.all_push, waiter.chance = False, chance
    looks = []
    for _ in range(5):
        waiter.fails()
        waiter.waits()
        looks.append(waiter.watched())
    assert looks == pytest.approx([least * min(MAX_POLL_INTERVAL, POLL_INTERVAL * 2**n) for n in range(5)])


def test_a_long_life_of_refusals_does_not_overflow() -> None:
    waiter = Waiter()
    waiter.policy.voters.all_push = False
    waiter.retry_loop.failed = 100_000
    waiter.waits()
    assert waiter.watched() <= MAX_POLL_INTERVAL


@pytest.mark.parametrize("round_votes", [DOWN, MUTE])
def test_where_masters_failed_it_pauses(round_votes: Votes) -> None:
    """No master would push anything to it."""
    waiter = Waiter()
    assert not waiter.fails(round_votes)
    assert waiter.waits(round_votes)
    assert [type(effect) for effect in waiter.effects] == [WaitForReconnect]
    effect: Any = waiter.effects[0]
    assert (effect.disconnected, effect.silent) == (
        ([0, 1, 2], [3, 4]) if round_votes is DOWN else ([], [0, 1, 2, 3, 4])
    )
    assert waiter.paused() == pytest.approx(waiter.policy.retry.delay(1, ROUND, 0.5))
    assert waiter.retry_loop.entry is None, "and keeps no other caller from asking"


def test_masters_that_lag_are_silent() -> None:
    """They are connected, and may be connected again: perhaps a NAT has forgotten their connections."""
    waiter = Waiter()
    lag = votes(*DOWN.values)
    lag.details.update(dict.fromkeys(range(3), "lagging"))
    assert not waiter.fails(lag)
    assert waiter.waits(lag)
    effect: Any = waiter.effects[0]
    assert (effect.disconnected, sorted(effect.silent)) == ([], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("why", ["too many replies owed", "buffer full"])
def test_connected_masters_need_no_connection(why: str) -> None:
    """Catches: rounds without a pause while masters that hang are connected: there is nothing to wait for."""
    waiter = Waiter()
    full = votes(*[FAULT] * N)
    full.details.update(dict.fromkeys(range(N), why))
    assert not waiter.fails(full)
    assert waiter.waits(full)
    assert [type(effect) for effect in waiter.effects] == [Sleep]


def test_where_masters_fail_while_it_watches_it_pauses_as_long() -> None:
    waiter = Waiter()
    waiter.seen = DOWN, 0.2
    waiter.fails()
    assert waiter.waits()
    assert waiter.paused() == pytest.approx(waiter.policy.retry.delay(1, ROUND, 0.5))


@pytest.mark.parametrize("how", ["poll", "a claim with nothing to watch"])
def test_without_push_it_pauses(how: str) -> None:
    class Dull(LockKind):
        def watch_request(self, masters: int) -> Request | None:
            return None

    waiter = Waiter(push=False) if how == "poll" else Waiter(lock_kind=Dull(KEY))
    for attempt in (1, 2, 3):
        waiter.fails()
        assert waiter.waits()
        assert waiter.paused() == pytest.approx(waiter.policy.retry.delay(attempt, ROUND, 0.5))
    assert {type(effect) for effect in waiter.effects} == {Sleep}


# --- how it lets others go first ----------------------------------------------------------------------


def test_window_doubles_with_every_split_and_ends_at_its_longest() -> None:
    windows = [wake_jitter(splits, 0.0001, 1.0) for splits in range(9)]
    assert windows == [0.002, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.064, 0.064]


@pytest.mark.parametrize(("took", "window"), [(0.0, 0.002), (0.003, 0.012), (0.5, 2.0)])
def test_window_is_some_round_trips_wide(took: float, window: float) -> None:
    assert wake_jitter(1, took, 1.0) == pytest.approx(window)
    assert wake_jitter(0, took, 0.25) == pytest.approx(window / 4)


def test_only_split_votes_widen_the_window_of_a_waiter() -> None:
    """Catches: windows that never grow: with an odd number of masters a quorum refuses each split round."""
    waiter = Waiter()
    pauses = []
    for round_votes in (DIVIDED, DIVIDED, DIVIDED, HELD, DIVIDED):
        waiter.fails(round_votes)
        waiter.waits(round_votes)
        pauses.append(2 * waiter.paused())
    assert pauses == pytest.approx([4 * ROUND, 8 * ROUND, 16 * ROUND, 4 * ROUND, 4 * ROUND])


@pytest.mark.parametrize("end", ["push", "the end of a lease"])
def test_where_no_other_client_was_seen_it_asks_at_once(end: str) -> None:
    waiter = Waiter()
    waiter.seen = (GRANTED, 0.2) if end == "push" else (OPEN, 0.2)
    assert not waiter.fails()
    assert waiter.waits()
    assert [type(effect) for effect in waiter.effects] == [WaitForChange]


def test_without_a_wake_up_there_is_a_pause() -> None:
    """What ends at its time, as in each second, may end for many clients at once."""
    waiter = Waiter()
    waiter.seen = OPEN, math.inf
    waiter.fails()
    assert waiter.waits()
    assert waiter.paused() == pytest.approx(0.5 * 4 * ROUND)


@pytest.mark.parametrize(
    ("round_votes", "seconds"), [(DIVIDED, ContentionHistory.SPLIT), (HELD, ContentionHistory.TAKEN)]
)
def test_wake_ups_are_spread_for_a_time_after_another_client_was_seen(
    round_votes: Votes, seconds: float
) -> None:
    waiter = Waiter()
    waiter.fails()
    waiter.waits()
    waiter.fails(round_votes)  # the wake-up was for nothing: another client was faster
    began = waiter.now
    waiter.waits(round_votes)
    assert waiter.paused() > 0.0
    for later, spread in ((seconds - 0.01, True), (seconds + 0.01, False)):
        other = BareAcquire(waiter.policy, LockKind(KEY))  # another acquire of this client
        start_attempt(other)
        waiter.retry_loop, waiter.now, waiter.effects = RetryLoop(other), began + later - ROUND, []
        waiter.fails()
        waiter.waits()
        assert (Sleep in map(type, waiter.effects)) is spread


def test_a_lock_that_is_held_all_the_time_shows_no_other_client() -> None:
    waiter = Waiter()
    waiter.seen = OPEN, math.inf
    for _ in range(3):
        waiter.fails()
        waiter.waits()
    assert not waiter.policy.contention.recent(waiter.now)


# --- how long ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("push", [True, False])
def test_bounded_attempts_bound_the_wait(push: bool) -> None:
    """It waits no longer than polling would, whatever the holder does."""
    waiter = Waiter(rounds=4, push=push)
    waiter.seen = OPEN, math.inf
    began = waiter.now
    for attempt in (1, 2, 3):
        assert not waiter.fails()
        before = waiter.now
        assert waiter.waits()
        assert waiter.now - before <= waiter.policy.retry.delay(attempt, ROUND, 0.5) + 1e-9
    assert waiter.fails()
    assert waiter.now - began <= 4 * ROUND + 3 * 0.1
    assert waiter.retry_loop.failure.rounds == 4


@pytest.mark.parametrize("round_votes", [HELD, SPLIT])
def test_time_is_left_for_a_last_round(round_votes: Votes) -> None:
    waiter = Waiter(seconds=1.0)
    waiter.seen = OPEN, math.inf
    assert not waiter.fails(round_votes)
    waiter.retry_loop._refusal = AcquireFailure(round_votes, False, 1)
    assert waiter.waits(round_votes)
    left = waiter.acquire.give_up_at
    assert left is not None
    assert left - waiter.now == pytest.approx(NODE_TIMEOUT)


@pytest.mark.parametrize(
    ("took", "left", "kept"), [(0.001, 1.0, 0.05), (0.3, 1.0, 0.05), (0.01, 0.2, 0.04), (0.001, 0.1, 0.01)]
)
def test_what_is_kept_for_the_last_round(took: float, left: float, kept: float) -> None:
    """Four times what the last one took, or a tenth of the time, but no more than a round may take."""
    waiter = Waiter(seconds=took + left)
    assert not waiter.fails(took=took)
    assert waiter.retry_loop.spare == pytest.approx(left - kept)


def test_without_time_for_another_round_it_is_over() -> None:
    waiter = Waiter(seconds=0.5)
    assert not waiter.fails(took=0.44)
    assert waiter.fails(took=0.02)


def test_the_time_is_never_exceeded() -> None:
    waiter = Waiter(seconds=0.7)
    waiter.seen = OPEN, math.inf
    waiter.chance = 0.999
    end = waiter.now + 0.7
    while not waiter.fails():
        waiter.waits()
        assert waiter.now < end
    assert waiter.now <= end + 1e-9


def test_a_short_outage_is_borne_and_a_long_one_is_not() -> None:
    waiter = Waiter()
    assert not waiter.fails(DOWN)
    waiter.now += 0.9
    assert not waiter.fails(HELD)
    assert not waiter.fails(DOWN)
    waiter.now += 0.9
    assert not waiter.fails(DOWN)
    waiter.now += 0.1
    assert waiter.fails(DOWN)
    assert waiter.retry_loop.failure.unavailable


def test_a_pause_of_this_process_is_no_outage() -> None:
    waiter = Waiter()
    assert not waiter.fails(MUTE, took=60.0)
    assert not waiter.fails(MUTE, took=0.9)
    assert waiter.fails(MUTE, took=0.2)


def test_masters_that_had_no_time_to_answer_are_not_blamed() -> None:
    """The last round was cut short by the caller's own time-out."""
    waiter = Waiter(seconds=1.0)
    assert not waiter.fails(HELD)
    waiter.now += 0.97
    assert waiter.fails(MUTE, took=0.029)
    assert (waiter.retry_loop.failure.unavailable, waiter.retry_loop.failure.rounds) == (False, 2)
    assert waiter.retry_loop.failure.votes is HELD


@pytest.mark.parametrize("round_votes", [DOWN, MUTE])
def test_the_only_round_reports_masters_that_did_not_answer_though_it_was_cut_short(
    round_votes: Votes,
) -> None:
    """Nothing else is known: no earlier round and no wait in the local queue has shown another holder."""
    waiter = Waiter(seconds=NODE_TIMEOUT / 2)
    assert waiter.fails(round_votes, took=NODE_TIMEOUT / 2)
    assert (waiter.retry_loop.failure.unavailable, waiter.retry_loop.failure.rounds) == (True, 1)
    assert waiter.retry_loop.failure.votes is round_votes


def test_of_four_masters_two_that_fail_are_an_outage_and_two_that_refuse_are_a_holder() -> None:
    """Either two prevent a quorum of three."""
    four = MasterLists(4)
    assert unavailable(four, votes(FAULT, FAULT, 0, 0))
    assert not unavailable(four, votes(FAULT, 0, 0, NO_REPLY))


# --- the local queue ----------------------------------------------------------------------------------


def test_a_caller_alone_in_the_queue_does_not_wait_for_its_turn() -> None:
    waiter = Waiter()
    assert waiter.run(waiter.retry_loop.queue())
    assert waiter.effects == []


def test_it_waits_for_its_turn_first() -> None:
    waiter = Waiter()
    before = waiter.policy.local_queue.enter(KEY)
    waiter.while_waiting = before.leave
    waiter.fails()
    assert waiter.waits()
    assert [type(effect) for effect in waiter.effects] == [WaitForTurn, WaitForChange]
    waiter.retry_loop.leave(granted=False)
    assert waiter.policy.local_queue.waiting == {}


def test_its_place_stays_its_own_over_the_rounds() -> None:
    waiter = Waiter()
    for _ in range(3):
        waiter.fails()
        waiter.waits()
    assert len(waiter.policy.local_queue.waiting[KEY]) == 1


@pytest.mark.parametrize(("seconds", "rounds", "another"), [(1.0, None, False), (None, 3, True)])
def test_time_that_has_passed_in_the_queue(seconds: float | None, rounds: int | None, another: bool) -> None:
    """It is over, or cost a pause where attempts are counted: the next is made as if it had polled."""
    waiter = Waiter(seconds, rounds)
    before = waiter.policy.local_queue.enter(KEY)
    waiter.fails()
    began = waiter.now
    assert waiter.waits() is another
    turn = waiter.effects[-1]
    assert isinstance(turn, WaitForTurn)
    bound = 1.0 if seconds else waiter.policy.retry.delay(1, ROUND, 0.5)
    assert waiter.now - began <= bound + 1e-9
    assert before.is_first


def test_in_the_queue_without_an_end() -> None:
    waiter = Waiter()
    before = waiter.policy.local_queue.enter(KEY)
    waiter.while_waiting = before.leave
    assert waiter.run(waiter.retry_loop.queue())
    (turn,) = waiter.effects
    assert isinstance(turn, WaitForTurn)
    assert turn.seconds == math.inf


def test_a_lock_kind_without_a_queue_asks_at_once() -> None:
    class Alone(LockKind):
        queue_key = None

    waiter = Waiter(lock_kind=Alone(KEY))
    behind = waiter.policy.local_queue.enter(KEY)
    assert waiter.run(waiter.retry_loop.queue())
    waiter.fails()
    assert waiter.waits()
    assert [type(effect) for effect in waiter.effects] == [WaitForChange]
    assert behind.is_first


class Shared(LockKind):
    shared = True


@pytest.mark.parametrize("granted", [True, False])
def test_a_shared_grant_lets_all_callers_of_the_queue_ask(granted: bool) -> None:
    """Without a grant the next caller is the first."""
    first, second = Waiter(lock_kind=Shared(KEY)), Waiter(lock_kind=Shared(KEY))
    second.retry_loop.policy = first.policy
    for one in (first, second):
        one.fails()
    first.waits()
    behind: list[QueueEntry] = []

    def while_waiting() -> None:
        behind.append(first.policy.local_queue.enter(KEY))
        first.retry_loop.leave(granted=granted)

    second.while_waiting = while_waiting
    assert second.waits()
    assert [type(effect) for effect in second.effects] == [WaitForTurn] + [WaitForChange] * (not granted)
    assert behind[0].is_first is granted


def test_a_shared_lock_that_is_refused_again_queues_again() -> None:
    waiter = Waiter(lock_kind=Shared(KEY))
    waiter.fails()
    waiter.waits()
    assert waiter.retry_loop.entry
    waiter.retry_loop.entry.admit_all()
    assert not waiter.policy.local_queue.waiting
    before = waiter.policy.local_queue.enter(KEY)
    waiter.while_waiting = before.leave
    waiter.fails()
    waiter.waits()
    waiting = [type(effect) for effect in waiter.effects if not isinstance(effect, Sleep)]
    assert waiting == [WaitForChange, WaitForTurn, WaitForChange]
    assert len(waiter.policy.local_queue.waiting[KEY]) == 1


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_after_a_long_outage_all_callers_of_the_queue_ask(seconds: float | None) -> None:
    """Catches: callers that fail one after the other, each ``outage_timeout`` after the one before."""
    waiter = Waiter(seconds)
    waiter.fails(HELD)
    waiter.waits(HELD)
    behind = [waiter.policy.local_queue.enter(KEY) for _ in range(2)]
    assert not waiter.fails(DOWN)
    waiter.now += 0.9
    assert not waiter.fails(DOWN)
    assert not any(entry.is_first for entry in behind), "it may be a blip"
    waiter.now += 0.1
    assert waiter.fails(DOWN) is (seconds is None)
    assert all(entry.is_first for entry in behind)


class Callers:
    """A caller with an end, and two callers that queue behind it while it waits for its turn."""

    def __init__(self, kind: type[LockKind], answer: Votes) -> None:
        self.waiter = Waiter(answer=answer)
        self.lock_kind = kind(KEY)
        self.behind: list[QueueEntry] = []
        self.woken: list[QueueEntry] = []
        self.exceptions: list[KeyboardInterrupt] = []
        self.queue = self.waiter.policy.local_queue
        self.before = self.queue.enter(KEY)
        self.waiter.while_waiting = self.come
        self.complete = False

    def acquire(self) -> None:
        policy, end = self.waiter.policy, self.waiter.now + 2 * ROUND
        try:
            self.waiter.run(acquire(policy, self.lock_kind, 10.0, end, None, lambda lease: None))
        except KeyboardInterrupt as error:
            self.exceptions.append(error)
            raise

    def come(self) -> None:
        for _ in range(2):
            entry = self.queue.enter(KEY)
            entry.slot.wake = partial(self.woken.append, entry)
            self.behind.append(entry)
        self.before.leave()
        self.complete = True


@pytest.mark.parametrize("answer", [GRANTED, HELD])
@pytest.mark.parametrize("kind", [LockKind, Shared])
def test_an_interrupted_acquire_wakes_the_callers_behind_it(kind: type[LockKind], answer: Votes) -> None:
    """At each moment, and while the exception is kept, which keeps the entry.

    Catches: a caller that waits for ever, because the one before it left the queue and woke none.
    """
    runs: list[Callers] = []  # all are kept: Python swallows an exception in a finalizer
    for moment in itertools.count():
        callers = Callers(kind, answer)
        runs.append(callers)
        if interrupted(callers.acquire, moment) is None:
            break
        if callers.complete and callers.exceptions:
            assert callers.behind[0].is_first
            assert {entry for entry in callers.behind if entry.is_first} == set(callers.woken)
    assert sum(callers.complete for callers in runs) > 20


def test_where_others_wait_it_asks_no_master_before_its_turn() -> None:
    waiter = Waiter()
    before = waiter.policy.local_queue.enter(KEY)
    end = waiter.now + 0.3
    refusal = waiter.run(acquire(waiter.policy, LockKind(KEY), 10.0, end, None, lambda lease: None))
    assert [type(effect) for effect in waiter.effects] == [WaitForTurn]
    assert isinstance(refusal, AcquireFailure)
    assert (refusal.unavailable, refusal.rounds) == (False, 0)
    assert waiter.now == pytest.approx(end)
    assert len(waiter.policy.local_queue.waiting[KEY]) == 1
    assert before.is_first


# --- in words -----------------------------------------------------------------------------------------


@pytest.fixture
def client() -> FastRedlock:
    return FastRedlock([f"redis://master-{number}" for number in range(N)])


@pytest.mark.parametrize(
    ("refusal", "kind", "text"),
    [
        (
            AcquireFailure(HELD, False, 1),
            Contended,
            "^'key' is already held on 5 of 5 masters, after 1 attempt$",
        ),
        (AcquireFailure(SPLIT, False, 3), Contended, "already held on 2 of 5 masters, after 3 attempts$"),
        (
            AcquireFailure(OPEN, False, 0),
            Contended,
            "other callers of this client waited for it and were first$",
        ),
        (AcquireFailure(DOWN, True, 2), QuorumUnavailable, "no quorum of 3 of 5 masters after 2 attempts"),
        (AcquireFailure(GRANTED, True, 1), QuorumUnavailable, "granted the lease too late"),
        (AcquireFailure(SPLIT, False, 3, timed_out=True), ContendedTimeout, "held on 2 of 5 masters"),
        (AcquireFailure(DOWN, True, 2, timed_out=True), QuorumTimeout, "no quorum of 3 of 5 masters"),
        (AcquireFailure(GRANTED, True, 1, timed_out=True), QuorumTimeout, "too late"),
    ],
)
def test_what_a_refusal_says(client: FastRedlock, refusal: AcquireFailure, kind: type, text: str) -> None:
    error = acquire_error(core_of(client), KEY.decode(), LockKind(KEY), refusal)
    assert type(error) is kind
    assert error.resource == KEY.decode()
    assert isinstance(error, TimeoutError) is refusal.timed_out
    with pytest.raises(kind, match=text):
        raise error
