"""The holds of a lock object of another library that several threads or tasks use.

The lease of a thread may end inside the block that it protects, and then another thread may acquire the same
object. What the first thread does at the end of its block must concern its own hold, and never that of the
other one. So each owner, a thread or a task, has a hold of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..aio.rlock import current_task
from ..locks.lock_state import LockState


class Hold:
    """What one owner holds: ``token``, which a program may set, and the lock that ``granted`` belongs to."""

    token: Any = None
    granted: bytes | None = None
    lock: Any = None
    #: The levels of a reentrant lock.
    depth: int = 0
    #: Whether a cancelled release has released the lock.
    released = False
    #: Whether it was released by another thread or task, so that its owner has no hold of its own any more.
    ended_by_other = False

    def grant(self, lock: LockState, token: bytes | None) -> None:
        """Record that ``lock`` is held with ``token``."""
        self.lock = lock
        self.granted = self.token = token
        self.depth = 1


class ThreadHold(Hold, threading.local):
    """A hold for each thread, which no other thread can use."""


class ThreadIdentity:
    """Stands for a thread of this process. It is collected when the thread ends."""

    def __init__(self) -> None:
        self.pid: int = os.getpid()

    def done(self) -> bool:
        return False


class ThisThread:
    """The identity of the calling thread or greenlet, on each call. A child of fork has other identities."""

    def __init__(self) -> None:
        self._local: Any = threading.local()  # no base class: gevent may replace it after this import

    def __call__(self) -> ThreadIdentity:
        me: ThreadIdentity | None = getattr(self._local, "me", None)
        if me is None or me.pid != os.getpid():
            self._local.me = me = ThreadIdentity()
        return me


Owner = ThreadIdentity | asyncio.Task[Any]


class Holds:
    """The holds of one lock object, one for each owner; and the ``local`` of redis-py's locks.

    An owner that acquired the lock itself uses only its own hold, so that a late holder cannot release the
    lock of the next one. Any other owner uses the latest hold, because other libraries allow a release in
    another thread. So does an owner after its release, if the owner of the latest hold has ended: that was a
    task such as ``asyncio.wait_for`` makes.
    """

    def __init__(self, owner: Callable[[], Owner | None]) -> None:
        self.owner = owner
        self._latest = Hold()
        self._latest_owner: weakref.ref[Owner] | None = None
        self._own: weakref.WeakKeyDictionary[Owner, Hold] = weakref.WeakKeyDictionary()

    def own(self) -> Hold | None:
        """The hold that the caller has acquired itself, also after its release; None: there is none."""
        owner = self.owner()
        return self._own.get(owner) if owner is not None else None

    def current(self) -> Hold:
        """The hold that the caller extends and releases."""
        own = self.own()
        if own is None or own.ended_by_other or (own.token is None and self._latest_is_left()):
            return self._latest
        return own

    def begin(self, owner: Owner | None) -> Hold:
        """A new hold, for an acquire of ``owner``."""
        hold = Hold()
        if owner is not None:
            self._own[owner] = hold
        self._latest, self._latest_owner = hold, None if owner is None else weakref.ref(owner)
        return hold

    def end(self, hold: Hold, owner: Owner | None) -> None:
        """Note that ``owner`` releases ``hold``."""
        hold.ended_by_other = owner is None or hold is not self._own.get(owner)
        hold.token = None

    def _latest_is_left(self) -> bool:
        owner = None if self._latest_owner is None else self._latest_owner()
        return owner is None or owner.done()

    @property
    def token(self) -> Any:
        return self.current().token

    @token.setter
    def token(self, token: Any) -> None:
        self.current().token = token


def thread_holds() -> Holds:
    """The holds of an object that threads share."""
    return Holds(ThisThread())


def task_holds() -> Holds:
    """The holds of an object that tasks share."""
    return Holds(current_task)
