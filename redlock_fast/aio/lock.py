"""AsyncLock: a lock for the tasks of an event loop.

The first exchange of an acquire or a release runs without its procedure, as in ``threads/fast_path.py``,
which explains it. The steps between two pauses of a coroutine are one method each, so that they are compiled
with the types of ``aio/lock.pxd``.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import Attempt, finish_release, start_release
from ..locks.handover import HandoverKind
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, drop_lock, entered, extend_lock, release_lock
from ..locks.rwlock import downgrade
from .driver import abort, drive, drive_now
from .future import ExchangeFuture
from .loop import LoopBinding
from .renewal import Body

if TYPE_CHECKING:
    from .client import AsyncFastRedlock


class AsyncLock(LockState):
    """A distributed lock on one resource, made by [`AsyncFastRedlock.lock`][].

    The object, not a task, holds the lock, by a random token. Use one object for each holder. All times are
    in seconds. Every method may be cancelled: a cancelled acquire leaves no key on the masters, a cancelled
    release still releases.
    """

    __slots__ = ()

    _core: AsyncFastRedlock

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lock is lost; see [`Lock.lost`][redlock_fast.Lock.lost].

        Examples:
            >>> await lock.lost.wait()

        Raises:
            AttributeError: Without ``auto_extend=True``.
        """
        if self._auto_extension is None:
            raise AttributeError("lost: only a lock with auto_extend=True has this event")
        event: asyncio.Event = self._auto_extension.lost
        return event

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see [`Lock.acquire`][].

        Examples:
            >>> if await lock.acquire(timeout=2.0):
            ...     await lock.release()

        Raises:
            RedlockError: As [`Lock.acquire`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return self._acquired(await self._acquire(blocking, timeout, self._core.loop_binding()))

    async def release(self) -> bool:
        """Delete the key on all masters that may have it; see [`Lock.release`][].

        Examples:
            >>> released = await lock.release()

        Raises:
            WrongLoop: The client belongs to another event loop, which is open.
        """
        binding = self._core.loop_binding()
        try:
            lease = self._start_release()
            if lease is None:
                return type(self._lock_kind) is HandoverKind and await drive(release_lock(self), binding)
            future = self._submit_release(lease, binding)
            await future
            return self._complete_release(lease, future)
        except BaseException as error:
            await abort(release_lock(self), binding, error)
            raise

    async def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now; see [`Lock.extend`][].

        Examples:
            >>> validity = await lock.extend(30.0)

        Raises:
            RedlockError: As [`Lock.extend`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return await drive(extend_lock(self, ttl, confirm), self._core.loop_binding())

    async def downgrade(self) -> float:
        """Turn a held write lock into a read lock; see [`Lock.downgrade`][].

        Examples:
            >>> validity = await lock.downgrade()

        Raises:
            RedlockError: As [`Lock.downgrade`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return await drive(downgrade(self._core, self), self._core.loop_binding())

    async def __aenter__(self) -> Self:
        binding = self._core.loop_binding()
        outcome = await self._acquire(True, None, binding)
        if outcome is not self._lease:
            await drive(entered(self, outcome), binding)
        if self._auto_extension is not None and self._auto_extension.cancels:
            self._auto_extension.body = Body()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._auto_extension is not None and self._auto_extension.body is not None:
            body, self._auto_extension.body = self._auto_extension.body, None
            if body.left(kind):
                error = None  # the cancellation came from the loss, which __aexit__ reports as LockLost
        bound = self._core.bound
        if kind is GeneratorExit and bound is not None:  # the task is destroyed: nothing can be awaited
            drive_now(drop_lock(self), bound)
        else:
            alive = await AsyncLock.release(self)  # that of a subclass may report, as its __aexit__ does
            self._left(alive, failing=error is not None)

    # --- the first exchange ---

    async def _acquire(
        self, blocking: bool, timeout: float | None, binding: LoopBinding
    ) -> Lease | AcquireFailure:
        """Acquire; see ``acquire_lock`` for the arguments, the result and what is raised."""
        attempt = self._start_attempt(blocking, timeout)
        if attempt is None:
            return await drive(acquire_lock(self, blocking, timeout), binding)
        try:
            future = self._submit_acquire(attempt, binding)
            await future
            outcome: Lease | AcquireFailure | None = self._complete_acquire(attempt, future)
            if outcome is None:
                outcome = await drive(acquire_lock(self, blocking, timeout, attempt), binding, future.answers)
                self._acquiring = None
            return outcome
        except BaseException as error:
            if self._acquiring is attempt:
                try:
                    await abort(acquire_lock(self, blocking, timeout, attempt), binding, error)
                finally:
                    self._acquiring = None
            raise

    def _submit_acquire(self, attempt: Attempt, binding: LoopBinding) -> ExchangeFuture:
        self._mark_acquiring_unlocked(attempt)
        policy = self._policy
        return binding.submit(attempt.requests, attempt.lists.need, policy.node_timeout, policy.wait)

    def _complete_acquire(self, attempt: Attempt, future: ExchangeFuture) -> Lease | None:
        lease = self._finish_attempt(attempt, future.answers[0])
        if lease is not None:
            self._acquiring = None
        return lease

    def _submit_release(self, lease: Lease, binding: LoopBinding) -> ExchangeFuture:
        policy = self._policy
        need = policy.voters.lists.need
        return binding.submit(start_release(lease), need, policy.node_timeout, policy.certain)

    def _complete_release(self, lease: Lease, future: ExchangeFuture) -> bool:
        return self.note_release(lease, finish_release(self._policy, lease, future.answers))
