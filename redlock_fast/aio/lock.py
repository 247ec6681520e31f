"""AsyncLock: a distributed lock on one resource, for asyncio."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from ..algorithm.operation import Procedure
from ..locks.bodies import Body
from ..locks.decorated import check_async
from ..locks.dev_mode import DEV_MODE, warn_of_held
from ..locks.lock_state import LockState
from ..locks.loss import loss_event
from ..locks.procedures import drop_lock, entered, new_extend, validity_of
from ..locks.rwlock import new_downgrade
from .core import LoopCore
from .driver import acquire, release, run, send_now
from .renewal import AsyncLossEvent, BodyTask
from .rlock import TaskReference, task_reference

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLock(LockState):
    """A distributed lock on one resource, made by [`AsyncFastRedlock.lock`][].

    The object, not a task, holds the lock, by a random token. Use one object for each holder. All times are
    in seconds. Every method may be cancelled: a cancelled acquire leaves no key on the masters, a cancelled
    release still releases.
    """

    __slots__ = ()
    if DEV_MODE:
        __del__ = warn_of_held

    _core: LoopCore

    @property
    def lost(self) -> AsyncLossEvent:
        """Whether the lock is lost, and an event that is set then; see [`Lock.lost`][redlock_fast.Lock.lost].

        Examples:
            >>> await lock.lost.wait()

        Raises:
            AttributeError: Without ``auto_extend=True``.
        """
        event: AsyncLossEvent = loss_event(self)
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
        return self._acquired(await acquire(self, blocking, timeout, self._core.loop_binding()))

    async def release(self) -> bool:
        """Delete the key on all masters that may have it; see [`Lock.release`][].

        Examples:
            >>> released = await lock.release()

        Raises:
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return await release(self, self._core.loop_binding())

    async def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now; see [`Lock.extend`][].

        Examples:
            >>> validity = await lock.extend(30.0)

        Raises:
            RedlockError: As [`Lock.extend`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return validity_of(await run(new_extend(self, ttl, confirm), self._core.loop_binding()))

    async def downgrade(self) -> float:
        """Turn a held write lock into a read lock; see [`Lock.downgrade`][].

        Examples:
            >>> validity = await lock.downgrade()

        Raises:
            RedlockError: As [`Lock.downgrade`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return validity_of(await run(new_downgrade(self._core, self), self._core.loop_binding()))

    async def __aenter__(self) -> Self:
        binding = self._core.loop_binding()
        outcome = await acquire(self, True, None, binding)
        if outcome is not self._lease:
            await run(Procedure(entered(self, outcome)), binding)
        self._begin_body_of(task_reference())
        return self

    def _begin_body_of(self, task: TaskReference | None) -> None:
        cancels = self._auto_extension is not None and self._auto_extension.cancels
        self._begin_body(Body(task, self._lease, BodyTask() if cancels else None))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner = task_reference() if self._bodies and len(self._bodies) > 1 else None  # one body needs none
        body, alive = self._end_body(owner, kind is GeneratorExit), False
        if body is not None and body.task is not None and body.task.left(kind):
            error = None  # the cancellation came from the loss, which __aexit__ reports as LockLost
        bound = self._core.bound
        if self._lease is not None and not self._in_another_body(self._lease):
            if kind is GeneratorExit and bound is not None:  # the task is destroyed: nothing can be awaited
                send_now(drop_lock(self), bound)
                return
            alive = await release(self, self._core.loop_binding())
        self._left(body, alive, failing=error is not None)

    def _begin_outermost_body(self, task: TaskReference) -> None:
        """Note that a body of a reentrant lock begins. A loss cancels the outermost body of each task."""
        if all(body.owner != task for body in self._bodies or ()):
            self._begin_body_of(task)

    def _end_outermost_body(self, task: TaskReference | None, kind: type[BaseException] | None) -> bool:
        """Note that the outermost body of ``task`` ends before the lock is released.

        Returns whether only a loss has cancelled it. ``kind``: the exception that ended the body.
        """
        bodies = self._bodies or []
        for body in [one for one in bodies if one.owner == task]:
            bodies.remove(body)
            return body.task is not None and body.task.left(kind)
        return False


def run_locked(
    lock_of: Callable[..., AsyncLock], function: Callable[P, Awaitable[R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """``function``, which runs only while it holds the lock that ``lock_of`` makes of its arguments."""
    check_async(function, "synchronized")

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        async with lock_of(*args, **kwargs):
            return await function(*args, **kwargs)

    return locked
