"""FastRedlock and Lock: the client for threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ..algorithm import procedures
from ..algorithm.lock_kind import LockKind
from ..errors import LockAlreadyHeld, LockLost
from ..locks.client_base import BaseClient
from ..locks.config import check_options, refuse_unknown
from ..locks.decorated import check_plain
from ..locks.fair import fair_kind
from ..locks.lock_state import MAX_EXTENSIONS, LockState, plain_lock
from ..locks.many import acquire_many, extend_many, release_many
from ..locks.multilock import multi_lock_kind
from ..locks.owners import ThreadOwner
from ..locks.procedures import extend_lock
from ..locks.rlock import RLock
from ..locks.rwlock import ReadWriteLock, downgrade
from ..locks.semaphore import semaphore_kind
from .driver import drive
from .fast_path import acquire, release
from .renewal import ThreadRenewal, thread_auto_extension

P = ParamSpec("P")
R = TypeVar("R")


class Lock(LockState):
    """A distributed lock on one resource, made by [`FastRedlock.lock`][].

    It belongs to this object, by a random token that only it has: not to a thread. Use one object
    for each holder. All times are in seconds.

    ``with lock:`` acquires it, waiting for the ``timeout`` of [`FastRedlock.lock`][], and releases it at
    its end. The body never runs unlocked: without the lock it raises Contended or QuorumUnavailable, and
    LockAlreadyHeld if this object holds it. At the end it raises LockLost if the lease had ended before,
    unless another exception is on its way.
    """

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost: only for ``auto_extend=True``, AttributeError otherwise.

        Each hold has an event of its own: fetch it while you hold the lock.
        """
        if self._auto_extension is None:
            raise AttributeError("lost: only a lock with auto_extend=True is told of its loss")
        event: threading.Event = self._auto_extension.lost
        return event

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; the signature and the meaning of ``threading.Lock.acquire``.

        ``timeout``: seconds to try, -1 for the lock's own ``timeout`` (if that is None: without end
        while others hold it, and for ``connect_timeout`` while too few masters answer).
        ``blocking=False``: one attempt.

        Returns True when a majority of the masters granted the lease and validity is left (see
        [`Lock.validity`][]), False when others hold it. Raises QuorumUnavailable when masters are down,
        LockAlreadyHeld when this object holds the lock already, ClientClosed, ConfigError for a timeout
        that means nothing. After a failure nothing of ours is left on the masters.

        Source: the Redlock document, steps 1 to 5; how it waits: docs/waiting.md.
        """
        outcome = acquire(self, blocking, timeout, self._core.masters)
        # No call where it was granted: a signal handler may raise in any.
        return self._lease is outcome or self._acquired(outcome)

    def release(self) -> bool:
        """Delete our key on all masters that may have it, and nobody else's.

        Returns False if there was nothing to release: not held, or the lease had ended on a quorum
        before. Never raises for masters: those that cannot be reached now are sent the release when
        they are back.

        Source: the Redlock document, "Correct implementation with a single instance": compare the token,
        then delete; by Valkey's DELIFEQ, Redis' DELEX or a script.
        """
        return release(self, self._core.masters)

    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now (default: the lock's own ttl).

        A lease is never shortened. Where it lasts longer already, no master is asked, unless ``confirm``:
        then what comes back is how long the lease lasts as it was last confirmed.

        Returns the new validity in seconds. Raises LockLost when the lease has ended (it is never
        acquired anew), TooManyExtensions after ``max_extensions``, QuorumUnavailable when too few
        masters answered: then the lock is still held until the deadline that it had; ConfigError for a
        ttl above the client's ``max_ttl``.

        Source: the Redlock document, "Making the algorithm more reliable: extending the lock".
        """
        return drive(extend_lock(self, ttl, confirm), self._core.masters)

    def downgrade(self) -> float:
        """Make a held write lock of [`FastRedlock.rwlock`][] a read lock, with its whole ttl from now.

        No writer gets in between, and readers may come in from now on: from the moment that it starts,
        whatever it raises. Returns the new validity in seconds. Raises as [`extend`][], and ConfigError
        where this is no write lock. There is no way back: two readers that both wanted to write would wait
        for each other for ever. See docs/kinds.md.
        """
        return drive(downgrade(self._core, self), self._core.masters)

    def __enter__(self) -> Lock:
        try:
            self._entered(acquire(self, True, None, self._core.masters))
            return self
        except LockAlreadyHeld:
            raise
        except BaseException:
            release(self, self._core.masters)  # acquired, but interrupted before it was told
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._left(release(self, self._core.masters), failing=error is not None)
        except LockLost:
            raise
        except BaseException:
            release(self, self._core.masters)  # it was interrupted, perhaps before it began
            raise


class FastRedlock(BaseClient):
    """A client for distributed locks over N independent Redis or Valkey masters.

    Making one does no I/O: the masters connect in the background from the first use on. Share one client
    among all threads: they use the same connections, and gain from it. Close it with [`close`][], or use it
    in ``with``. Locks that are held when it is closed stay held until their leases end.

    All times are in seconds. Raises ConfigError for bad settings, before any I/O.

    Args:
        masters: An odd number of masters that share nothing, three or five: URLs (``redis://``,
            ``rediss://``, ``unix://``, ``redis+sentinel://``), or redis.Redis clients to take the settings
            from.
        ttl: The lease that is asked for by default.
        node_timeout: How long one attempt waits for masters: well below ``ttl``, and several round trips.
        connect_timeout: For each connection; and how long the first call waits for a quorum of them.
        socket_timeout: A master that is silent for longer while it owes a reply is connected anew.
        retry: The pauses between attempts, and how many there may be.
        drift_factor: The share of a ttl that clocks may disagree by; 2 ms are added. It is taken off each
            lease on this side.
        key_prefix: Put before each resource, to give the key on the masters.
        decide: "quorum" returns as soon as the outcome is certain, "all" waits for every master.
        max_ttl: The longest lease that anybody in the whole fleet asks for: so long does the restart guard
            keep a master out of votes.
        wait: How to wait for a lock that others hold. "push" has the masters tell when it is free (RESP3
            client tracking), and asks nobody meanwhile; "poll" tries again after random pauses, see
            ``retry``; "auto" is "push" with those masters that can. See docs/waiting.md.
        restart_guard: What to do about masters that may have forgotten locks. "auto" keeps a master that
            this client saw restart, flushed or replaced out of votes for ``max_ttl``; "durable" believes the
            disk of one with ``appendfsync always`` after a restart; "strict" is "auto" and judges at first
            contact, too; "marker" keeps a marker on each master, for all clients together; "off". See
            docs/guarantees.md.
        assume_fresh: With "marker": a master without one at the first contact is new. For the first start
            of a cluster, not for every day.
        allow_split: Whether a master behind Sentinels counts without ``min-replicas-to-write``: a partition
            may then give two holders. See docs/migration.md.
        refill: Whether extensions put the key back on masters that lost it; None: yes, unless the restart
            guard is off. See docs/renewal.md.
        fencing_retention: How long a counter of fencing tokens outlives its last use; ``max_ttl`` at least.
        release_at_exit: Whether what is held when the interpreter ends is released. (Nothing is when the
            process is killed.)
        engine: "native", "python" or "auto". Asked for by name, one that is not built is a ConfigError.
        clock: The lease clock: seconds that also go by while the machine sleeps.
    """

    _renewal: ThreadRenewal | None = None

    def lock(
        self,
        resource: str | bytes,
        ttl: float | None = None,
        *,
        timeout: float | None = None,
        max_extensions: int | None = MAX_EXTENSIONS,
        fencing: bool = False,
        fair: bool = False,
        auto_extend: bool = False,
        on_lost: Callable[[Lock, str], Any] | None = None,
        max_hold: float | None = None,
        **unknown: Any,
    ) -> Lock:
        """A lock on ``resource``, not acquired yet; no I/O. Raises ConfigError.

        Args:
            resource: What is locked: 1 byte to 64 kB; text as UTF-8.
            ttl: The lease, in seconds; None: the client's.
            timeout: How many seconds ``with`` and ``acquire()`` try; None: without end while others hold it.
            max_extensions: How often it may be extended, by hand and by renewal; None: without bound.
            fencing: Whether each grant counts a fencing token, [`Lock.fencing_token`][]. See docs/fencing.md.
            fair: Who came first is served first, across processes. See docs/kinds.md.
            auto_extend: Extend it in the background from a third of the lease on, as long as it is held and
                somebody has this object: ``max_extensions`` times (by default 100, which is 5.5 minutes at
                a ttl of 10 s), or until ``max_hold``. Then, or when it cannot be extended, the lease ends
                and the loss is told: [`Lock.lost`][] is set, [`Lock.check`][] raises. See docs/renewal.md.
            on_lost: With ``auto_extend``: ``on_lost(lock, reason)`` is called once for each hold that is
                lost, in a thread of the client.
            max_hold: With ``auto_extend``: seconds after the grant at which the lease ends at the latest.
        """
        if unknown:
            refuse_unknown("lock()", unknown, FastRedlock.lock)
        auto_extension = thread_auto_extension(self, auto_extend, on_lost, max_hold)
        lock_kind = (
            fair_kind(self.check_key(resource), fencing) if fair else self.lock_kind(resource, fencing)
        )
        kind = self._class_of(Lock)
        return kind(self, resource, lock_kind, ttl, timeout, max_extensions, auto_extension)

    def rwlock(self, resource: str | bytes, ttl: float | None = None, **options: Any) -> ReadWriteLock[Lock]:
        """A read-write lock on ``resource``: ``.read()`` and ``.write()`` make a new lock for each holder.

        Any number of readers hold it together, or one writer alone; a writer that waits goes before readers
        that come later. Options are those of [`lock`][] without ``fencing``. It has nothing to do with
        the plain lock on the same resource. See docs/kinds.md. Raises ConfigError. No I/O.
        """
        make = functools.partial(self._of_kind, resource, ttl, options)
        return ReadWriteLock(self.check_key(resource), self.policy, make)

    def semaphore(
        self, resource: str | bytes, permits: int, ttl: float | None = None, **options: Any
    ) -> Lock:
        """A lock that up to ``permits`` (1 to 1024) holders have at the same time; not acquired yet, no I/O.

        All clients must say the same number: where they differ, the largest one holds. Options are those of
        [`lock`][] without ``fencing``. It has nothing to do with the plain lock on the same resource. See
        docs/kinds.md. Raises ConfigError.
        """
        lock_kind = semaphore_kind(self.check_key(resource), permits, self.policy)
        return self._of_kind(resource, ttl, options, lock_kind)

    def _of_kind(
        self, resource: str | bytes, ttl: float | None, options: dict[str, Any], lock_kind: LockKind
    ) -> Lock:
        return self.lock(resource, ttl, **check_options(options)).with_kind(lock_kind)

    def rlock(
        self,
        resource: str | bytes,
        ttl: float | None = None,
        *,
        min_validity: float = 0.0,
        timeout: float | None = None,
        max_extensions: int | None = MAX_EXTENSIONS,
        fencing: bool = False,
        auto_extend: bool = False,
        on_lost: Callable[[RLock, str], Any] | None = None,
        max_hold: float | None = None,
        **unknown: Any,
    ) -> RLock:
        """A reentrant lock on ``resource``: one object for all threads; whoever holds it may enter it again.

        For others it is a lock on ``resource`` like any. Options are those of [`lock`][];
        ``max_extensions`` and ``max_hold`` are for each hold, from its first level to its last.
        ``min_validity``: seconds of lease that must be left for entering it again; where they are not, it
        is extended. See docs/kinds.md. Raises ConfigError. No I/O.
        """
        if unknown:
            refuse_unknown("rlock()", unknown, FastRedlock.rlock)
        options: dict[str, Any] = {
            "timeout": timeout, "max_extensions": max_extensions, "fencing": fencing,
            "auto_extend": auto_extend, "on_lost": on_lost, "max_hold": max_hold,
        }  # fmt: skip
        return RLock(self, self.lock, resource, ttl, min_validity, options, ThreadOwner())

    def multilock(
        self,
        resources: Sequence[str | bytes],
        ttl: float | None = None,
        *,
        timeout: float | None = None,
        max_extensions: int | None = MAX_EXTENSIONS,
        auto_extend: bool = False,
        on_lost: Callable[[Lock, str], Any] | None = None,
        max_hold: float | None = None,
        **unknown: Any,
    ) -> Lock:
        """One lock on all of ``resources`` (1 to 1,000, no two the same), or on none, in one round trip.

        While it waits it keeps none of them, so sets that overlap never wait for each other in a circle. For
        others each resource is locked as by a lock of its own. It is held as long as every resource has a
        quorum of masters. Options are those of [`lock`][], without ``fencing`` and ``fair``: a token is of
        one resource. See docs/kinds.md. Raises ConfigError. No I/O.
        """
        if unknown:
            refuse_unknown("multilock()", unknown, FastRedlock.multilock)
        auto_extension = thread_auto_extension(self, auto_extend, on_lost, max_hold)
        lock_kind = multi_lock_kind(self, resources)
        kind = self._class_of(Lock)
        return kind(self, tuple(resources), lock_kind, ttl, timeout, max_extensions, auto_extension)

    def acquire(
        self, resource: str | bytes, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> Lock | None:
        """The short way: an acquired lock, or None when others hold it.

        ``ttl``: the lease in seconds. ``blocking`` and ``timeout``, and what is raised: as for
        [`Lock.acquire`][].
        """
        own = type(self).lock is not FastRedlock.lock  # a subclass may make its locks in another way
        lock = self.lock(resource, ttl) if own else plain_lock(self._class_of(Lock), self, resource, ttl)
        return lock if lock.acquire(blocking, timeout) else None

    def acquire_many(self, resources: Sequence[str | bytes], ttl: float | None = None) -> list[Lock | None]:
        """One attempt for each of many resources, in one exchange with the masters for some thousands.

        ``ttl``: the lease of each, in seconds. Returns in the same order a held lock for each resource,
        or None for one that others hold. Raises ConfigError for a resource that is there twice, and
        QuorumUnavailable when masters failed so that one could not be decided: then nothing is held.
        """
        return drive(acquire_many(self, Lock, resources, ttl), self.masters)

    def release_many(self, locks: Sequence[Lock]) -> list[bool]:
        """As [`Lock.release`][] for each of many locks of this client, in one exchange with the masters.

        Returns in the same order what ``release()`` would. Never raises for masters; ConfigError for what
        is no lock of this client, or there twice.
        """
        return drive(release_many(self, locks), self.masters)

    def extend_many(self, locks: Sequence[Lock], ttl: float | None = None) -> list[bool]:
        """Make each lease last ``ttl`` seconds from now (default: the client's), in one exchange.

        Returns True for each lock that was extended. For the others nothing has changed, by
        [`Lock.remaining`][]: that is 0.0 where the lock is lost. They are not held, were extended
        ``max_extensions`` times, or too few masters answered. Raises ConfigError.
        """
        return drive(extend_many(self, locks, ttl), self.masters)

    def synchronized(
        self, resource: str | bytes | Callable[..., str | bytes], ttl: float | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: the function runs only while it holds the lock on ``resource``.

        ``resource`` may be a function of the call's arguments. Options are those of [`lock`][]. Each
        call raises what ``with client.lock(...)`` raises. ConfigError for an async function, a generator
        function and a class, which would run their bodies without the lock.
        """
        if not callable(resource):
            self.lock(resource, ttl, **options)  # bad settings show where they are written

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            check_plain(function)

            @functools.wraps(function)
            def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                name = resource(*args, **kwargs) if callable(resource) else resource
                with self.lock(name, ttl, **options):
                    return function(*args, **kwargs)

            return locked

        return decorate

    def locked(self, resource: str | bytes) -> bool:
        """Whether anybody holds ``resource`` now: asked of the masters, true when a quorum has the key.

        Old by the time that you read it: for people, not for decisions. It looks for the key ``resource``,
        which read-write locks and semaphores do not have. Raises QuorumUnavailable when too few masters
        answer, and ClientClosed.
        """
        self.check_open()
        key = self.check_key(resource)
        if not self.masters.ready:
            self.connect()
        return self.is_locked(key, drive(procedures.exists(self.policy, key), self.masters))

    def connect(self, timeout: float | None = None) -> bool:
        """Wait until a quorum of masters is connected. False if ``timeout`` (seconds) came first.

        Never needed: the first call waits by itself. ``timeout``: ``connect_timeout`` by default. Raises
        ClientClosed.
        """
        self.check_open()
        return self.masters.wait_for_quorum(self.connect_timeout if timeout is None else timeout)

    def close(self) -> None:
        """Close all connections, and end renewal. Locks that are held stay held until their leases end.

        Who waits for a lock gets ClientClosed, and so does every later call, but ``release()``: it returns
        False. May be called more than once.
        """
        self.masters.close()
        if self._renewal is not None:
            self._renewal.end()

    def renewal(self) -> ThreadRenewal:
        """What extends locks in the background: one for each process."""
        with self.masters.mutex:
            if self._renewal is None or self._renewal.generation != self.masters.generation:
                self._renewal = ThreadRenewal(self)
            return self._renewal

    def __enter__(self, /) -> FastRedlock:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


__all__: Sequence[str] = ("FastRedlock", "Lock")
