"""The reentrant lock for asyncio. Each task is an owner."""

from __future__ import annotations

import asyncio
import copy
import inspect
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from ..errors import LockLost
from ..locks.bodies import number_of
from ..locks.owner_queue import turn_of
from ..locks.owners import Ownership
from ..locks.rlock import Reentrant
from ..wire.text import quoted

TaskReference = weakref.ref[asyncio.Task[Any]]
F = TypeVar("F", bound=Callable[..., Any])

#: Marks a method that takes the task at the call, and returns a coroutine. Python 3.11 has no such mark.
coroutine_function: Callable[[F], F] = getattr(inspect, "markcoroutinefunction", lambda function: function)


class TaskOwner:
    """Owners are tasks. A task that ends without a release loses its ownership: the lease is not renewed."""

    def __init__(self) -> None:
        self._ownerships: weakref.WeakKeyDictionary[asyncio.Task[Any], Ownership] = (
            weakref.WeakKeyDictionary()
        )
        # weak: the task refers to the callback, which must not keep this lock alive
        ownerships = weakref.ref(self._ownerships)

        def ended(task: asyncio.Task[Any]) -> None:
            left = ownerships()
            if left is not None:
                left.pop(task, None)

        self._ended = ended
        self._task: asyncio.Task[Any] | None = None

    def of(self, task: asyncio.Task[Any]) -> TaskOwner:
        """The same owners, for a call of ``task`` that another task runs."""
        owner = copy.copy(self)
        owner._task = task
        return owner

    def _caller(self) -> asyncio.Task[Any] | None:
        return self._task or current_task()

    def get(self) -> Ownership | None:
        task = self._caller()
        return self._ownerships.get(task) if task else None

    def put(self, ownership: Ownership) -> None:
        task = self._caller()
        assert task is not None
        self._ownerships[task] = ownership
        task.remove_done_callback(self._ended)
        task.add_done_callback(self._ended)

    def drop(self, ownership: Ownership) -> None:
        task = self._caller()
        if task and self._ownerships.get(task) is ownership:
            del self._ownerships[task]
            task.remove_done_callback(self._ended)


def current_task() -> asyncio.Task[Any] | None:
    """The running task; None outside of tasks and event loops."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None


def task_reference() -> TaskReference | None:
    """A reference to the running task, which does not keep it.

    It has a callback, because Python 3.15 clears a reference without one after the coroutine of a destroyed
    task has ended: the end of a body would find its task alive.
    """
    task = current_task()
    return None if task is None else weakref.ref(task, _on_collected)


def _on_collected(reference: object) -> None:
    pass


class AsyncRLock(Reentrant):
    """A reentrant lock on one resource, made by [`AsyncFastRedlock.rlock`][].

    All tasks of the client share one object. The holding task may enter it again, and must leave it as often.
    Other tasks wait, also those that the holding task started. See [`RLock`][].
    """

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        #: The task and the ownership of each ``async with`` body. At the end of a body its task may be
        #: collected.
        self._bodies: list[tuple[TaskReference, Ownership]] = []

    @coroutine_function
    def acquire(
        self, blocking: bool = True, timeout: float = -1, *, ttl: float | None = None
    ) -> Coroutine[Any, Any, bool]:
        """Enter one level; see [`RLock.acquire`][]. A cancelled call has not entered.

        The owner is the task that makes the call, also if another task awaits the result, as that of
        ``asyncio.wait_for`` does before Python 3.12.

        Examples:
            >>> if await rlock.acquire(timeout=2.0):
            ...     await rlock.release()

        Raises:
            RedlockError: As [`RLock.acquire`][].
            RecursionError: More than 1,000 levels.
            RuntimeError: No task is running that could own the lock.
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return self._acquire(current_task(), ttl, blocking, timeout)

    async def _acquire(
        self, task: asyncio.Task[Any] | None, ttl: float | None, blocking: bool, timeout: float
    ) -> bool:
        return await self._of(task)._enter(ttl, blocking, timeout) is not None

    def _of(self, task: asyncio.Task[Any] | None) -> Self:
        """This lock for a call of ``task``; None: of the running task."""
        owner = self._owner
        if task is None or task is current_task() or not isinstance(owner, TaskOwner):
            return self
        return self._view_of(owner.of(task))

    @coroutine_function
    def release(self) -> Coroutine[Any, Any, bool]:
        """Leave one level; see [`RLock.release`][]. A cancelled call has left it.

        Examples:
            >>> alive = await rlock.release()

        Raises:
            RuntimeError: The caller holds nothing.
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return self._release(current_task())

    async def _release(self, task: asyncio.Task[Any] | None) -> bool:
        return await self._of(task)._leave()

    async def _leave(self) -> bool:
        ownership = self._require_owned()
        core: Any = self._core
        core.loop_binding()  # raises WrongLoop: the level is not left then
        if not self._decrement(ownership, [None]):
            locked: bool = ownership.lock.locked()
            return locked
        alive: bool = await ownership.lock.release()
        return alive

    @coroutine_function
    def extend(self, ttl: float | None = None, *, confirm: bool = False) -> Coroutine[Any, Any, float]:
        """Make the lease last ``ttl`` seconds from now (default: the lock's own ttl), for all levels.

        Returns the new validity in seconds. A lease is never shortened: if it already lasts longer, no
        request is sent, unless ``confirm`` is True.

        Examples:
            >>> validity = await rlock.extend(30.0)

        Raises:
            LockLost: The lease has ended, or the calling task does not hold the lock.
            TooManyExtensions: The lock was extended ``max_extensions`` times.
            QuorumUnavailable: Too few masters answered. The lock is held until its previous deadline.
            ConfigError: A ttl above the client's ``max_ttl``.
            ClientClosed: The client is closed.
            WrongLoop: The client belongs to another event loop, which is open.
        """
        return self._extend(current_task(), ttl, confirm)

    async def _extend(self, task: asyncio.Task[Any] | None, ttl: float | None, confirm: bool) -> float:
        validity: float = await self._of(task)._require_held().lock.extend(ttl, confirm=confirm)
        return validity

    async def __aenter__(self) -> Self:
        ownership, task = await self._enter(None, raises=True), task_reference()
        if ownership is not None and task is not None:
            self._bodies.append((task, ownership))
            ownership.lock._begin_outermost_body(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, ownership = self._left(kind)
        ownership = ownership or self._ownership()
        if ownership is None and error is not None:
            return
        ownership = ownership or self._require_owned()
        if not self._decrement(ownership, [None]):
            if (task, ownership) not in self._bodies and ownership.lock._end_outermost_body(task, kind):
                error = None  # the cancellation came from the loss
            if error is None:
                ownership.lock.check()
            return
        await ownership.lock.__aexit__(kind, error, trace)

    def _left(self, kind: type[BaseException] | None) -> tuple[TaskReference | None, Ownership | None]:
        """The task and the ownership of the body that has ended; None for each if there is none.

        ``kind``: the exception that ended the body.

        Two bodies of one lock belong to one owner, unless an owner has lost the lock.
        """
        owners = [task for task, _ in self._bodies]
        number = number_of(owners, task_reference(), kind is GeneratorExit)
        if number is None:  # another task of the owner has entered it
            own = self._ownership()
            number = next((n for n, (_, entered) in enumerate(self._bodies) if entered is own), None)
        if number is None:
            return None, None
        task, ownership = self._bodies.pop(number)
        valid = ownership.depth and ownership.generation == self._core.client_state.generation()
        return task, ownership if valid else None

    async def _enter(
        self, ttl: float | None, blocking: bool = True, timeout: float = -1, *, raises: bool = False
    ) -> Ownership | None:
        """Enter a level. ``raises``: as ``async with`` does, where the lock cannot be acquired."""
        ownership = await self._enter_again(ttl, blocking, timeout)
        return ownership or await self._enter_first(ttl, blocking, timeout, raises)

    async def _enter_first(
        self, ttl: float | None, blocking: bool, timeout: float, raises: bool
    ) -> Ownership | None:
        """Acquire the lock for a first level, unless another call of the owner has done so by then."""
        core: Any = self._core
        lock = self._lock(ttl)
        turn = turn_of(core, self._owner, lock, blocking, timeout)
        try:
            if turn is not None:
                while seconds := turn.wait():
                    await core.loop_binding().wait_for_turn(turn.entry, seconds)
                if not turn.has_come:
                    if raises:
                        raise self._too_late()
                    return None
                ownership = await self._enter_again(ttl)
                if ownership is not None:
                    return ownership
                lock._timeout, timeout = turn.left(), -1  # its own timeout, checked already
            granted = await lock.__aenter__() if raises else await lock.acquire(blocking, timeout)
            return self._keep(lock, [None]) if granted else None
        finally:
            if turn is not None:
                turn.leave()

    async def _enter_again(
        self, ttl: float | None, blocking: bool = True, timeout: float = -1
    ) -> Ownership | None:
        """Enter another level. Returns None if the caller has none."""
        ownership = self._ownership()
        if ownership is None:
            return None
        ownership.lock._waiting_time(blocking, timeout)  # raises ConfigError for invalid arguments
        try:
            more = self._extension_needed(ownership, ttl)
            if more is not None:
                await ownership.lock.extend(more)
            self._increment(ownership, [None])
            return ownership
        except LockLost:
            if ownership.depth:
                raise
            return None  # another task of the owner has just released it

    def _lock(self, ttl: float | None) -> Any:
        if isinstance(self._owner, TaskOwner) and current_task() is None:
            raise RuntimeError(
                f"{quoted(self.resource)}: no task is running that could own it; see owned_by()"
            )
        return super()._lock(ttl)
