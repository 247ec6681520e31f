"""What locks of other kinds ask of each master, and what they learn; no I/O."""

from __future__ import annotations

from typing import Any

import pytest
from support.votes import votes

from redlock_fast.algorithm.lease import ExtendOutcome, KindLease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import FAULT, NO_REPLY, Votes
from redlock_fast.locks.rwlock import Reader, Writer, _exchange, intent
from redlock_fast.locks.semaphore import MAX_IMMEDIATE_RETRIES, WINDOW, SemaphoreKind
from redlock_fast.wire.commands import Verb

TOKEN, TTL, ALL = b"t" * 20, b"1000", 0b11111
KEYS = (b"{r}:w", b"{r}:r", b"{r}:i")


def policy(**changes: Any) -> Policy:
    settings: dict[str, Any] = {"node_timeout": 0.05, "drift_factor": 0.01}
    return Policy(
        **{**settings, "outage_timeout": 1.0, "retry": Retry(), "voters": VotingMasters(5), **changes}
    )


# --- read-write lock --------------------------------------------------------------------------------


def test_what_undoes_an_attempt_takes_its_arguments() -> None:
    """The engine sends it with them where it closes a connection."""
    for lock_kind in (Reader(b"r"), Writer(b"r", b"600").for_attempt()):
        asked = lock_kind.acquire_request(TOKEN, TTL, ALL)
        (undone,) = lock_kind.release_requests(TOKEN, ALL, 9.0)
        assert asked.args[: len(undone.args)] == undone.args
        assert (undone.verb, undone.resend_for, asked.resend_for) == (Verb.RW_RELEASE, 9.0, 0.0)


def test_a_reader() -> None:
    reader = Reader(b"r")
    assert (reader.queue_key, reader.shared, Writer(b"r", b"600").shared) == (b"{r}:r", True, False)
    assert reader.acquire_request(TOKEN, TTL, ALL).args == (*KEYS, TOKEN, TOKEN, TTL)
    (more,) = reader.extend_requests(TOKEN, b"2000", 0b111)
    assert (more.verb, more.args, more.masters) == (Verb.RW_EXTEND, (*KEYS, TOKEN, TOKEN, b"2000"), 0b111)
    watch = reader.watch_request(ALL)
    assert watch
    assert watch.args == (b"{r}:", b"{r}:w", b"{r}:i")


def test_a_writer_keeps_its_place_and_changes_what_it_holds_by() -> None:
    made = Writer(b"r", b"600")
    writer = made.for_attempt()
    first = writer.acquire_request(TOKEN, TTL, ALL)
    (kept,) = writer.rollback_requests(TOKEN, ALL, 9.0)
    second = writer.acquire_request(TOKEN, TTL, ALL)
    assert first.args[:5] == kept.args[:5]
    assert (kept.verb, kept.args[5], kept.resend_for) == (Verb.RW_ROLLBACK, b"600", 9.0)
    assert first.args[4] == second.args[4] == TOKEN, "the place"
    assert first.args[3] != second.args[3]
    assert made.for_attempt().acquire_request(TOKEN, TTL, ALL).args == first.args, (
        "each acquisition starts afresh"
    )
    watch = writer.watch_request(ALL)
    assert watch
    assert watch.args == (b"{r}:", b"{r}:w", b"{r}:r")
    assert writer.queue_key == b"{r}:w"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, b"600"),
        ({"retry": Retry(0.0, 0.01)}, b"500"),
        ({"retry": Retry(0.0, 2.0)}, b"6000"),
        ({"push": True}, b"3000"),
    ],
)
def test_a_place_outlasts_the_longest_pause(changes: dict[str, Any], expected: bytes) -> None:
    assert intent(policy(**changes)) == expected


def held(writer: Writer) -> KindLease:
    """Since 100.0, by the second round."""
    for _ in range(2):
        writer.acquire_request(TOKEN, TTL, ALL)
    return KindLease(writer, TOKEN, ALL, 10.0, 109.0, 9.0)


def test_a_downgraded_lock_goes_on_by_the_same_name() -> None:
    """It is a reader before any master has answered."""
    writer = Writer(b"r", b"600")
    lease, going = held(writer), policy(clock=lambda: 101.0)
    procedure = _exchange(going, lease, writer, 10.0, [])
    (asked,) = next(procedure).requests  # type: ignore[union-attr]
    assert (asked.verb, asked.args) == (Verb.RW_DOWNGRADE, (*KEYS, TOKEN + b"2", TOKEN, b"10000"))
    assert type(lease.lock_kind) is Reader
    (more,) = lease.lock_kind.extend_requests(TOKEN, b"2000", ALL)
    assert (more.verb, more.args) == (Verb.RW_EXTEND, (*KEYS, TOKEN + b"2", TOKEN, b"2000"))
    with pytest.raises(StopIteration) as end:
        procedure.send([Votes((1, 1, 1, NO_REPLY, NO_REPLY), ALL, 3, 0, 0, {})])
    assert end.value.value[0] is ExtendOutcome.EXTENDED


@pytest.mark.parametrize(("now", "lost"), [(109.0, False), (101.0, True)])
def test_what_has_ended_is_not_downgraded_and_nothing_is_sent(now: float, lost: bool) -> None:
    writer = Writer(b"r", b"600")
    lease = held(writer)
    lease.lost = lost
    with pytest.raises(StopIteration) as end:
        next(_exchange(policy(clock=lambda: now), lease, writer, 10.0, []))
    assert end.value.value == (ExtendOutcome.LOST, None)
    assert lease.lock_kind is writer


# --- semaphore --------------------------------------------------------------------------------------


def slots(permits: int, *chances: float) -> SemaphoreKind:
    left = list(chances)
    return SemaphoreKind(b"s", permits, lambda: left.pop(0) if left else 0.0)


def test_the_first_try_is_the_plain_locks() -> None:
    lock_kind = slots(4, 0.5)
    asked = lock_kind.acquire_request(TOKEN, TTL, ALL)
    assert (asked.verb, asked.args) == (Verb.ACQUIRE, (b"{s}:2", TOKEN, TTL))
    granted = lock_kind.held_kind()
    assert type(granted) is LockKind
    assert granted.key == b"{s}:2"


def test_a_refusal_leads_to_a_look_at_once_and_the_map_to_a_free_slot() -> None:
    lock_kind = slots(4, 0.5, 0.3, 0.9)
    lock_kind.acquire_request(TOKEN, TTL, ALL)
    lock_kind.observe(votes(0, 0, 0, NO_REPLY, FAULT), MasterLists(5))
    assert lock_kind.retry_at_once
    assert lock_kind.release_requests(TOKEN, ALL, 1.0)[0].args == (b"{s}:2", TOKEN), "of the round that was"
    asked = lock_kind.acquire_request(TOKEN, TTL, ALL)
    assert (asked.verb, asked.args) == (Verb.SLOT_ACQUIRE, (b"{s}:1", TOKEN, TTL, b"{s}:", b"0", b"4"))
    lock_kind.observe(votes(-0b1001, 0b1000 + 1, -0b1010, NO_REPLY, FAULT), MasterLists(5))
    assert lock_kind.retry_at_once
    assert lock_kind.release_requests(TOKEN, ALL, 1.0)[0].args == (b"{s}:1", TOKEN)
    assert lock_kind.acquire_request(TOKEN, TTL, ALL).args[0] == b"{s}:3", (
        "the only one that a quorum has free"
    )


def test_hopes_have_an_end() -> None:
    lock_kind = slots(2)
    lock_kind.observe(votes(0, 0, 0, 0, 0), MasterLists(5))
    for turn in range(1, 2 * MAX_IMMEDIATE_RETRIES + 1):
        lock_kind.acquire_request(TOKEN, TTL, ALL)
        lock_kind.observe(votes(-1, -1, -1, 1, 1), MasterLists(5))
        assert lock_kind.retry_at_once == (turn % MAX_IMMEDIATE_RETRIES != 0)


def test_all_windows_are_looked_at() -> None:
    permits = 2 * WINDOW + 10
    lock_kind = slots(permits, 0.99)
    lock_kind.observe(votes(0, 0, 0, 0, 0), MasterLists(5))
    seen = []
    while lock_kind.retry_at_once:
        seen.append(tuple(map(int, lock_kind.acquire_request(TOKEN, TTL, ALL).args[4:])))
        lock_kind.observe(votes(0, 0, 0, 0, 0), MasterLists(5))
    assert seen == [(100, 10), (0, 50), (50, 50)]
    watch = lock_kind.watch_request(ALL)
    assert watch
    assert watch.args[:2] == (b"{s}:", b"*%d\r\n" % (permits + 3))


def test_slots_that_no_quorum_has_free_are_no_reason_to_ask_at_once() -> None:
    lock_kind = slots(2)
    lock_kind.observe(votes(0, 0, 0, 0, 0), MasterLists(5))
    for values, watched in (((-1, -1, -2, 0, -2), False), ((-1, -1, 0, 0, 0), True)):
        lock_kind.acquire_request(TOKEN, TTL, ALL)
        lock_kind.observe(votes(*values), MasterLists(5))
        assert not lock_kind.retry_at_once
        assert (lock_kind.watch_request(ALL) is not None) == watched


def test_one_permit_is_a_lock() -> None:
    lock_kind = slots(1)
    lock_kind.observe(votes(0, 0, 0, 0, 0), MasterLists(5))
    assert not lock_kind.retry_at_once
    assert lock_kind.acquire_request(TOKEN, TTL, ALL).verb == Verb.ACQUIRE
