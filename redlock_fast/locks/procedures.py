"""Extend of a lock object, what follows a failed acquire, and questions, as procedures without I/O."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from ..algorithm import procedures
from ..algorithm.effects import Effect, WaitForQuorum
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.operation import Operation, Procedure
from ..algorithm.redlock import undo_lease
from ..algorithm.refill import Given, taken_back
from ..engine.contract import Request, Votes
from ..errors import LockLost, TooManyExtensions
from ..wire.text import quoted
from .client_core import ClientCore
from .config import check_flag
from .failures import acquire_error, is_locked
from .lock_state import LockState
from .operations import new_take_over


def entered(lock: LockState, outcome: Lease | AcquireFailure) -> Generator[Effect, Any, None]:
    """Check the outcome for ``with``: raise without a lease, so the body never runs unlocked.

    A contended failure asks the masters once for the owner. Failed masters only mean that none is named.
    """
    if isinstance(outcome, AcquireFailure):
        core, found = lock._core, list[str]()
        if not outcome.unavailable and core.names_owners:
            keys = lock._lock_kind.owner_keys(outcome.votes)
            found = yield from procedures.owners(lock._policy, keys)
        owner = ", ".join(dict.fromkeys(filter(None, found)))
        raise acquire_error(core, lock.resource, lock._lock_kind, outcome, owner)


def new_locked(core: ClientCore, resource: str | bytes) -> Operation:
    """The operation that asks the masters whether ``resource`` is locked.

    Raises ConfigError and ClientClosed.
    """
    core.check_open()
    return Procedure(_locked(core, resource, core.check_key(resource)))


def _locked(core: ClientCore, resource: str | bytes, key: bytes) -> Generator[Effect, list[Votes], bool]:
    yield from _connected(core)
    votes = yield from procedures.exists(core.policy, key)
    return is_locked(core, resource, votes)


def new_owner(core: ClientCore, key: bytes) -> Operation:
    """The operation that asks the masters for the owner of ``key``; "" if none is known.

    Raises ConfigError and ClientClosed.
    """
    core.check_open()
    return Procedure(_owner(core, key))


def _owner(core: ClientCore, key: bytes) -> Generator[Effect, list[Votes], str]:
    yield from _connected(core)
    return (yield from procedures.owners(core.policy, [key]))[0]


def _connected(core: ClientCore) -> Generator[Effect, Any, None]:
    """Wait until a quorum is connected, where it is the first use of the client."""
    if not core.client_state.ready:
        yield WaitForQuorum(core.connect_timeout)


def drop_lock(lock: LockState) -> list[Request]:
    """Forget the lease of ``lock``. Returns the requests that release it, where no reply is awaited."""
    lease = lock._own_lease()
    if lease is None:
        return []
    lock._drop_lease(lease)
    return undo_lease(lease)


def new_extend(lock: LockState, ttl: float | None, confirm: bool = False) -> Operation:
    """The operation that extends ``lock``; see ``validity_of`` for its outcome.

    Raises ConfigError and ClientClosed. The operation raises LockLost, TooManyExtensions, QuorumUnavailable
    and ClientClosed.
    """
    core = lock._core
    core.check_open()
    ttl = lock._ttl if ttl is None else core.check_ttl(ttl)
    check_flag("confirm", confirm)
    if lock._handover is not None and lock._handover.token and lock._own_lease() is None:
        return new_take_over(lock, ttl)
    return LockExtend(lock, ttl, confirm)


class LockExtend(Procedure):
    """Extend the lease of ``lock`` to ``ttl`` seconds from now. The outcome is its validity in seconds.

    ``confirm``: ask the masters also if the lease lasts longer already.
    """

    __slots__ = ("_began", "_lock", "_reports")

    def __init__(self, lock: LockState, ttl: float, confirm: bool) -> None:
        given: list[Given] = []
        Procedure.__init__(self, _extend(lock, ttl, confirm, given), partial(taken_back, given))
        observer = lock._client_state.observer
        self._lock = lock
        self._reports = None if observer is None else observer.reports
        self._began: float = 0.0 if observer is None else lock._policy.clock()

    def close(self, error: BaseException | None = None) -> None:
        reports, self._reports = self._reports, None
        if reports is not None and (error is not None or self.outcome is not None):
            reports.extended(self._lock, self._began, error)


def _extend(lock: LockState, ttl: float, confirm: bool, given: list[Given]) -> Generator[Effect, Any, float]:
    lease = lock._own_lease()
    if lease is None:
        raise LockLost(
            f"{quoted(lock.resource)}: nothing to extend: the lock is not held",
            resource=lock.resource,
            reason=lock._why_not_held(None),
        )
    if not lock._may_be_extended(lease):
        raise TooManyExtensions(
            f"{quoted(lock.resource)} was extended {lease.extensions} times, max_extensions allows no more; "
            f"held for {lock.remaining():.3f} s more",
            resource=lock.resource,
        )
    outcome, votes = yield from procedures.extend(lock._core.policy, lease, ttl, given, confirm)
    return lock._validity_or_raise(lease, outcome, votes)


def validity_of(outcome: float | Lease) -> float:
    """The new validity in seconds after an extension, or after a take-over by the token of a process."""
    return outcome.validity if isinstance(outcome, Lease) else outcome
