"""Which owner of a redis-py lock object holds what: its ``local``, for threads and for tasks."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from ..aio.rlock import current_task
from ..locks.lock_state import LockState


class Hold:
    """What one owner holds: ``token``, which a program may set, and the lock that ``granted`` belongs to."""

    token: Any = None
    granted: bytes | None = None
    lock: Any = None
    #: Whether a cancelled release has released the lock.
    released = False

    def grant(self, lock: LockState, token: bytes | None) -> None:
        """Record that ``lock`` is held with ``token``."""
        self.lock = lock
        self.granted = self.token = token


class ThreadHold(Hold, threading.local):
    """A hold for each thread."""


class TaskHolds:
    """The holds of an asyncio lock, as its ``local``. A task without a hold uses the latest one.

    ``per_task``: a task that acquired the lock itself uses only its own hold, so that a late holder cannot
    release the lock of the next task that uses the same object. After its release it may use the latest hold
    if the task that acquired that one has ended: it was a task such as ``asyncio.wait_for`` makes.
    """

    def __init__(self, per_task: bool) -> None:
        self._per_task = per_task
        self._latest = Hold()
        self._owner: weakref.ref[asyncio.Task[Any]] | None = None
        self._own: weakref.WeakKeyDictionary[asyncio.Task[Any], Hold] = weakref.WeakKeyDictionary()

    def of(self, task: asyncio.Task[Any] | None) -> Hold:
        """The hold that ``task`` extends and releases."""
        own = self._own.get(task) if task is not None else None
        if own is None or (own.token is None and self._latest_is_left()):
            return self._latest
        return own

    def begin(self, task: asyncio.Task[Any] | None) -> Hold:
        """The hold for an acquire of ``task``."""
        self._latest = hold = Hold()
        self._owner = None if task is None else weakref.ref(task)
        if self._per_task and task is not None:
            self._own[task] = hold
        return hold

    def _latest_is_left(self) -> bool:
        owner = None if self._owner is None else self._owner()
        return owner is None or owner.done()

    @property
    def token(self) -> Any:
        return self.of(current_task()).token

    @token.setter
    def token(self, token: Any) -> None:
        self.of(current_task()).token = token
