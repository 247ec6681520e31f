"""Makes every kind of lock, for threads and for asyncio: all that a client does without waiting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from ..algorithm.lock_kind import LockKind
from .auto_extend import AutoExtension
from .client_base import BaseClient
from .config import (
    CLIENT_DEFAULT,
    ClientDefault,
    check_kind_options,
    check_options,
)
from .decorated import lock_of_call
from .leader import LeaderState
from .lock_state import LockState
from .multilock import multi_lock_kind
from .options import IfTaken, KindOptions, ListOf, LockOptions, NoOptions, Resource, ResourceOf
from .owners import Owner
from .rlock import Reentrant
from .rwlock import ReadWriteLock
from .semaphore import semaphore_kind
from .single_run import SINGLE_RUN_REFUSES, SingleRunState

LockT = TypeVar("LockT", bound=LockState)
RLockT = TypeVar("RLockT", bound=Reentrant)
LeaderT = TypeVar("LeaderT", bound=LeaderState)
SingleRunT = TypeVar("SingleRunT", bound=SingleRunState[Any])
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class LockFactory(BaseClient, Generic[LockT, RLockT, LeaderT, SingleRunT]):
    """A client that makes locks of the given classes. Its subclasses add what blocks or awaits.

    [`FastRedlock`][] makes those for threads, [`AsyncFastRedlock`][] those for asyncio.
    """

    _lock_class: type[LockT]
    _rlock_class: type[RLockT]
    _leader_class: type[LeaderT]
    _single_run_class: type[SingleRunT]
    #: Makes the owner of a reentrant lock: the caller.
    _owner_class: Callable[[], Owner]
    #: Makes the auto-extension of a lock, or None, from the options that are about it.
    _auto_extension: Callable[..., AutoExtension | None]
    #: Makes of a function, and of what makes the lock of each call, the function that runs with the lock.
    _run_locked: Callable[..., Any]
    #: The options that the locks of a subclass have besides those of all.
    _added_options: type = NoOptions

    @functools.cached_property
    def _plain(self) -> bool:
        """Whether ``lock`` without options makes a plain lock. A subclass may make other locks."""
        return self._core.plain_locks and type(self).lock is LockFactory.lock

    def lock(
        self,
        resource: Resource,
        ttl: float | None = None,
        *,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        fencing: bool = False,
        fair: bool = False,
        auto_extend: bool | ClientDefault = CLIENT_DEFAULT,
        on_lost: Callable[[LockT, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        token: bytes | None = None,
        **more: Unpack[NoOptions],
    ) -> LockT:
        """A lock on ``resource``, not acquired yet; no I/O.

        Args:
            resource: The name to lock: 1 byte to 64 kB; text as UTF-8.
            ttl: The lease in seconds; None: the client's.
            timeout: Seconds that ``with`` and ``acquire()`` try; None: no end while another holder has it.
                By default the client's ``timeout``.
            max_extensions: The largest number of extensions, explicit and by renewal; None: no limit.
            fencing: Whether each grant gets a [`Lock.fencing_token`][], larger than all before it. See
                docs/fencing.md.
            fair: Callers get the lock in the order of their arrival, across processes. See docs/kinds.md.
            auto_extend: Extend the lease in the background from a third of the lease on, while the lock is
                held and this object is referenced, until ``max_hold``. Then, or when it cannot be extended,
                the lease ends and the loss is reported: [`Lock.lost`][] is set, [`Lock.check`][] raises. By
                default the client's ``auto_extend``. See docs/renewal.md.
            on_lost: With ``auto_extend``: ``on_lost(lock, reason)`` is called once for each hold that is
                lost, in a thread of the client. In asyncio it runs in the event loop, and may be a coroutine
                function.
            max_hold: With ``auto_extend``: renewal ends the lease at the latest this many seconds after the
                grant; None: no bound. By default the client's ``max_hold``, which is an hour. At 80 % of it
                the log has ``lock-held-long``. An explicit extend() may go beyond it.
            release_at_exit: Whether the lock is released when the interpreter exits, also if a daemon thread
                uses it; None: as the client's option says.
            label: The use of the lock, one of a few, such as ``"checkout"``: a label of the histograms of
                waiting and holding times. At most 64 printable characters; a client has at most 100
                labels, and counts further ones as ``other``. None: the client's ``label``. See
                docs/telemetry.md.
            owner: The owner that the token names, for display: at most 64 bytes of UTF-8. "": no owner;
                None: as the client's option says. Another client sees it in [`Contended`][] and
                ``redlock-fast locks``.
            token: The token of a lock that another process holds or detached; see [`Lock.detach`][]. The
                lock is not held until ``extend()``, ``acquire()`` or ``with`` has found the token on a quorum
                of the masters. Until then these raise LockLost if it is gone, and acquire no other lease.
                After that lease has ended, ``acquire()`` and ``with`` are a hold of their own. ``release()``
                deletes the key of the token at once. Its [`Lock.fencing_token`][] is None. Not with ``fair``
                and ``fencing``.

        In asyncio there is one more option of all kinds of locks, ``cancel_on_loss``: on a loss the body of
        ``async with`` is cancelled, unless it is False; ``async with`` then raises LockLost.

        Examples:
            >>> with client.lock("orders:42", timeout=2.0) as lock:
            ...     ship("orders:42")
            >>> async with async_client.lock("orders:42", timeout=2.0) as lock:
            ...     await ship("orders:42")

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        if more:
            check_options(more, LockFactory.lock, self._added_options)
        auto_extension = self._auto_extension(self._core, auto_extend, on_lost, max_hold, **more)
        lock_kind = self._core.lock_kind(resource, fencing, fair)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        lock = self._lock_class(self._core, resource, lock_kind, ttl, *options)
        return lock if token is None else lock._with_token(token)

    def rwlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[KindOptions[LockT]]
    ) -> ReadWriteLock[LockT]:
        """A read-write lock on ``resource``: ``.read()`` and ``.write()`` make a new lock for each holder.

        Any number of readers hold the lock together, or one writer alone. A waiting writer goes before
        readers that arrive later. Options are those of [`lock`][] without ``fencing``, ``fair`` and
        ``token``. It is independent of the plain lock on the same resource. See docs/kinds.md. No I/O.

        Examples:
            >>> with client.rwlock("catalogue", timeout=5.0).read():
            ...     show()
            >>> async with async_client.rwlock("catalogue").write() as lock:
            ...     await change()

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        options = check_kind_options(options, LockFactory.rwlock, KindOptions, self._added_options)
        make = functools.partial(self._of_kind, resource, ttl, options)
        return ReadWriteLock(self._core.check_key(resource), self._core.policy, make)

    def semaphore(
        self,
        resource: Resource,
        permits: int,
        ttl: float | None = None,
        **options: Unpack[KindOptions[LockT]],
    ) -> LockT:
        """A lock that up to ``permits`` (1 to 1024) holders have at the same time; not acquired yet, no I/O.

        All clients must pass the same number; if they differ, the largest number counts. Options are those
        of [`lock`][] without ``fencing``, ``fair`` and ``token``. It is independent of the plain lock on the
        same resource. See docs/kinds.md.

        Examples:
            >>> with client.semaphore("exports", permits=3):
            ...     export()
            >>> async with async_client.semaphore("exports", permits=3):
            ...     await export()

        Raises:
            ConfigError: An invalid name, number of permits, ttl or option.
        """
        options = check_kind_options(options, LockFactory.semaphore, KindOptions, self._added_options)
        lock_kind = semaphore_kind(self._core.check_key(resource), permits, self._core.policy)
        return self._of_kind(resource, ttl, options, lock_kind)

    def _of_kind(
        self, resource: Resource, ttl: float | None, options: KindOptions[LockT], lock_kind: LockKind
    ) -> LockT:
        return self.lock(resource, ttl, **options)._with_kind(lock_kind)

    def rlock(
        self,
        resource: Resource,
        ttl: float | None = None,
        *,
        min_validity: float = 0.0,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        fencing: bool = False,
        auto_extend: bool | ClientDefault = CLIENT_DEFAULT,
        on_lost: Callable[[RLockT, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **more: Unpack[NoOptions],
    ) -> RLockT:
        """A reentrant lock on ``resource``: one object for all threads or tasks; its holder may enter again.

        Other clients see a plain lock on ``resource``. Options are those of [`lock`][] without ``fair`` and
        ``token``; ``max_extensions`` and ``max_hold`` are for each hold, from its first level to its last.
        ``min_validity``: seconds of lease that must be left to enter again; if less is left, the lease is
        extended. See docs/kinds.md. No I/O.

        Examples:
            >>> lock = client.rlock("orders:42")
            >>> with lock, lock:
            ...     ship("orders:42")
            >>> lock = async_client.rlock("orders:42")
            >>> async with lock, lock:
            ...     await ship("orders:42")

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        check_options(more, LockFactory.rlock, self._added_options)
        options: dict[str, Any] = {
            "timeout": timeout, "max_extensions": max_extensions, "fencing": fencing,
            "auto_extend": auto_extend, "on_lost": on_lost, "max_hold": max_hold,
            "release_at_exit": release_at_exit, "label": label, "owner": owner, **more,
        }  # fmt: skip
        return self._rlock_class(
            self._core, self.lock, resource, ttl, min_validity, options, self._owner_class()
        )

    def multilock(
        self,
        resources: ListOf[Resource],
        ttl: float | None = None,
        *,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        auto_extend: bool | ClientDefault = CLIENT_DEFAULT,
        on_lost: Callable[[LockT, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **more: Unpack[NoOptions],
    ) -> LockT:
        """One lock on all of ``resources`` (1 to 1,000, no two the same), or on none, in one round trip.

        A waiting multilock holds none of its resources, so overlapping sets cannot deadlock. Other clients
        see a plain lock on each resource. The multilock is held as long as every resource has a quorum of
        masters. Options are those of [`lock`][] without ``fencing``, ``fair`` and ``token``: a fencing token
        belongs to one resource. See docs/kinds.md. No I/O.

        Examples:
            >>> with client.multilock(["account:1", "account:2"]):
            ...     transfer(1, 2)
            >>> async with async_client.multilock(["account:1", "account:2"]):
            ...     await transfer(1, 2)

        Raises:
            ConfigError: No resource, a duplicate, or an invalid name, ttl or option.
        """
        check_options(more, LockFactory.multilock, self._added_options)
        auto_extension = self._auto_extension(self._core, auto_extend, on_lost, max_hold, **more)
        lock_kind = multi_lock_kind(self._core, resources)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        return self._lock_class(self._core, tuple(resources), lock_kind, ttl, *options)

    def leader(
        self,
        name: Resource,
        ttl: float | None = None,
        *,
        identity: str | None = None,
        on_elected: Callable[[LeaderT], Any] | None = None,
        on_lost: Callable[[LeaderT, str], Any] | None = None,
        notice: float | None = None,
        **more: Unpack[NoOptions],
    ) -> LeaderT:
        """A candidate for the leadership ``name``: of all candidates in all processes at most one leads.

        The leadership is the plain lock ``name``, with a fencing token, renewed without a bound. The
        candidate campaigns from ``with`` or [`Leader.start`][] on, and campaigns again after a loss. No I/O.

        Args:
            name: The name of the leadership: 1 byte to 64 kB; text as UTF-8.
            ttl: The lease in seconds; None: the client's. After the death of a leader another is elected
                when the lease has ended.
            identity: The name of this candidate, the owner of its lock: at most 64 bytes of UTF-8. None: the
                host and the process.
            on_elected: ``on_elected(leader)`` is called after each election, in a thread of its own. It may
                do the work of the leader, as long as ``leader.is_leader``. If it raises, the exception is
                logged as ``leader-error``, and the candidate steps down.
            on_lost: ``on_lost(leader, reason)`` is called once after each election, when the leadership has
                ended, in the thread of the campaign. The lock is released when it returns, and is free at
                the end of its lease at the latest.
            notice: The leadership ends this many seconds before another candidate can be elected, if the
                lease cannot be extended; at most half of the ttl, or less if ``drift_factor`` is above 0.1.
                None: a fifth of the ttl.

        In asyncio ``on_elected`` and ``on_lost`` run in the event loop and may be coroutine functions. A
        coroutine of ``on_elected`` is cancelled when the leadership ends.

        Examples:
            >>> with client.leader("scheduler") as leader:
            ...     while leader.wait():
            ...         while leader.is_leader:
            ...             run_next_job(fence=leader.fencing_token)
            >>> async with async_client.leader("scheduler") as leader:
            ...     while await leader.wait():
            ...         while leader.is_leader:
            ...             await run_next_job(fence=leader.fencing_token)

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        check_options(more, LockFactory.leader)
        return self._leader_class(self._core, self.lock, name, ttl, notice, identity, on_elected, on_lost)

    def synchronized(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        **options: Unpack[LockOptions[LockT]],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: the function runs only while it holds the lock on ``resource``.

        ``resource`` may be a function of the call's arguments. Options are those of [`lock`][].

        Examples:
            >>> @client.synchronized("nightly-report", timeout=0)
            ... def report() -> None: ...
            >>> @async_client.synchronized("nightly-report", timeout=0)
            ... async def report() -> None: ...

        Raises:
            ConfigError: An invalid name or option; or an async function, a generator function or a class,
                because their bodies would run without the lock. In asyncio: a function that is not async.
            Contended: A call of the function: another holder has the lock.
            QuorumUnavailable: A call of the function: too few masters can be reached.
            LockLost: A call of the function: the lease ended before the function returned.
            WrongLoop: In asyncio: a call of the function in another event loop than the client's.
        """
        check_options(options, LockFactory.synchronized, LockOptions, self._added_options)
        return functools.partial(self._run_locked, lock_of_call(self.lock, resource, ttl, options))

    def single_run(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        *,
        if_taken: IfTaken = "skip",
        once_per: float | None = None,
        **options: Unpack[LockOptions[LockT]],
    ) -> SingleRunT:
        """A job that runs once in the fleet: a decorator, and a context manager; no I/O.

        The lock on ``resource`` is extended in the background while the job runs, unless ``auto_extend`` is
        False. A job that raises releases the lock, so another process may run it again. If the process dies,
        the lock is free when its lease ends.

        Args:
            resource: The name of the job, or for a decorator a function of the call's arguments.
            ttl: The lease in seconds; None: the client's.
            if_taken: While another process runs the job. "skip": the job does not run; a decorated function
                returns None, ``with`` gives None. "wait": the job runs afterwards; ``timeout`` bounds the
                wait. "raise": Contended. An attempt whose votes were split among several processes is
                repeated, because none of them has the lock. If that goes on for ten seconds: Contended, with
                "skip" too.
            once_per: After a success the lock stays until this many seconds after the grant, also if the
                client, the task or the process ends before. At most the client's ``max_ttl``; the lease is
                at most this long. If too few masters confirm this, the call tries again while the lease
                lasts, and then the log has ``once-per-shortened``. If the job ends shortly before that time,
                the lock may stay up to a lease longer. Choose less than the period of a schedule, for
                example 50 s for a job of each minute.
            options: Those of [`lock`][] without ``fair`` and ``token``; ``timeout`` only with "wait".

        Examples:
            >>> @client.single_run("cleanup", once_per=50)
            ... def clean_up() -> None: ...
            >>> @async_client.single_run("cleanup", once_per=50)
            ... async def clean_up() -> None: ...
            >>> with client.single_run("report") as lock:
            ...     if lock is not None:
            ...         report()

        Raises:
            ConfigError: An invalid name or option; or a function whose body runs after the call.
            Contended: The run, with "raise", or with "wait" after ``timeout``.
            QuorumUnavailable: The run: too few masters can be reached.
            LockLost: The run: the lease ended before the job did.
            LockAlreadyHeld: ``with`` of an object that is entered already.
        """
        known = LockOptions, self._added_options
        check_options(options, LockFactory.single_run, *known, without=SINGLE_RUN_REFUSES)
        return self._single_run_class(self.lock, resource, ttl, if_taken, once_per, {**options})
