"""Drop-in lock objects: acquire and release, also where a signal handler raises."""

from __future__ import annotations

from typing import Any

from .. import Lock
from ._clients import keep
from ._holds import Hold, task_holds, thread_holds


class LockHolder:
    """Base class of lock objects that threads share. Each thread has the hold that it acquired itself."""

    def __init__(self) -> None:
        self._holds = thread_holds()

    @property
    def _lock(self) -> Lock | None:
        """The lock that the calling thread extends and releases."""
        lock: Lock | None = self._holds.current().lock
        return lock

    def _own_hold(self) -> Hold | None:
        """What the calling thread itself has acquired and not released, for a reentrant lock."""
        own = self._holds.own()
        return own if own is not None and own.depth else None

    def _acquire_lock(self, lock: Lock, *args: Any) -> bool:
        """Acquire ``lock`` and store it. An exception leaves it released, since its caller has no lock."""
        try:
            granted = lock.acquire(*args)
            if granted:
                keep(lock)
                self._holds.begin(self._holds.owner()).grant(lock, lock.token)
            return granted
        except BaseException:
            lock.release()  # a signal handler may raise after the grant
            raise

    def _release_lock(self) -> bool:
        """Release the stored lock. False: there is none, or its lease had ended."""
        lock = None
        try:
            hold = self._holds.current()
            lock = hold.lock
            if lock is None:
                return False
            hold.depth = 0
            self._holds.end(hold, self._holds.owner())
            hold.lock = None
            alive: bool = lock.release()
            return alive
        except BaseException:
            lock = lock or self._lock
            if lock is not None:
                lock.release()  # a signal handler raised, perhaps before the release began
            raise


class TaskLockHolder:
    """Base class of lock objects that tasks share. Each task has the hold that it acquired itself."""

    def __init__(self) -> None:
        self._holds = task_holds()
