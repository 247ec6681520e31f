"""What a lock of some kind asks of each master: to acquire, to take back, to extend, to watch.

``Claim`` is the plain lock's; other kinds say what they do otherwise. Requests only: no I/O, no decisions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Self

from ..engine.messages import Request, Votes, request
from ..wire.commands import Verb
from .quorum import milliseconds

#: As plain numbers, for the hot path.
ACQUIRE, RELEASE, EXTEND, EXISTS, FENCE, LIFT, WATCH = map(int, list(Verb)[:7])


@lru_cache(maxsize=256)
def wire_ttl(ttl: float) -> bytes:
    """Whole milliseconds, as they go into a command."""
    return b"%d" % milliseconds(ttl)


def release(key: bytes, token: bytes, masters: int, keep: float) -> list[Request]:
    """Delete ``key`` where it is ``token``'s."""
    return [request(RELEASE, (key, token), masters, keep)]


class Claim:
    """A lock on ``key``. One object may serve any number of acquisitions: what they learn stays with them.

    ``masters`` are bit masks, ``ttl`` is in milliseconds as it goes on the wire, ``keep`` is for how many
    seconds a request is worth sending again.
    """

    __slots__ = ("key",)

    #: The token, and what was sent before, stay the same from round to round: a place depends on them.
    lasting: ClassVar[bool] = False
    #: For the lasting: the token is another one all the same; the claim knows its place itself.
    anew: ClassVar[bool] = False
    #: What masters say when they refuse matters: those that fail must not stand in for others.
    certain: bool = False
    #: It is released with RELEASE and extended with EXTEND on ``key``: many such go out as columns.
    plain: ClassVar[bool] = True
    #: What was learned makes another round promising, at once; so it does not count as the last one.
    hopeful: bool = False
    #: How many requests ``undo`` and ``more`` make, each.
    parts: int = 1

    def __init__(self, key: bytes) -> None:
        self.key = key

    @property
    def size(self) -> int:
        """How many bytes of keys ``undo`` and ``more`` send."""
        return len(self.key)

    @property
    def line(self) -> bytes | None:
        """In which line of this client it waits; None: in none, each asks the masters for itself."""
        return self.key

    def begin(self) -> Self:
        """The claim of one acquisition, which keeps what it learns."""
        return self

    def ask(self, token: bytes, ttl: bytes, masters: int) -> Request:
        """One attempt."""
        return request(ACQUIRE, (self.key, token, ttl), masters, 0.0)

    def learn(self, votes: Votes) -> None:
        """What a round that got no lease has shown. ``retreat`` or ``undo`` of that round comes after it."""

    def granted(self) -> Claim:
        """What its lease is extended and released by."""
        return self

    def retreat(self, token: bytes, masters: int, keep: float) -> list[Request]:
        """Take back what a round was granted; another round will follow."""
        return self.undo(token, masters, keep)

    def undo(self, token: bytes, masters: int, keep: float) -> list[Request]:
        """Take everything back."""
        return release(self.key, token, masters, keep)

    def more(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        """Extend: all of these together."""
        return [Request(EXTEND, (self.key, token, ttl), masters)]

    def watch(self, masters: int) -> Request | None:
        """Tell when it is free, or may be; None where there is nothing to wait for but time."""
        return Request(WATCH, (self.key,), masters)

    def delay(self, usual: float, told: bool) -> float:
        """How many seconds to wait for another round; ``told``: after a watch has ended."""
        return usual


class Fenced(Claim):
    """A lock that counts a fencing token for each grant.

    ``retention``: how long a counter is kept after its last use; ``step``: how far it may be behind its
    master's clock; both as ``ttl``.
    """

    __slots__ = ("counter", "retention", "step")

    def __init__(self, key: bytes, retention: bytes, step: bytes) -> None:
        super().__init__(key)
        self.counter: bytes = b"{%b}:f" % key
        self.retention = retention
        self.step = step

    def ask(self, token: bytes, ttl: bytes, masters: int) -> Request:
        args = (self.key, token, ttl, self.counter, self.retention, self.step)
        return Request(FENCE, args, masters)

    def lift(self, token: bytes, number: int, masters: int) -> Request:
        """Raise the counters to the fencing token."""
        return Request(LIFT, (self.key, token, b"%d" % number, self.counter, self.retention), masters)
