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
from .client_base import Core, number
from .owners import Hold, Named, Owner

#: How often an owner may enter without leaving: who enters more often has forgotten to leave.
MAX_DEPTH = 1_000


class Reentrant:
    """What the reentrant locks for threads and for asyncio share. Each owner has a lock of its own within.

    ``make``: such a lock, which takes ``options``. ``owner``: who calls.
    """

    def __init__(
        self,
        core: Core,
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
        self._options = {**options, "on_lost": _for(weakref.ref(self), options["on_lost"])}
        longest = self.ttl - drift(self.ttl, core.drift_factor)
        self._min_validity = number("min_validity", min_validity, low=0.0, high=longest)
        self._owner = owner
        self._names: dict[Hashable, Hold] = {}
        self._whole: Reentrant | None = None

    def owned_by(self, owner: Hashable) -> Self:
        """This lock for an owner with a name, whichever thread or task calls: to hand it on, for instance.

        The same name (anything hashable) is the same owner. What it holds is renewed as long as this lock is
        there. No I/O.
        """
        view = copy.copy(self)
        view._owner = Named(self._names, owner)
        view._whole = self._whole or self  # which stays as long: it is what ``on_lost`` gets
        return view

    # --- what the caller holds ---

    @property
    def depth(self) -> int:
        """How many levels the caller has entered and not left."""
        hold = self._hold()
        return hold.depth if hold else 0

    @property
    def token(self) -> bytes | None:
        """The random value that is ours on the masters, the same at all levels; see [`Lock.token`][]."""
        hold = self._hold()
        return hold.lock.token if hold else None

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every holder before, the same at all levels; see
        [`Lock.fencing_token`][].
        """
        hold = self._hold()
        return hold.lock.fencing_token if hold else None

    @property
    def validity(self) -> float:
        """Seconds of lease that were left when it was granted or last extended; see [`Lock.validity`][]."""
        hold = self._hold()
        return hold.lock.validity if hold else 0.0

    @property
    def lost(self) -> Any:
        """The event that is set when what the caller holds is lost; see [`Lock.lost`][]."""
        return self._mine().lock.lost

    def locked(self) -> bool:
        """Whether the caller holds the lock now: by its own clock, without asking the masters."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which the caller still holds the lock; 0.0 when it does not."""
        hold = self._hold()
        return hold.lock.remaining() if hold else 0.0

    def check(self) -> None:
        """Raise LockLost unless the caller holds the lock now."""
        self._held().lock.check()

    def __repr__(self) -> str:
        state = f"held for {self.remaining():.3f} s more, depth {self.depth}" if self.locked() else "not held"
        return f"<{type(self).__name__} {quoted(self.resource)}: {state}>"

    # --- bookkeeping, without I/O ---

    def _hold(self) -> Hold | None:
        hold = self._owner.get()
        ours = hold is not None and hold.depth and hold.generation == self._core.masters.generation
        return hold if ours else None

    def _mine(self) -> Hold:
        hold = self._hold()
        if hold is None:
            raise RuntimeError(f"{quoted(self.key)}: the caller has not acquired it, or did before a fork")
        return hold

    def _held(self) -> Hold:
        hold = self._hold()
        if hold is None:
            raise LockLost(f"{quoted(self.key)}: the lock is not held here")
        return hold

    def _lock(self, ttl: float | None) -> Any:
        """For a first level."""
        return self._make(self.resource, self.ttl if ttl is None else ttl, **self._options)

    def _keep(self, lock: Any) -> Hold:
        """The first level is entered."""
        hold = Hold(lock, self._core.masters.generation)
        self._owner.put(hold)
        return hold

    def _wanted(self, hold: Hold, ttl: float | None) -> float | None:
        """For how long to extend it before another level is entered; None: it lasts long enough.

        A lock that is lost is not acquired anew: whoever is in the outer levels believes in it.
        """
        if hold.depth >= MAX_DEPTH:
            raise RecursionError(f"{quoted(self.key)} was entered {hold.depth} times without leaving")
        hold.lock.check()
        left: float = hold.lock.remaining()
        if ttl is None:
            return self.ttl if left < self._min_validity else None
        ttl = self._core.check_ttl(ttl)
        return ttl if left < ttl - drift(ttl, self._core.drift_factor) else None

    def _deeper(self, hold: Hold) -> None:
        with self._core.masters.mutex:  # a named owner may be several threads
            if not hold.depth:
                raise LockLost(f"{quoted(self.key)} was released by its owner meanwhile")
            hold.depth += 1

    def _last(self, hold: Hold) -> bool:
        """Leave a level. Whether it is the first, which is for the caller to release."""
        with self._core.masters.mutex:
            hold.depth = max(0, hold.depth - 1)
            return hold.depth == 0

    def _drop(self, lock: Any) -> None:
        """It is released."""
        hold = self._owner.get()
        if hold is not None and hold.lock is lock:
            self._owner.drop(hold)


def _for(whole: weakref.ref[Any], on_lost: Callable[[Any, str], Any] | None) -> Any:
    """``on_lost`` is told of the reentrant lock, not of the one within."""
    return on_lost and (lambda lock, reason: on_lost(whole() or lock, reason))


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
        hold = self._hold()
        if hold is not None:
            hold.lock._waiting_time(blocking, timeout)  # checks them
            self._again(hold, ttl)
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
        hold = self._mine()
        try:
            alive: bool = hold.lock.release() if self._last(hold) else hold.lock.locked()
            return alive
        finally:
            if not hold.depth:
                self._forget(hold.lock)

    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now, for all levels; see [`Lock.extend`][]."""
        validity: float = self._held().lock.extend(ttl, confirm=confirm)
        return validity

    def __enter__(self) -> Self:
        hold = self._hold()
        if hold is not None:
            self._again(hold, None)
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
        hold = self._hold()
        if hold is None and error is not None:
            return
        hold = self._mine()
        try:
            if self._last(hold):
                hold.lock.__exit__(kind, error, trace)
            elif error is None:
                hold.lock.check()
        finally:
            if not hold.depth:
                self._forget(hold.lock)

    def _again(self, hold: Hold, ttl: float | None) -> None:
        more = self._wanted(hold, ttl)
        if more is not None:
            hold.lock.extend(more)
        self._deeper(hold)

    def _forget(self, lock: Any) -> None:
        """It is released by now, except where that was interrupted before it began."""
        if lock.lease is not None:
            lock.release()
        self._drop(lock)
