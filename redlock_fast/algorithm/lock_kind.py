"""Lock kinds: the requests that acquire, release, extend and watch a lock. No I/O, no decisions.

``LockKind`` is the plain lock. Other kinds override what differs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Self

from ..engine.messages import Request, Votes
from ..wire.commands import Verb
from .local_queue import QueueKey
from .master_lists import MasterLists
from .quorum import milliseconds

#: Verbs as plain numbers, for the hot path.
ACQUIRE, RELEASE, EXTEND, EXISTS, FENCE, RAISE_FENCE, WATCH = map(int, list(Verb)[:7])
OWNER = int(Verb.OWNER)


@lru_cache(maxsize=256)
def wire_ttl(ttl: float) -> bytes:
    """``ttl`` (seconds) as a command argument: whole milliseconds."""
    return b"%d" % milliseconds(ttl)


def turn_for(key: bytes, others: bytes = b"") -> bytes:
    """The key of the turn for the lock ``key``, or for it and ``others``. It begins the keys of its queue."""
    return b"{%b}:t:%b" % (key, others)


def release(key: bytes, token: bytes, masters: int, resend_for: float) -> list[Request]:
    """The request that deletes ``key`` if its value is ``token``."""
    return [Request(RELEASE, (key, token), masters, resend_for)]


class LockKind:
    """The plain lock on ``key``. Acquires may share the object: ``for_attempt`` gives each its own state.

    ``masters``: a bit mask. ``ttl``: milliseconds as a command argument. ``resend_for``: for how many seconds
    the engine sends a request again.
    """

    __slots__ = ("key",)

    #: The name of the kind in measurements.
    kind: ClassVar[str] = "plain"
    #: Whether the acquire keeps its place in queues on the masters between rounds, and with it the token.
    keeps_place: ClassVar[bool] = False
    #: With ``keeps_place``: whether each round still gets a new token. Then the kind itself knows its place.
    new_token_per_round: ClassVar[bool] = False
    #: With ``keeps_place``: whether only the first caller of the local queue has a place, push or not.
    first_caller_only: ClassVar[bool] = False
    #: Whether holders do not exclude each other: once one caller of the local queue is granted, all ask.
    shared: ClassVar[bool] = False
    #: Whether RELEASE and EXTEND on ``key`` are all it needs, so that a batch sends it in columns.
    batchable: ClassVar[bool] = True
    #: Whether the key with the token is all that a master needs to vote for the lease (``refill``).
    refillable: ClassVar[bool] = True
    #: Whether ``observe`` found a reason for another round at once, even after the last one.
    retry_at_once: bool = False
    #: How many callers are ahead in a queue on the masters, once they have said that.
    rank: int | None = None
    #: The number of requests that ``release_requests`` makes, and ``extend_requests`` too.
    request_count: int = 1

    def __init__(self, key: bytes) -> None:
        self.key: bytes = key

    @property
    def key_bytes(self) -> int:
        """The bytes of keys that ``release_requests`` sends, and ``extend_requests`` too."""
        return len(self.key)

    @property
    def turn_key(self) -> bytes | None:
        """The key of the turn that callers wait for if many clients want the lock; None: there is none."""
        return None

    @property
    def queue_key(self) -> QueueKey | None:
        """The local queue that an acquire waits in; None: it asks the masters without queueing."""
        return self.key

    def for_attempt(self, joins: bool = True) -> Self:
        """The kind for one acquire. A kind that learns from votes returns a new object.

        ``joins``: whether a refused round may enter a queue on the masters (``first_caller_only``).
        """
        return self

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        """The request of one attempt."""
        return Request(ACQUIRE, (self.key, token, ttl), masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        """Learn from the votes of a round without a lease. ``lists``: the masters that had to agree.

        Called before ``rollback_requests`` or ``release_requests`` of that round.
        """

    def refused_key(self, votes: Votes) -> bytes:
        """The key that another holder has, by the ``votes`` of a round that was refused."""
        return self.key

    def owner_keys(self, votes: Votes) -> list[bytes]:
        """The keys with the tokens of other holders, after a round with these ``votes`` that was refused."""
        return [self.key]

    def held_kind(self) -> LockKind:
        """The kind that extends and releases the lease."""
        return self

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The requests that undo the grants of a round before another round."""
        return self.release_requests(token, masters, resend_for)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The requests that release the lock and leave all queues on the masters."""
        return release(self.key, token, masters, resend_for)

    def extend_requests(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        """The requests that extend the lease. All of them must be granted."""
        return [Request(EXTEND, (self.key, token, ttl), masters)]

    def put_requests(self, token: bytes, ttl: bytes, masters: int, fencing: int | None) -> list[Request]:
        """The requests that give the token of a lease to masters that it did not ask. They are votes.

        ``fencing``: the fencing token of the lease.
        """
        return [Request(ACQUIRE, (self.key, token, ttl), masters)]

    def watch_request(self, masters: int) -> Request | None:
        """The request that is decided when the lock may be free; None: only time can free it."""
        return Request(WATCH, (self.key,), masters)

    def watched(self, votes: Votes, lists: MasterLists) -> None:
        """Learn from the ``votes`` of a watch that has ended, by a change or by time."""

    def delay(self, usual: float, notified: bool) -> float:
        """Seconds to wait before another round. ``notified``: a watch has just ended."""
        return usual


class FencedKind(LockKind):
    """A plain lock whose grants have fencing tokens.

    ``retention``: how long masters keep a counter after its last use. ``step``: how far a counter may be
    behind its master's clock. Both as ``ttl``.
    """

    __slots__ = ("counter", "retention", "step")

    kind = "fenced"

    def __init__(self, key: bytes, retention: bytes, step: bytes) -> None:
        super().__init__(key)
        self.counter: bytes = b"{%b}:f" % key
        self.retention: bytes = retention
        self.step: bytes = step

    @property
    def turn_key(self) -> bytes | None:
        return turn_for(self.key)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        args = (self.key, token, ttl, self.counter, self.retention, self.step)
        return Request(FENCE, args, masters)

    def put_requests(self, token: bytes, ttl: bytes, masters: int, fencing: int | None) -> list[Request]:
        requests = [self.acquire_request(token, ttl, masters)]
        return requests if fencing is None else [*requests, self.raise_fence_request(token, fencing, masters)]

    def raise_fence_request(self, token: bytes, number: int, masters: int) -> Request:
        """The request that raises the counters of ``masters`` to ``number``."""
        args = (self.key, token, b"%d" % number, self.counter, self.retention, self.step)
        return Request(RAISE_FENCE, args, masters)
