"""Names and tokens in the forms that other libraries accept, and locks that another object acquired."""

from __future__ import annotations

from typing import Any, TypeVar

from ..algorithm.lease import Lease
from ..algorithm.quorum import deadline
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
