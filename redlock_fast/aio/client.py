"""AsyncFastRedlock: the client for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from ..algorithm import procedures
from ..algorithm.batch import UnfinishedBatch
from ..algorithm.lock_kind import LockKind
from ..algorithm.operation import Procedure
from ..locks.client_base import BaseClient
from ..locks.config import CLIENT_DEFAULT, ClientDefault, check_kind_options, check_options, refuse_unknown
from ..locks.decorated import check_async
from ..locks.failures import is_locked
from ..locks.inspection import Holder, break_lock, inspect_lock, list_holders
from ..locks.lock_state import plain_lock
from ..locks.many import AcquireMany, ReleaseMany, new_extend_many
from ..locks.multilock import multi_lock_kind
from ..locks.options import (
    AsyncKindOptions,
    AsyncLockOptions,
    IfTaken,
    ListOf,
    Master,
    NoOptions,
    Resource,
    ResourceOf,
)
from ..locks.rwlock import ReadWriteLock
from ..locks.semaphore import semaphore_kind
from ..locks.single_run import SINGLE_RUN_REFUSES
from .core import LoopCore
from .driver import acquire, run
from .leader import AsyncLeader
from .lock import AsyncLock
from .renewal import loop_auto_extension
from .rlock import AsyncRLock, TaskOwner
from .single_run import AsyncSingleRun

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class AsyncFastRedlock(BaseClient):
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

    @functools.cached_property
    def _plain(self) -> bool:
        """Whether ``lock`` without options makes a plain lock. A subclass may make other locks."""
        return self._core.plain_locks and type(self).lock is AsyncFastRedlock.lock

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
        on_lost: Callable[[AsyncLock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        cancel_on_loss: bool = True,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        token: bytes | None = None,
        **unknown: Unpack[NoOptions],
    ) -> AsyncLock:
        """A lock on ``resource``, not acquired yet; no I/O. See [`FastRedlock.lock`][].

        ``on_lost`` runs in the event loop and may be a coroutine function. On a loss the body of ``async
        with`` is cancelled, unless ``cancel_on_loss`` is False; ``async with`` then raises LockLost.

        Examples:
            >>> async with client.lock("orders:42", timeout=2.0) as lock:
            ...     await ship("orders:42")

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        if unknown:
            refuse_unknown("lock()", unknown, AsyncFastRedlock.lock)
        auto_extension = loop_auto_extension(self._core, auto_extend, on_lost, max_hold, cancel_on_loss)
        lock_kind = self._core.lock_kind(resource, fencing, fair)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        lock = AsyncLock(self._core, resource, lock_kind, ttl, *options)
        return lock if token is None else lock._with_token(token)

    def rwlock(
        self, resource: Resource, ttl: float | None = None, **options: Unpack[AsyncKindOptions[AsyncLock]]
    ) -> ReadWriteLock[AsyncLock]:
        """A read-write lock on ``resource``; see [`FastRedlock.rwlock`][].

        Examples:
            >>> async with client.rwlock("catalogue").read():
            ...     await show()

        Raises:
            ConfigError: As [`FastRedlock.rwlock`][].
        """
        options = check_kind_options(options, AsyncFastRedlock.rwlock, AsyncKindOptions)
        make = functools.partial(self._of_kind, resource, ttl, options)
        return ReadWriteLock(self._core.check_key(resource), self._core.policy, make)

    def semaphore(
        self,
        resource: Resource,
        permits: int,
        ttl: float | None = None,
        **options: Unpack[AsyncKindOptions[AsyncLock]],
    ) -> AsyncLock:
        """A lock that up to ``permits`` holders have at the same time; see [`FastRedlock.semaphore`][].

        Examples:
            >>> async with client.semaphore("exports", permits=3):
            ...     await export()

        Raises:
            ConfigError: As [`FastRedlock.semaphore`][].
        """
        options = check_kind_options(options, AsyncFastRedlock.semaphore, AsyncKindOptions)
        lock_kind = semaphore_kind(self._core.check_key(resource), permits, self._core.policy)
        return self._of_kind(resource, ttl, options, lock_kind)

    def _of_kind(
        self, resource: Resource, ttl: float | None, options: AsyncKindOptions[AsyncLock], lock_kind: LockKind
    ) -> AsyncLock:
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
        on_lost: Callable[[AsyncRLock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        cancel_on_loss: bool = True,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **unknown: Unpack[NoOptions],
    ) -> AsyncRLock:
        """A reentrant lock on ``resource``, one object for all tasks; see [`FastRedlock.rlock`][].

        On a loss the body of the outermost ``async with`` is cancelled, unless ``cancel_on_loss`` is False.

        Examples:
            >>> lock = client.rlock("orders:42")
            >>> async with lock, lock:
            ...     await ship("orders:42")

        Raises:
            ConfigError: As [`FastRedlock.rlock`][].
        """
        refuse_unknown("rlock()", unknown, AsyncFastRedlock.rlock)
        options: dict[str, Any] = {
            "timeout": timeout, "max_extensions": max_extensions, "fencing": fencing,
            "auto_extend": auto_extend, "on_lost": on_lost, "max_hold": max_hold,
            "release_at_exit": release_at_exit, "label": label, "owner": owner,
            "cancel_on_loss": cancel_on_loss,
        }  # fmt: skip
        return AsyncRLock(self._core, self.lock, resource, ttl, min_validity, options, TaskOwner())

    def multilock(
        self,
        resources: ListOf[Resource],
        ttl: float | None = None,
        *,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        auto_extend: bool | ClientDefault = CLIENT_DEFAULT,
        on_lost: Callable[[AsyncLock, str], Any] | None = None,
        max_hold: float | ClientDefault | None = CLIENT_DEFAULT,
        cancel_on_loss: bool = True,
        release_at_exit: bool | None = None,
        label: str | None = None,
        owner: str | None = None,
        **unknown: Unpack[NoOptions],
    ) -> AsyncLock:
        """One lock on all of ``resources``, or on none; see [`FastRedlock.multilock`][].

        Examples:
            >>> async with client.multilock(["account:1", "account:2"]):
            ...     await transfer(1, 2)

        Raises:
            ConfigError: As [`FastRedlock.multilock`][].
        """
        refuse_unknown("multilock()", unknown, AsyncFastRedlock.multilock)
        auto_extension = loop_auto_extension(self._core, auto_extend, on_lost, max_hold, cancel_on_loss)
        lock_kind = multi_lock_kind(self._core, resources)
        options = timeout, max_extensions, auto_extension, release_at_exit, owner, label
        return AsyncLock(self._core, tuple(resources), lock_kind, ttl, *options)

    def leader(
        self,
        name: Resource,
        ttl: float | None = None,
        *,
        identity: str | None = None,
        on_elected: Callable[[AsyncLeader], Any] | None = None,
        on_lost: Callable[[AsyncLeader, str], Any] | None = None,
        notice: float | None = None,
        **unknown: Unpack[NoOptions],
    ) -> AsyncLeader:
        """A candidate for the leadership ``name``; see [`FastRedlock.leader`][].

        ``on_elected`` and ``on_lost`` run in the event loop and may be coroutine functions. A coroutine of
        ``on_elected`` is cancelled when the leadership ends.

        Examples:
            >>> async with client.leader("scheduler") as leader:
            ...     while await leader.wait():
            ...         while leader.is_leader:
            ...             await run_next_job(fence=leader.fencing_token)

        Raises:
            ConfigError: An invalid name, ttl or option.
        """
        refuse_unknown("leader()", unknown, AsyncFastRedlock.leader)
        return AsyncLeader(self._core, self.lock, name, ttl, notice, identity, on_elected, on_lost)

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

    def synchronized(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        **options: Unpack[AsyncLockOptions[AsyncLock]],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Decorator for async functions only; see [`FastRedlock.synchronized`][].

        Examples:
            >>> @client.synchronized("nightly-report", timeout=0)
            ... async def report() -> None: ...

        Raises:
            ConfigError: A function that is not async, or as [`FastRedlock.synchronized`][].
            RedlockError: A call of the function: as [`FastRedlock.synchronized`][].
            WrongLoop: A call of the function in another event loop than the client's.
        """
        check_options(options, AsyncFastRedlock.synchronized, AsyncLockOptions)
        named: Any = resource  # no type relates its parameters to those of the function
        # Raises ConfigError at the decorator, not at the first call.
        self.lock("name" if callable(resource) else resource, ttl, **options)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            check_async(function, "synchronized")

            @functools.wraps(function)
            async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                name = named(*args, **kwargs) if callable(resource) else resource
                async with self.lock(name, ttl, **options):
                    return await function(*args, **kwargs)

            return locked

        return decorate

    def single_run(
        self,
        resource: Resource | ResourceOf[Q],
        ttl: float | None = None,
        *,
        if_taken: IfTaken = "skip",
        once_per: float | None = None,
        **options: Unpack[AsyncLockOptions[AsyncLock]],
    ) -> AsyncSingleRun:
        """A job that runs once in the fleet; see [`FastRedlock.single_run`][].

        A loss of the lock cancels the body, unless ``cancel_on_loss`` is False.

        Examples:
            >>> @client.single_run("cleanup", once_per=50)
            ... async def clean_up() -> None: ...

        Raises:
            ConfigError: A function that is not async, or as [`FastRedlock.single_run`][].
            RedlockError: The run: as [`FastRedlock.single_run`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        check_options(options, AsyncFastRedlock.single_run, AsyncLockOptions, without=SINGLE_RUN_REFUSES)
        return AsyncSingleRun(self.lock, resource, ttl, if_taken, once_per, {**options})

    async def locked(self, resource: Resource) -> bool:
        """Ask the masters whether ``resource`` is locked now; see [`FastRedlock.locked`][].

        Examples:
            >>> locked = await client.locked("orders:42")

        Raises:
            RedlockError: As [`FastRedlock.locked`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        self._core.check_open()
        key = self._core.check_key(resource)
        if not self._core.client_state.ready:
            await self.connect()
        votes = await run(Procedure(procedures.exists(self._core.policy, key)), self._core.loop_binding())
        return is_locked(self._core, resource, votes)

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
        change = self._core.change_of(masters, joint_with)
        binding = self._core.loop_binding()
        try:
            change.begin()
            for condition, limit in change.conditions(seconds):
                await binding.until(condition, limit)
            change.finish()
        finally:
            change.end()

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
