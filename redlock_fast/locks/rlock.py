"""The reentrant lock: its owner may enter it again. The client counts the levels; masters see a plain lock.

Counters on the masters would diverge when messages are lost, even without a crash (docs/kinds.md). Here
the client sends nothing between the first enter and the last leave, unless the lease must be extended.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, NoReturn, Self

from ..algorithm.quorum import drift
from ..algorithm.renewal_schedule import NOT_HELD
from ..errors import ConfigError, Contended, ContendedTimeout, LockLost
from ..wire.text import quoted
from .client_base import refuse_copy_of_hold, view_of
from .client_core import ClientCore
from .config import number
from .owner_queue import Turn, turn_of
from .owners import NamedOwner, Owner, Ownership

#: The maximum number of levels of one owner. More levels are a missing ``release``.
MAX_DEPTH = 1_000

#: The ownership of which a call has entered or left a level; None before. The list has its place before the
#: level changes: an append after it may find no memory.
Done = list[Ownership | None]


class Reentrant:
    """The base of the reentrant locks for threads and for asyncio. Each owner has its own inner lock.

    ``make``: makes an inner lock with ``options``. ``owner``: identifies the caller.
    """

    def __init__(
        self,
        core: ClientCore,
        make: Callable[..., Any],
        resource: str | bytes,
        ttl: float | None,
        min_validity: float,
        options: dict[str, Any],
        owner: Owner,
    ) -> None:
        plain = make(resource, ttl, **options)  # raises for bad settings now
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

    __reduce__ = refuse_copy_of_hold

    def owned_by(self, owner: Hashable) -> Self:
        """A view of this lock for a named owner, in any thread or task. No I/O.

        The same name (any hashable object) is the same owner. Renewal continues while this lock object
        exists.

        Examples:
            >>> rlock.owned_by(order.id).acquire()    # in one thread
            >>> rlock.owned_by(order.id).release()    # in another thread

        Raises:
            TypeError: A name that is not hashable.
        """
        return self._view_of(NamedOwner(self._names, owner))

    def _view_of(self, owner: Owner) -> Self:
        """This lock for another owner."""
        view = view_of(self)
        view._owner = owner
        view._parent = self._parent or self  # on_lost gets it, so it must live as long
        return view

    # --- the caller's ownership ---

    @property
    def depth(self) -> int:
        """The number of levels that the caller has entered and not left."""
        ownership = self._ownership()
        return ownership.depth if ownership else 0

    @property
    def token(self) -> bytes | None:
        """The value of the key on the masters, by which they know this holder: 160 random bits and the owner.

        It is the same at all levels of nesting. None when the caller does not hold the lock.
        """
        ownership = self._ownership()
        return ownership.lock.token if ownership else None

    @property
    def owner(self) -> str:
        """The owner that the token names, the same at all levels; see [`Lock.owner`][]."""
        ownership = self._ownership()
        return ownership.lock.owner if ownership else ""

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every earlier holder of this resource; the same at all levels.

        None when the caller does not hold the lock, or if it was made without ``fencing=True``. Pass it along
        with each write: the protected resource refuses a number that is lower than one it has seen, and so a
        holder that wakes up after its lease has ended. See docs/fencing.md.
        """
        ownership = self._ownership()
        return ownership.lock.fencing_token if ownership else None

    @property
    def validity(self) -> float:
        """Seconds that were left of the caller's lease, 0.0 when not held; see [`Lock.validity`][]."""
        ownership = self._ownership()
        return ownership.lock.validity if ownership else 0.0

    @property
    def lost(self) -> Any:
        """The event that is set when the caller's lease is lost; see [`Lock.lost`][].

        Raises RuntimeError if the caller holds nothing.
        """
        return self._require_owned().lock.lost

    def locked(self) -> bool:
        """Whether the caller holds the lock now, by the lease clock. No I/O, never raises.

        Examples:
            >>> if rlock.locked():
            ...     work_a_little()
        """
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds until the caller's lease ends; 0.0 when it holds nothing. No I/O, never raises.

        Examples:
            >>> request(timeout=rlock.remaining())
        """
        ownership = self._ownership()
        return ownership.lock.remaining() if ownership else 0.0

    def check(self) -> None:
        """Raise LockLost unless the caller holds the lock now, by the lease clock. No I/O.

        Examples:
            >>> rlock.check()

        Raises:
            LockLost: The caller holds nothing, or its lease has ended.
        """
        self._require_held().lock.check()

    def detach(self) -> NoReturn:
        """Refuse: the levels of a reentrant lock are in this process; see [`Lock.detach`][].

        Examples:
            >>> client.lock("job").detach()    # a plain lock, in place of a reentrant one

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("detach() is for plain locks: the levels of a reentrant lock are in this process")

    def __repr__(self) -> str:
        state = f"held for {self.remaining():.3f} s more, depth {self.depth}" if self.locked() else "not held"
        return f"<{type(self).__name__} {quoted(self.resource)}: {state}>"

    # --- bookkeeping, without I/O ---
    #
    # A signal handler may raise after a level was entered or left. ``done`` has the ownership then.

    def _ownership(self) -> Ownership | None:
        ownership = self._owner.get()
        ours = (
            ownership is not None
            and ownership.depth
            and ownership.generation == self._core.client_state.generation()
        )
        return ownership if ours else None

    def _require_owned(self) -> Ownership:
        ownership = self._ownership()
        if ownership is None:
            raise self._not_owned()
        return ownership

    def _not_owned(self) -> RuntimeError:
        return RuntimeError(f"{quoted(self.resource)}: the caller has not acquired it; a fork keeps no lock")

    def _require_held(self) -> Ownership:
        ownership = self._ownership()
        if ownership is None:
            raise LockLost(
                f"{quoted(self.resource)}: the lock is not held here", resource=self.resource, reason=NOT_HELD
            )
        return ownership

    def _lock(self, ttl: float | None) -> Any:
        """A new inner lock, for a first level."""
        return self._make(self.resource, self.ttl if ttl is None else ttl, **self._options)

    def _too_late(self) -> Contended:
        return ContendedTimeout(
            f"{quoted(self.resource)}: another call of its owner still tries to acquire it",
            resource=self.resource,
            reason="queue",
        )

    def _keep(self, lock: Any, done: Done) -> Ownership:
        """Store the ownership of the first level."""
        ownership = Ownership(lock, self._core.client_state.generation())
        done[0] = ownership
        with self._core.client_state.mutex:
            self._owner.put(ownership)
        return ownership

    def _extension_needed(self, ownership: Ownership, ttl: float | None) -> float | None:
        """The ttl of an extension before another level is entered; None: the lease lasts long enough.

        Raises LockLost for a lost lock. It is not acquired again, because the outer levels rely on the old
        lease.
        """
        if ownership.depth >= MAX_DEPTH:
            raise RecursionError(
                f"{quoted(self.resource)} was entered {ownership.depth} times without leaving"
            )
        ownership.lock.check()
        left: float = ownership.lock.remaining()
        if ttl is None:
            return self.ttl if left < self._min_validity else None
        ttl = self._core.check_ttl(ttl)
        return ttl if left < ttl - drift(ttl, self._core.drift_factor) else None

    def _increment(self, ownership: Ownership, done: Done) -> None:
        """Enter another level."""
        with self._core.client_state.mutex:  # a named owner may be several threads
            if not ownership.depth:
                raise LockLost(
                    f"{quoted(self.resource)} was released by another thread or task of its owner",
                    resource=self.resource,
                    reason=NOT_HELD,
                )
            ownership.depth += 1
            done[0] = ownership

    def _decrement(self, ownership: Ownership, done: Done) -> bool:
        """Leave a level. Returns whether it was the first: then the caller must release the inner lock."""
        with self._core.client_state.mutex:
            if ownership.depth:
                ownership.depth -= 1
            done[0] = ownership
            if ownership.depth:
                return False
            self._owner.drop(ownership)
        return True

    def _drop(self, lock: Any) -> None:
        """Remove the ownership of a released inner lock."""
        with self._core.client_state.mutex:
            ownership = self._owner.get()
            if ownership is not None and ownership.lock is lock:
                self._owner.drop(ownership)


def _wrap_on_lost(parent: weakref.ref[Any], on_lost: Callable[[Any, str], Any] | None) -> Any:
    """``on_lost`` for the inner lock: it passes the reentrant lock on."""
    return on_lost and (lambda lock, reason: on_lost(parent() or lock, reason))


class RLock(Reentrant):
    """A reentrant lock on one resource, made by [`FastRedlock.rlock`][]; as ``threading.RLock``.

    All threads share one object. The thread that holds it may enter it again, and must leave it as often.
    Other threads wait. All levels have one lease and one fencing token. All times are in seconds.
    The client counts the levels: lost messages cannot make counters on the masters diverge.

    Examples:
        >>> lock = client.rlock("orders:42")
        >>> with lock:
        ...     with lock:      # the same thread: sends nothing
        ...         ship("orders:42")
    """

    def acquire(self, blocking: bool = True, timeout: float = -1, *, ttl: float | None = None) -> bool:
        """Enter a level. Returns whether it was entered; for the first level as [`Lock.acquire`][].

        A further level sends nothing, unless less than ``min_validity`` or less than ``ttl`` (seconds) is
        left. Then it extends the lease, and leaving the level does not shorten it. A level that raises is
        not entered.

        Examples:
            >>> if rlock.acquire(timeout=2.0):
            ...     rlock.release()

        Raises:
            RedlockError: The first level: as [`Lock.acquire`][]. A further level: as [`Lock.extend`][], also
                LockLost when the lease has ended.
            RecursionError: More than 1,000 levels.
        """
        return self._enter(ttl, blocking, timeout)

    def release(self) -> bool:
        """Leave a level. Leaving the first level releases the lock, as [`Lock.release`][].

        Returns False if the lease had ended.

        Examples:
            >>> alive = rlock.release()

        Raises:
            RuntimeError: The caller holds nothing.
        """
        left: Done = []
        try:
            left = [None]
            ownership = self._ownership()
            if ownership is not None:
                last = self._decrement(ownership, left)
                alive: bool = ownership.lock.release() if last else ownership.lock.locked()
                return alive
        except BaseException:
            self._leave_anyway(left or [None])
            raise
        raise self._not_owned()

    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now (default: the lock's own ttl), for all levels.

        Returns the new validity in seconds. A lease is never shortened: if it already lasts longer, no
        request is sent, unless ``confirm`` is True.

        Examples:
            >>> validity = rlock.extend(30.0)

        Raises:
            LockLost: The lease has ended, or the caller does not hold the lock.
            TooManyExtensions: The lock was extended ``max_extensions`` times.
            QuorumUnavailable: Too few masters answered. The lock is held until its previous deadline.
            ConfigError: A ttl above the client's ``max_ttl``.
            ClientClosed: The client is closed.
        """
        validity: float = self._require_held().lock.extend(ttl, confirm=confirm)
        return validity

    def __enter__(self) -> Self:
        self._enter(None, raises=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left: Done = []
        try:
            left = [None]
            ownership = self._ownership()
            if ownership is not None:
                if self._decrement(ownership, left):
                    ownership.lock.__exit__(kind, error, trace)
                elif error is None:
                    ownership.lock.check()
                return
        except BaseException:
            self._leave_anyway(left or [None])
            raise
        if error is None:
            raise self._not_owned()

    def _enter(
        self, ttl: float | None, blocking: bool = True, timeout: float = -1, *, raises: bool = False
    ) -> bool:
        """Enter a level. ``raises``: as ``with`` does, where the lock cannot be acquired."""
        entered: Done = [None]
        try:
            again = self._enter_again(entered, ttl, blocking, timeout)
            return again or self._enter_first(entered, ttl, blocking, timeout, raises)
        except BaseException:
            if entered[0] is not None and self._decrement(entered[0], [None]):
                self._forget(entered[0].lock)
            raise

    def _enter_first(
        self, entered: Done, ttl: float | None, blocking: bool, timeout: float, raises: bool
    ) -> bool:
        """Acquire the lock for a first level, unless another call of the owner has done so by then."""
        lock = self._lock(ttl)
        turn = turn_of(self._core, self._owner, lock, blocking, timeout)
        try:
            if turn is not None:
                self._wait_for(turn)
                if not turn.has_come:
                    if raises:
                        raise self._too_late()
                    return False
                if self._enter_again(entered, ttl):
                    return True
                lock._timeout, timeout = turn.left(), -1  # its own timeout, checked already
            granted: bool = bool(lock.__enter__()) if raises else lock.acquire(blocking, timeout)
            if granted:
                self._keep(lock, entered)
            return granted
        except BaseException:
            if entered[0] is None:
                self._forget(lock)
            raise
        finally:
            if turn is not None:
                turn.leave()

    def _wait_for(self, turn: Turn) -> None:
        while seconds := turn.wait():
            self._core.masters.wait_for_turn(turn.entry, seconds)

    def _enter_again(
        self, entered: Done, ttl: float | None, blocking: bool = True, timeout: float = -1
    ) -> bool:
        """Enter another level. Returns False if the caller has none."""
        ownership = self._ownership()
        if ownership is None:
            return False
        ownership.lock._waiting_time(blocking, timeout)  # checks them
        try:
            more = self._extension_needed(ownership, ttl)
            if more is not None:
                ownership.lock.extend(more)
            self._increment(ownership, entered)
            return True
        except LockLost:
            if ownership.depth:
                raise
            return False  # another thread of the owner has just released it

    def _leave_anyway(self, left: Done) -> None:
        """Complete a leave that raised. ``left``: without it if the decrement was not reached."""
        ownership = left[0] or self._ownership()
        if ownership is not None:
            if left[0] is None:
                self._decrement(ownership, left)
            if not ownership.depth:
                self._forget(ownership.lock)

    def _forget(self, lock: Any) -> None:
        """Drop the ownership of an inner lock. Release the lock if an exception prevented that."""
        if lock._lease is not None:
            lock.release()
        self._drop(lock)
