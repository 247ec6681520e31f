"""Renewal in virtual time: which leases are extended when, and which are reported lost."""

from __future__ import annotations

import gc
import itertools
import math
import threading
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import cases
from support.inside import core_of

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.aio.client import AsyncFastRedlock
from redlock_fast.algorithm import procedures
from redlock_fast.algorithm.effects import Exchange
from redlock_fast.algorithm.lease import ExtendOutcome, Lease
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry, drift
from redlock_fast.algorithm.renewal_schedule import (
    FIRST_PAUSE,
    GONE,
    LATE,
    LONG_HOLD_SHARE,
    MAX_EXTENSIONS,
    MAX_HOLD,
    UNCONFIRMED,
    WINDOW,
    RenewedLease,
    Schedule,
)
from redlock_fast.engine.contract import BatchVotes, Votes
from redlock_fast.locks.auto_extend import AutoExtension, Renewal
from redlock_fast.masters.client_state import ClientState

DRIFT = 0.01
START = 1000.0
YES, NO, SILENCE = "yes", "no", "silence"


class FakeLock:
    """What renewal sees of a lock."""

    def __init__(self, now: float, ttl: float = 10.0, most: int | None = None, key: bytes = b"k") -> None:
        self.key = key
        self.resource = key
        self.ttl = ttl
        self.most = most
        end = now + ttl - drift(ttl, DRIFT)
        self._lease: Lease | None = Lease(b"k", b"t" * 20, 0b11111, ttl, end, ttl)
        self._auto_extension: AutoExtension | None = None

    def _may_be_extended(self, lease: Lease) -> bool:
        return self.most is None or lease.extensions < self.most


def renewed_lease(lock: FakeLock, *bounds: float) -> RenewedLease:
    assert lock._lease
    return RenewedLease(lock, lock._lease, *bounds)


def extend(renewed: RenewedLease, ttl: float, now: float) -> None:
    """As the masters would confirm it at once."""
    renewed.lease.deadline = now + ttl - drift(ttl, DRIFT)
    renewed.lease.extensions += 1


def scheduled(*holds: RenewedLease) -> Schedule:
    schedule = Schedule(DRIFT)
    for renewed in holds:
        schedule.add(renewed)
    return schedule


def asked(schedule: Schedule, now: float) -> list[RenewedLease]:
    return [renewed for renewed, _ in schedule.pop_due(now)]


# --- when -----------------------------------------------------------------------------------------


@cases("ttl", [0.05, 0.5, 10.0, 60.0])
def test_due_at_a_third_of_the_lease_again_and_again(ttl: float) -> None:
    lock = FakeLock(START, ttl)
    renewed = renewed_lease(lock)
    schedule, now = scheduled(renewed), START
    for _ in range(20):
        due = schedule.next()
        assert 0.2 * ttl < due - now <= ttl / 3
        assert asked(schedule, now) == [], "not before it is due"
        assert schedule.pop_due(due) == [(renewed, ttl)]
        assert schedule.pop_due(due) == [], "nor twice"
        extend(renewed, ttl, due)
        schedule.settle(renewed, True, due)
        now = due


@cases("factor", [0.0, 0.1, 0.2, 0.25, 0.3, 0.5])
@cases("ttl", [0.01, 0.2, 10.0])
def test_a_lease_that_loses_much_to_the_drift_is_extended(factor: float, ttl: float) -> None:
    """Catches: what is left is compared with the whole ttl. Then each extension gains too little, and the
    lease ends as if ``max_hold`` had passed; or it is due again at once.
    """
    lock = FakeLock(START, ttl)
    lost = drift(ttl, factor)
    assert lock._lease
    lock._lease.deadline = START + ttl - lost
    renewed = renewed_lease(lock)
    schedule, now = Schedule(factor), START
    schedule.add(renewed)
    for early in [0.0, renewed.slack()] * 10:
        due = schedule.next() - early
        assert due - now > (ttl - lost) / 20
        assert schedule.pop_due(due) == [(renewed, ttl)]
        renewed.lease.deadline = due + ttl - lost
        schedule.settle(renewed, True, due)
        now = due


def test_what_is_due_soon_goes_along_and_stays_together() -> None:
    locks = [FakeLock(START + number * WINDOW / 100) for number in range(100)]
    later = FakeLock(START + 1.0)
    holds = [renewed_lease(lock) for lock in locks]
    schedule = scheduled(*reversed(holds), renewed_lease(later))
    now = schedule.next()
    assert asked(schedule, now) == holds
    for renewed in holds:
        extend(renewed, 10.0, now)
        schedule.settle(renewed, True, now)
    assert len(asked(schedule, schedule.next())) == 1, "the other one"
    assert len(asked(schedule, schedule.next())) == 100


def test_inconclusive_is_tried_again_soon_with_pauses_that_grow_until_the_deadline() -> None:
    lock = FakeLock(START)
    renewed = renewed_lease(lock)
    schedule, times = scheduled(renewed), []
    while not schedule.pop_ended(now := schedule.next()):
        assert asked(schedule, now) == [renewed]
        times.append(now)
        schedule.settle(renewed, False, now)
    assert now == lock._lease.deadline
    assert renewed.reason() == UNCONFIRMED
    pauses = [later - at for at, later in itertools.pairwise(times)]
    assert pauses[:4] == pytest.approx([0.01, 0.02, 0.04, 0.08])
    assert max(pauses) == pytest.approx(10.0 / 30)
    assert times[-1] > lock._lease.deadline - 0.4


def test_what_cannot_be_answered_in_time_is_not_asked() -> None:
    """Catches: a thousand locks that are asked for once more, and reported lost only after that."""
    lock = FakeLock(START)
    for took, asks in ((0.0, True), (0.05, True), (0.2, False), (60.0, False)):
        renewed = renewed_lease(lock)
        schedule = scheduled(renewed)
        schedule.took = took
        assert asked(schedule, START + 5) == [renewed], "the first time always"
        schedule.settle(renewed, False, START + 5)
        assert asked(schedule, renewed.lease.deadline - 0.1) == [renewed] * asks
    schedule.settle(renewed, False, START + 5)
    assert asked(schedule, renewed.lease.deadline - 1.1) == [renewed], "one that took long is no rule"


def test_an_extension_by_the_caller_in_the_last_share_is_followed() -> None:
    """Renewal had given this lease up when its caller extended it."""
    lock = FakeLock(START)
    assert lock._lease
    renewed = RenewedLease(lock, lock._lease)
    schedule, end = scheduled(renewed), lock._lease.deadline
    schedule.took = 1.0
    assert asked(schedule, schedule.next()) == [renewed]
    schedule.settle(renewed, False, end - 0.6)
    assert asked(schedule, end - 0.2) == [], "it would be answered too late"
    extend(renewed, lock.ttl, end - 0.1)
    after = end + 0.01
    assert schedule.pop_ended(after) == []
    assert asked(schedule, after) == []
    due = schedule.next()
    assert due == renewed.due_at()
    assert asked(schedule, due) == [renewed]


def test_after_success_all_is_as_before() -> None:
    lock = FakeLock(START)
    renewed = renewed_lease(lock)
    schedule = scheduled(renewed)
    for _ in range(3):
        now = schedule.next()
        asked(schedule, now)
        schedule.settle(renewed, False, now)
    now = schedule.next()
    asked(schedule, now)
    extend(renewed, 10.0, now)
    schedule.settle(renewed, True, now)
    assert schedule.next() == pytest.approx(now + 10 / 3, abs=0.2)
    assert renewed.failures == 0


def test_an_extension_by_the_user_moves_ours() -> None:
    lock = FakeLock(START)
    renewed = renewed_lease(lock)
    schedule = scheduled(renewed)
    now = schedule.next()
    extend(renewed, 50.0, now)
    assert asked(schedule, now) == []
    assert schedule.next() == pytest.approx(now + 50 - 0.502 - 10 * 2 / 3)
    assert schedule.pop_ended(now + 12) == []


# --- bounds ---------------------------------------------------------------------------------------


def test_stops_after_max_extensions() -> None:
    lock = FakeLock(START, most=3)
    renewed = renewed_lease(lock)
    schedule, count = scheduled(renewed), 0
    while not schedule.pop_ended(now := schedule.next()):
        for _ in schedule.pop_due(now):
            count += 1
            extend(renewed, 10.0, now)
            schedule.settle(renewed, True, now)
    assert count == 3
    assert now == lock._lease.deadline
    assert renewed.reason() == MAX_EXTENSIONS


@cases("longest", [0.5, 9.0, 10.5, 14.0, 25.0, 100.0])
def test_is_never_held_longer_than_max_hold(longest: float) -> None:
    lock = FakeLock(START)
    renewed = renewed_lease(lock, START + longest)
    schedule, wanted = scheduled(renewed), []
    while not schedule.pop_ended(now := schedule.next()):
        for _, ttl in schedule.pop_due(now):
            wanted.append(ttl)
            extend(renewed, ttl, now)
            schedule.settle(renewed, True, now)
        assert len(wanted) < 100
    assert renewed.reason() == MAX_HOLD
    granted = START + 10.0 - drift(10.0, DRIFT)
    assert granted <= now <= max(granted, START + longest)
    assert now > START + longest - 1.0, "but nearly so long"
    assert all(ttl == 10.0 for ttl in wanted[:-1]), "only the last is shorter"


@cases("longest", [3.0, 9.0, 14.0, 100.0])
def test_a_long_hold_is_reported_once(longest: float) -> None:
    """At 80 % of max_hold, also where the last extension was before that."""
    lock = FakeLock(START)
    renewed = renewed_lease(lock, START + longest, START + longest * LONG_HOLD_SHARE)
    schedule, reported = scheduled(renewed), []
    while not schedule.pop_ended(now := schedule.next()):
        for _, ttl in schedule.pop_due(now):
            extend(renewed, ttl, now)
            schedule.settle(renewed, True, now)
        reported += [now for _ in schedule.pop_long_held()]
    assert len(reported) == 1
    assert START + longest * 0.8 <= reported[0] <= START + longest * 0.8 + 10.0 / 3


def test_without_max_hold_no_hold_is_long() -> None:
    lock = FakeLock(START, most=50)
    renewed = renewed_lease(lock)
    schedule = scheduled(renewed)
    while not schedule.pop_ended(now := schedule.next()):
        for _, ttl in schedule.pop_due(now):
            extend(renewed, ttl, now)
            schedule.settle(renewed, True, now)
        assert schedule.pop_long_held() == []


# --- the end --------------------------------------------------------------------------------------


def test_abandoned_or_let_go_is_neither_extended_nor_lost() -> None:
    gone, released, kept = FakeLock(START), FakeLock(START), FakeLock(START)
    holds = [renewed_lease(lock) for lock in (gone, released, kept)]
    schedule = scheduled(*holds)
    del gone
    released._lease = None
    gc.collect()
    assert asked(schedule, START + 5) == [holds[2]]
    assert len(schedule) == 1
    schedule = scheduled(*[RenewedLease(kept, renewed.lease) for renewed in holds])
    assert len(schedule.pop_ended(START + 20)) == 1
    assert len(schedule) == 1


def test_late_is_late() -> None:
    lock = FakeLock(START)
    renewed = renewed_lease(lock)
    schedule = scheduled(renewed)
    assert schedule.pop_ended(START + 60) == [renewed]
    assert renewed.reason() == LATE
    assert schedule.pop_ended(START + 61) == []


def test_what_was_dropped_is_forgotten() -> None:
    """Catches: heaps that grow with every lock that is acquired and released within a third of its lease."""
    stays = FakeLock(START, 60.0)
    schedule = scheduled(renewed_lease(stays))
    for _ in range(10_000):
        lock = FakeLock(START, 60.0)
        renewed = renewed_lease(lock)
        schedule.add(renewed)
        schedule.drop(renewed)
        schedule.drop(renewed)
        schedule.pop_ended(START)
    assert len(schedule) == 1
    assert len(schedule._dues) + len(schedule._ends) < 300
    assert schedule.next() < START + 30
    assert scheduled().next() == float("inf")


@dataclass
class Run:
    """Many locks, masters that answer as hypothesis says, and time that only goes on."""

    draw: Any
    now: float = START
    schedule: Schedule = field(default_factory=lambda: Schedule(DRIFT))
    live: dict[RenewedLease, FakeLock] = field(default_factory=dict)
    last: dict[RenewedLease, float] = field(default_factory=dict)
    lost: list[RenewedLease] = field(default_factory=list)

    def step(self) -> None:
        for renewed in self.schedule.pop_ended(self.now):
            assert renewed.lease.deadline <= self.now
            assert renewed not in self.lost
            self.lost.append(renewed)
            self.live.pop(renewed)
            self.schedule.drop(renewed)
        for renewed, ttl in self.schedule.pop_due(self.now):
            assert renewed in self.live, "released or lost, and yet extended"
            assert self.now < renewed.lease.deadline
            assert self.now - self.last.get(renewed, 0.0) >= FIRST_PAUSE * 0.999, "without a pause"
            assert ttl <= renewed.ttl
            self.last[renewed] = self.now
            answer = self.draw(st.sampled_from([YES, SILENCE, "released"]))
            if answer == YES:
                extend(renewed, ttl, self.now)
            if answer == "released":
                self.live.pop(renewed)._lease = None
                self.schedule.drop(renewed)
            self.schedule.settle(renewed, answer == YES, self.now)

    def check(self) -> None:
        assert len(self.schedule) == len(self.live)
        for renewed in self.live:
            assert self.schedule.next() <= renewed.lease.deadline, "a request notices its end"


@settings(deadline=None)
@given(st.data())
def test_whatever_happens_no_lease_is_forgotten_or_lost_twice(data: st.DataObject) -> None:
    run = Run(data.draw)
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            ttl, most = data.draw(st.sampled_from([0.1, 1.0, 10.0])), data.draw(st.integers(0, 5))
            lock = FakeLock(run.now, ttl, most)
            renewed = renewed_lease(lock, run.now + data.draw(st.sampled_from([0.5, 15.0, float("inf")])))
            run.live[renewed] = lock
            run.schedule.add(renewed)
        run.now = max(run.now, min(run.schedule.next(), run.now + 20.0)) + data.draw(
            st.sampled_from([0.0, 0.0, 0.001, 1.0, 30.0])
        )
        run.step()
        run.check()
    run.now += 100.0
    run.step()
    assert not run.live


# --- one client's renewal, without threads or masters ---------------------------------------------


class Still(Renewal):
    """Nothing happens by itself."""

    def __init__(self) -> None:
        self.now = START
        self.reported: list[tuple[Any, str]] = []
        client_state = ClientState(lambda: None)
        masters = SimpleNamespace(
            engine=SimpleNamespace(connection_state=lambda master: SimpleNamespace(round_trip=0.002))
        )
        policy = Policy(0.05, DRIFT, 1.0, Retry(), VotingMasters(5), clock=lambda: self.now)
        core: Any = SimpleNamespace(masters=masters, client_state=client_state, policy=policy)
        super().__init__(core)

    def wake_soon(self) -> None:
        pass

    def notify_lost(self, lock: Any, lease: Lease, reason: str) -> None:
        self.reported.append((lock, reason))

    def hold(self, ttl: float = 10.0) -> FakeLock:
        lock = FakeLock(self.now, ttl)
        lock._auto_extension = AutoExtension(lambda: self, threading.Event, None, float("inf"))
        assert lock._lease
        lock._auto_extension.begin(lock, lock._lease)
        return lock

    def asking(self) -> tuple[Any, Exchange]:
        """An extension that is under way: what it asks, and the procedure."""
        procedure = self._extend(self.collect_due(), [])
        effect = next(procedure)
        assert isinstance(effect, Exchange)
        return procedure, effect


def answer(procedure: Any, *answers: str) -> None:
    """To each lock of the batch, in order."""
    granted = [3 if one == YES else 0 for one in answers]
    votes = {
        place: Votes((0,) * 5, 31, 0, 5 if one == NO else 0, 0 if one == NO else 5, {})
        for place, one in enumerate(answers)
        if one != YES
    }
    with pytest.raises(StopIteration):
        procedure.send(BatchVotes(granted, [31] * len(answers), votes))


@pytest.fixture
def renewal() -> Still:
    return Still()


def test_one_exchange_for_all_whatever_their_ttl(renewal: Still) -> None:
    locks = [renewal.hold(ttl) for ttl in (9.0, 10.0, 10.0)]
    renewal.now += 3.4
    procedure, effect = renewal.asking()
    assert effect.requests.args[2] == [b"9000", b"10000", b"10000"]  # type: ignore[union-attr]
    answer(procedure, YES, SILENCE, NO)
    assert renewal.reported == [(locks[2], GONE)]
    assert [lock._lease.extensions for lock in locks if lock._lease] == [1, 0, 0]
    counts = renewal.counts
    assert (counts.extended, counts.renewed, counts.inconclusive, counts.lost) == (1, 1, 1, 1)


def test_a_release_while_an_extension_is_under_way_is_no_loss(renewal: Still) -> None:
    for released in (YES, NO, SILENCE):
        lock = renewal.hold()
        renewal.now += 3.4
        procedure, _ = renewal.asking()
        assert lock._auto_extension
        assert lock._lease
        lock._auto_extension.stop(lock._lease)
        answer(procedure, released)
        renewal.now += 60
        assert renewal.collect_due() == []
    assert renewal.reported == []
    assert len(renewal.schedule) == 0


def test_what_a_release_finds_is_reported_once(renewal: Still) -> None:
    lock = renewal.hold()
    assert lock._auto_extension
    assert lock._lease
    lock._auto_extension.stop(lock._lease)
    for _ in range(2):
        lock._auto_extension.on_lease_lost(lock, lock._lease, released=True)
    assert renewal.reported == [(lock, GONE)]
    assert lock._lease.lost


def test_what_is_released_at_exit_is_no_loss(renewal: Still) -> None:
    lock = renewal.hold()
    renewal.now += 3.4
    procedure, _ = renewal.asking()
    renewal.client_state.ending = True
    answer(procedure, NO)
    assert renewal.reported == []
    assert lock._lease


def test_a_loss_is_of_one_hold(renewal: Still) -> None:
    """Catches: a late answer for the lease before that ends the present one."""
    lock = renewal.hold()
    assert lock._auto_extension
    first, lock._lease = lock._lease, FakeLock(renewal.now)._lease
    assert first
    assert lock._lease
    lock._auto_extension.stop(first)
    lock._auto_extension.begin(lock, lock._lease)
    lock._auto_extension.on_lease_lost(lock, first, released=True)
    assert renewal.reported == []
    renewal.now += 20
    renewal.collect_due()
    renewal.collect_due()
    assert renewal.reported == [(lock, LATE)]


def test_a_longer_extension_that_overlaps_a_renewal_counts(renewal: Still) -> None:
    """Masters never shorten a key, so neither waits for the other. Catches: the last confirmed one counts."""
    lock = renewal.hold()
    assert lock._lease
    renewal.now += 3.4
    procedure, _ = renewal.asking()
    longer = procedures.extend(renewal.policy, lock._lease, 50.0, [])
    next(longer)
    with pytest.raises(StopIteration) as done:
        longer.send([Votes((1,) * 5, 31, 5, 0, 0, {})])
    assert done.value.value[0] is ExtendOutcome.EXTENDED
    deadline = lock._lease.deadline
    assert deadline > renewal.now + 49
    answer(procedure, YES)
    assert lock._lease.deadline == deadline


def test_lost_stays_lost(renewal: Still) -> None:
    lock = renewal.hold()
    renewal.now += 3.4
    procedure, _ = renewal.asking()
    assert lock._lease
    assert lock._auto_extension
    lock._auto_extension.on_lease_lost(lock, lock._lease)  # as another thread's extension found out
    answer(procedure, YES)
    assert lock._lease.deadline <= renewal.now
    assert [reason for _, reason in renewal.reported] == [GONE]


def test_an_exchange_that_breaks_is_tried_again(renewal: Still) -> None:
    lock = renewal.hold()
    renewal.now += 3.4
    procedure, _ = renewal.asking()
    with pytest.raises(OSError, match="broken"):
        procedure.throw(OSError("broken"))
    assert lock._lease
    renewal.now += 2 * FIRST_PAUSE
    procedure, _ = renewal.asking()
    answer(procedure, YES)
    assert lock._lease.extensions == 1


def test_an_exchange_does_not_outlive_the_next_deadline(renewal: Still) -> None:
    """But takes what answers usually take, or a stream of ending leases would starve all others."""
    ending, lock = renewal.hold(), renewal.hold(14.0)
    assert ending._auto_extension
    for left, least, most in ((0.03, 0.03, 0.03), (0.001, 0.008, 0.008), (2.0, 0.05, 2.0)):
        assert ending._lease
        ending._lease.deadline = renewal.now + 5.0 + left
        renewal.now += 5.0
        renewal.schedule = scheduled(renewed_lease(ending), renewed_lease(lock))
        procedure, effect = renewal.asking()
        assert effect.stall <= effect.timeout
        assert least - 1e-6 <= effect.timeout <= most + 1e-6
        answer(procedure, YES, YES)


# --- terms ----------------------------------------------------------------------------------------

URLS = [f"redis://10.0.0.{number}" for number in range(1, 4)]


@cases("kind", [FastRedlock, AsyncFastRedlock])
@cases(
    "options, word",
    [
        ({"auto_extend": 1}, "auto_extend"),
        ({"auto_extend": "yes"}, "auto_extend"),
        ({"auto_extend": None}, "auto_extend"),
        ({"on_lost": 5, "auto_extend": True}, "on_lost"),
        ({"on_lost": print}, "auto_extend=True"),
        ({"max_hold": 5.0}, "auto_extend=True"),
        *[
            ({"max_hold": value, "auto_extend": True}, "max_hold")
            for value in (0, -1, True, "5", float("nan"), float("inf"), [1])
        ],
    ],
)
def test_bad_terms(kind: Any, options: dict[str, Any], word: str) -> None:
    client = kind(URLS)
    with pytest.raises(ConfigError, match=word):
        client.lock("r", **options)
    with pytest.raises(ConfigError, match=word):
        client.synchronized("r", **options)
    assert core_of(client)._renewal is None


def test_terms_of_the_one_kind_only() -> None:
    async def coroutine_function(lock: Any, reason: str) -> None: ...

    class AsyncCall:
        async def __call__(self, lock: Any, reason: str) -> None: ...

    for on_lost in (coroutine_function, AsyncCall(), partial(AsyncCall())):
        with pytest.raises(ConfigError, match="on_lost"):
            FastRedlock(URLS).lock("r", auto_extend=True, on_lost=on_lost)
    with pytest.raises(ConfigError, match="cancel_on_loss"):
        FastRedlock(URLS).lock("r", auto_extend=True, cancel_on_loss=False)
    client = AsyncFastRedlock(URLS)
    client.lock("r", auto_extend=True, on_lost=coroutine_function, cancel_on_loss=False)
    for options in ({"cancel_on_loss": 0, "auto_extend": True}, {"cancel_on_loss": False}):
        with pytest.raises(ConfigError):
            client.lock("r", **options)


@cases("kind", [FastRedlock, AsyncFastRedlock])
def test_the_bound_is_an_hour_and_no_number(kind: Any) -> None:
    client = kind(URLS)
    makers = [client.lock, client.rwlock, lambda name, **options: client.multilock([name], **options)]
    for make in makers:
        lock = make("r", auto_extend=True)
        lock = lock.write() if make == client.rwlock else lock
        assert lock._auto_extension.max_hold == 3600.0
        assert lock._max_extensions is None
    assert client.lock("r", auto_extend=True, max_hold=None)._auto_extension.max_hold == math.inf
    assert client.lock("r", auto_extend=True, max_extensions=100)._max_extensions == 100
    assert client.lock("r")._max_extensions is None


def test_a_plain_lock_has_no_lost_event() -> None:
    assert not hasattr(FastRedlock(URLS).lock("r"), "lost")
    assert not hasattr(AsyncFastRedlock(URLS).lock("r"), "lost")
    event = FastRedlock(URLS).lock("r", auto_extend=True).lost
    assert isinstance(event, threading.Event)
    assert not event.is_set()
