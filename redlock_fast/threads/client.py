"""FastRedlock: the client for threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from ..algorithm import procedures
from ..algorithm.batch import UnfinishedBatch
from ..algorithm.lock_kind import LockKind
from ..algorithm.operation import Procedure
from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..locks.config import CLIENT_DEFAULT, ClientDefault, check_kind_options, check_options, refuse_unknown
from ..locks.decorated import check_plain
from ..locks.failures import is_locked
from ..locks.inspection import Holder, break_lock, inspect_lock, list_holders
from ..locks.lock_state import plain_lock
from ..locks.many import AcquireMany, ReleaseMany, leases_of, new_extend_many, not_released
from ..locks.multilock import multi_lock_kind
from ..locks.options import (
    IfTaken,
    KindOptions,
    ListOf,
    LockOptions,
    Master,
    NoOptions,
    Resource,
    ResourceOf,
)
from ..locks.owners import ThreadOwner
from ..locks.rlock import RLock
from ..locks.rwlock import ReadWriteLock
from ..locks.semaphore import semaphore_kind
from ..locks.single_run import SINGLE_RUN_REFUSES
from .core import ThreadCore
from .leader import Leader
from .lock import Lock
from .operations import clean_up, run
from .renewal import thread_auto_extension
from .single_run import SingleRun

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class FastRedlock(BaseClient):
    """A client for distributed locks over N independent Redis or Valkey masters.

    The constructor does no I/O: masters are connected in the background from the first use on. Share one
    client among all threads: they use the same connections, and their requests leave together. Close the
    client with [`close`][], or use it in ``with``. Locks that are held when the client is closed stay held
    until their leases end.

    Examples:
        >>> client = FastRedlock(["redis://a", "redis://b", "redis://c"])
        >>> with client.lock("orders:42", timeout=5.0):
        ...     ship("orders:42")

    All times are in seconds. The last four settings are rarely needed. Raises ConfigError for bad settings,
    before any I/O.

    Args:
        masters: An odd number of independent masters, three or five. Each is a URL (``redis://``,
            ``rediss://``, ``unix://``, ``redis+sentinel://``), or a client of redis-py or valkey-py for
            threads, of which only the settings are used.
        ttl: The default lease.
        node_timeout: How long one attempt waits for masters: several round trips, and much less than ``ttl``.
        connect_timeout: Limit for one connection, and for the first call's wait for a quorum of connections.
            At most 1,000,000.
        socket_timeout: A master that owes a reply and is silent for longer is connected again.
        retry: The pauses between attempts, and the largest number of attempts.
        drift_factor: The share of a ttl by which clocks may disagree. This share and 2 ms are subtracted from
            each lease on the client's side.
        key_prefix: Prefix of each resource's key on the masters.
        max_ttl: The longest lease that any client of these masters requests; at most ``fencing_retention``.
            The restart guard keeps a master out of votes for this time.
        wait: How to wait for a lock that another holder has. "push": the masters report when it is free
            (RESP3 client tracking), without requests in between. "poll": try again after random pauses, see
            ``retry``. "auto": "push" on the masters that support it. See docs/waiting.md.
        restart_guard: What to do about masters that may have forgotten locks. "auto" keeps a master out of
            votes for ``max_ttl`` after this client saw it restarted, flushed or replaced. "durable" trusts
            the disk of a restarted master with ``appendfsync always``. "strict" is "auto", and also judges a
            master at first contact: for processes that live shortly. "marker" keeps a marker on each master,
            shared by all clients. "off". See docs/guarantees.md.
        check_masters: Whether masters vote only for the list of masters and the ``max_ttl`` that they have
            recorded under the ``key_prefix``. If a majority has recorded another list, the client raises
            [`ConfigError`][]. "auto": yes, and a new list may be used while some of its masters were never
            reached. "strict": yes, and no master of a new list votes before all were reached once. "off":
            nothing is compared or recorded, for masters that are shared with other libraries. See
            docs/changing-masters.md.
        replicas: A grant or an extension of a master counts only when so many of its replicas have it; 0 to
            100. A URL overrides it for its master: ``redis://host/0?replicas=1``. For one master with
            replicas, see docs/replicas.md.
        refill: Whether extensions put the key back on masters that lost it. None: yes, unless the restart
            guard is off. See docs/renewal.md.
        fencing_retention: How long a fencing counter outlives its last use; at least ``max_ttl``, because it
            must outlive every lease, and at most ten years.
        release_at_exit: Whether held locks are released when the interpreter exits, but for those that daemon
            threads still use: these threads go on until it is gone. (A killed process releases no locks.)
        timeout: How long ``with`` and ``acquire()`` try by default; None: no end while another holder has the
            lock. A lock's own option overrides it, also with None.
        auto_extend: Whether locks are extended in the background by default; see [`lock`][]. A lock's own
            option overrides it.
        max_hold: How long renewal may hold a lock by default; None: no bound. A lock's own option overrides
            it, also with None.
        label: The label of locks without one of their own in the histograms of waiting and holding times; at
            most 64 printable characters. See [`lock`][].
        owner: The owner that tokens name, for display: at most 64 bytes of UTF-8. None: ``host:pid:thread``
            (in asyncio ``host:pid:task``), of the thread or task that acquires. "": no owner, and the client
            does not ask masters for the owner of a lock that is [`Contended`][]. A lock's own option
            overrides it. See docs/recipes/owners.md.
        joint_with: A second list of masters, while the masters of a fleet change: every grant, extension and
            fencing token then needs a quorum of ``masters`` and a quorum of this list. See
            docs/changing-masters.md.
        engine: "native", "python", or "auto": native where it is built, python beside gevent. "native" is a
            ConfigError where it is not built, and beside gevent. See docs/runtimes.md.
        decide: Rarely needed. "quorum": a call returns as soon as its outcome is certain. "all": it waits for
            the reply of every master, for at most ``node_timeout``; for measurements.
        clock: Rarely needed. The lease clock: a function that returns seconds, which also count while the
            machine sleeps. A test can pass its own, see docs/recipes/fault-tests.md.
        allow_split: Rarely needed. True: a master behind Sentinels votes also without
            ``min-replicas-to-write``. Then a partition may lead to two holders. See docs/guarantees.md.
        assume_fresh: Rarely needed. True: a master that this client meets for the first time is believed to
            be new, so that it need not wait for ``max_ttl`` with the guards "strict" and "marker". Only for
            the first start of a fleet of masters, when there is nothing that they can have forgotten.
    """

    _core: ThreadCore
    _core_class = ThreadCore

    @functools.cached_property
    def _plain(self) -> bool:
        """Whether ``lock`` without options makes a plain lock. A subclass may make other locks."""
        return self._core.plain_locks and type(self).lock is FastRedlock.lock

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
        on_lost: Callable[[Lock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        token: bytes | None = None,
        **unknown: Unpack[NoOptions],
    ) -> Lock:
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
                lost, in a thread of the client.
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

        Examples:
            >>> with client.lock("orders:42", timeout=2.0) as lock:
            ...     ship("orders:42")

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        if unknown:
            refuse_unknown("lock()", unknown, FastRedlock.lock)
        auto_extension = thread_auto_extension(self._core, auto_extend, on_lost, max_hold)
        lock_kind = self._core.lock_kind(resource, fencing, fair)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        lock = Lock(self._core, resource, lock_kind, ttl, *options)
        return lock if token is None else lock._with_token(token)

    def rwlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[KindOptions[Lock]]
    ) -> ReadWriteLock[Lock]:
        """A read-write lock on ``resource``: ``.read()`` and ``.write()`` make a new lock for each holder.

        Any number of readers hold the lock together, or one writer alone. A waiting writer goes before
        readers that arrive later. Options are those of [`lock`][] without ``fencing``, ``fair`` and
        ``token``. It is independent of the plain lock on the same resource. See docs/kinds.md. No I/O.

        Examples:
            >>> with client.rwlock("catalogue", timeout=5.0).read():
            ...     show()

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        options = check_kind_options(options, FastRedlock.rwlock, KindOptions)
        make = functools.partial(self._of_kind, resource, ttl, options)
        return ReadWriteLock(self._core.check_key(resource), self._core.policy, make)

    def semaphore(
        self, resource: Resource, permits: int, ttl: float | None = None, **options: Unpack[KindOptions[Lock]]
    ) -> Lock:
        """A lock that up to ``permits`` (1 to 1024) holders have at the same time; not acquired yet, no I/O.

        All clients must pass the same number; if they differ, the largest number counts. Options are those
        of [`lock`][] without ``fencing``, ``fair`` and ``token``. It is independent of the plain lock on the
        same resource. See docs/kinds.md.

        Examples:
            >>> with client.semaphore("exports", permits=3):
            ...     export()

        Raises:
            ConfigError: An invalid name, number of permits, ttl or option.
        """
        options = check_kind_options(options, FastRedlock.semaphore, KindOptions)
        lock_kind = semaphore_kind(self._core.check_key(resource), permits, self._core.policy)
        return self._of_kind(resource, ttl, options, lock_kind)

    def _of_kind(
        self, resource: Resource, ttl: float | None, options: KindOptions[Lock], lock_kind: LockKind
    ) -> Lock:
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
        on_lost: Callable[[RLock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **unknown: Unpack[NoOptions],
    ) -> RLock:
        """A reentrant lock on ``resource``: one object for all threads; its holder may enter it again.

        Other clients see a plain lock on ``resource``. Options are those of [`lock`][] without ``fair`` and
        ``token``; ``max_extensions`` and ``max_hold`` are for each hold, from its first level to its last.
        ``min_validity``: seconds of lease that must be left to enter again; if less is left, the lease is
        extended. See docs/kinds.md. No I/O.

        Examples:
            >>> lock = client.rlock("orders:42")
            >>> with lock, lock:
            ...     ship("orders:42")

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        refuse_unknown("rlock()", unknown, FastRedlock.rlock)
        options: dict[str, Any] = {
            "timeout": timeout, "max_extensions": max_extensions, "fencing": fencing,
            "auto_extend": auto_extend, "on_lost": on_lost, "max_hold": max_hold,
            "release_at_exit": release_at_exit, "label": label, "owner": owner,
        }  # fmt: skip
        return RLock(self._core, self.lock, resource, ttl, min_validity, options, ThreadOwner())

    def multilock(
        self,
        resources: ListOf[Resource],
        ttl: float | None = None,
        *,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        auto_extend: bool | ClientDefault = CLIENT_DEFAULT,
        on_lost: Callable[[Lock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **unknown: Unpack[NoOptions],
    ) -> Lock:
        """One lock on all of ``resources`` (1 to 1,000, no two the same), or on none, in one round trip.

        A waiting multilock holds none of its resources, so overlapping sets cannot deadlock. Other clients
        see a plain lock on each resource. The multilock is held as long as every resource has a quorum of
        masters. Options are those of [`lock`][] without ``fencing``, ``fair`` and ``token``: a fencing token
        belongs to one resource. See docs/kinds.md. No I/O.

        Examples:
            >>> with client.multilock(["account:1", "account:2"]):
            ...     transfer(1, 2)

        Raises:
            ConfigError: No resource, a duplicate, or an invalid name, ttl or option.
        """
        refuse_unknown("multilock()", unknown, FastRedlock.multilock)
        auto_extension = thread_auto_extension(self._core, auto_extend, on_lost, max_hold)
        lock_kind = multi_lock_kind(self._core, resources)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        return Lock(self._core, tuple(resources), lock_kind, ttl, *options)

    def leader(
        self,
        name: Resource,
        ttl: float | None = None,
        *,
        identity: str | None = None,
        on_elected: Callable[[Leader], Any] | None = None,
        on_lost: Callable[[Leader, str], Any] | None = None,
        notice: float | None = None,
        **unknown: Unpack[NoOptions],
    ) -> Leader:
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

        Examples:
            >>> with client.leader("scheduler") as leader:
            ...     while leader.wait():
            ...         while leader.is_leader:
            ...             run_next_job(fence=leader.fencing_token)

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        refuse_unknown("leader()", unknown, FastRedlock.leader)
        return Leader(self._core, self.lock, name, ttl, notice, identity, on_elected, on_lost)

    def acquire(
        self, resource: Resource, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> Lock | None:
        """An acquired lock, or None if another holder has it: ``lock()`` and ``acquire()`` in one call.

        ``ttl``: the lease in seconds. ``blocking`` and ``timeout``: as for [`Lock.acquire`][].

        Examples:
            >>> lock = client.acquire("orders:42", blocking=False)

        Raises:
            QuorumUnavailable: Too few masters can be reached.
            ConfigError: An invalid name, ttl or timeout.
            ClientClosed: The client is closed.
        """
        plain = self._plain
        lock = plain_lock(Lock, self._core, resource, ttl) if plain else self.lock(resource, ttl)
        return lock if lock.acquire(blocking, timeout) else None

    def acquire_many(self, resources: ListOf[Resource], ttl: float | None = None) -> list[Lock | None]:
        """One attempt for each of many resources. One exchange with the masters carries some thousands.

        ``ttl``: the lease of each lock in seconds. Returns, in the same order, a held lock for each
        resource, or None if another holder has it.

        Examples:
            >>> locks = client.acquire_many(["orders:1", "orders:2"])

        Raises:
            QuorumUnavailable: Too few masters answered to decide all resources. Then no lock is held.
            ConfigError: A duplicate resource, an invalid name or ttl.
            ClientClosed: The client is closed.
        """
        return self._acquire_part(resources, ttl)

    def _acquire_part(
        self, resources: ListOf[Resource], ttl: float | None, part: UnfinishedBatch | None = None
    ) -> list[Lock | None]:
        """As ``acquire_many``, perhaps as a part of the call of a sharded client."""
        operation = AcquireMany(self._core, Lock, self.lock, resources, ttl, part)
        try:
            locks: list[Lock | None] = run(operation, self._core.masters)
            return locks
        except BaseException as error:
            if operation.outcome is not None:  # a signal handler raised after it had ended
                clean_up(operation, self._core.masters, error)
            raise

    def release_many(self, locks: Sequence[Lock]) -> list[bool]:
        """Release many locks of this client in one exchange with the masters; see [`Lock.release`][].

        Returns the results of ``release()`` in the same order. Never raises because of masters.

        Examples:
            >>> client.release_many([lock for lock in locks if lock])

        Raises:
            ConfigError: A duplicate, or an object that is no lock of this client.
        """
        held = None
        try:
            held = leases_of(self._core, locks)
            released: list[bool] = run(ReleaseMany(self._core, locks, held), self._core.masters)
            return released
        except ConfigError:
            raise
        except BaseException:  # a signal handler raised, perhaps before it began
            left = None if held is None else not_released(held)
            run(ReleaseMany(self._core, locks, left), self._core.masters)
            raise

    def extend_many(self, locks: Sequence[Lock], ttl: float | None = None) -> list[bool]:
        """Make each lease last ``ttl`` seconds from now (default: the client's), in one exchange.

        Returns True for each lock that was extended. False: the lock is not held, was extended
        ``max_extensions`` times, or too few masters answered. Its lease is unchanged: [`Lock.remaining`][]
        is 0.0 if the lock is lost.

        Examples:
            >>> client.extend_many([lock for lock in locks if lock], ttl=30.0)

        Raises:
            ConfigError: A duplicate, an object that is no lock of this client, or an invalid ttl.
            ClientClosed: The client is closed.
        """
        extended: list[bool] = run(new_extend_many(self._core, locks, ttl), self._core.masters)
        return extended

    def synchronized(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        **options: Unpack[LockOptions[Lock]],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: the function runs only while it holds the lock on ``resource``.

        ``resource`` may be a function of the call's arguments. Options are those of [`lock`][].

        Examples:
            >>> @client.synchronized("nightly-report", timeout=0)
            ... def report() -> None: ...

        Raises:
            ConfigError: An invalid name or option; or an async function, a generator function or a class,
                because their bodies would run without the lock.
            Contended: A call of the function: another holder has the lock.
            QuorumUnavailable: A call of the function: too few masters can be reached.
            LockLost: A call of the function: the lease ended before the function returned.
        """
        check_options(options, FastRedlock.synchronized, LockOptions)
        named: Any = resource  # no type relates its parameters to those of the function
        # Raises ConfigError at the decorator, not at the first call.
        self.lock("name" if callable(resource) else resource, ttl, **options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            check_plain(function, "synchronized")

            @functools.wraps(function)
            def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                name = named(*args, **kwargs) if callable(resource) else resource
                with self.lock(name, ttl, **options):
                    return function(*args, **kwargs)

            return locked

        return decorate

    def single_run(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        *,
        if_taken: IfTaken = "skip",
        once_per: float | None = None,
        **options: Unpack[LockOptions[Lock]],
    ) -> SingleRun:
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
        check_options(options, FastRedlock.single_run, LockOptions, without=SINGLE_RUN_REFUSES)
        return SingleRun(self.lock, resource, ttl, if_taken, once_per, {**options})

    def locked(self, resource: Resource) -> bool:
        """Ask the masters whether ``resource`` is locked now. True: a quorum of either list has the key.

        The answer may be outdated when it arrives: use it for display, not for decisions. Read-write locks
        and semaphores do not use the key ``resource`` and are not seen.

        Examples:
            >>> state = "locked" if client.locked("orders:42") else "free"

        Raises:
            QuorumUnavailable: Too few masters answer.
            ConfigError: An invalid name.
            ClientClosed: The client is closed.
        """
        self._core.check_open()
        key = self._core.check_key(resource)
        if not self._core.client_state.ready:
            self.connect()
        votes = run(Procedure(procedures.exists(self._core.policy, key)), self._core.masters)
        return is_locked(self._core, resource, votes)

    def holders(self, prefix: Resource = "", *, limit: int = 1000, timeout: float = 10.0) -> list[Holder]:
        """Ask the masters which locks are held whose names begin with ``prefix``, and by whom.

        Locks of all kinds, of all clients with this ``key_prefix``, and of other libraries on the same
        masters. Without callers that wait: see [`inspect`][]. The list may be outdated when it is returned:
        use it for display, not for decisions. It takes several round trips over connections of its own, with
        the user of this client, who then needs the permissions for GETRANGE and SCAN.

        Args:
            prefix: The beginning of the names; "": all locks.
            limit: The largest number of keys of locks, from 1 to 100,000.
            timeout: Seconds for each question to the masters.

        Examples:
            >>> for holder in client.holders("orders:"):
            ...     print(holder.name, holder.owner, f"{holder.remaining:.1f} s")

        Raises:
            QuorumUnavailable: Too few masters answer, or their user may not list keys.
            ConfigError: An invalid argument; or there are more locks than ``limit``.
            ClientClosed: The client is closed.
        """
        return list_holders(self._core, prefix, limit, timeout)

    def inspect(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Ask the masters who holds the lock ``resource`` of any kind, and who waits for it with a place.

        Those that a quorum has come first in each kind; an empty list: nobody. For display, as
        [`holders`][]; the user of this client needs the permission for GETRANGE. ``timeout``: seconds for
        each question to the masters.

        Examples:
            >>> [holder.owner for holder in client.inspect("orders:42") if holder.held]

        Raises:
            QuorumUnavailable: Too few masters answer.
            ConfigError: An invalid name or timeout.
            ClientClosed: The client is closed.
        """
        return inspect_lock(self._core, resource, timeout)

    def break_lock(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Take the lock ``resource``, of any kind, from all its holders, and delete the places of who waits.

        **The holder gets no notice.** It believes in its lock until its next extension, at the latest until
        its lease ends: ``remaining`` of each [`Holder`][redlock_fast.Holder] says when. Until then there may
        be two holders, and only fencing tokens protect the resource. Exactly the tokens that were found are
        deleted: one that is new since then stays. ``timeout``: seconds for each question to the masters.

        Returns what was found and broken; an empty list: nothing was held.

        Examples:
            >>> broken = client.break_lock("nightly-report")
            >>> time.sleep(max((holder.remaining for holder in broken), default=0.0))

        Raises:
            QuorumUnavailable: Too few masters answered: the lock may be broken on a minority.
            ConfigError: An invalid name or timeout.
            ClientClosed: The client is closed.
        """
        return break_lock(self._core, resource, timeout)

    def connect(self, timeout: float | None = None) -> bool:
        """Wait until a quorum of masters is connected. False: ``timeout`` seconds passed before.

        Optional: the first call waits by itself. ``timeout``: ``connect_timeout`` by default.

        Examples:
            >>> if not client.connect(timeout=5.0):
            ...     sys.exit("no quorum of masters")

        Raises:
            ConfigError: An invalid timeout; or a majority of the masters has another list of masters
                (``check_masters``), or fewer servers than a quorum are distinct.
            ClientClosed: The client is closed.
        """
        self._core.check_open()
        return self._core.masters.wait_for_quorum(self._core.connect_seconds(timeout))

    def reconfigure(
        self,
        masters: ListOf[Master],
        *,
        joint_with: ListOf[Master] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change the masters of this client, without losing the locks that it holds.

        Connects the masters that are new, and waits until a quorum of each list votes. Attempts that begin
        from then on need a quorum of ``masters``, and of ``joint_with`` if it is given. Locks, waiting
        callers and renewal go on. A master that is in neither list stays connected until the locks that asked
        it are released. After an exception nothing has changed.

        A safe change has two steps, each on every client before the next: see docs/changing-masters.md.

        Args:
            masters: The masters from now on, as for the client itself.
            joint_with: A second list, a quorum of which must agree too: the one that other clients still
                use.
            timeout: Seconds to wait for the quorums; None: the client's ``connect_timeout``.

        Examples:
            >>> client.reconfigure(new, joint_with=old)    # first on every client
            >>> client.reconfigure(new)                    # then on every client, 4 * max_ttl later

        Raises:
            ConfigError: An invalid list; or neither list is one that this client has now, because two clients
                without a common list could hold one lock; or another change of this client is under way.
            QuorumUnavailable: No quorum of a list voted in time.
            ClientClosed: The client is closed; or this is a child of fork, and its parent continues the call.
        """
        seconds = self._core.connect_seconds(timeout)
        change = self._core.change_of(masters, joint_with)
        try:
            change.begin()
            self._core.masters.wait_for(change.conditions(seconds))
            change.finish()
        finally:
            change.end()

    def close(self) -> None:
        """Close all connections and end renewal. Held locks stay held until their leases end.

        Calls that wait, and later calls, raise ClientClosed; only a release returns False. Never raises.
        close() may be called more than once.

        Examples:
            >>> with FastRedlock(urls) as client:    # closes the client at the end
            ...     client.acquire("orders:42")
        """
        self._core.close()

    def __enter__(self, /) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
