"""Fair lock: the first caller gets it first, across processes and machines.

Each master has a queue beside the key of the lock. A refused caller takes a ticket, 1 + the largest that it
has seen, and enters all queues with it (Lamport's order: no clock, no coordination). A master grants the key
only to the head of its queue. Only the key decides which caller holds the lock: whatever happens to the
queues, there are never two holders, and a plain lock on the same key excludes a fair one. (Clocks, or the
order of arrival at each master, would give different queues, whose heads wait for each other.)

Of all callers of one client only the first of its local queue takes a ticket, so the work of the masters does
not grow with the callers. After a grant the next of them takes a new ticket, behind those of other clients: a
client with many callers and a client with one take turns.
"""

from __future__ import annotations

from typing import ClassVar, Self

from ..algorithm.lock_kind import LockKind
from ..algorithm.master_lists import MasterLists, mask_of
from ..algorithm.quorum import milliseconds
from ..engine.contract import FAULT, Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb

FAIR, FAIR_LEAVE, WATCH = int(Verb.FAIR), int(Verb.FAIR_LEAVE), int(Verb.FAIR_WATCH)
RELEASE = int(Verb.RELEASE)

#: Seconds until an entry of a queue ends, unless its caller repeats it. Callers do so every third of this.
ENTRY_TTL = 3.0
#: A reported ticket that is further ahead than this is wrong. Masters keep tickets as doubles: from 2**53 on,
#: two tickets may be equal.
MAX_LEAD = 1 << 32
#: Without push: seconds between two rounds of the head; the longest pause. Each rank adds an interval.
POLL_INTERVAL, MAX_POLL_INTERVAL = 0.01, 0.1
#: With push: seconds of delay for each rank, and the longest delay.
STEP, LONGEST_STEP = 0.001, 0.05


def fair_kind(key: bytes, fencing: bool) -> FairKind:
    """The kind of a fair lock on ``key``. Raises ConfigError with ``fencing``."""
    if fencing:
        raise ConfigError("fencing and fair do not go together: a fair lock counts no fencing tokens")
    return FairKind(key)


class FairKind(LockKind):
    """A fair lock. ``ticket``: a command argument, empty at first. ``rank``: the number of callers ahead."""

    __slots__ = ("_entries", "_queue", "_queued", "_seen", "_split", "entry_token", "rank", "ticket")

    kind: ClassVar[str] = "fair"
    keeps_place: ClassVar[bool] = True
    #: One ticket for each client and key, however many callers wait.
    first_caller_only: ClassVar[bool] = True
    #: Each round has its own token for the key, so that a late release cannot undo a later round.
    new_token_per_round: ClassVar[bool] = True
    batchable: ClassVar[bool] = False

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._queue = b"{%b}:q" % key
        self._entries = b"{%b}:e" % key
        self.entry_token: bytes = b""  # identifies the place in the queues: the first token
        self.ticket: bytes = b""
        self.rank: int | None = None
        self._queued = False
        self._seen: dict[int, int] = {}  # by master, the largest ticket that it reported
        self._split = False  # whether a master granted in the last round

    @property
    def queue_key(self) -> bytes:
        """Not the queue of plain locks on the same key: their callers have no ticket, and may be passed."""
        return self._queue

    def for_attempt(self) -> Self:
        return type(self)(self.key)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.entry_token = self.entry_token or token
        self._queued = self.ticket != b""
        stay = b"%d" % milliseconds(ENTRY_TTL)
        args = (self.key, token, ttl, self._queue, self._entries, self.entry_token, stay, self.ticket)
        return Request(FAIR, args, masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        """Take a ticket, once so many masters reported theirs that every quorum contains one of them."""
        tickets = {master: vote for master, vote in enumerate(votes.values) if vote > FAULT}
        self._split = votes.granted > 0
        if self.ticket:
            rank = lists.rank({master: 0 if vote > 0 else -1 - vote for master, vote in tickets.items()})
            self.rank = None if rank is None else int(rank)
            return
        self._seen |= {master: 0 if vote > 0 else -1 - vote for master, vote in tickets.items()}
        if lists.in_every_quorum(mask_of(self._seen)):
            limit = _certain_ticket(self._seen, lists) + MAX_LEAD
            self.ticket = b"%d" % (1 + max(one for one in self._seen.values() if one <= limit))

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The request that releases the key and keeps the place."""
        return [Request(RELEASE, (self.key, token), masters, resend_for)]

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        args = (self.key, token, b"", self._queue, self._entries, self.entry_token)
        return [Request(FAIR_LEAVE, args, masters, resend_for)]

    def watch_request(self, masters: int) -> Request | None:
        """Watches only the lock's key: a caller that enters or leaves the queue wakes no other caller."""
        if not self._queued:
            return None
        return Request(WATCH, (self.key, self._queue, self._entries, self.entry_token), masters)

    def delay(self, usual: float, notified: bool) -> float:
        if self.ticket and not self._queued:
            return 0.0  # enter the queues at once: the ticket does not count before that
        if self.rank is None:
            return usual
        if not notified:
            return min(MAX_POLL_INTERVAL, POLL_INTERVAL * (1 + self.rank))
        return usual if self._split else min(LONGEST_STEP, STEP * self.rank)


def _certain_ticket(seen: dict[int, int], lists: MasterLists) -> int:
    """A ticket that is no larger than the largest of a good master, if a minority of each list is bad."""
    found = []
    for masters, need in lists.lists:
        of_list = sorted(ticket for master, ticket in seen.items() if masters >> master & 1)
        bad = masters.bit_count() - need  # the most that may be
        found.append(of_list[len(of_list) - bad - 1])
    return max(found)
