"""Mutexes that are free in a child of fork, and after a signal handler that raised."""

from __future__ import annotations

import sys
import threading
import weakref
from _thread import RLock

from .fork import in_child_of_fork

#: A signal handler may run between the end of ``__enter__`` and the body of ``with`` (python/cpython#148874).
ENTER_IS_INTERRUPTIBLE = sys.version_info[:2] == (3, 14)

_all: weakref.WeakSet[threading.RLock] = weakref.WeakSet()


class _EnteredByIteration(RLock):  # type: ignore[misc]  # final in typeshed only
    """A mutex for Python 3.14, which runs signal handlers after a call, but neither after a step of an
    iterator nor where a function in Python returns.
    """

    def __enter__(self) -> bool:  # type: ignore[override]
        for acquired in iter(self.acquire, None):
            return acquired
        raise AssertionError("acquire() never returns None")


def new_mutex() -> threading.RLock:
    """A reentrant mutex. In a child of fork it is free, unless the thread that forked held it.

    The child lacks the other threads of its parent. A signal handler may fork while its thread waits for the
    mutex, and the thread goes on to wait in the child.
    """
    mutex = threading.RLock()
    if ENTER_IS_INTERRUPTIBLE and type(mutex) is RLock:  # gevent has another one
        mutex = _EnteredByIteration()
    _all.add(mutex)
    return mutex


def _after_fork_in_child() -> None:
    for mutex in list(_all):
        if not mutex._is_owned():  # type: ignore[attr-defined]
            mutex._at_fork_reinit()  # type: ignore[attr-defined]


in_child_of_fork(_after_fork_in_child)
