"""Locks whose token this library did not draw: the caller chose it, or another object acquired the lock."""

from __future__ import annotations

from typing import Any, TypeVar

from ..algorithm.lease import Lease
from ..algorithm.lock_kind import LockKind
from ..algorithm.quorum import deadline
from ..engine.messages import Request
from ..locks.batch_state import locks_of
from ..locks.client_base import BaseClient
from ..locks.lock_state import LockState

AnyLock = TypeVar("AnyLock", bound=LockState)


def encodable(value: Any) -> Any:
    """``value`` as a name or a token: numbers and buffers become the text or bytes that redis-py sends."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return value


class ChosenTokenKind(LockKind):
    """The plain lock on ``key`` with a token that the caller chose, in place of a new one for each attempt.

    Two holders with the same token are one holder for the masters: each can release the lock of the other.
    """

    __slots__ = ("_token",)

    batchable = False  # a batch sends the tokens of the leases

    def __init__(self, key: bytes, token: bytes) -> None:
        super().__init__(key)
        self._token = token

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        return super().acquire_request(self._token, ttl, masters)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        return super().release_requests(self._token, masters, resend_for)

    def extend_requests(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        return super().extend_requests(self._token, ttl, masters)


def adopt_lock(
    kind: type[AnyLock], client: BaseClient, resource: str | bytes, token: bytes, ttl: float
) -> AnyLock:
    """A lock object for a lock that another object or process acquired with ``token``.

    ``ttl``: seconds that may be left of the lease at most. Extend the lock with ``confirm`` to ask the
    masters.
    """
    policy = client.policy
    end = deadline(policy.clock(), ttl, policy.drift_factor)
    lease = Lease(client.check_key(resource), token, policy.all_masters, ttl, end, ttl)
    (lock,) = locks_of(kind, client, [resource], [lease])
    assert lock is not None
    return lock
