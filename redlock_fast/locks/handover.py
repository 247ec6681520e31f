"""Handing a lock over to another process by its token: what a lock object is between two holds.

The other process asks the voting masters to extend the key of the token. A master that extends it excludes
all other tokens for the ttl, as a master does that grants an acquire. So a quorum of these votes is a lease
by the same argument, and no lease is believed before. Two processes that use one token are one holder.
"""

from __future__ import annotations

from typing import Any

from ..algorithm.lock_kind import FencedKind, LockKind
from ..errors import ConfigError

#: Bytes.
MAX_TOKEN = 1024


class Handover:
    """What a lock object has while its lock is handed over: it was detached, or has the token of a process.

    ``token``: of the other process; empty after ``detach``. ``lost``: a quorum does not have the token.
    ``released``: a release of the token has begun, so a take-over gets no lease any more.
    """

    __slots__ = ("lost", "released", "token")

    def __init__(self, token: bytes = b"") -> None:
        self.token: bytes = token
        self.lost: bool = False
        self.released: bool = False


def check_detachable(lock_kind: LockKind) -> None:
    """Raise ConfigError for a kind of lock that cannot be handed over."""
    if type(lock_kind) not in (LockKind, FencedKind):
        raise ConfigError(
            "detach() and token= are for plain locks: a fair lock, a read-write lock, a semaphore and "
            "a multilock keep more than a token on the masters"
        )


def handed_over(lock_kind: LockKind, token: Any) -> Handover:
    """What a lock with the token of another process has. Raises ConfigError."""
    if not isinstance(token, bytes) or not 1 <= len(token) <= MAX_TOKEN:
        # Without the value: a client that has the token can release the lock.
        raise ConfigError(f"token must be 1 to {MAX_TOKEN} bytes from detach() or lock.token")
    if type(lock_kind) is FencedKind:
        raise ConfigError(
            "fencing and token do not go together: the masters cannot tell the fencing token of a lease; "
            "pass it along with the token"
        )
    check_detachable(lock_kind)
    return Handover(token)
