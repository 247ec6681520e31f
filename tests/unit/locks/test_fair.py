"""What a fair lock learns from votes and watches: its ticket, and whether it is the head of the queue."""

from __future__ import annotations

from support.votes import votes

from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.engine.contract import FAULT, NO_REPLY
from redlock_fast.locks.fair import PER_TICKET, FairKind
from redlock_fast.wire.commands import Verb

KEY, LISTS = b"r", MasterLists(5)


def place(rank: int, ticket: int = 7) -> int:
    return -1 - (PER_TICKET * ticket + rank)


def joined(*ranks: int) -> FairKind:
    kind = FairKind(KEY)
    kind.acquire_request(b"t" * 20, b"1000", 0b11111)
    kind.observe(votes(*map(place, ranks), *[NO_REPLY] * (5 - len(ranks))), LISTS)
    return kind


def watched(kind: FairKind) -> bytes:
    request = kind.watch_request(0b11111)
    assert request is not None
    return request.args[0]


def test_votes_and_wait_keys_together_make_the_head() -> None:
    """Catches: a caller that is the head on a quorum, which no round shows: it asked without a pause."""
    kind = joined(1, 0, 0)
    assert watched(kind) == b"{r}:b:" + b"t" * 20
    kind.watched(votes(NO_REPLY, 1, 1, 1, NO_REPLY), LISTS)
    kind.observe(votes(place(1), place(0), place(0), NO_REPLY, NO_REPLY), LISTS)
    assert watched(kind) == KEY, "master 3 said that it has no wait key"
    kind.observe(votes(place(1), place(1), place(1), NO_REPLY, NO_REPLY), LISTS)
    assert watched(kind) != KEY, "and now others are in front of it"


def test_a_change_of_the_lock_makes_no_head() -> None:
    kind = joined(0, 0, 0)
    kind.watched(votes(NO_REPLY, NO_REPLY, NO_REPLY, 1, 1), LISTS)
    kind.observe(votes(place(1), place(1), NO_REPLY, NO_REPLY, place(1)), LISTS)
    assert watched(kind) != KEY


def test_silent_masters_get_the_ticket_that_a_quorum_gave() -> None:
    """Catches: orders that differ between masters, so that no caller is the head on a quorum."""
    kind = joined(1, 1, 1)
    release, ticket = kind.rollback_requests(b"t" * 20, 0b11111, 1.0)
    assert (release.verb, release.masters) == (Verb.RELEASE, 0b11111)
    assert (ticket.verb, ticket.masters, ticket.args[7]) == (Verb.FAIR_TICKET, 0b11000, b"7")
    assert len(kind.rollback_requests(b"t" * 20, 0b11111, 1.0)) == 1


def test_tickets_that_differ_are_written_at_once() -> None:
    kind = FairKind(KEY)
    kind.acquire_request(b"t" * 20, b"1000", 0b11111)
    kind.observe(votes(place(0, 4), place(0, 4), place(2, 6), NO_REPLY, NO_REPLY), LISTS)
    assert (kind.ticket, kind.watch_request(0b11111)) == (b"6", None)
    assert kind.delay(0.5, notified=False) == 0.0


def test_without_masters_it_does_not_ask_again_at_once() -> None:
    """Catches: a loop without pauses, as long as they are away."""
    kind = FairKind(KEY)
    kind.acquire_request(b"t" * 20, b"1000", 0b11111)
    kind.observe(votes(place(0, 4), place(0, 4), place(2, 6), NO_REPLY, NO_REPLY), LISTS)
    kind.observe(votes(*[FAULT] * 5), LISTS)
    assert kind.delay(0.5, notified=False) == 0.5


def test_an_attempt_that_does_not_wait_takes_no_place() -> None:
    kind = FairKind(KEY).for_attempt(joins=False)
    request = kind.acquire_request(b"t" * 20, b"1000", 0b11111)
    assert request.args[6] == b""
    kind.observe(votes(0, 0, 0, NO_REPLY, NO_REPLY), LISTS)
    assert kind.watch_request(0b11111) is None
