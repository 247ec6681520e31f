"""What locks of other kinds ask of each master, and what they learn; no I/O."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast.algorithm.lease import Extension, KindLease
from redlock_fast.algorithm.lock_kind import Claim
from redlock_fast.algorithm.policy import Rules
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.algorithm.voting_masters import Electorate
from redlock_fast.engine.contract import FAULT, SILENT, Votes
from redlock_fast.errors import ConfigError
from redlock_fast.locks.options import check_options
from redlock_fast.locks.rwlock import Reader, Writer, _exchange, intent
from redlock_fast.locks.semaphore import HOPES, WINDOW, Slots
from redlock_fast.wire.commands import Verb

TOKEN, TTL, ALL = b"t" * 20, b"1000", 0b11111
KEYS = (b"{r}:w", b"{r}:r", b"{r}:i")


def rules(**changes: Any) -> Rules:
    settings: dict[str, Any] = {"masters": 5, "need": 3, "node_timeout": 0.05, "drift_factor": 0.01}
    return Rules(**{**settings, "patience": 1.0, "retry": Retry(), "electorate": Electorate(5), **changes})


def votes(*values: int) -> Votes:
    return Votes(values, ALL, 0, 0, 0, {})


# --- read-write lock --------------------------------------------------------------------------------


def test_what_undoes_an_attempt_takes_its_arguments() -> None:
    """The engine sends it with them where it closes a connection."""
    for claim in (Reader(b"r"), Writer(b"r", b"600").begin()):
        asked = claim.ask(TOKEN, TTL, ALL)
        (undone,) = claim.undo(TOKEN, ALL, 9.0)
        assert asked.args[: len(undone.args)] == undone.args
        assert (undone.verb, undone.keep, asked.keep) == (Verb.RW_FREE, 9.0, 0.0)


def test_a_reader() -> None:
    reader = Reader(b"r")
    assert reader.line is None
    assert reader.ask(TOKEN, TTL, ALL).args == (*KEYS, TOKEN, TOKEN, TTL)
    (more,) = reader.more(TOKEN, b"2000", 0b111)
    assert (more.verb, more.args, more.masters) == (Verb.RW_EXTEND, (*KEYS, TOKEN, TOKEN, b"2000"), 0b111)
    watch = reader.watch(ALL)
    assert watch
    assert watch.args == (b"{r}:", b"{r}:w", b"{r}:i")


def test_a_writer_keeps_its_place_and_changes_what_it_holds_by() -> None:
    made = Writer(b"r", b"600")
    writer = made.begin()
    first = writer.ask(TOKEN, TTL, ALL)
    (kept,) = writer.retreat(TOKEN, ALL, 9.0)
    second = writer.ask(TOKEN, TTL, ALL)
    assert first.args[:5] == kept.args[:5]
    assert (kept.verb, kept.args[5], kept.keep) == (Verb.RW_YIELD, b"600", 9.0)
    assert first.args[4] == second.args[4] == TOKEN, "the place"
    assert first.args[3] != second.args[3]
    assert made.begin().ask(TOKEN, TTL, ALL).args == first.args, "each acquisition begins anew"
    watch = writer.watch(ALL)
    assert watch
    assert watch.args == (b"{r}:", b"{r}:w", b"{r}:r")
    assert writer.line == b"{r}:w"


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
    assert intent(rules(**changes)) == expected


def held(writer: Writer) -> KindLease:
    """Since 100.0, by the second round."""
    for _ in range(2):
        writer.ask(TOKEN, TTL, ALL)
    return KindLease(writer, TOKEN, ALL, 10.0, 109.0, 9.0)


def test_a_downgraded_lock_goes_on_by_the_same_name() -> None:
    """It is a reader before any master has answered."""
    writer = Writer(b"r", b"600")
    lease, going = held(writer), rules(clock=lambda: 101.0)
    procedure = _exchange(going, lease, writer, 10.0)
    (asked,) = next(procedure).requests  # type: ignore[union-attr]
    assert (asked.verb, asked.args) == (Verb.RW_DOWNGRADE, (*KEYS, TOKEN + b"2", TOKEN, b"10000"))
    assert type(lease.claim) is Reader
    (more,) = lease.claim.more(TOKEN, b"2000", ALL)
    assert (more.verb, more.args) == (Verb.RW_EXTEND, (*KEYS, TOKEN + b"2", TOKEN, b"2000"))
    with pytest.raises(StopIteration) as end:
        procedure.send([Votes((1, 1, 1, SILENT, SILENT), ALL, 3, 0, 0, {})])
    assert end.value.value[0] is Extension.EXTENDED


@pytest.mark.parametrize(("now", "lost"), [(109.0, False), (101.0, True)])
def test_what_has_ended_is_not_downgraded_and_nothing_is_sent(now: float, lost: bool) -> None:
    writer = Writer(b"r", b"600")
    lease = held(writer)
    lease.lost = lost
    with pytest.raises(StopIteration) as end:
        next(_exchange(rules(clock=lambda: now), lease, writer, 10.0))
    assert end.value.value == (Extension.LOST, None)
    assert lease.claim is writer


# --- semaphore --------------------------------------------------------------------------------------


def slots(permits: int, *chances: float) -> Slots:
    left = list(chances)
    return Slots(b"s", permits, 3, lambda: left.pop(0) if left else 0.0)


def test_the_first_try_is_the_plain_locks() -> None:
    claim = slots(4, 0.5)
    asked = claim.ask(TOKEN, TTL, ALL)
    assert (asked.verb, asked.args) == (Verb.ACQUIRE, (b"{s}:2", TOKEN, TTL))
    granted = claim.granted()
    assert type(granted) is Claim
    assert granted.key == b"{s}:2"


def test_a_refusal_leads_to_a_look_at_once_and_the_map_to_a_free_slot() -> None:
    claim = slots(4, 0.5, 0.3, 0.9)
    claim.ask(TOKEN, TTL, ALL)
    claim.learn(votes(0, 0, 0, SILENT, FAULT))
    assert claim.hopeful
    assert claim.undo(TOKEN, ALL, 1.0)[0].args == (b"{s}:2", TOKEN), "of the round that was"
    asked = claim.ask(TOKEN, TTL, ALL)
    assert (asked.verb, asked.args) == (Verb.SLOT_TAKE, (b"{s}:1", TOKEN, TTL, b"{s}:", b"0", b"4"))
    claim.learn(votes(-0b1001, 0b1000 + 1, -0b1010, SILENT, FAULT))
    assert claim.hopeful
    assert claim.undo(TOKEN, ALL, 1.0)[0].args == (b"{s}:1", TOKEN)
    assert claim.ask(TOKEN, TTL, ALL).args[0] == b"{s}:3", "the only one that a quorum has free"


def test_hopes_have_an_end() -> None:
    claim = slots(2)
    claim.learn(votes(0, 0, 0, 0, 0))
    for turn in range(1, 2 * HOPES + 1):
        claim.ask(TOKEN, TTL, ALL)
        claim.learn(votes(-1, -1, -1, 1, 1))
        assert claim.hopeful == (turn % HOPES != 0)


def test_all_windows_are_looked_at() -> None:
    permits = 2 * WINDOW + 10
    claim = slots(permits, 0.99)
    claim.learn(votes(0, 0, 0, 0, 0))
    seen = []
    while claim.hopeful:
        seen.append(tuple(map(int, claim.ask(TOKEN, TTL, ALL).args[4:])))
        claim.learn(votes(0, 0, 0, 0, 0))
    assert seen == [(100, 10), (0, 50), (50, 50)]
    watch = claim.watch(ALL)
    assert watch
    assert watch.args[:2] == (b"{s}:", b"*%d\r\n" % (permits + 3))


def test_slots_that_no_quorum_has_free_are_no_reason_to_ask_at_once() -> None:
    claim = slots(2)
    claim.learn(votes(0, 0, 0, 0, 0))
    for values, watched in (((-1, -1, -2, 0, -2), False), ((-1, -1, 0, 0, 0), True)):
        claim.ask(TOKEN, TTL, ALL)
        claim.learn(votes(*values))
        assert not claim.hopeful
        assert (claim.watch(ALL) is not None) == watched


def test_one_permit_is_a_lock() -> None:
    claim = slots(1)
    claim.learn(votes(0, 0, 0, 0, 0))
    assert not claim.hopeful
    assert claim.ask(TOKEN, TTL, ALL).verb == Verb.ACQUIRE


def test_fencing_and_fairness_are_the_plain_locks() -> None:
    assert check_options({"timeout": 1}) == {"timeout": 1}
    with pytest.raises(ConfigError, match="fencing"):
        check_options({"fencing": True})
    with pytest.raises(ConfigError, match="fair is an option of lock"):
        check_options({"fair": True})  # lock() would take it, and another kind would not be fair
