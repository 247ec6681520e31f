"""Lock: a distributed lock on one resource, for threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, Self, TypeVar

from ..algorithm.lease import Lease
from ..algorithm.operation import Procedure
from ..locks.bodies import Body, remove_bodies_of
from ..locks.decorated import check_plain
from ..locks.dev_mode import DEV_MODE, warn_of_held
from ..locks.lock_state import LockState
from ..locks.loss import loss_event
from ..locks.procedures import entered, new_extend, validity_of
from ..locks.rwlock import new_downgrade
from .operations import acquire, exit_lock, release, run
from .renewal import LossEvent

P = ParamSpec("P")
R = TypeVar("R")


class Lock(LockState):
    """A distributed lock on one resource, made by [`FastRedlock.lock`][].

    The object, not a thread, holds the lock: on the masters, a random token stands for it. Use one object for
    each holder. All times are in seconds.

    Examples:
        >>> with client.lock("orders:42", ttl=10.0, timeout=2.0) as lock:
        ...     ship("orders:42")
        ...     lock.check()  # raises LockLost if the lease has ended

    ``with lock:`` acquires the lock, waiting for the ``timeout`` of [`FastRedlock.lock`][], and releases it
    at the end. The body never runs unlocked: without the lock, ``with`` raises Contended, QuorumUnavailable,
    or LockAlreadyHeld if this object holds the lock already. At the end ``with`` raises LockLost if the lease
    ended before the body did, unless the body raised an exception.
    """

    __slots__ = ()
    if DEV_MODE:
        __del__ = warn_of_held

    @property
    def lost(self) -> LossEvent:
        """Whether the lock is lost, and an event that is set then: ``lock.lost.wait(5)`` waits for it.

        Each hold has its own event: read this property while you hold the lock. The thread that renews sets
        it. [`Lock.check`][] is stricter: it looks at the clock itself.

        Examples:
            >>> while not lock.lost:
            ...     work_a_little()

        Raises:
            AttributeError: Without ``auto_extend=True``.
        """
        event: LossEvent = loss_event(self)
        return event

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; signature and meaning are those of ``threading.Lock.acquire``.

        ``timeout``: seconds to try; -1 means the lock's own ``timeout``. If that is None, acquire() waits
        without end while another holder has the lock, and ``connect_timeout`` seconds while too few masters
        answer.
        ``blocking=False``: one attempt.

        Returns True if a majority of the masters granted the lease and validity is left (see
        [`Lock.validity`][]), False if another holder has the lock. After a failure no key of this attempt
        is left on the masters.

        Source: the Redlock document, steps 1 to 5; waiting: docs/waiting.md.

        Examples:
            >>> lock = client.lock("orders:42")
            >>> if lock.acquire(timeout=2.0):
            ...     try:
            ...         ship("orders:42")
            ...     finally:
            ...         lock.release()

        Raises:
            QuorumUnavailable: Too few masters can be reached.
            LockLost: With the ``token`` of another process: a quorum does not have it.
            LockAlreadyHeld: This object holds the lock already, or is acquiring it.
            ConfigError: An invalid timeout, a ``blocking`` that is no bool, as in ``acquire(0.5)``, a timeout
                with ``blocking=False``, or masters that cannot form a quorum.
            ClientClosed: The client is closed.
        """
        body = Body()
        try:
            outcome = acquire(self, blocking, timeout, self._core.masters, body)
            # No call after a grant: a signal handler may raise in a call.
            return self._lease is outcome or self._acquired(outcome)
        except BaseException:
            self._undo(body)
            raise

    def _undo(self, body: Body) -> None:
        """Release what a call was granted before a signal handler raised in it, and no lease of another."""
        if body.lease is not None:
            release(self, self._core.masters, body.lease)
            remove_bodies_of(self._bodies or [], body.lease)

    def release(self) -> bool:
        """Delete the key on all masters that may have it, if it still has this object's token.

        Returns True if a quorum still had the lease, False if the lock was not held or the lease had ended
        before. Never raises because of masters: a master that cannot be reached gets the release after it is
        connected again.

        Source: the Redlock document, "Correct implementation with a single instance": compare the token,
        then delete; by Valkey's DELIFEQ, Redis' DELEX or a script.

        Examples:
            >>> if not lock.release():
            ...     log.warning("the lease ended before the release")
        """
        return release(self, self._core.masters)

    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now (default: the lock's own ttl).

        A lease is never shortened. If the lease already lasts longer, no request is sent, unless ``confirm``
        is True: then the masters confirm the lease, and the result is the rest of it as last confirmed.

        Returns the new validity in seconds. Each call is a decision of the caller, so only
        ``max_extensions`` bounds their number, where it is given.

        Source: the Redlock document, "Making the algorithm more reliable: extending the lock".

        Examples:
            >>> validity = lock.extend(30.0)

        Raises:
            LockLost: The lease has ended; extend() never acquires again.
            TooManyExtensions: The lock was extended ``max_extensions`` times.
            QuorumUnavailable: Too few masters answered. The lock is held until its previous deadline.
            ConfigError: A ttl above the client's ``max_ttl``.
            ClientClosed: The client is closed.
        """
        return validity_of(run(new_extend(self, ttl, confirm), self._core.masters))

    def downgrade(self) -> float:
        """Turn a held write lock of [`FastRedlock.rwlock`][] into a read lock with its whole ttl from now.

        No writer gets the lock in between. Other readers may enter from the start of this call on, even if
        it raises. Returns the new validity in seconds. A read lock cannot become a write lock: two readers
        that both want to write would wait for each other without end. See docs/kinds.md.

        Examples:
            >>> with client.rwlock("config").write() as lock:
            ...     change()
            ...     lock.downgrade()

        Raises:
            LockLost: The lease has ended.
            QuorumUnavailable: Too few masters answered. It is a read lock until its previous deadline.
            ConfigError: This is not a write lock.
            ClientClosed: The client is closed.
        """
        return validity_of(run(new_downgrade(self._core, self), self._core.masters))

    def __enter__(self) -> Self:
        body = Body(threading.get_ident())
        try:
            outcome = acquire(self, True, None, self._core.masters, body)
            if outcome is not self._lease:
                run(Procedure(entered(self, outcome)), self._core.masters)
            return self
        except BaseException:
            self._undo(body)
            raise

    __exit__ = exit_lock

    def _exit(self, error: BaseException | None) -> None:
        lease = self._lease
        try:
            body = self._end_body(threading.get_ident())
            if self._in_another_body(lease):
                lease = None
            alive = lease is not None and release(self, self._core.masters, lease)
        except BaseException:  # a signal handler raised, perhaps before the release began
            self._drop(lease)
            raise
        self._left(body, alive, failing=error is not None)

    def _drop(self, lease: Lease | None) -> None:
        """Release the lease of a body that a signal handler ended, unless it is that of another body."""
        if lease is not None and not self._in_another_body(lease, threading.get_ident()):
            release(self, self._core.masters, lease)
            remove_bodies_of(self._bodies or [], lease)


def run_locked(lock_of: Callable[..., Lock], function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which runs only while it holds the lock that ``lock_of`` makes of its arguments."""
    check_plain(function, "synchronized")

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock_of(*args, **kwargs):
            return function(*args, **kwargs)

    return locked
