"""The reentrant lock for asyncio: as that for threads, where each task is an owner."""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import Any, Self

from ..locks.owners import Hold
from ..locks.rlock import Reentrant
from ..wire.text import quoted


class ThisTask:
    """The running task. What it leaves behind ends with it: it is renewed no more, so that its lease ends."""

    def __init__(self) -> None:
        self._holds: weakref.WeakKeyDictionary[asyncio.Task[Any], Hold] = weakref.WeakKeyDictionary()
        holds = weakref.ref(self._holds)  # the task keeps what is called at its end, and not this lock

        def ended(task: asyncio.Task[Any]) -> None:
            left = holds()
            if left is not None:
                left.pop(task, None)

        self._ended = ended

    def get(self) -> Hold | None:
        task = _task()
        return self._holds.get(task) if task else None

    def put(self, hold: Hold) -> None:
        task = _task()
        assert task is not None
        self._holds[task] = hold
        task.remove_done_callback(self._ended)
        task.add_done_callback(self._ended)

    def drop(self, hold: Hold) -> None:
        task = _task()
        if task and self._holds.get(task) is hold:
            del self._holds[task]
            task.remove_done_callback(self._ended)


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None


class AsyncRLock(Reentrant):
    """A reentrant lock on one resource, made by [`AsyncFastRedlock.rlock`][].

    One object is shared by all tasks of the client. Each task that holds it may enter it again, and has
    to leave it as often; the others wait, those that it started too. See [`RLock`][].
    """

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        #: What the bodies of ``async with`` hold, and whose they are: at their end that task may be gone.
        self._bodies: list[tuple[weakref.ref[asyncio.Task[Any]], Hold]] = []

    async def acquire(
        self, blocking: bool = True, timeout: float = -1, *, ttl: float | None = None
    ) -> bool:
        """Enter; see [`RLock.acquire`][]. Cancelled, it has not entered."""
        hold = self._hold()
        if hold is not None:
            hold.lock._waiting_time(blocking, timeout)  # checks them
            await self._again(hold, ttl)
            return True
        lock = self._lock(ttl)
        granted: bool = await lock.acquire(blocking, timeout)
        if granted:
            self._keep(lock)
        return granted

    async def release(self) -> bool:
        """Leave a level; see [`RLock.release`][]. Cancelled, it has left all the same."""
        hold = self._mine()
        if not self._last(hold):
            locked: bool = hold.lock.locked()
            return locked
        try:
            alive: bool = await hold.lock.release()
            return alive
        finally:
            self._drop(hold.lock)

    async def extend(self, ttl: float | None = None, *, confirm: bool = False) -> float:
        """Make the lease last ``ttl`` seconds from now, for all levels; see [`Lock.extend`][]."""
        validity: float = await self._held().lock.extend(ttl, confirm=confirm)
        return validity

    async def __aenter__(self) -> Self:
        hold = self._hold()
        if hold is not None:
            await self._again(hold, None)
        else:
            lock = self._lock(None)
            await lock.__aenter__()
            hold = self._keep(lock)
        task = asyncio.current_task()
        if task is not None:
            self._bodies.append((weakref.ref(task), hold))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._left(kind) or self._hold()
        if hold is None and error is not None:
            return
        hold = hold or self._mine()
        if not self._last(hold):
            if error is None:
                hold.lock.check()
            return
        try:
            await hold.lock.__aexit__(kind, error, trace)
        finally:
            self._drop(hold.lock)

    def _left(self, kind: type[BaseException] | None) -> Hold | None:
        """What the body that has ended held, if that is known.

        A task that is destroyed, or an async generator that nobody went on with, ends in whichever task runs
        then. No two bodies of one lock belong to different owners, unless one of them has lost it.
        """
        task, owners = _task(), [ref() for ref, _ in self._bodies]
        if kind is GeneratorExit and None in owners:
            number = owners.index(None)
        elif task in owners:
            number = owners.index(task)
        elif kind is GeneratorExit and owners:
            number = 0
        else:
            return None
        hold = self._bodies.pop(number)[1]
        return hold if hold.depth and hold.generation == self._core.masters.generation else None

    async def _again(self, hold: Hold, ttl: float | None) -> None:
        more = self._wanted(hold, ttl)
        if more is not None:
            await hold.lock.extend(more)
        self._deeper(hold)

    def _lock(self, ttl: float | None) -> Any:
        if isinstance(self._owner, ThisTask) and _task() is None:
            raise RuntimeError(f"{quoted(self.key)}: no task is running that could own it; see owned_by()")
        return super()._lock(ttl)
