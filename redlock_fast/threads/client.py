"""FastRedlock: the client for threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ..algorithm.batch import UnfinishedBatch
from ..errors import ConfigError
from ..locks.factory import LockFactory
from ..locks.inspection import Holder, break_lock, inspect_lock, list_holders
from ..locks.lock_state import plain_lock
from ..locks.many import AcquireMany, ReleaseMany, leases_of, new_extend_many, not_released
from ..locks.options import (
    ListOf,
    Master,
    Resource,
)
from ..locks.owners import ThreadOwner
from ..locks.procedures import new_locked
from ..locks.rlock import RLock
from .core import ThreadCore
from .leader import Leader
from .lock import Lock, run_locked
from .operations import clean_up, run
from .renewal import thread_auto_extension
from .single_run import SingleRun


class FastRedlock(LockFactory[Lock, RLock, Leader, SingleRun]):
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
    _lock_class = Lock
    _rlock_class = RLock
    _leader_class = Leader
    _single_run_class = SingleRun
    _owner_class = ThreadOwner
    _auto_extension = staticmethod(thread_auto_extension)
    _run_locked = staticmethod(run_locked)

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
        locked: bool = run(new_locked(self._core, resource), self._core.masters)
        return locked

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
        with self._core.change_of(masters, joint_with) as change:
            change.begin()
            self._core.masters.wait_for(change.conditions(seconds))
            change.finish()

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
