"""Read-write lock: any number of readers, or one writer. New readers wait for a waiting writer.

Each master has three keys: ``{name}:w`` has the writer, ``{name}:r`` the readers, each with its own end, and
``{name}:i`` the waiting writers. Every master refuses a request that conflicts with its keys, and any two
quorums share a master. So two conflicting locks never have quorums at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Generic, Self, TypeVar

from ..algorithm.attempts import REARM
from ..algorithm.effects import Effect
from ..algorithm.lease import ExtendOutcome, KindLease
from ..algorithm.lock_kind import LockKind, turn_for, wire_ttl
from ..algorithm.operation import Operation, Procedure
from ..algorithm.policy import Policy
from ..algorithm.procedures import extension
from ..algorithm.refill import Given, taken_back
from ..algorithm.renewal_schedule import NOT_HELD
from ..engine.contract import Request, Votes
from ..errors import ConfigError, LockLost
from ..wire.commands import Verb
from ..wire.text import quoted
from .client_core import ClientCore
from .lock_state import LockState

#: The duration of a writer's intent: at least these seconds, and this number of its longest pauses.
INTENT, PAUSES = 0.5, 3

L = TypeVar("L")


class Reader(LockKind):
    """A read lock. ``suffix``: follows the token of a reader that was a writer."""

    __slots__ = ("keys", "suffix")

    kind = "read"
    batchable = False
    refillable = False
    shared = True

    def __init__(self, key: bytes, suffix: bytes = b"") -> None:
        super().__init__(key)
        self.keys: tuple[bytes, bytes, bytes] = (b"{%b}:w" % key, b"{%b}:r" % key, b"{%b}:i" % key)
        self.suffix: bytes = suffix

    @property
    def queue_key(self) -> bytes:
        return self.keys[1]

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        return Request(Verb.RW_READ, (*self.names(token), ttl), masters)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        return [Request(Verb.RW_RELEASE, self.names(token), masters, resend_for)]

    def extend_requests(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        return [Request(Verb.RW_EXTEND, (*self.names(token), ttl), masters)]

    def put_requests(self, token: bytes, ttl: bytes, masters: int, fencing: int | None) -> list[Request]:
        writer, readers, _, *own = self.names(token)
        no_intents = b"{%b}:n" % self.key  # a key that never exists: a reader does not wait for later writers
        return [Request(Verb.RW_READ, (writer, readers, no_intents, *own, ttl), masters)]

    def watch_request(self, masters: int) -> Request | None:
        writer, _, intents = self.keys
        return Request(Verb.RW_WATCH, (writer[:-1], writer, intents), masters)

    def owner_keys(self, votes: Votes) -> list[bytes]:
        """The key of the writer. Readers may be many, and are not asked for."""
        return [self.keys[0]]

    def names(self, token: bytes) -> tuple[bytes, ...]:
        """The first arguments of all its requests: the keys, the holder's name, and the name of its place."""
        return (*self.keys, token + self.suffix, token)


class Writer(Reader):
    """A write lock. ``intent``: for how long masters keep its place, as ``ttl``.

    The token names its place and stays the same over the rounds. The holder's name is new in each round: a
    release that was delayed on an old connection would otherwise undo the vote of a later round.
    """

    __slots__ = ("intent", "round")

    kind = "write"
    shared = False
    keeps_place = True

    def __init__(self, key: bytes, intent: bytes) -> None:
        super().__init__(key)
        self.intent: bytes = intent
        self.round: int = 0

    @property
    def queue_key(self) -> bytes:
        return self.keys[0]

    @property
    def turn_key(self) -> bytes | None:
        return turn_for(self.key)

    def for_attempt(self, joins: bool = True) -> Self:
        return type(self)(self.key, self.intent)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.round += 1
        self.suffix: bytes = b"%d" % self.round
        return Request(Verb.RW_WRITE, (*self.names(token), ttl), masters)

    def put_requests(self, token: bytes, ttl: bytes, masters: int, fencing: int | None) -> list[Request]:
        return [Request(Verb.RW_WRITE, (*self.names(token), ttl), masters)]

    def rollback_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        """The request that undoes a round and sets the intent, after which new readers wait.

        It is sent only before another round, so an acquire of one round leaves no intent.
        """
        return [Request(Verb.RW_ROLLBACK, (*self.names(token), self.intent), masters, resend_for)]

    def watch_request(self, masters: int) -> Request | None:
        writer, readers, _ = self.keys
        return Request(Verb.RW_WATCH, (writer[:-1], writer, readers), masters)

    def downgrade(self, token: bytes, ttl: bytes, masters: int, resend_for: float) -> Request:
        return Request(Verb.RW_DOWNGRADE, (*self.names(token), ttl), masters, resend_for)


def intent(policy: Policy) -> bytes:
    """The time that masters keep a writer's place: several times its longest pause."""
    longest = max(policy.retry.max_delay, REARM if policy.push else 0.0)
    return wire_ttl(max(INTENT, PAUSES * longest))


def new_downgrade(core: ClientCore, lock: LockState) -> Operation:
    """The operation that makes a held write lock a read lock. The outcome is the new validity in seconds.

    The lock is a reader from the start, whatever the outcome: other readers may enter as soon as one master
    has executed the request. A master without a reply has it as writer or reader until the old deadline.
    Raises LockLost, ConfigError, QuorumUnavailable, ClientClosed.
    """
    core.check_open()
    lease = lock._lease
    if lease is None:
        raise LockLost(
            f"{quoted(lock.resource)}: nothing to downgrade: the lock is not held",
            resource=lock.resource,
            reason=NOT_HELD,
        )
    writer = lease.lock_kind
    if not isinstance(lease, KindLease) or not isinstance(writer, Writer):
        raise ConfigError(
            f"{quoted(lock.resource)}: only a write lock (rwlock(...).write()) can be downgraded",
            resource=lock.resource,
        )
    given: list[Given] = []
    return Procedure(_downgrade(lock, lease, writer, given), partial(taken_back, given))


def _downgrade(
    lock: LockState, lease: KindLease, writer: Writer, given: list[Given]
) -> Generator[Effect, list[Votes], float]:
    outcome, votes = yield from _exchange(lock._policy, lease, writer, lease.ttl, given)
    return lock._validity_or_raise(lease, outcome, votes)


def _exchange(
    policy: Policy, lease: KindLease, writer: Writer, ttl: float, given: list[Given]
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes | None]]:
    start = policy.clock()
    if lease.lost or start >= lease.deadline:
        return ExtendOutcome.LOST, None

    def requests(masters: int) -> list[Request]:
        lease.lock_kind = Reader(writer.key, writer.suffix)
        return [writer.downgrade(lease.token, wire_ttl(ttl), masters, ttl)]

    lists = policy.voters.lists  # after the clock, as of an attempt
    return (yield from extension(policy, lists, lease, ttl, start, requests, given))


class ReadWriteLock(Generic[L]):
    """Makes the read locks and the write locks of one resource, one for each holder. No I/O.

    Made by [`FastRedlock.rwlock`][] and [`AsyncFastRedlock.rwlock`][]. Each lock is a [`Lock`][] or an
    [`AsyncLock`][], with its own lease. Raises ConfigError for bad settings.

    Examples:
        >>> rwlock = client.rwlock("config", ttl=5.0)
        >>> with rwlock.read():
        ...     show()
        >>> with rwlock.write() as lock:
        ...     change()
        ...     lock.downgrade()    # other readers may enter, no writer
    """

    __slots__ = ("_key", "_make", "_policy")

    def __init__(self, key: bytes, policy: Policy, make: Callable[[LockKind], L]) -> None:
        self._key = key
        self._policy = policy
        self._make = make
        self.read()  # raises for bad settings now

    def read(self) -> L:
        """A new read lock, not acquired; never raises.

        Its acquire waits for the writer and for waiting writers.

        Examples:
            >>> with client.rwlock("catalogue").read():
            ...     show()
        """
        return self._make(Reader(self._key))

    def write(self) -> L:
        """A new write lock, not acquired; never raises.

        Its acquire waits for the present readers and for the writer. [`Lock.downgrade`][] makes it a read
        lock, with no other writer in between.

        Examples:
            >>> with client.rwlock("catalogue").write() as lock:
            ...     change()
        """
        return self._make(Writer(self._key, intent(self._policy)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {quoted(self._key)}>"
