"""Auto-extended locks on real masters, with both clients: what keeps them, what ends them, what is reported.

Leases are so long that no busy machine loses one; a clock that the test puts forward makes them due, and ends
them.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.clients import both_clients
from support.clocks import Jumping
from support.inside import core_of
from support.keys import names, nothing_left, paused, wipe
from support.renewing import THIRD, TTL, Kept, LossRecorder, MakeClient, held, renewed
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import LockLost, TooManyExtensions
from redlock_fast.algorithm.renewal_schedule import GONE, LATE, MAX_EXTENSIONS, MAX_HOLD, UNCONFIRMED
from redlock_fast.embedded import Masters

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]

#: Seconds that a hung master is waited for.
HUNG = 0.3


def lost(lock: Any) -> None:
    eventually(lock.lost.is_set, "the lock is lost")
    assert lock.lost


# --- held as long as it is wanted ----------------------------------------------------------------


def test_held_for_longer_than_its_lease(
    masters: Masters, connected: MakeClient, recorder: LossRecorder
) -> None:
    """In real time."""
    c = connected(masters)
    with c.lock("kept", 3.0, auto_extend=True, on_lost=recorder) as lock:
        renewed(c, 4)
        lock.check()
        assert not lock.lost
        assert not lock.lost.is_set()
    nothing_left(masters)
    assert recorder.losses == []
    assert c.stats().released == 1


def test_with_a_fencing_token(masters: Masters, kept: Kept, clock: Jumping) -> None:
    """It stays the same."""
    c, lock = kept(masters, fencing=True)
    token = lock.fencing_token
    assert token is not None
    clock.jump(THIRD)
    renewed(c, 1)
    assert lock.fencing_token == token
    assert lock.release()


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_minority_does_not_matter(
    masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder, how: str
) -> None:
    c, lock = kept(masters, HUNG)
    for number in (0, 1):
        getattr(masters[number], how)()
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    lock.check()
    assert recorder.losses == []
    assert lock.release()


def test_masters_that_come_back_in_time(
    valkey: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder
) -> None:
    """It is tried again and again until then."""
    c, lock = kept(valkey, HUNG)
    with paused(valkey, 0, 1, 2):
        clock.jump(THIRD)
        eventually(lambda: c.stats().inconclusive, "an extension fails", deadline=2 * DEADLINE)
    renewed(c, 1)
    assert lock.release()
    assert recorder.losses == []


# --- lost ----------------------------------------------------------------------------------------


def test_a_majority_killed_every_lock_reports_once(
    masters: Masters, connected: MakeClient, clock: Jumping, recorder: LossRecorder
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    locks = [held(c, name, on_lost=recorder) for name in names(50)]
    for number in (0, 1, 2):
        masters[number].kill()
    clock.jump(THIRD)
    eventually(lambda: c.stats().inconclusive >= 50, "extensions fail")
    assert recorder.losses == []
    assert all(lock.locked() and not lock.lost.is_set() for lock in locks)
    clock.jump(TTL)
    assert not any(lock.locked() for lock in locks), "by the clock, noticed or not"
    eventually(lambda: len(recorder.losses) >= 50, "all are reported")
    assert {lock for lock, _ in recorder.losses} == set(locks)
    assert set(recorder.reasons()) == {UNCONFIRMED}
    assert all(lock.lost.is_set() for lock in locks)
    assert not any(c.release_many(locks))
    assert len(recorder.losses) == 50
    assert c.stats().lost == 50


def test_a_hung_majority_does_not_delay_the_telling(
    valkey: Masters, connected: MakeClient, recorder: LossRecorder
) -> None:
    """In real time. Catches: an exchange that lasts as long as masters may take, beyond the deadline."""
    c = connected(valkey, node_timeout=60.0)
    lock = held(c, "hung", ttl=2.0, on_lost=recorder)
    with paused(valkey, 0, 1, 2):
        lost(lock)
        assert not lock.locked()
        eventually(lambda: recorder.reasons() == [UNCONFIRMED], "it is reported")


def test_gone_from_the_masters(
    masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    c, lock = kept(masters)
    for master in masters:
        wipe(master)
    assert lock.locked(), "the loss is not noticed yet"
    clock.jump(THIRD)
    eventually(lambda: recorder.losses, "it is reported")
    assert recorder.losses == [(lock, GONE)]
    assert lock.lost.is_set()
    assert not lock.locked()
    with pytest.raises(LockLost) as lost:
        lock.check()
    assert lost.value.reason == GONE
    with pytest.raises(LockLost) as lost:
        lock.extend()
    assert lost.value.reason == GONE
    assert lock.release() is False
    assert len(recorder.losses) == 1
    logged = [vars(one) for one in caplog.records if getattr(one, "event", "") == "lock-lost"]
    assert [(one["resource"], one["reason"]) for one in logged] == [(lock.resource, GONE)]
    assert logged[0]["owner"]
    stats = c.stats()
    assert (stats.lost, stats.expired, stats.released) == (1, 1, 0)


def test_what_the_users_extension_or_release_finds(
    masters: Masters, connected: MakeClient, recorder: LossRecorder
) -> None:
    """Long before renewal would look."""
    c = connected(masters, ttl=TTL)
    extended, released, many = (held(c, name, on_lost=recorder) for name in ("a", "b", "c"))
    for master in masters:
        wipe(master)
    with pytest.raises(LockLost):
        extended.extend()
    assert released.release() is False
    assert c.release_many([many, extended]) == [False, False]
    eventually(lambda: len(recorder.losses) == 3, "all are reported")
    assert recorder.reasons() == [GONE] * 3
    assert c.stats().lost == 3


def test_max_extensions_and_max_hold(
    masters: Masters, connected: MakeClient, clock: Jumping, recorder: LossRecorder
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    counted, timed = (
        held(c, "a", on_lost=recorder, max_extensions=2),
        held(c, "b", on_lost=recorder, max_hold=90.0),
    )
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, 2 * turn)
    with pytest.raises(TooManyExtensions):
        counted.extend()
    clock.jump(THIRD)
    holds = [hold for _, _, hold in core_of(c).renewal().schedule._ends]
    eventually(lambda: all(hold.stopped for hold in holds), "no more is asked for")
    assert recorder.losses == []
    clock.jump(TTL)
    eventually(lambda: len(recorder.losses) == 2, "both are reported")
    assert dict(recorder.losses) == {counted: MAX_EXTENSIONS, timed: MAX_HOLD}
    assert c.stats().renewed == 4


def test_a_long_hold_is_logged_once(
    masters: Masters,
    connected: MakeClient,
    clock: Jumping,
    recorder: LossRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At 80 % of max_hold. ``on_lost`` is not called then."""
    c = connected(masters, ttl=TTL, clock=clock, max_hold=10 * THIRD)
    lock = held(c, "long", on_lost=recorder)

    def reported() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.event == "lock-held-long"]  # type: ignore[attr-defined]

    for turn in range(1, 8):
        clock.jump(THIRD)
        renewed(c, turn)
    assert reported() == []
    clock.jump(THIRD)
    eventually(reported, "the warning")
    assert "80% of max_hold" in reported()[0]
    clock.jump(THIRD)
    assert lock.locked()
    assert recorder.losses == []
    clock.jump(2 * TTL)
    lost(lock)
    eventually(lambda: recorder.reasons() == [MAX_HOLD], "it is reported")
    assert len(reported()) == 1


def test_more_than_a_hundred_extensions(masters: Masters, connected: MakeClient, clock: Jumping) -> None:
    """The default was 100: a job of ten minutes lost its lock half-way."""
    c = connected(masters, ttl=TTL, clock=clock, max_hold=None)
    lock = held(c, "job")
    for turn in range(1, 111):
        clock.jump(THIRD)
        renewed(c, turn)
    lock.check()
    assert lock.release()


def test_defaults_of_a_client_hold_for_every_way_to_a_lock(
    masters: Masters, connected: MakeClient, clock: Jumping
) -> None:
    c = connected(masters, ttl=TTL, clock=clock, auto_extend=True, timeout=0.05)
    one, two = answered(lambda: c.acquire("one")), answered(lambda: c.acquire_many(["two"]))[0]
    assert one
    assert two
    assert answered(lambda: c.acquire("one")) is None, "after the timeout of the client"
    assert c.stats().acquired == 2
    clock.jump(THIRD)
    renewed(c, 2)
    assert c.release_many([one, two]) == [True, True]
    nothing_left(masters)


def test_each_hold_has_its_own_loss(
    masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder
) -> None:
    c, lock = kept(masters)
    first = lock.lost
    clock.jump(TTL)
    assert lock.acquire(timeout=DEADLINE), "no other client has it"
    eventually(lambda: recorder.reasons() == [LATE], "the end of the hold before is reported")
    assert first.is_set()
    assert not lock.lost.is_set()
    clock.jump(THIRD)
    renewed(c, 1)
    clock.jump(TTL)
    lost(lock)
    eventually(lambda: len(recorder.losses) == 2, "and that of this one")


# --- not after its end ---------------------------------------------------------------------------


def test_never_after_a_release(masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder) -> None:
    c, lock = kept(masters)
    clock.jump(THIRD)
    renewed(c, 1)
    other = held(c, "other", on_lost=recorder)
    assert lock.release()
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, 1 + turn)
    assert c.stats().renewed == 3, "the other one's only"
    assert other.release()
    assert recorder.losses == []
    nothing_left(masters)


def test_release_while_an_extension_is_under_way(
    valkey: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder
) -> None:
    """The extension finds the key gone, or not: neither is a loss."""
    c, lock = kept(valkey)
    for _ in range(3):
        eventually(lambda: not any(m.pending for m in c.health()), "all masters have answered")
        with paused(valkey, 0, 1, 2, 3, 4):
            clock.jump(THIRD)
            eventually(lambda: all(m.pending for m in c.health()), "an extension is sent")
            releasing = start(lock.release)
            eventually(lambda: all(m.pending >= 2 for m in c.health()), "and the release")
        assert releasing.result(DEADLINE) is True
        assert lock.acquire(timeout=DEADLINE)
    assert lock.release()
    assert recorder.losses == []
    assert c.stats().lost == 0
