"""Jobs that run once in a fleet: the settings of a single run, and its end. No waiting."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from ..algorithm import procedures
from ..algorithm.effects import Effect
from ..algorithm.lease import ExtendOutcome
from ..errors import ConfigError, LockAlreadyHeld
from ..wire.text import quoted
from .config import number
from .lock_state import LockState
from .options import IfTaken

L = TypeVar("L", bound=LockState)

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
        if if_taken not in ("skip", "wait", "raise"):
            raise ConfigError(f'if_taken must be "skip", "wait" or "raise", not {if_taken!r}')
        for name in ("fair", "token"):
            if options.get(name):
                raise ConfigError(f"single_run() does not go together with {name}")
        if if_taken != "wait":
            if options.get("timeout"):
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
        self._keep_until = 0.0
        if not callable(resource):
            self._new_lock(resource)  # raises ConfigError here and not at the first run

    def _new_lock(self, resource: Any) -> L:
        lock = self._lock_of(resource, self._ttl, **self._options)
        if self._once_per is not None and lock.ttl > lock._core.check_ttl(self._once_per):
            return self._lock_of(resource, self._once_per, **self._options)  # masters never shorten a lease
        return lock

    def _for_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The single run of one call of a decorated function."""
        resource = self._resource(*args, **kwargs) if callable(self._resource) else self._resource
        return type(self)(
            self._lock_of, resource, self._ttl, self._if_taken, self._once_per, dict(self._options)
        )

    def _enter(self) -> L:
        """The lock of the run that begins."""
        if callable(self._resource):
            raise ConfigError("single_run() with a function as its name is a decorator only")
        if self._lock is not None:
            raise LockAlreadyHeld(
                f"{quoted(self._resource)}: this single run is entered already; make one for each `with`",
                resource=self._resource,
            )
        self._lock = self._new_lock(self._resource)
        return self._lock

    def _granted(self, lock: L) -> None:
        if self._once_per is not None:
            self._keep_until = lock._core.policy.clock() + self._once_per


def keep_until(lock: LockState, end: float) -> Generator[Effect, Any, None]:
    """Make the lease of ``lock`` last until ``end``, and detach the lock, so that no release follows.

    Does nothing if ``end`` has passed, or if the lease is lost: then the release reports the loss.
    """
    policy, lease = lock._core.policy, lock.lease
    seconds = end - policy.clock()
    if lease is None or seconds <= 0.0:
        return
    if lock._auto_extension is not None:
        lock._auto_extension.stop()  # an extension of the renewal would make the lease longer than ``end``
    outcome, _ = yield from procedures.extend(policy, lease, seconds)
    lock.note_extension(lease, outcome)
    if outcome is ExtendOutcome.LOST or not lock.locked():
        return
    if outcome is ExtendOutcome.INCONCLUSIVE:
        lock._core.client_state.events.warn_of(
            "once-per-shortened",
            f"{quoted(lock.resource)}: too few masters answered to keep the lock for {seconds:.1f} s: "
            f"it may be free after {lock.remaining():.1f} s",
        )
    lock.detach()
