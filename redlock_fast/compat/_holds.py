"""Which owner of a redis-py lock object holds what: its ``local``, for threads and for tasks."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from ..locks.lock_state import LockState


class Hold:
    """What one owner holds: ``token``, which a program may set, and the lock that ``granted`` belongs to."""

    token: Any = None
    granted: bytes | None = None
    lock: Any = None
    #: Whether a cancelled release has released the lock.
    released = False

    def grant(self, lock: LockState) -> None:
        """Record that ``lock`` is held."""
        self.lock = lock
        self.granted = self.token = lock.token


class ThreadHold(Hold, threading.local):
    """A hold for each thread."""


class TaskHolds:
    """The holds of an asyncio lock, as its ``local``. A task without a hold uses the latest one.

    ``per_task``: a task that acquired the lock itself only uses its own hold. So a late holder cannot release
    the lock of the next task that uses the same object.
    """

    def __init__(self, per_task: bool) -> None:
        self._per_task = per_task
        self._latest = Hold()
        self._own: weakref.WeakKeyDictionary[object, Hold] = weakref.WeakKeyDictionary()

    def of(self, task: object | None) -> Hold:
        own = self._own.get(task) if task is not None else None
        return self._latest if own is None else own

    def begin(self, task: object | None) -> Hold:
        """The hold for an acquire of ``task``."""
        self._latest = hold = Hold()
        if self._per_task and task is not None:
            self._own[task] = hold
        return hold

    @property
    def token(self) -> Any:
        return self.of(current_task()).token

    @token.setter
    def token(self, token: Any) -> None:
        self.of(current_task()).token = token


def current_task() -> object | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None
