"""Drop-in lock objects: acquire and release, also where a signal handler raises."""

from __future__ import annotations

import os
import threading
from typing import Any

from .. import Lock
from ._clients import keep

#: The process and the thread that hold a reentrant lock: in a child of fork a thread has the same number.
Owner = tuple[int, int]


def this_owner() -> Owner:
    return os.getpid(), threading.get_ident()


class LockHolder:
    """Base class of lock objects. ``_lock``: the lock that this object has acquired, for all threads."""

    _lock: Lock | None = None

    def _acquire_lock(self, lock: Lock, *args: Any) -> bool:
        """Acquire ``lock`` and store it. An exception leaves it released, since its caller has no lock."""
        try:
            granted = lock.acquire(*args)
            if granted:
                keep(lock)
                self._lock = lock
            return granted
        except BaseException:
            lock.release()  # a signal handler may raise after the grant
            raise

    def _release_lock(self) -> bool:
        """Release the stored lock. False: there is none, or its lease had ended."""
        lock, self._lock = self._lock, None
        if lock is None:
            return False
        try:
            return lock.release()
        except BaseException:
            lock.release()  # a signal handler raised, perhaps before the release began
            raise
