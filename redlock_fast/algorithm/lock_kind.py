"""What a lock of some kind asks of each master: to acquire, to take back, to extend, to watch.

``LockKind`` is the plain lock's; other kinds say what they do otherwise. Requests only: no I/O, no decisions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Self

from ..engine.messages import Request, Votes, request
from ..wire.commands import Verb
from .quorum import milliseconds

#: As plain numbers, for the hot path.
ACQUIRE, RELEASE, EXTEND, EXISTS, FENCE, RAISE_FENCE, WATCH = map(int, list(Verb)[:7])


@lru_cache(maxsize=256)
def wire_ttl(ttl: float) -> bytes:
    """Whole milliseconds, as they go into a command."""
    return b"%d" % milliseconds(ttl)


def release(key: bytes, token: bytes, masters: int, resend_for: float) -> list[Request]:
    """Delete ``key`` where it is ``token``'s."""
    return [request(RELEASE, (key, token), masters, resend_for)]


class LockKind:
    """A lock on ``key``. One object may serve any number of acquisitions: what they learn stays with them.

    ``masters`` are bit masks, ``ttl`` is in milliseconds as it goes on the wire, ``resend_for`` is for how
    many seconds a request is worth sending again.
    """

    __slots__ = ("key",)

    #: The token, and what was sent before, stay the same from round to round: a place depends on them.
    keeps_place: ClassVar[bool] = False
    #: For those that keep a place: the token is another one all the same; the claim knows its place itself.
    new_token_per_round: ClassVar[bool] = False
    #: What masters say when they refuse matters: those that fail must not stand in for others.
    needs_certain: bool = False
    #: It is released with RELEASE and extended with EXTEND on ``key``: many such go out as columns.
    batchable: ClassVar[bool] = True
    #: What was learned makes another round promising, at once; so it does not count as the last one.
    retry_at_once: bool = False
    #: How many requests ``release_requests`` and ``extend_requests`` make, each.
    request_count: int = 1

    def __init__(self, key: bytes) -> None:
        self.key = key

    @property
    def key_bytes(self) -> int:
        """How many bytes of keys ``release_requests`` and ``extend_requests`` send."""
        return len(self.key)

    @property
    def queue_key(self) -> bytes | None:
        """In which line of this client it waits; None: in none, each asks the masters for itself."""
        return self.key

    def for_attempt(self) -> Self:
        """The claim of one acquisition, which keeps what it learns."""
        return self

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        """One attempt."""
        return request(ACQUIRE, (self.key, token, ttl), masters, 0.0)

    def observe(self, votes: Votes) -> None:
        """What a round that got no lease has shown.

        ``rollback_requests`` or ``release_requests`` of that round comes after it.
        """

    def held_kind(self) -> LockKind:
        """What its lease is extended and released by."""
        return self

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """Take back what a round was granted; another round will follow."""
        return self.release_requests(token, masters, resend_for)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """Take everything back."""
        return release(self.key, token, masters, resend_for)

    def extend_requests(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        """Extend: all of these together."""
        return [Request(EXTEND, (self.key, token, ttl), masters)]

    def watch_request(self, masters: int) -> Request | None:
        """Tell when it is free, or may be; None where there is nothing to wait for but time."""
        return Request(WATCH, (self.key,), masters)

    def delay(self, usual: float, notified: bool) -> float:
        """How many seconds to wait for another round; ``notified``: after a watch has ended."""
        return usual


class FencedKind(LockKind):
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

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        args = (self.key, token, ttl, self.counter, self.retention, self.step)
        return Request(FENCE, args, masters)

    def raise_fence_request(self, token: bytes, number: int, masters: int) -> Request:
        """Raise the counters to the fencing token."""
        return Request(RAISE_FENCE, (self.key, token, b"%d" % number, self.counter, self.retention), masters)
