"""Fair lock: who came first is served first, across processes and machines.

On each master there is a queue beside the lock's own key. Who is refused takes a ticket, 1 + the largest
that it has seen, and is in all queues with it from then on (Lamport's order: no clock, no coordination).
A master grants the key only to the head of its queue. The key alone decides who holds: whatever happens to
the queues, there are never two holders, and a plain lock on the same key excludes, too. (Clocks, or
the order of arrival at each master, would give queues that disagree, and heads that wait for each other.)
"""

from __future__ import annotations

from typing import ClassVar, Self

from ..algorithm.lock_kind import LockKind
from ..algorithm.quorum import milliseconds, quorum
from ..engine.contract import FAULT, Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb

FAIR, FAIR_LEAVE, WATCH = int(Verb.FAIR), int(Verb.FAIR_LEAVE), int(Verb.FAIR_WATCH)
RELEASE = int(Verb.RELEASE)

#: Seconds that an entry of a queue stays where nobody repeats it. Those who wait do so every third of it.
ENTRY_TTL = 3.0
#: Where nobody tells: seconds between two rounds of the head, more for each rank behind it, at most.
POLL_INTERVAL, MAX_POLL_INTERVAL = 0.01, 0.1
#: Where masters tell: seconds that each lets those ahead of it go first.
STEP, LONGEST_STEP = 0.001, 0.05


def fair_kind(key: bytes, fencing: bool) -> FairKind:
    """The claim of a fair lock on ``key``."""
    if fencing:
        raise ConfigError("fencing and fair do not go together: a fair lock counts no fencing tokens")
    return FairKind(key)


class FairKind(LockKind):
    """``ticket``: as it goes on the wire, empty before it has one. ``rank``: how many were ahead lately."""

    __slots__ = ("_entries", "_queue", "_queued", "_seen", "_split", "entry_token", "rank", "ticket")

    keeps_place: ClassVar[bool] = True
    #: The key has another token in each round: a release that comes late takes back that round's only.
    new_token_per_round: ClassVar[bool] = True
    batchable: ClassVar[bool] = False

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._queue = b"{%b}:q" % key
        self._entries = b"{%b}:e" % key
        self.entry_token = b""  # whose place in the queues it is: the first token
        self.ticket = b""
        self.rank: int | None = None
        self._queued = False
        self._seen: dict[int, int] = {}  # the largest ticket of each master that has told
        self._split = False  # whether some granted in the last round

    @property
    def queue_key(self) -> None:
        """Each caller has a ticket of its own: the order holds within a process, too."""
        return None

    @property
    def needs_certain(self) -> bool:  # type: ignore[override]
        """Until it has a ticket. It could be the same few masters that answer first, each time."""
        return not self.ticket

    def for_attempt(self) -> Self:
        return type(self)(self.key)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.entry_token = self.entry_token or token
        self._queued = self.ticket != b""
        stay = b"%d" % milliseconds(ENTRY_TTL)
        args = (self.key, token, ttl, self._queue, self._entries, self.entry_token, stay, self.ticket)
        return Request(FAIR, args, masters)

    def observe(self, votes: Votes) -> None:
        """A ticket from what was seen by so many masters that every quorum has one of them."""
        tickets = {master: vote for master, vote in enumerate(votes.values) if vote > FAULT}
        masters = len(votes.values)
        self._split = votes.granted > 0
        if self.ticket:
            ranks = sorted(0 if vote > 0 else -1 - vote for vote in tickets.values())
            self.rank = ranks[min(quorum(masters), len(ranks)) - 1] if ranks else None
            return
        self._seen |= {master: 0 if vote > 0 else -1 - vote for master, vote in tickets.items()}
        if len(self._seen) > masters - quorum(masters):
            self.ticket = b"%d" % (1 + max(self._seen.values()))

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The key, not the place."""
        return [Request(RELEASE, (self.key, token), masters, resend_for)]

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        args = (self.key, token, b"", self._queue, self._entries, self.entry_token)
        return [Request(FAIR_LEAVE, args, masters, resend_for)]

    def watch_request(self, masters: int) -> Request | None:
        """For the lock's key only: who joins the queue or leaves it wakes nobody."""
        if not self._queued:
            return None
        return Request(WATCH, (self.key, self._queue, self._entries, self.entry_token), masters)

    def delay(self, usual: float, notified: bool) -> float:
        if self.ticket and not self._queued:
            return 0.0  # nobody is behind us before we are in the queues
        if self.rank is None:
            return usual
        if not notified:
            return min(MAX_POLL_INTERVAL, POLL_INTERVAL * (1 + self.rank))
        return usual if self._split else min(LONGEST_STEP, STEP * self.rank)
