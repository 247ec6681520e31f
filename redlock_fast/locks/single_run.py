"""Jobs that run once in a fleet: the settings of a single run, and its end. No waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, get_args

from ..algorithm import procedures
from ..algorithm.effects import Effect, Sleep
from ..algorithm.lease import KEEP_AT_EXIT, ExtendOutcome, Lease
from ..algorithm.lock_kind import wire_ttl
from ..algorithm.operation import Message, Operation, Procedure
from ..errors import ClientClosed, ConfigError, Contended, LockAlreadyHeld
from ..telemetry import log_outcome
from ..wire.text import quoted, shown
from .client_base import refuse_copy_of_hold, view_of
from .config import check_choice, check_timeout, number
from .lock_state import LockState
from .options import IfTaken

L = TypeVar("L", bound=LockState)

#: The options of lock() that a single run refuses.
SINGLE_RUN_REFUSES = ("fair", "token")


class SingleRunState(Generic[L]):
    """The settings of a single run, and the lock of the run that this object has entered.

    ``lock_of``: the method ``lock`` of a client. Raises ConfigError for bad settings.
    """

    def __init__(
        self,
        lock_of: Callable[..., L],
        resource: Any,
        ttl: float | None,
        if_taken: IfTaken,
        once_per: float | None,
        options: dict[str, Any],
    ) -> None:
        check_choice("if_taken", if_taken, get_args(IfTaken))
        for name in SINGLE_RUN_REFUSES:
            value = options.get(name)
            if value is not None and value is not False:
                raise ConfigError(f"single_run() does not go together with {name}")
        if if_taken != "wait":
            timeout = options.get("timeout")
            if timeout is not None and check_timeout(timeout) != 0.0:
                raise ConfigError(f'if_taken="{if_taken}" does not wait, so it takes no timeout')
            options["timeout"] = 0.0
        options.setdefault("auto_extend", True)
        self._lock_of = lock_of
        self._resource = resource
        self._ttl = ttl
        self._if_taken = if_taken
        self._once_per: float | None = None if once_per is None else number("once_per", once_per, above=0.0)
        self._options = options
        self._lock: L | None = None
        self._entered = False  # also while the body of a run that is skipped goes on
        self._keep_until = 0.0
        self._new_lock("name" if callable(resource) else resource)  # raises ConfigError, before the first run

    __reduce__ = refuse_copy_of_hold

    def __repr__(self) -> str:
        name = self._resource
        shown = getattr(name, "__qualname__", repr(name)) if callable(name) else quoted(name)
        return f"<{type(self).__name__} {shown}: {'' if self._entered else 'not '}entered>"

    def _new_lock(self, resource: Any) -> L:
        lock = self._lock_of(resource, self._ttl, **self._options)
        once_per = self._once_per
        if once_per is None:
            return lock
        number("once_per", once_per, above=0.0, high=lock._core.max_ttl)
        if lock.ttl <= once_per:
            return lock
        return self._lock_of(resource, once_per, **self._options)  # masters never shorten a lease

    def _for_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The single run of one call of a decorated function."""
        run = view_of(self)
        run._lock, run._entered = None, False
        if callable(self._resource):
            run._resource = self._resource(*args, **kwargs)
        return run

    def _enter(self) -> L:
        """The lock of a run. The caller passes it to ``_begin``."""
        if callable(self._resource):
            raise ConfigError("single_run() with a function as its name is a decorator only")
        return self._new_lock(self._resource)

    def _begin(self, lock: L) -> None:
        """Store the lock of the run that begins. After an exception the caller calls ``_end``."""
        with lock._core.client_state.mutex:  # another thread may enter at the same time
            if self._entered:
                raise LockAlreadyHeld(
                    f"{quoted(self._resource)}: this single run is entered already; make one for each `with`",
                    resource=self._resource,
                )
            self._lock = lock
            self._entered = True

    def _end(self, lock: L) -> None:
        """Forget the lock of a run, unless another run has begun."""
        if self._lock is lock:
            self._lock, self._entered = None, False

    def _granted(self, lock: L) -> None:
        if self._once_per is not None:
            self._keep_until = lock._core.policy.clock() + self._once_per

    def _skips(self, refused: Contended | None) -> bool:
        """Whether the job is skipped: ``refused`` says that another client has the lock. Or raises it."""
        if refused is None:
            return False
        if self._if_taken == "raise":
            self.log_outcome("run-refused", refused, logging.WARNING)
            raise refused
        self.log_outcome("run-skipped", refused, logging.INFO)
        self._lock = None
        return True

    def log_outcome(self, event: str, refused: Contended, level: int) -> None:
        """Log that a run does not begin."""
        resource = refused.resource if refused.resource is not None else self._resource
        log_outcome(
            event,
            f"{quoted(resource)}: not run, because {refused.owner or 'another run'} has the lock",
            resource=shown(resource),
            owner=refused.owner,
            reason=refused.reason,
            level=level,
        )


def new_keep(lock: LockState, end: float) -> Operation:
    """The operation that makes the lease of ``lock`` last until ``end``, and detaches the lock.

    So no release follows. It does nothing if ``end`` has passed, or if the lease is lost: then the release
    reports the loss. It repeats the extension while the lease lasts.
    """
    return Procedure(_keep(lock, end), partial(keep_at_once, lock, end))


def _keep(lock: LockState, end: float) -> Generator[Effect, Any, None]:
    policy, lease = lock._core.policy, lock._lease
    if lease is None or end <= policy.clock() or not lock.locked():
        return
    lease.at_exit = KEEP_AT_EXIT  # the interpreter may end while this waits for masters
    if lock._auto_extension is not None:
        lock._auto_extension.stop(lease)  # an extension of it would make the lease longer than ``end``
    try:
        outcome = yield from _extended_until(lock, lease, end)
    except ClientClosed:
        outcome = ExtendOutcome.INCONCLUSIVE
    if outcome is ExtendOutcome.LOST or not lock.locked():
        return
    if outcome is ExtendOutcome.INCONCLUSIVE:
        lock._core.client_state.events.warn_of(
            "once-per-shortened",
            f"{quoted(lock.resource)}: too few masters answered to keep the lock for "
            f"{end - policy.clock():.1f} s: it may be free after {lock.remaining():.1f} s",
            resource=shown(lock.resource),
            owner=lock.owner,
            reason="unconfirmed",
        )
    lock.detach()


def _extended_until(lock: LockState, lease: Lease, end: float) -> Generator[Effect, Any, ExtendOutcome]:
    """The outcome of the last extension. INCONCLUSIVE: the lease has no time for another extension."""
    policy, failed = lock._core.policy, 0
    while True:
        lock._core.check_open()
        start = policy.clock()
        outcome, _ = yield from procedures.extend(policy, lease, end - start, [])
        lock._note_extension(lease, outcome)
        if outcome is not ExtendOutcome.INCONCLUSIVE:
            return outcome
        failed += 1
        pause = policy.retry.delay(failed, policy.clock() - start, policy.chance())
        if lock.remaining() < pause + policy.node_timeout:
            return outcome
        yield Sleep(pause)


def keep_at_once(lock: LockState, end: float) -> list[Message]:
    """As ``new_keep``, where no reply is awaited: an exception has interrupted that.

    The job has run, so the exception must not free the lock.
    """
    lease, seconds = lock._lease, end - lock._core.policy.clock()
    if lease is None or seconds <= 0.0 or not lock.locked():
        return []
    requests = lease.lock_kind.extend_requests(lease.token, wire_ttl(seconds), lease.sent)
    lock.detach()
    return [requests]
