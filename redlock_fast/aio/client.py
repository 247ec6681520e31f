"""AsyncFastRedlock and AsyncLock: the client for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ..algorithm import procedures
from ..algorithm.lock_kind import Claim
from ..errors import WrongLoop
from ..locks.client_base import Core, refuse_unknown
from ..locks.decorated import check_async
from ..locks.fair import fair as fair_claim
from ..locks.lock_state import MAX_EXTENSIONS, LockState, plain_lock
from ..locks.many import acquire_many, extend_many, release_many
from ..locks.multilock import claim_all
from ..locks.options import check_options
from ..locks.procedures import drop_lock, extend_lock, release_lock
from ..locks.rwlock import ReadWriteLock, downgrade
from ..locks.semaphore import slots
from .driver import drive, drive_now
from .fast_path import acquire, ask_back, ended, interrupted
from .loop import Pump
from .renewal import Body, LoopRenewal, loop_keeper
from .rlock import AsyncRLock, ThisTask

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLock(LockState):
    """A distributed lock on one resource, made by [`AsyncFastRedlock.lock`][].

    It belongs to this object, by a random token that only it has: not to a task. Use one object for
    each holder. All times are in seconds. Every method may be cancelled: a cancelled acquire leaves
    nothing on the masters, a cancelled release still releases.
    """

    __slots__ = ()

    _core: AsyncFastRedlock

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lock is lost; see [`Lock.lost`][redlock_fast.Lock.lost]."""
        if self._keeper is None:
            raise AttributeError("lost: only a lock with auto_extend=True is told of its loss")
        event: asyncio.Event = self._keeper.lost
        return event

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see [`Lock.acquire`][].

        Raises WrongLoop besides, in another loop than the client's.
        """
        return self._acquired(await acquire(self, blocking, timeout, self._core.pump()))

    async def release(self) -> bool:
        """Delete our key on all masters that may have it; see [`Lock.release`][]."""
        pump = self._core.pump()
        try:
            lease = self._leaving()
            if lease is None:
                return False
            answer = ask_back(self, lease, pump)
            await answer
            return ended(self, lease, answer)
        except BaseException as error:
            await interrupted(release_lock(self), pump, error)
            raise

    async def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now; see [`Lock.extend`][]."""
        return await drive(extend_lock(self, ttl, confirm), self._core.pump())

    async def downgrade(self) -> float:
        """Make a held write lock a read lock; see [`Lock.downgrade`][]."""
        return await drive(downgrade(self._core, self), self._core.pump())

    async def __aenter__(self) -> AsyncLock:
        self._entered(await acquire(self, True, None, self._core.pump()))
        if self._keeper is not None and self._keeper.cancels:
            self._keeper.body = Body()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None and self._keeper.body is not None:
            body, self._keeper.body = self._keeper.body, None
            if body.left(kind):
                error = None  # the loss takes its place
        bound = self._core.bound
        if kind is GeneratorExit and bound is not None:  # the task is destroyed: nothing can be awaited
            drive_now(drop_lock(self), bound)
        else:
            self._left(await AsyncLock.release(self), failing=error is not None)


class AsyncFastRedlock(Core):
    """A client for distributed locks over N independent masters, for the tasks of one event loop.

    Settings are those of [`FastRedlock`][]. The client belongs to the loop of its
    first ``await``. Share one client among all tasks: they use the same connections, and what they
    ask for in one iteration of the loop is sent together. Close it with ``await client.close()`` or
    ``async with``.
    """

    #: The driver in the loop that the client belongs to.
    bound: Pump | None = None

    _renewal: LoopRenewal | None = None

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
        on_lost: Callable[[AsyncLock, str], Any] | None = None,
        max_hold: float | None = None,
        cancel_on_loss: bool = True,
        **unknown: Any,
    ) -> AsyncLock:
        """A lock on ``resource``, not acquired yet; no I/O. See [`FastRedlock.lock`][].

        ``on_lost`` runs in the loop, and may be a coroutine function. On a loss the body of ``async with``
        is cancelled, too, unless ``cancel_on_loss`` is False; ``async with`` then raises LockLost.
        """
        if unknown:
            refuse_unknown("lock()", unknown, AsyncFastRedlock.lock)
        keeper = loop_keeper(self, auto_extend, on_lost, max_hold, cancel_on_loss)
        claim = fair_claim(self.check_key(resource), fencing) if fair else self.claim(resource, fencing)
        kind = self._class_of(AsyncLock)
        return kind(self, resource, claim, ttl, timeout, max_extensions, keeper)

    def rwlock(
        self, resource: str | bytes, ttl: float | None = None, **options: Any
    ) -> ReadWriteLock[AsyncLock]:
        """A read-write lock on ``resource``; see [`FastRedlock.rwlock`][]."""
        make = functools.partial(self._of_kind, resource, ttl, options)
        return ReadWriteLock(self.check_key(resource), self.rules, make)

    def semaphore(
        self, resource: str | bytes, permits: int, ttl: float | None = None, **options: Any
    ) -> AsyncLock:
        """A lock that up to ``permits`` holders have; see [`FastRedlock.semaphore`][]."""
        claim = slots(self.check_key(resource), permits, self.rules)
        return self._of_kind(resource, ttl, options, claim)

    def _of_kind(
        self, resource: str | bytes, ttl: float | None, options: dict[str, Any], claim: Claim
    ) -> AsyncLock:
        return self.lock(resource, ttl, **check_options(options)).becomes(claim)

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
        on_lost: Callable[[AsyncRLock, str], Any] | None = None,
        max_hold: float | None = None,
        cancel_on_loss: bool = True,
        **unknown: Any,
    ) -> AsyncRLock:
        """A reentrant lock on ``resource``, one for all tasks; see [`FastRedlock.rlock`][].

        On a loss the body of the outermost ``async with`` is cancelled, unless ``cancel_on_loss`` is False.
        """
        if unknown:
            refuse_unknown("rlock()", unknown, AsyncFastRedlock.rlock)
        options: dict[str, Any] = {
            "timeout": timeout, "max_extensions": max_extensions, "fencing": fencing,
            "auto_extend": auto_extend, "on_lost": on_lost, "max_hold": max_hold,
            "cancel_on_loss": cancel_on_loss,
        }  # fmt: skip
        return AsyncRLock(self, self.lock, resource, ttl, min_validity, options, ThisTask())

    def multilock(
        self,
        resources: Sequence[str | bytes],
        ttl: float | None = None,
        *,
        timeout: float | None = None,
        max_extensions: int | None = MAX_EXTENSIONS,
        auto_extend: bool = False,
        on_lost: Callable[[AsyncLock, str], Any] | None = None,
        max_hold: float | None = None,
        cancel_on_loss: bool = True,
        **unknown: Any,
    ) -> AsyncLock:
        """One lock on all of ``resources``, or on none; see [`FastRedlock.multilock`][]."""
        if unknown:
            refuse_unknown("multilock()", unknown, AsyncFastRedlock.multilock)
        keeper = loop_keeper(self, auto_extend, on_lost, max_hold, cancel_on_loss)
        claim = claim_all(self, resources)
        kind = self._class_of(AsyncLock)
        return kind(self, tuple(resources), claim, ttl, timeout, max_extensions, keeper)

    async def acquire(
        self, resource: str | bytes, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> AsyncLock | None:
        """The short way: an acquired lock, or None when others hold it. Raises as [`AsyncLock.acquire`][]."""
        own = type(self).lock is AsyncFastRedlock.lock and self._class_of(AsyncLock) is AsyncLock
        if not own:  # a subclass, or an observer, has other locks
            lock = self.lock(resource, ttl)
            return lock if await lock.acquire(blocking, timeout) else None
        lock = plain_lock(AsyncLock, self, resource, ttl)
        return lock if lock._acquired(await acquire(lock, blocking, timeout, self.pump())) else None

    async def acquire_many(
        self, resources: Sequence[str | bytes], ttl: float | None = None
    ) -> list[AsyncLock | None]:
        """One attempt for each of many resources; see [`FastRedlock.acquire_many`][]."""
        return await drive(acquire_many(self, AsyncLock, resources, ttl), self.pump())

    async def release_many(self, locks: Sequence[AsyncLock]) -> list[bool]:
        """As [`AsyncLock.release`][] for each of many locks; see [`FastRedlock.release_many`][].

        Cancelled, it still releases them all.
        """
        return await drive(release_many(self, locks), self.pump())

    async def extend_many(self, locks: Sequence[AsyncLock], ttl: float | None = None) -> list[bool]:
        """Extend many leases; see [`FastRedlock.extend_many`][]."""
        return await drive(extend_many(self, locks, ttl), self.pump())

    def synchronized(
        self, resource: str | bytes | Callable[..., str | bytes], ttl: float | None = None, **options: Any
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Decorator for async functions, and for no others; see [`FastRedlock.synchronized`][]."""
        if not callable(resource):
            self.lock(resource, ttl, **options)  # bad settings show where they are written

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            check_async(function)

            @functools.wraps(function)
            async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                name = resource(*args, **kwargs) if callable(resource) else resource
                async with self.lock(name, ttl, **options):
                    return await function(*args, **kwargs)

            return locked

        return decorate

    async def locked(self, resource: str | bytes) -> bool:
        """Whether anybody holds ``resource`` now: asked of the masters, true when a quorum has the key.

        Old by the time that you read it; see [`FastRedlock.locked`][]. Raises QuorumUnavailable when too few
        masters answer.
        """
        self.check_open()
        key = self.check_key(resource)
        if not self.masters.ready:
            await self.connect()
        return self.is_locked(key, await drive(procedures.exists(self.rules, key), self.pump()))

    async def connect(self, timeout: float | None = None) -> bool:
        """Wait until a quorum of masters is connected. False if ``timeout`` (seconds) came first.

        Never needed: the first call waits by itself. ``timeout``: ``connect_timeout`` by default. Raises
        ClientClosed and WrongLoop.
        """
        self.check_open()
        return await self.pump().wait_for_quorum(self.connect_timeout if timeout is None else timeout)

    async def close(self) -> None:
        """Close all connections, and end renewal; see [`FastRedlock.close`][]."""
        pump = self.bound
        if pump is not None and pump.alive():
            pump = self.pump()
            if self._renewal is not None:
                await self._renewal.end()
            await pump.close()
            return
        self.masters.close()
        if pump is not None:
            pump.end()

    async def __aenter__(self) -> AsyncFastRedlock:
        self.pump()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def renewal(self) -> LoopRenewal:
        """What extends locks in the background; raises WrongLoop as ``pump``."""
        pump = self.pump()
        if self._renewal is None or self._renewal.generation != self.masters.generation:
            self._renewal = LoopRenewal(self, pump)
        return self._renewal

    def pump(self) -> Pump:
        """The driver in the running loop; raises WrongLoop where this is not the client's."""
        pump = self.bound
        if pump is not None and pump.here():
            return pump
        loop = asyncio.get_running_loop()
        self.check_open()
        if pump is None or pump.generation != self.masters.generation:
            pump = self.bound = Pump(self.masters, loop)
        else:
            what = "was closed" if pump.loop.is_closed() else "is another one"
            raise WrongLoop(f"the event loop of this client {what}: make a client for each loop")
        return pump


__all__: Sequence[str] = ("AsyncFastRedlock", "AsyncLock")
