"""What comes of an acquire or an extension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..engine.contract import Request, Votes
from .lock_kind import LockKind, release


class Lease:
    """What a grant gives: ``token`` on the masters of the mask ``sent``, valid until ``deadline``.

    Of a plain lock on ``key``. Of such there may be many, so they are small, and compiled they refer to
    nothing that a garbage collector would have to look at.
    """

    __slots__ = (
        "deadline",
        "extensions",
        "key",
        "lost",
        "released",
        "sent",
        "token",
        "ttl",
        "validity",
    )

    #: Larger than that of every earlier holder; None where it was not asked for.
    fencing: int | None = None

    def __init__(self, key: bytes, token: bytes, sent: int, ttl: float, end: float, validity: float) -> None:
        self.key = key
        self.token = token
        self.sent = sent
        self.ttl = ttl
        self.deadline = end
        self.validity = validity
        self.extensions = 0
        self.lost = False  # for good, whatever a master says later
        self.released = False  # or about to be: set before the first release goes out

    @property
    def lock_kind(self) -> LockKind:
        """What was granted."""
        return LockKind(self.key)

    @property
    def batchable(self) -> bool:
        """Whether what releases and extends it may go out as columns; see ``LockKind.batchable``."""
        return True

    def release_requests(self) -> list[Request]:
        """What takes it back, from all masters that may have it."""
        return release(self.key, self.token, self.sent, self.ttl)

    def mark_lost(self, now: float) -> None:
        """It stays with its lock until the release, which takes back what a minority may still have."""
        self.lost = True
        self.deadline = min(self.deadline, now)


class KindLease(Lease):
    """The same of a lock of another kind, or one that counts fencing tokens."""

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
        self.fencing = fencing

    @property
    def batchable(self) -> bool:
        return self.lock_kind.batchable

    def release_requests(self) -> list[Request]:
        return self.lock_kind.release_requests(self.token, self.sent, self.ttl)


def plain_lease(key: bytes, token: bytes, sent: int, ttl: float, end: float, validity: float) -> Lease:
    """A Lease. Where this is compiled, ``Lease()`` takes 250 instructions more."""
    made = Lease.__new__(Lease)
    made.key, made.token, made.sent, made.ttl = key, token, sent, ttl
    made.deadline, made.validity = end, validity
    made.extensions = 0
    made.lost = made.released = False
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
    """What was granted to ``lock_kind``."""
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
    """What plain locks got that were asked for together; None where too few granted."""
    return [
        plain_lease(key, token, to, ttl, end, validity) if yes >= need else None
        for key, token, yes, to in zip(keys, tokens, granted, sent, strict=True)
    ]


def all_plain(leases: Iterable[Lease]) -> bool:
    plain = True
    for lease in leases:
        if type(lease) is not Lease:
            plain = plain and lease.batchable
    return plain


def never_lost(leases: Iterable[Lease]) -> list[bool]:
    return [not lease.lost for lease in leases]


def keys_of(leases: Iterable[Lease]) -> list[bytes]:
    return [lease.key for lease in leases]


def begin_release(leases: Iterable[Lease]) -> float:
    """To be called before any of their releases goes out; the longest ttl of them."""
    longest = 0.0
    for lease in leases:
        lease.released = True
        longest = max(longest, lease.ttl)
    return longest


Columns = tuple[list[bytes], list[bytes], list[int], list[float]]


def columns(leases: Sequence[Lease]) -> Columns:
    """Of plain leases the keys, the tokens, who was sent them, and the ttls."""
    keys, tokens, sent, ttls = [], [], [], []
    for lease in leases:
        keys.append(lease.key)
        tokens.append(lease.token)
        sent.append(lease.sent)
        ttls.append(lease.ttl)
    return keys, tokens, sent, ttls


@dataclass(frozen=True, slots=True)
class AcquireFailure:
    """Why there is no lease: the last round's votes. ``unavailable``: masters failed, not others hold."""

    votes: Votes
    unavailable: bool
    rounds: int


class ExtendOutcome(Enum):
    """What came of an extension. INCONCLUSIVE: still held until the deadline as it was."""

    EXTENDED = "extended"
    LOST = "lost"
    INCONCLUSIVE = "inconclusive"
