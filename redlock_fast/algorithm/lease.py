"""The outcomes of an acquire and of an extension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from ..engine.contract import Request, Votes
from . import machine
from .lock_kind import LockKind, release
from .master_lists import MasterLists

#: Whether the end of the interpreter releases a lease: as its client says, or as its lock says.
AS_CLIENT, RELEASE_AT_EXIT, KEEP_AT_EXIT = 0, 1, 2


class Lease:
    """The lease of a plain lock: ``token`` in ``key``, valid until ``deadline`` by the lease clock.

    ``sent``: the mask of the masters that may have the token. ``thread``: the number of the thread that got
    it. There may be many leases: the object is small, and where it is compiled the garbage collector does not
    track it.
    """

    __slots__ = (
        "at_exit",
        "deadline",
        "extensions",
        "key",
        "lost",
        "refused",
        "released",
        "sent",
        "thread",
        "token",
        "ttl",
        "validity",
    )

    #: The fencing token; None for a lock without fencing.
    fencing: int | None = None

    def __init__(self, key: bytes, token: bytes, sent: int, ttl: float, end: float, validity: float) -> None:
        self.key: bytes = key
        self.token: bytes = token
        self.sent: int = sent
        self.ttl: float = ttl
        self.deadline: float = end
        self.validity: float = validity
        self.extensions: int = 0
        self.lost: bool = False  # never reset, whatever a master replies later
        self.released: int = 0  # releases that have begun; counted before the first one is sent
        self.refused: int = 0  # those of them that found it ended
        self.at_exit: int = AS_CLIENT
        self.thread: int = machine.thread_id()

    @property
    def lock_kind(self) -> LockKind:
        """The kind of the lock that has this lease."""
        return LockKind(self.key)

    @property
    def batchable(self) -> bool:
        """Whether its releases and extensions fit into columns; see ``LockKind.batchable``."""
        return True

    @property
    def refillable(self) -> bool:
        """See ``LockKind.refillable``."""
        return True

    def release_requests(self) -> list[Request]:
        """The requests that release it on all masters that may have it."""
        return release(self.key, self.token, self.sent, self.ttl)

    def give_up(self) -> None:
        """Note a release by a closed client. At the end of the interpreter it is sent."""
        if self.at_exit == AS_CLIENT:
            self.at_exit = RELEASE_AT_EXIT

    def refuse(self) -> bool:
        """Note a release that found the lease ended. Returns whether it had ended before all of its releases.

        Of several at the same time masters grant one, and refuse the others because of that one.
        """
        self.refused += 1
        return self.refused == self.released

    def mark_lost(self, now: float) -> None:
        """End the lease. The lock keeps it until its release, because a minority may still have the key."""
        self.lost = True
        self.deadline = min(self.deadline, now)


class KindLease(Lease):
    """The lease of any other kind of lock; with a fencing token for ``FencedKind``."""

    __slots__ = ("fencing", "lock_kind")

    lock_kind: LockKind

    def __init__(
        self,
        lock_kind: LockKind,
        token: bytes,
        sent: int,
        ttl: float,
        end: float,
        validity: float,
        fencing: int | None = None,
    ) -> None:
        super().__init__(lock_kind.key, token, sent, ttl, end, validity)
        self.lock_kind = lock_kind
        self.fencing: int | None = fencing

    @property
    def batchable(self) -> bool:
        return self.lock_kind.batchable

    @property
    def refillable(self) -> bool:
        return self.lock_kind.refillable

    def release_requests(self) -> list[Request]:
        return self.lock_kind.release_requests(self.token, self.sent, self.ttl)


def plain_lease(key: bytes, token: bytes, sent: int, ttl: float, end: float, validity: float) -> Lease:
    """A Lease. With ``Lease()`` compiled code takes 3 % more instructions for each lock of a batch."""
    made = Lease.__new__(Lease)
    made.key, made.token, made.sent, made.ttl = key, token, sent, ttl
    made.deadline, made.validity = end, validity
    made.extensions = 0
    made.lost = False
    made.released = made.refused = 0
    made.at_exit = 0  # AS_CLIENT: compiled code looks a global up
    made.thread = machine.thread_id()
    return made


def lease_of(
    lock_kind: LockKind,
    token: bytes,
    sent: int,
    ttl: float,
    end: float,
    validity: float,
    fencing: int | None = None,
) -> Lease:
    """The lease of ``lock_kind``, as a ``Lease`` or a ``KindLease``."""
    if type(lock_kind) is LockKind:
        return plain_lease(lock_kind.key, token, sent, ttl, end, validity)
    return KindLease(lock_kind, token, sent, ttl, end, validity, fencing)


def granted_leases(
    keys: Sequence[bytes],
    tokens: Sequence[bytes],
    granted: Sequence[int],
    sent: Sequence[int],
    need: int,
    ttl: float,
    end: float,
    validity: float,
) -> list[Lease | None]:
    """The leases of a batch of plain locks; None for each key with fewer than ``need`` grants."""
    return [
        plain_lease(key, token, to, ttl, end, validity) if yes >= need else None
        for key, token, yes, to in zip(keys, tokens, granted, sent, strict=True)
    ]


def all_plain(leases: Iterable[Lease]) -> bool:
    """Whether all ``leases`` are batchable."""
    plain = True
    for lease in leases:
        if type(lease) is not Lease:
            plain = plain and lease.batchable
    return plain


def never_lost(leases: Iterable[Lease]) -> list[bool]:
    """For each lease, whether it was never found lost."""
    return [not lease.lost for lease in leases]


def keys_of(leases: Iterable[Lease]) -> list[bytes]:
    return [lease.key for lease in leases]


def begin_release(leases: Iterable[Lease]) -> float:
    """Mark ``leases`` as released, before the first release is sent. Returns the longest ttl."""
    longest = 0.0
    for lease in leases:
        lease.released += 1
        longest = max(longest, lease.ttl)
    return longest


Columns = tuple[list[bytes], list[bytes], list[int], list[float]]


def columns(leases: Sequence[Lease]) -> Columns:
    """The keys, tokens, masks of masters and ttls of ``leases``."""
    keys, tokens, sent, ttls = [], [], [], []
    for lease in leases:
        keys.append(lease.key)
        tokens.append(lease.token)
        sent.append(lease.sent)
        ttls.append(lease.ttl)
    return keys, tokens, sent, ttls


class AcquireFailure(NamedTuple):
    """Why an acquire got no lease.

    ``votes``: those of the last round. ``unavailable``: masters failed. Otherwise another holder has it.
    ``timed_out``: the caller's timeout ended it. ``lists``: the masters that had to agree.
    """

    votes: Votes
    unavailable: bool
    rounds: int
    timed_out: bool = False
    lists: MasterLists | None = None


class ExtendOutcome(Enum):
    """The outcome of an extension. INCONCLUSIVE: too few replies; the lease keeps its old deadline."""

    EXTENDED = "extended"
    LOST = "lost"
    INCONCLUSIVE = "inconclusive"
