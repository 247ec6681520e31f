"""What comes of an acquire or an extension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ._claim import Claim
from ._engine import Votes


class Lease:
    """What a grant gives: ``token`` on the masters of the mask ``sent``, valid until ``deadline``.

    ``claim``: what was granted. ``fencing``: larger than that of every earlier holder; None where it was
    not asked for.
    """

    __slots__ = (
        "_asked",
        "_asking",
        "claim",
        "deadline",
        "extensions",
        "fencing",
        "lost",
        "released",
        "sent",
        "token",
        "ttl",
        "validity",
    )

    def __init__(
        self,
        claim: Claim,
        token: bytes,
        sent: int,
        ttl: float,
        end: float,
        validity: float,
        fencing: int | None = None,
    ) -> None:
        self.claim = claim
        self.token = token
        self.sent = sent
        self.ttl = ttl
        self.deadline = end
        self.validity = validity
        self.extensions = 0
        self.fencing = fencing
        self.lost = False  # for good, whatever a master says later
        self.released = False  # or about to be: set before the first release goes out
        self._asking = 0  # how many extensions are under way
        self._asked = 0.0  # what for

    def ask(self, ttl: float) -> bool:
        """Whether an extension for ``ttl`` may begin now; then ``answered`` must follow.

        Those that overlap must want the same: a master might execute the shorter one last.
        """
        if self._asking and self._asked != ttl:
            return False
        self._asking += 1
        self._asked = ttl
        return True

    def answered(self) -> None:
        self._asking -= 1

    def lose(self, now: float) -> None:
        """It stays with its lock until the release, which takes back what a minority may still have."""
        self.lost = True
        self.deadline = min(self.deadline, now)


def leases_of(
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
        Lease(Claim(key), token, to, ttl, end, validity) if yes >= need else None
        for key, token, yes, to in zip(keys, tokens, granted, sent, strict=True)
    ]


def all_plain(leases: Iterable[Lease]) -> bool:
    """Whether what releases and extends them may go out as columns; see ``Claim.plain``."""
    return all(lease.claim.plain for lease in leases)


def keys_of(leases: Iterable[Lease]) -> list[bytes]:
    return [lease.claim.key for lease in leases]


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
        keys.append(lease.claim.key)
        tokens.append(lease.token)
        sent.append(lease.sent)
        ttls.append(lease.ttl)
    return keys, tokens, sent, ttls


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no lease: the last round's votes. ``unavailable``: masters failed, not others hold."""

    votes: Votes
    unavailable: bool
    rounds: int


class Extension(Enum):
    """What came of an extension. INCONCLUSIVE: still held until the deadline as it was."""

    EXTENDED = "extended"
    LOST = "lost"
    INCONCLUSIVE = "inconclusive"
