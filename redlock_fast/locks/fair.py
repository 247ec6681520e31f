"""Fair lock: who came first is served first, across processes and machines.

On each master there is a queue beside the lock's own key. Who is refused takes a ticket, 1 + the largest
that it has seen, and is in all queues with it from then on (Lamport's order: no clock, no coordination).
A master grants the key only to the head of its queue. The key alone decides who holds: whatever happens to
the queues, there are never two holders, and a plain lock on the same key excludes, too. (Clocks, or
the order of arrival at each master, would give queues that disagree, and heads that wait for each other.)
"""

from __future__ import annotations

from typing import ClassVar, Self

from ..algorithm.lock_kind import Claim
from ..algorithm.quorum import milliseconds, quorum
from ..engine.contract import FAULT, Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb

FAIR, LEAVE, WATCH = int(Verb.FAIR), int(Verb.FAIR_LEAVE), int(Verb.FAIR_WATCH)
RELEASE = int(Verb.RELEASE)

#: Seconds that an entry of a queue stays where nobody repeats it. Those who wait do so every third of it.
STAY = 3.0
#: Where nobody tells: seconds between two rounds of the head, more for each rank behind it, at most.
LOOK, LONGEST_LOOK = 0.01, 0.1
#: Where masters tell: seconds that each lets those ahead of it go first.
STEP, LONGEST_STEP = 0.001, 0.05


def fair(key: bytes, fencing: bool) -> Fair:
    """The claim of a fair lock on ``key``."""
    if fencing:
        raise ConfigError("fencing and fair do not go together: a fair lock counts no fencing tokens")
    return Fair(key)


class Fair(Claim):
    """``ticket``: as it goes on the wire, empty before it has one. ``rank``: how many were ahead lately."""

    __slots__ = ("_entries", "_queue", "_queued", "_seen", "_split", "place", "rank", "ticket")

    lasting: ClassVar[bool] = True
    #: The key has another token in each round: a release that comes late takes back that round's only.
    anew: ClassVar[bool] = True
    plain: ClassVar[bool] = False

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._queue = b"{%b}:q" % key
        self._entries = b"{%b}:e" % key
        self.place = b""  # whose place in the queues it is: the first token
        self.ticket = b""
        self.rank: int | None = None
        self._queued = False
        self._seen: dict[int, int] = {}  # the largest ticket of each master that has told
        self._split = False  # whether some granted in the last round

    @property
    def line(self) -> None:
        """Each caller has a ticket of its own: the order holds within a process, too."""
        return None

    @property
    def certain(self) -> bool:  # type: ignore[override]
        """Until it has a ticket. It could be the same few masters that answer first, each time."""
        return not self.ticket

    def begin(self) -> Self:
        return type(self)(self.key)

    def ask(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.place = self.place or token
        self._queued = self.ticket != b""
        stay = b"%d" % milliseconds(STAY)
        args = (self.key, token, ttl, self._queue, self._entries, self.place, stay, self.ticket)
        return Request(FAIR, args, masters)

    def learn(self, votes: Votes) -> None:
        """A ticket from what was seen by so many masters that every quorum has one of them."""
        told = {master: vote for master, vote in enumerate(votes.values) if vote > FAULT}
        masters = len(votes.values)
        self._split = votes.granted > 0
        if self.ticket:
            ranks = sorted(0 if vote > 0 else -1 - vote for vote in told.values())
            self.rank = ranks[min(quorum(masters), len(ranks)) - 1] if ranks else None
            return
        self._seen |= {master: 0 if vote > 0 else -1 - vote for master, vote in told.items()}
        if len(self._seen) > masters - quorum(masters):
            self.ticket = b"%d" % (1 + max(self._seen.values()))

    def retreat(self, token: bytes, masters: int, keep: float) -> list[Request]:
        """The key, not the place."""
        return [Request(RELEASE, (self.key, token), masters, keep)]

    def undo(self, token: bytes, masters: int, keep: float) -> list[Request]:
        args = (self.key, token, b"", self._queue, self._entries, self.place)
        return [Request(LEAVE, args, masters, keep)]

    def watch(self, masters: int) -> Request | None:
        """For the lock's key only: who joins the queue or leaves it wakes nobody."""
        if not self._queued:
            return None
        return Request(WATCH, (self.key, self._queue, self._entries, self.place), masters)

    def delay(self, usual: float, told: bool) -> float:
        if self.ticket and not self._queued:
            return 0.0  # nobody is behind us before we are in the queues
        if self.rank is None:
            return usual
        if not told:
            return min(LONGEST_LOOK, LOOK * (1 + self.rank))
        return usual if self._split else min(LONGEST_STEP, STEP * self.rank)
