"""Mutexes that are free in a child of fork."""

from __future__ import annotations

import os
import threading
import weakref

_all: weakref.WeakSet[threading.RLock] = weakref.WeakSet()


def new_mutex() -> threading.RLock:
    """A reentrant mutex, which a child of fork has only if the thread that forked had it.

    The child lacks the other threads of its parent. A signal handler may fork while its thread waits for the
    mutex, and the thread goes on to wait in the child.
    """
    mutex = threading.RLock()
    _all.add(mutex)
    return mutex


def _after_fork_in_child() -> None:
    for mutex in list(_all):
        if not mutex._is_owned():  # type: ignore[attr-defined]
            mutex._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_after_fork_in_child)
