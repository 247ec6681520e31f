"""Fair lock: the first caller gets it first, across processes and machines.

Each master has a queue beside the key of the lock. A refused caller takes a ticket, 1 + the largest of each
queue, and if the masters gave it different ones, it enters all queues with the largest (Lamport's order: no
clock, no coordination). A master grants the key only to the head of its queue. Only the key decides which
caller holds the lock: whatever happens to the queues, there are never two holders, and a plain lock on the
same key excludes a fair one. (Clocks, or the order of arrival at each master, would give different queues,
whose heads wait for each other.)

A holder stays the head of the queue until its release, for ``ENTRY_TTL`` at most. Each caller behind the head
watches a key of its own, its wait key, which is deleted when it becomes the head. So a release wakes one
caller, and costs the same however many wait. The head itself watches the lock: its holder may have no place.

Of all callers of one client only the first of its local queue takes a ticket, so the work of the masters does
not grow with the callers. After a grant the next of them takes a new ticket, behind those of other clients: a
client with many callers and a client with one take turns.

``QueuedKind`` is a plain lock that many clients want: its callers wait in the same way. See
``algorithm/crowds.py``.
"""

from __future__ import annotations

from typing import ClassVar, Self

from ..algorithm.keys import derived
from ..algorithm.lock_kind import LockKind
from ..algorithm.master_lists import MasterLists, mask_of
from ..algorithm.quorum import milliseconds
from ..engine.contract import FAULT, Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb

ACQUIRE, RELEASE, WATCH = int(Verb.ACQUIRE), int(Verb.RELEASE), int(Verb.WATCH)
FAIR, FAIR_LEAVE, FAIR_TICKET = int(Verb.FAIR), int(Verb.FAIR_LEAVE), int(Verb.FAIR_TICKET)

#: Seconds until an entry of a queue ends, unless its caller repeats it. Callers do so every third of this.
ENTRY_TTL = 3.0
#: In the reply of a master: tickets are multiples of this; the rest is the rank, if it is less.
PER_TICKET = 64
#: A reported ticket that is further ahead than this is wrong. Masters keep tickets as doubles: from 2**53 on,
#: two tickets may be equal.
MAX_LEAD = 1 << 32
#: Without push: seconds between two rounds of the head; the longest pause. Each rank adds an interval.
POLL_INTERVAL, MAX_POLL_INTERVAL = 0.01, 0.1


def fair_kind(key: bytes, fencing: bool) -> FairKind:
    """The kind of a fair lock on ``key``. Raises ConfigError with ``fencing``."""
    if fencing:
        raise ConfigError("fencing and fair do not go together: a fair lock counts no fencing tokens")
    return FairKind(key)


class FairKind(LockKind):
    """A fair lock. ``ticket``: a command argument, empty at first. ``rank``: the number of callers ahead.

    ``placed``: whether the masters that replied gave one ticket.
    """

    __slots__ = (
        "_again",
        "_entries",
        "_first",
        "_queue",
        "_seen",
        "_silent",
        "_split",
        "entry_token",
        "joins",
        "placed",
        "rank",
        "ticket",
    )

    kind: ClassVar[str] = "fair"
    keeps_place: ClassVar[bool] = True
    #: One ticket for each client and key, however many callers wait.
    first_caller_only: ClassVar[bool] = True
    #: Each round has its own token for the key, so that a late release cannot undo a later round.
    new_token_per_round: ClassVar[bool] = True
    batchable: ClassVar[bool] = False

    def __init__(self, key: bytes, joins: bool = True) -> None:
        super().__init__(key)
        stem = derived(key)
        self._queue = stem + b"q"
        self._entries = stem + b"e"
        self.entry_token: bytes = b""  # identifies the place in the queues: the first token
        self.ticket: bytes = b""
        self.rank: int | None = None
        self.joins: bool = joins  # whether a refused request enters the queue
        self.placed: bool = False
        self._seen: dict[int, int] = {}  # by master, the largest ticket that it reported
        self._split = False  # whether a master granted in the last round
        self._again = False  # whether the place must be written at once: it does not count before that
        self._first = 0  # the masters on which the caller is the head of the queue
        self._silent = 0  # the masters that may have given another ticket

    @property
    def queue_key(self) -> bytes:
        """Not the queue of plain locks on the same key: their callers have no ticket, and may be passed."""
        return self._queue

    def for_attempt(self, joins: bool = True) -> Self:
        return type(self)(self.key, joins)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.entry_token = self.entry_token or token
        return self._fair_request(FAIR, token, ttl, masters)

    def _fair_request(self, verb: int, token: bytes, ttl: bytes, masters: int) -> Request:
        stay = b"%d" % milliseconds(ENTRY_TTL) if self.joins else b""
        args = (self.key, token, ttl, self._queue, self._entries, self.entry_token, stay, self.ticket)
        return Request(verb, args, masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        """Take a ticket, once so many masters reported theirs that every quorum contains one of them."""
        replies = {
            n: divmod(-1 - vote, PER_TICKET) for n, vote in enumerate(votes.values) if FAULT < vote < 0
        }
        granted = {master: (0, 0) for master, vote in enumerate(votes.values) if vote > 0}
        self._split = votes.granted > 0
        self._again = False
        if not replies:
            return
        places = replies | granted
        ranks = {master: rank for master, (_, rank) in places.items()}
        rank = lists.rank(ranks)
        self.rank = None if rank is None else int(rank)
        self._first &= ~mask_of(ranks)
        self._note_first(mask_of(master for master, rank in ranks.items() if rank == 0), lists)
        if self.ticket:
            self.placed = True
            return
        self._seen |= {master: ticket for master, (ticket, _) in places.items()}
        if lists.in_every_quorum(mask_of(self._seen)):
            limit = _certain_ticket(self._seen, lists) + MAX_LEAD
            highest = max(one for one in self._seen.values() if one <= limit)
            self.ticket = b"%d" % highest
            self.placed = not granted and all(ticket == highest for ticket, _ in replies.values())
            self._again = not self.placed
            if self.placed:
                self._silent = votes.sent & ~mask_of(replies)

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The requests that release the key and keep the place.

        A quorum decides a round, so the other masters may have given another ticket: they get this one.
        """
        requests = [Request(RELEASE, (self.key, token), masters, resend_for)]
        if self._silent:
            requests.append(self._fair_request(FAIR_TICKET, b"", b"", self._silent))
            self._silent = 0
        return requests

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        args = (self.key, token, b"", self._queue, self._entries, self.entry_token)
        return [Request(FAIR_LEAVE, args, masters, resend_for)]

    def watch_request(self, masters: int) -> Request | None:
        """The first caller watches the lock, any other one its wait key."""
        if not self.placed:
            return None
        watched = self.key if self.rank == 0 else b"%b:b:%b" % (self._queue[:-2], self.entry_token)
        return Request(WATCH, (watched,), masters)

    def watched(self, votes: Votes, lists: MasterLists) -> None:
        if self.rank != 0:  # what was watched is the wait key
            self._note_first(mask_of(master for master, vote in enumerate(votes.values) if vote > 0), lists)

    def _note_first(self, masters: int, lists: MasterLists) -> None:
        """Note that the caller is the head of the queue on ``masters``: they said so, or have no wait key.

        One round shows the votes of some masters only. So what rounds and watches have shown is collected,
        and a quorum of it makes the caller the first.
        """
        self._first |= masters
        if lists.is_quorum(self._first):
            self.rank = 0

    def delay(self, usual: float, notified: bool) -> float:
        if self._again:
            return 0.0
        if self.rank is None or not self.placed:
            return usual
        if not notified:
            return min(MAX_POLL_INTERVAL, POLL_INTERVAL * (1 + self.rank))
        return usual if self._split else 0.0


class QueuedKind(FairKind):
    """A plain lock that many clients want. Its callers wait as those of a fair lock, but may be passed.

    After each wait a caller tries to take the key, also if it is not the head of the queue: a head that has
    died does not keep the lock free. If it is refused, it takes or repeats its place.
    """

    __slots__ = ("_takes",)

    kind: ClassVar[str] = "plain"

    def __init__(self, key: bytes, joins: bool = True) -> None:
        super().__init__(key, joins)
        self._takes = False

    @property
    def queue_key(self) -> bytes:
        return self.key

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        if self._takes:
            return Request(ACQUIRE, (self.key, token, ttl), masters)
        return super().acquire_request(token, ttl, masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        if self._takes:
            self._takes = self.placed = False
            self._again = True
        else:
            super().observe(votes, lists)

    def watched(self, votes: Votes, lists: MasterLists) -> None:
        super().watched(votes, lists)
        self._takes = True


def _certain_ticket(seen: dict[int, int], lists: MasterLists) -> int:
    """A ticket that is no larger than the largest of a good master, if a minority of each list is bad."""
    found = []
    for masters, need in lists.lists:
        of_list = sorted(ticket for master, ticket in seen.items() if masters >> master & 1)
        bad = 0 if lists.shards else masters.bit_count() - need  # the most that may be
        found.append(of_list[len(of_list) - bad - 1])
    return max(found)
