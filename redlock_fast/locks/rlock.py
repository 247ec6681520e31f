"""The reentrant lock: who holds it may enter it again. It counts in the client; masters know one plain lock.

Counts on the masters drift apart when messages are lost, without any crash (docs/kinds.md). Here
nothing is sent between the first enter and the last leave, unless the lease has to be extended.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Self

from ..algorithm.quorum import drift
from ..errors import LockLost
from ..wire.text import quoted
from .client_base import BaseClient
from .config import number
from .owners import NamedOwner, Owner, Ownership

#: How often an owner may enter without leaving: who enters more often has forgotten to leave.
MAX_DEPTH = 1_000


class Reentrant:
    """What the reentrant locks for threads and for asyncio share. Each owner has a lock of its own within.

    ``make``: such a lock, which takes ``options``. ``owner``: who calls.
    """

    def __init__(
        self,
        core: BaseClient,
        make: Callable[..., Any],
        resource: str | bytes,
        ttl: float | None,
        min_validity: float,
        options: dict[str, Any],
        owner: Owner,
    ) -> None:
        plain = make(resource, ttl, **options)  # bad settings show at once
        self.resource = resource
        self.key: bytes = plain.key
        self.ttl: float = plain.ttl
        self._core = core
        self._make = make
        self._options = {**options, "on_lost": _wrap_on_lost(weakref.ref(self), options["on_lost"])}
        longest = self.ttl - drift(self.ttl, core.drift_factor)
        self._min_validity = number("min_validity", min_validity, low=0.0, high=longest)
        self._owner = owner
        self._names: dict[Hashable, Ownership] = {}
        self._parent: Reentrant | None = None

    def owned_by(self, owner: Hashable) -> Self:
        """This lock for an owner with a name, whichever thread or task calls: to hand it on, for instance.

        The same name (anything hashable) is the same owner. What it holds is renewed as long as this lock is
        there. No I/O.
        """
        view = copy.copy(self)
        view._owner = NamedOwner(self._names, owner)
        view._parent = self._parent or self  # which stays as long: it is what ``on_lost`` gets
        return view

    # --- what the caller holds ---

    @property
    def depth(self) -> int:
        """How many levels the caller has entered and not left."""
        ownership = self._ownership()
        return ownership.depth if ownership else 0

    @property
    def token(self) -> bytes | None:
        """The random value that is ours on the masters, the same at all levels; see [`Lock.token`][]."""
        ownership = self._ownership()
        return ownership.lock.token if ownership else None

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every holder before, the same at all levels; see
        [`Lock.fencing_token`][].
        """
        ownership = self._ownership()
        return ownership.lock.fencing_token if ownership else None

    @property
    def validity(self) -> float:
        """Seconds of lease that were left when it was granted or last extended; see [`Lock.validity`][]."""
        ownership = self._ownership()
        return ownership.lock.validity if ownership else 0.0

    @property
    def lost(self) -> Any:
        """The event that is set when what the caller holds is lost; see [`Lock.lost`][]."""
        return self._require_owned().lock.lost

    def locked(self) -> bool:
        """Whether the caller holds the lock now: by its own clock, without asking the masters."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which the caller still holds the lock; 0.0 when it does not."""
        ownership = self._ownership()
        return ownership.lock.remaining() if ownership else 0.0

    def check(self) -> None:
        """Raise LockLost unless the caller holds the lock now."""
        self._require_held().lock.check()

    def __repr__(self) -> str:
        state = f"held for {self.remaining():.3f} s more, depth {self.depth}" if self.locked() else "not held"
        return f"<{type(self).__name__} {quoted(self.resource)}: {state}>"

    # --- bookkeeping, without I/O ---

    def _ownership(self) -> Ownership | None:
        ownership = self._owner.get()
        ours = (
            ownership is not None
            and ownership.depth
            and ownership.generation == self._core.masters.generation
        )
        return ownership if ours else None

    def _require_owned(self) -> Ownership:
        ownership = self._ownership()
        if ownership is None:
            raise RuntimeError(f"{quoted(self.key)}: the caller has not acquired it, or did before a fork")
        return ownership

    def _require_held(self) -> Ownership:
        ownership = self._ownership()
        if ownership is None:
            raise LockLost(f"{quoted(self.key)}: the lock is not held here")
        return ownership

    def _lock(self, ttl: float | None) -> Any:
        """For a first level."""
        return self._make(self.resource, self.ttl if ttl is None else ttl, **self._options)

    def _keep(self, lock: Any) -> Ownership:
        """The first level is entered."""
        ownership = Ownership(lock, self._core.masters.generation)
        self._owner.put(ownership)
        return ownership

    def _extension_needed(self, ownership: Ownership, ttl: float | None) -> float | None:
        """For how long to extend it before another level is entered; None: it lasts long enough.

        A lock that is lost is not acquired anew: whoever is in the outer levels believes in it.
        """
        if ownership.depth >= MAX_DEPTH:
            raise RecursionError(f"{quoted(self.key)} was entered {ownership.depth} times without leaving")
        ownership.lock.check()
        left: float = ownership.lock.remaining()
        if ttl is None:
            return self.ttl if left < self._min_validity else None
        ttl = self._core.check_ttl(ttl)
        return ttl if left < ttl - drift(ttl, self._core.drift_factor) else None

    def _increment(self, ownership: Ownership) -> None:
        with self._core.masters.mutex:  # a named owner may be several threads
            if not ownership.depth:
                raise LockLost(f"{quoted(self.key)} was released by its owner meanwhile")
            ownership.depth += 1

    def _decrement(self, ownership: Ownership) -> bool:
        """Leave a level. Whether it is the first, which is for the caller to release."""
        with self._core.masters.mutex:
            ownership.depth = max(0, ownership.depth - 1)
            return ownership.depth == 0

    def _drop(self, lock: Any) -> None:
        """It is released."""
        ownership = self._owner.get()
        if ownership is not None and ownership.lock is lock:
            self._owner.drop(ownership)


def _wrap_on_lost(parent: weakref.ref[Any], on_lost: Callable[[Any, str], Any] | None) -> Any:
    """``on_lost`` is told of the reentrant lock, not of the one within."""
    return on_lost and (lambda lock, reason: on_lost(parent() or lock, reason))


class RLock(Reentrant):
    """A reentrant lock on one resource, made by [`FastRedlock.rlock`][]; as ``threading.RLock``.

    One object is shared by all threads. Each thread that holds it may enter it again, and has to leave it
    as often; the others wait. All levels have one lease and one fencing token. All times are in seconds.
    It counts in the client: messages that are lost cannot make the counts of masters drift apart.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1, *, ttl: float | None = None) -> bool:
        """Enter: as [`Lock.acquire`][] for the first level.

        Every further level sends nothing, unless less than ``min_validity`` is left, or less than the
        ``ttl`` that is asked for here: then the lease is extended, and leaving never shortens it. It raises
        LockLost when the lease has ended, what [`Lock.extend`][] raises, and RecursionError beyond 1,000
        levels; then that level is not entered.
        """
        ownership = self._ownership()
        if ownership is not None:
            ownership.lock._waiting_time(blocking, timeout)  # checks them
            self._enter_again(ownership, ttl)
            return True
        lock = self._lock(ttl)
        try:
            granted: bool = lock.acquire(blocking, timeout)
            if granted:
                self._keep(lock)
            return granted
        except BaseException:
            self._forget(lock)
            raise

    def release(self) -> bool:
        """Leave a level; leaving the first one releases the lock, as [`Lock.release`][].

        Returns False if the lease had ended. Raises RuntimeError where the caller holds nothing.
        """
        ownership = self._require_owned()
        try:
            alive: bool = ownership.lock.release() if self._decrement(ownership) else ownership.lock.locked()
            return alive
        finally:
            if not ownership.depth:
                self._forget(ownership.lock)

    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now, for all levels; see [`Lock.extend`][]."""
        validity: float = self._require_held().lock.extend(ttl, confirm=confirm)
        return validity

    def __enter__(self) -> Self:
        ownership = self._ownership()
        if ownership is not None:
            self._enter_again(ownership, None)
            return self
        lock = self._lock(None)
        try:
            lock.__enter__()
            self._keep(lock)
            return self
        except BaseException:
            self._forget(lock)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ownership = self._ownership()
        if ownership is None and error is not None:
            return
        ownership = self._require_owned()
        try:
            if self._decrement(ownership):
                ownership.lock.__exit__(kind, error, trace)
            elif error is None:
                ownership.lock.check()
        finally:
            if not ownership.depth:
                self._forget(ownership.lock)

    def _enter_again(self, ownership: Ownership, ttl: float | None) -> None:
        more = self._extension_needed(ownership, ttl)
        if more is not None:
            ownership.lock.extend(more)
        self._increment(ownership)

    def _forget(self, lock: Any) -> None:
        """It is released by now, except where that was interrupted before it began."""
        if lock.lease is not None:
            lock.release()
        self._drop(lock)
