"""Handing a lock over to another process by its token: what a lock object is between two holds.

The other process asks the voting masters to extend the key of the token. A master that extends it excludes
all other tokens for the ttl, as a master does that grants an acquire. So a quorum of these votes is a lease
by the same argument, and no lease is believed before. Two processes that use one token are one holder.
"""

from __future__ import annotations

from typing import Any

from ..algorithm.lock_kind import FencedKind, LockKind
from ..engine.contract import Request
from ..errors import ConfigError

#: Bytes.
MAX_TOKEN = 1024


class HandoverKind(LockKind):
    """The kind of a lock object that was detached, or has the token of another process.

    ``lock_kind``: the kind of its next lease. ``token``: empty after ``detach``. ``lost``: a quorum does not
    have the token. ``released``: a release of the token has begun, so a take-over gets no lease any more.
    """

    __slots__ = ("lock_kind", "lost", "released", "token")

    def __init__(self, lock_kind: LockKind, token: bytes = b"") -> None:
        super().__init__(lock_kind.key)
        if type(lock_kind) not in (LockKind, FencedKind):
            raise ConfigError(
                "detach() and token= are for plain locks: a fair lock, a read-write lock, a semaphore and "
                "a multilock keep more than a token on the masters"
            )
        self.lock_kind: LockKind = lock_kind
        self.token: bytes = token
        self.lost: bool = False
        self.released: bool = False

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        return self.lock_kind.extend_requests(token, ttl, masters)[0]

    def held_kind(self) -> LockKind:
        return self.lock_kind


def handed_over(lock_kind: LockKind, token: Any) -> HandoverKind:
    """The kind of a lock with the token of another process. Raises ConfigError."""
    if not isinstance(token, bytes) or not 1 <= len(token) <= MAX_TOKEN:
        # Without the value: a client that has the token can release the lock.
        raise ConfigError(f"token must be 1 to {MAX_TOKEN} bytes from detach() or lock.token")
    if type(lock_kind) is FencedKind:
        raise ConfigError(
            "fencing and token do not go together: the masters cannot tell the fencing token of a lease; "
            "pass it along with the token"
        )
    return HandoverKind(lock_kind, token)
