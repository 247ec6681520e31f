"""HTTP answers for requests whose lock was not acquired, or was lost. The web integrations share them."""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

from ..errors import Contended, LockLost, LockNotAcquired, RedlockError
from ..locks.client_base import BaseClient
from ..telemetry import log_error, log_outcome
from ..wire.text import shown

#: The errors that a web framework turns into an answer; QuorumUnavailable is a LockNotAcquired.
ERRORS: tuple[type[RedlockError], ...] = (LockNotAcquired, LockLost)


class Refusal(NamedTuple):
    """What a request gets in place of its result. ``detail`` names no master and no lock."""

    status: int
    detail: str
    headers: dict[str, str]


def refusal(error: Exception, client: BaseClient | None) -> Refusal:
    """The answer for ``error``, one of ``ERRORS``.

    409 for Contended and 503 for QuorumUnavailable: the lock was not acquired. ``Retry-After`` is
    ``error.retry_after``, or else the ttl of ``client``: by then the lease of a dead holder has ended. It is
    in whole seconds, at least 1. A lost lock is 500 without ``Retry-After``, because the work may be done
    already, and the log gets the traceback. Each refusal is logged with the name of the lock and its owner.
    """
    named = error.resource if isinstance(error, RedlockError) else None
    resource = shown(named) if named is not None else ""
    if not isinstance(error, LockNotAcquired):
        log_error("request-lost-lock", resource=resource, reason=getattr(error, "reason", ""))
        return Refusal(500, "the lock was lost during the request; its work may be done or not", {})
    contended = isinstance(error, Contended)
    log_outcome(
        "request-refused",
        f"answered with {409 if contended else 503}: {error}",
        resource=resource,
        owner=getattr(error, "owner", ""),
        reason=error.reason,
        level=logging.INFO if contended else logging.WARNING,
    )
    seconds = error.retry_after or (client._core.policy.ttl if client else 0.0)
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    if contended:
        return Refusal(409, "another request holds the lock", headers)
    return Refusal(503, "locks are not available at the moment", headers)
