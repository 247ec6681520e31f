"""ShardedRedlock and AsyncShardedRedlock: clients over several groups of masters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from itertools import chain
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from ..aio.client import AsyncFastRedlock
from ..aio.driver import send_now
from ..aio.leader import AsyncLeader
from ..aio.lock import AsyncLock
from ..aio.lock import run_locked as run_locked_async
from ..aio.rlock import AsyncRLock
from ..aio.single_run import AsyncSingleRun
from ..algorithm.batch import Completion, UnfinishedBatch
from ..algorithm.lease import Lease
from ..errors import ConfigError
from ..locks.config import check_options
from ..locks.decorated import lock_of_call
from ..locks.inspection import Holder
from ..locks.options import (
    AsyncKindOptions,
    AsyncLockOptions,
    AsyncRLockOptions,
    IfTaken,
    KindOptions,
    LeaderOptions,
    ListOf,
    LockOptions,
    Resource,
    ResourceOf,
    RLockOptions,
)
from ..locks.procedures import drop_lock
from ..locks.rlock import RLock
from ..locks.rwlock import ReadWriteLock
from ..locks.single_run import SINGLE_RUN_REFUSES
from ..masters.masters import CLOSE_TIMEOUT
from ..threads.client import FastRedlock
from ..threads.leader import Leader
from ..threads.lock import Lock, run_locked
from ..threads.single_run import SingleRun
from .placement import Sharding, check_alive, end_batches, new_batches, restore_order

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

#: Seconds for each group to execute what it was sent, where the groups before it took the whole time.
LEAST_CLOSE_TIMEOUT = 0.1


class ShardedRedlock(Sharding[FastRedlock]):
    """A client for more locks than one group of masters can serve. Each resource belongs to one group.

    **All processes must map a resource to the same group; otherwise a lock can have two holders.** The names
    of the groups decide. Without a dict, a group's name consists of its masters' addresses, which must be
    written identically in all processes (``localhost`` is not ``127.0.0.1``). With a dict you choose the
    names, and a master can move to another address. The order of groups and masters, databases, users,
    passwords and ``key_prefix`` do not matter.

    **Adding, removing or renaming a group moves resources.** A client with the new map does not see a holder
    by the old map. ``joint_with`` is the old map: a resource that moves needs a quorum of its old group and
    of its new group, and every other resource needs a quorum of its group, as before. Change all processes to
    both maps, wait 2 * ``max_ttl`` seconds, then change all processes to the new map alone. docs/scaling.md
    has the steps.

    Options are those of [`FastRedlock`][], the same for every group. All times are in seconds. Raises
    ConfigError for bad settings, before any I/O. Source: rendezvous hashing, Thaler and Ravishankar, 1998;
    why by group and not by master: docs/scaling.md.

    Examples:
        >>> client = ShardedRedlock({"one": ["redis://a"], "two": ["redis://b"]})
        >>> with client.lock("orders:42"):
        ...     ship("orders:42")

    Args:
        groups: A dict of groups by name, each a list of masters as for [`FastRedlock`][]; or a list of such
            lists.
        joint_with: The groups before a change, as ``groups``; None: there is no change.
    """

    _client_class = FastRedlock

    def lock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[LockOptions[Lock]]
    ) -> Lock:
        """A lock on ``resource``, not acquired yet; no I/O. As [`FastRedlock.lock`][]."""
        return self._client(resource).lock(resource, ttl, **options)

    def rwlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[KindOptions[Lock]]
    ) -> ReadWriteLock[Lock]:
        """A read-write lock on ``resource``; no I/O. As [`FastRedlock.rwlock`][]."""
        return self._client(resource).rwlock(resource, ttl, **options)

    def semaphore(
        self, resource: Resource, permits: int, ttl: float | None = None, **options: Unpack[KindOptions[Lock]]
    ) -> Lock:
        """A lock that up to ``permits`` holders have; no I/O. As [`FastRedlock.semaphore`][]."""
        return self._client(resource).semaphore(resource, permits, ttl, **options)

    def rlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[RLockOptions[RLock]]
    ) -> RLock:
        """A reentrant lock on ``resource``. As [`FastRedlock.rlock`][]."""
        return self._client(resource).rlock(resource, ttl, **options)

    def multilock(
        self, resources: ListOf[Resource], ttl: float | None = None, **options: Unpack[KindOptions[Lock]]
    ) -> Lock:
        """One lock on all of ``resources``; ConfigError if they belong to several groups. No I/O.

        As [`FastRedlock.multilock`][]. [`ShardedRedlock.group_of`][] returns the group of a resource.
        """
        return self._common(resources).multilock(resources, ttl, **options)

    def leader(
        self, name: Resource, ttl: float | None = None, **options: Unpack[LeaderOptions[Leader]]
    ) -> Leader:
        """A candidate for the leadership ``name``; no I/O. As [`FastRedlock.leader`][]."""
        return self._client(name).leader(name, ttl, **options)

    def acquire(
        self, resource: Resource, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> Lock | None:
        """An acquired lock, or None if another holder has it. As [`FastRedlock.acquire`][]."""
        return self._client(resource).acquire(resource, ttl, blocking, timeout)

    def acquire_many(self, resources: ListOf[Resource], ttl: float | None = None) -> list[Lock | None]:
        """As [`FastRedlock.acquire_many`][], one group after the other.

        The result is in the order of ``resources``. If a group raises QuorumUnavailable, the locks of the
        other groups are released.
        """
        parts = self._partition_resources(resources, ttl)
        completion = Completion()
        batches = new_batches(parts, completion)
        granted: list[Lock | None] = []
        locks: list[Lock | None] = [None] * len(resources)
        try:
            self._acquire_parts(parts, resources, ttl, granted, batches)
            restore_order(locks, list(chain.from_iterable(parts.values())), granted)
            check_alive(locks)
            completion.complete()
            return locks
        except BaseException:
            try:
                self.release_many([lock for lock in granted if lock])
            finally:
                end_batches(batches)
            raise

    def _acquire_parts(
        self,
        parts: dict[FastRedlock, list[int]],
        resources: ListOf[Resource],
        ttl: float | None,
        granted: list[Lock | None],
        batches: dict[FastRedlock, UnfinishedBatch],
    ) -> None:
        # A loop inside of the `try` would not be protected everywhere: see `locks/many.py`.
        for client, positions in parts.items():
            # No call after the grants: a signal handler may raise in a call.
            granted += client._acquire_part(
                [resources[position] for position in positions], ttl, batches[client]
            )

    def release_many(self, locks: Sequence[Lock]) -> list[bool]:
        """As [`FastRedlock.release_many`][], one group after the other."""
        leases: list[Lease | None] | None = None
        try:
            parts = self._partition_locks(locks)
            leases = [lock._lease for lock in locks]
            return self._release_parts(locks, parts)
        except ConfigError:
            raise
        except BaseException:  # a signal handler raised, perhaps before all groups had begun
            if leases is not None:  # another thread may have acquired a lock since
                locks = [lock for lock, lease in zip(locks, leases, strict=True) if lock._lease is lease]
            self._release_parts(locks, self._partition_locks(locks))
            raise

    def _release_parts(self, locks: Sequence[Lock], parts: dict[FastRedlock, list[int]]) -> list[bool]:
        released = [False] * len(locks)

        def release(client: FastRedlock, positions: list[int]) -> None:
            restore_order(
                released, positions, client.release_many([locks[position] for position in positions])
            )

        with ExitStack() as stack:  # an exception in one group does not keep the other groups from releasing
            for client, positions in parts.items():
                stack.callback(release, client, positions)
        return released

    def extend_many(self, locks: Sequence[Lock], ttl: float | None = None) -> list[bool]:
        """Make each lease last ``ttl`` seconds from now (default: the client's), with one exchange a group.

        The groups are asked one after the other. Returns True for each lock that was extended, in the order
        of ``locks``. False: its lease is unchanged. What is raised: [`FastRedlock.extend_many`][].
        """
        self._checked(ttl)
        parts = self._partition_locks(locks)
        extended = [False] * len(locks)
        for client, positions in parts.items():
            restore_order(
                extended, positions, client.extend_many([locks[position] for position in positions], ttl)
            )
        return extended

    def synchronized(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        **options: Unpack[LockOptions[Lock]],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: the function runs only while it holds the lock. As [`FastRedlock.synchronized`][]."""
        check_options(options, FastRedlock.synchronized, LockOptions)
        return partial(run_locked, lock_of_call(self.lock, resource, ttl, options))

    def single_run(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        *,
        if_taken: IfTaken = "skip",
        once_per: float | None = None,
        **options: Unpack[LockOptions[Lock]],
    ) -> SingleRun:
        """A job that runs once in the fleet. As [`FastRedlock.single_run`][]."""
        check_options(options, FastRedlock.single_run, LockOptions, without=SINGLE_RUN_REFUSES)
        return SingleRun(self.lock, resource, ttl, if_taken, once_per, {**options})

    def locked(self, resource: Resource) -> bool:
        """Ask the group of ``resource`` whether it is locked now. As [`FastRedlock.locked`][]."""
        return self._client(resource).locked(resource)

    def holders(self, prefix: Resource = "", *, limit: int = 1000, timeout: float = 10.0) -> list[Holder]:
        """The holders in all groups, one group after the other; ``limit`` is for each group.

        As [`FastRedlock.holders`][].
        """
        return [
            holder
            for client in self._clients.values()
            for holder in client.holders(prefix, limit=limit, timeout=timeout)
            if self._client(holder.name) is client
        ]

    def inspect(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Who holds ``resource``, and who waits for it. As [`FastRedlock.inspect`][]."""
        return self._client(resource).inspect(resource, timeout=timeout)

    def break_lock(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Take ``resource`` from its holders, who get no notice. As [`FastRedlock.break_lock`][]."""
        return self._client(resource).break_lock(resource, timeout=timeout)

    def connect(self, timeout: float | None = None) -> bool:
        """Wait until every group has a quorum connected. False: ``timeout`` seconds passed before.

        ``timeout``: ``connect_timeout`` by default. Raises ClientClosed; ConfigError for a bad ``timeout``.
        """
        return all(client.connect(left) for client, left in self._connecting(timeout))

    def close(self) -> None:
        """Close all connections. Held locks stay held until their leases end. Never raises."""
        end = time.monotonic() + CLOSE_TIMEOUT
        with ExitStack() as stack:
            for client in self._clients.values():
                stack.callback(client.close)  # ends renewal
                stack.callback(close_masters, client, end)

    def __enter__(self, /) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncShardedRedlock(Sharding[AsyncFastRedlock]):
    """[`ShardedRedlock`][] for asyncio, with the same arguments, warnings and methods."""

    _client_class = AsyncFastRedlock

    def lock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncLockOptions[AsyncLock]]
    ) -> AsyncLock:
        """A lock on ``resource``, not acquired yet; no I/O. As [`AsyncFastRedlock.lock`][]."""
        return self._client(resource).lock(resource, ttl, **options)

    def rwlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncKindOptions[AsyncLock]]
    ) -> ReadWriteLock[AsyncLock]:
        """A read-write lock on ``resource``; no I/O. As [`AsyncFastRedlock.rwlock`][]."""
        return self._client(resource).rwlock(resource, ttl, **options)

    def semaphore(
        self,
        resource: Resource,
        permits: int,
        ttl: float | None = None,
        **options: Unpack[AsyncKindOptions[AsyncLock]],
    ) -> AsyncLock:
        """A lock that up to ``permits`` holders have; no I/O. As [`AsyncFastRedlock.semaphore`][]."""
        return self._client(resource).semaphore(resource, permits, ttl, **options)

    def rlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncRLockOptions[AsyncRLock]]
    ) -> AsyncRLock:
        """A reentrant lock on ``resource``. As [`AsyncFastRedlock.rlock`][]."""
        return self._client(resource).rlock(resource, ttl, **options)

    def multilock(
        self,
        resources: ListOf[Resource],
        ttl: float | None = None,
        **options: Unpack[AsyncKindOptions[AsyncLock]],
    ) -> AsyncLock:
        """One lock on all of ``resources``; ConfigError if they belong to several groups. No I/O.

        As [`AsyncFastRedlock.multilock`][]. [`ShardedRedlock.group_of`][] returns the group of a resource.
        """
        return self._common(resources).multilock(resources, ttl, **options)

    def leader(
        self, name: Resource, ttl: float | None = None, **options: Unpack[LeaderOptions[AsyncLeader]]
    ) -> AsyncLeader:
        """A candidate for the leadership ``name``; no I/O. As [`AsyncFastRedlock.leader`][]."""
        return self._client(name).leader(name, ttl, **options)

    async def acquire(
        self, resource: Resource, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> AsyncLock | None:
        """An acquired lock, or None if another holder has it. As [`AsyncFastRedlock.acquire`][]."""
        return await self._client(resource).acquire(resource, ttl, blocking, timeout)

    async def acquire_many(
        self, resources: ListOf[Resource], ttl: float | None = None
    ) -> list[AsyncLock | None]:
        """As [`ShardedRedlock.acquire_many`][]. A cancelled call releases the locks that it was granted."""
        parts = self._partition_resources(resources, ttl)
        completion = Completion()
        batches = new_batches(parts, completion)
        locks: list[AsyncLock | None] = [None] * len(resources)
        try:
            for client, positions in parts.items():
                own = [resources[position] for position in positions]
                restore_order(locks, positions, await client._acquire_part(own, ttl, batches[client]))
            check_alive(locks)
            completion.complete()
            return locks
        except BaseException as error:
            granted = [lock for lock in locks if lock]
            try:
                if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
                    drop(granted)
                else:
                    await self.release_many(granted)
            finally:
                end_batches(batches)
            raise

    async def release_many(self, locks: Sequence[AsyncLock]) -> list[bool]:
        """As [`AsyncFastRedlock.release_many`][], one group after the other.

        A cancelled call still releases all.
        """
        parts = self._partition_locks(locks)
        released = [False] * len(locks)

        async def release(
            client: AsyncFastRedlock, positions: list[int], kind: type[BaseException] | None, *_: object
        ) -> None:
            part = [locks[position] for position in positions]
            if kind is GeneratorExit:
                drop(part)
            else:
                restore_order(released, positions, await client.release_many(part))

        async with AsyncExitStack() as stack:
            for client, positions in parts.items():
                stack.push_async_exit(partial(release, client, positions))
        return released

    async def extend_many(self, locks: Sequence[AsyncLock], ttl: float | None = None) -> list[bool]:
        """Make each lease last ``ttl`` seconds from now (default: the client's), with one exchange a group.

        The groups are asked one after the other. Returns True for each lock that was extended, in the order
        of ``locks``. False: its lease is unchanged. What is raised: [`AsyncFastRedlock.extend_many`][].
        """
        self._checked(ttl)
        parts = self._partition_locks(locks)
        extended = [False] * len(locks)
        for client, positions in parts.items():
            restore_order(
                extended,
                positions,
                await client.extend_many([locks[position] for position in positions], ttl),
            )
        return extended

    def synchronized(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        **options: Unpack[AsyncLockOptions[AsyncLock]],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Decorator for async functions. As [`AsyncFastRedlock.synchronized`][]."""
        check_options(options, AsyncFastRedlock.synchronized, AsyncLockOptions)
        return partial(run_locked_async, lock_of_call(self.lock, resource, ttl, options))

    def single_run(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        *,
        if_taken: IfTaken = "skip",
        once_per: float | None = None,
        **options: Unpack[AsyncLockOptions[AsyncLock]],
    ) -> AsyncSingleRun:
        """A job that runs once in the fleet. As [`AsyncFastRedlock.single_run`][]."""
        check_options(options, AsyncFastRedlock.single_run, AsyncLockOptions, without=SINGLE_RUN_REFUSES)
        return AsyncSingleRun(self.lock, resource, ttl, if_taken, once_per, {**options})

    async def locked(self, resource: Resource) -> bool:
        """Ask the group of ``resource`` whether it is locked now. As [`AsyncFastRedlock.locked`][]."""
        return await self._client(resource).locked(resource)

    async def holders(
        self, prefix: Resource = "", *, limit: int = 1000, timeout: float = 10.0
    ) -> list[Holder]:
        """The holders in all groups, one group after the other. As [`ShardedRedlock.holders`][]."""
        return [
            holder
            for client in self._clients.values()
            for holder in await client.holders(prefix, limit=limit, timeout=timeout)
            if self._client(holder.name) is client
        ]

    async def inspect(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Who holds ``resource``, and who waits for it. As [`AsyncFastRedlock.inspect`][]."""
        return await self._client(resource).inspect(resource, timeout=timeout)

    async def break_lock(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Take ``resource`` from its holders, who get no notice. As [`AsyncFastRedlock.break_lock`][]."""
        return await self._client(resource).break_lock(resource, timeout=timeout)

    async def connect(self, timeout: float | None = None) -> bool:
        """Wait until every group has a quorum connected. False: ``timeout`` seconds passed before.

        ``timeout``: ``connect_timeout`` by default. Raises ClientClosed; ConfigError for a bad ``timeout``.
        """
        for client, left in self._connecting(timeout):
            if not await client.connect(left):
                return False
        return True

    async def close(self) -> None:
        """Close all connections. Held locks stay held until their leases end.

        Raises WrongLoop as [`AsyncFastRedlock.close`][].
        """
        closing = asyncio.gather(*[one.close() for one in self._clients.values()], return_exceptions=True)
        for outcome in await asyncio.shield(closing):
            if isinstance(outcome, BaseException):
                raise outcome

    async def __aenter__(self, /) -> Self:
        for client in self._clients.values():
            client._core.loop_binding()  # binds the client to this loop
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def close_masters(client: FastRedlock, end: float) -> None:
    """Close the masters of ``client`` until ``end``. In that time all groups execute what they were sent."""
    client._core.masters.close(max(LEAST_CLOSE_TIMEOUT, end - time.monotonic()))


def drop(locks: Sequence[AsyncLock]) -> None:
    """Release ``locks`` of a task that is destroyed, without waiting for replies."""
    for lock in locks:
        bound = lock._core.bound
        if bound is not None:
            send_now(drop_lock(lock), bound)
