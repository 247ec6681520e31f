"""AsyncFastRedlock: the client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from ..algorithm.batch import UnfinishedBatch
from ..locks.factory import LockFactory
from ..locks.inspection import Holder, break_lock, inspect_lock, list_holders
from ..locks.lock_state import plain_lock
from ..locks.many import AcquireMany, ReleaseMany, new_extend_many
from ..locks.options import (
    AsyncKindOptions,
    AsyncLockOptions,
    AsyncRLockOptions,
    CancelOptions,
    IfTaken,
    ListOf,
    Master,
    Resource,
    ResourceOf,
)
from ..locks.procedures import new_locked
from ..locks.rwlock import ReadWriteLock
from .core import LoopCore
from .driver import acquire, run
from .leader import AsyncLeader
from .lock import AsyncLock, run_locked
from .renewal import loop_auto_extension
from .rlock import AsyncRLock, TaskOwner
from .single_run import AsyncSingleRun

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class AsyncFastRedlock(LockFactory[AsyncLock, AsyncRLock, AsyncLeader, AsyncSingleRun]):
    """A client for distributed locks over N independent masters, for the tasks of one event loop.

    Settings are those of [`FastRedlock`][]. The client belongs to the event loop of its first ``await``. When
    that loop is closed, the client belongs to the loop of its next ``await``: held locks stay held, and
    their renewal goes on there. In another loop while the first is open, its methods raise WrongLoop.
    Share one client among all tasks: they use the same connections, and their requests of one iteration of
    the loop leave together. Close the client with ``await client.close()`` or ``async with``.

    Examples:
        >>> client = AsyncFastRedlock(["redis://a", "redis://b", "redis://c"])
        >>> async with client.lock("orders:42", timeout=5.0):
        ...     await ship("orders:42")
    """

    _core: LoopCore
    _core_class = LoopCore
    _lock_class = AsyncLock
    _rlock_class = AsyncRLock
    _leader_class = AsyncLeader
    _single_run_class = AsyncSingleRun
    _owner_class = TaskOwner
    _auto_extension = staticmethod(loop_auto_extension)
    _run_locked = staticmethod(run_locked)
    _added_options = CancelOptions

    if TYPE_CHECKING:  # LockFactory makes these locks; here are the types of their options

        def lock(  # type: ignore[override]
            self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncLockOptions[AsyncLock]]
        ) -> AsyncLock: ...

        def rwlock(
            self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncKindOptions[AsyncLock]]
        ) -> ReadWriteLock[AsyncLock]: ...

        def semaphore(
            self,
            resource: Resource,
            permits: int,
            ttl: float | None = None,
            **options: Unpack[AsyncKindOptions[AsyncLock]],
        ) -> AsyncLock: ...

        def rlock(  # type: ignore[override]
            self,
            resource: Resource,
            ttl: float | None = None,
            **options: Unpack[AsyncRLockOptions[AsyncRLock]],
        ) -> AsyncRLock: ...

        def multilock(  # type: ignore[override]
            self,
            resources: ListOf[Resource],
            ttl: float | None = None,
            **options: Unpack[AsyncKindOptions[AsyncLock]],
        ) -> AsyncLock: ...

        def synchronized(  # type: ignore[override]
            self,
            resource: Resource | ResourceOf[Q],
            ttl: float | None = None,
            **options: Unpack[AsyncLockOptions[AsyncLock]],
        ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]: ...

        def single_run(
            self,
            resource: Resource | ResourceOf[Q],
            ttl: float | None = None,
            *,
            if_taken: IfTaken = "skip",
            once_per: float | None = None,
            **options: Unpack[AsyncLockOptions[AsyncLock]],
        ) -> AsyncSingleRun: ...

    async def acquire(
        self, resource: Resource, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> AsyncLock | None:
        """An acquired lock, or None if another holder has it; see [`FastRedlock.acquire`][].

        Examples:
            >>> lock = await client.acquire("orders:42", blocking=False)

        Raises:
            RedlockError: As [`FastRedlock.acquire`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        if not self._plain:
            lock = self.lock(resource, ttl)
            return lock if await lock.acquire(blocking, timeout) else None
        lock = plain_lock(AsyncLock, self._core, resource, ttl)
        return (
            lock
            if lock._acquired(await acquire(lock, blocking, timeout, self._core.loop_binding()))
            else None
        )

    async def acquire_many(
        self, resources: ListOf[Resource], ttl: float | None = None
    ) -> list[AsyncLock | None]:
        """One attempt for each of many resources; see [`FastRedlock.acquire_many`][].

        Examples:
            >>> locks = await client.acquire_many(["orders:1", "orders:2"])

        Raises:
            RedlockError: As [`FastRedlock.acquire_many`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return await self._acquire_part(resources, ttl)

    async def _acquire_part(
        self, resources: ListOf[Resource], ttl: float | None, part: UnfinishedBatch | None = None
    ) -> list[AsyncLock | None]:
        """As ``acquire_many``, perhaps as a part of the call of a sharded client."""
        operation = AcquireMany(self._core, AsyncLock, self.lock, resources, ttl, part)
        locks: list[AsyncLock | None] = await run(operation, self._core.loop_binding())
        return locks

    async def release_many(self, locks: Sequence[AsyncLock]) -> list[bool]:
        """Release many locks; see [`FastRedlock.release_many`][]. A cancelled call still releases all.

        Examples:
            >>> await client.release_many([lock for lock in locks if lock])

        Raises:
            RedlockError: As [`FastRedlock.release_many`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        released: list[bool] = await run(ReleaseMany(self._core, locks), self._core.loop_binding())
        return released

    async def extend_many(self, locks: Sequence[AsyncLock], ttl: float | None = None) -> list[bool]:
        """Extend many leases; see [`FastRedlock.extend_many`][].

        Examples:
            >>> await client.extend_many([lock for lock in locks if lock], ttl=30.0)

        Raises:
            RedlockError: As [`FastRedlock.extend_many`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        extended: list[bool] = await run(new_extend_many(self._core, locks, ttl), self._core.loop_binding())
        return extended

    async def locked(self, resource: Resource) -> bool:
        """Ask the masters whether ``resource`` is locked now; see [`FastRedlock.locked`][].

        Examples:
            >>> locked = await client.locked("orders:42")

        Raises:
            RedlockError: As [`FastRedlock.locked`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        locked: bool = await run(new_locked(self._core, resource), self._core.loop_binding())
        return locked

    async def holders(
        self, prefix: Resource = "", *, limit: int = 1000, timeout: float = 10.0
    ) -> list[Holder]:
        """Ask the masters which locks are held; see [`FastRedlock.holders`][].

        A thread asks them. If the task is cancelled, that thread ends by itself, within its timeouts.

        Examples:
            >>> owners = {holder.name: holder.owner for holder in await client.holders("orders:")}

        Raises:
            RedlockError: As [`FastRedlock.holders`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        self._core.loop_binding()
        return await asyncio.to_thread(list_holders, self._core, prefix, limit, timeout)

    async def inspect(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Ask the masters who holds a lock; see [`FastRedlock.inspect`][] and [`holders`][].

        Examples:
            >>> owners = [holder.owner for holder in await client.inspect("orders:42") if holder.held]

        Raises:
            RedlockError: As [`FastRedlock.inspect`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        self._core.loop_binding()
        return await asyncio.to_thread(inspect_lock, self._core, resource, timeout)

    async def break_lock(self, resource: Resource, *, timeout: float = 10.0) -> list[Holder]:
        """Take a lock from its holders, who get no notice; see [`FastRedlock.break_lock`][].

        If the task is cancelled, the lock may still be broken.

        Examples:
            >>> broken = await client.break_lock("nightly-report")

        Raises:
            RedlockError: As [`FastRedlock.break_lock`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        self._core.loop_binding()
        return await asyncio.to_thread(break_lock, self._core, resource, timeout)

    async def connect(self, timeout: float | None = None) -> bool:
        """Wait until a quorum of masters is connected; see [`FastRedlock.connect`][].

        Examples:
            >>> connected = await client.connect(timeout=5.0)

        Raises:
            RedlockError: As [`FastRedlock.connect`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        self._core.check_open()
        return await self._core.loop_binding().wait_for_quorum(self._core.connect_seconds(timeout))

    async def reconfigure(
        self,
        masters: ListOf[Master],
        *,
        joint_with: ListOf[Master] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change the masters, without losing the locks that are held; see [`FastRedlock.reconfigure`][].

        Examples:
            >>> await client.reconfigure(new, joint_with=old)    # first on every client
            >>> await client.reconfigure(new)                    # then on every client, 4 * max_ttl later

        Raises:
            RedlockError: As [`FastRedlock.reconfigure`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        seconds = self._core.connect_seconds(timeout)
        with self._core.change_of(masters, joint_with) as change:
            binding = self._core.loop_binding()
            change.begin()
            for condition, limit in change.conditions(seconds):
                await binding.until(condition, limit)
            change.finish()

    async def close(self) -> None:
        """Close all connections and end renewal; see [`FastRedlock.close`][].

        Examples:
            >>> async with AsyncFastRedlock(urls) as client:    # closes the client at the end
            ...     await client.acquire("orders:42")

        Raises:
            WrongLoop: The client belongs to another event loop, which is open.
        """
        await self._core.close()

    async def __aenter__(self) -> Self:
        self._core.loop_binding()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
