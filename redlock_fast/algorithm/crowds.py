"""Plain locks that many clients want at once: their callers wait in a queue on the masters.

A waiter of a plain lock has no place on the masters: each release wakes one caller of every client, and all
but one of them ask in vain. That is the best way for two or three clients, and needs no key but the lock's.
With many, a grant costs what all of them cost together. So a caller that was refused several times takes a
place in a queue, where a release wakes one caller (``locks/fair.py``). Its client remembers this for a short
time: its next callers take a place at once, and do not get in front of those that wait.
"""

from __future__ import annotations

from collections.abc import Callable

from .lock_kind import LockKind

#: Refused rounds after which a caller takes a place.
REFUSED_ROUNDS = 6
#: A queue is long if so many callers of other clients are in front of a caller that takes a place in it.
LONG_QUEUE = 3
#: Seconds for which a client remembers that many wanted a lock; and how many of these locks at most.
MEMORY, MOST = 1.0, 10_000
#: One of so many releases of a lock with turns (``algorithm/turn.py``) looks whether others wait for it.
RELEASES = 8
#: Seconds that a caller waits before it joins a queue that was long a moment ago, so that its request does
#: not hinder that of the caller whose turn it is.
COURTESY = 0.0006


class Crowds:
    """The locks of one client whose queues on the masters were long a moment ago, by key.

    ``queued``: makes the kind of a plain lock whose callers wait in a queue; None: they never do.
    ``until``: when the memory of a key ends, by the lease clock.
    """

    __slots__ = ("_releases", "queued", "until")

    def __init__(self, queued: Callable[[bytes], LockKind] | None = None) -> None:
        self.queued: Callable[[bytes], LockKind] | None = queued
        self.until: dict[bytes, float] = {}
        self._releases = 0

    def note(self, key: bytes, now: float) -> None:
        """Remember that the queue for ``key`` is long."""
        self.until[key] = now + MEMORY
        if len(self.until) > MOST:  # others than the present ones have ended
            self.until.clear()

    def recent(self, key: bytes, now: float) -> bool:
        """Whether the queue for ``key`` was long a moment ago."""
        end = self.until.get(key)
        if end is not None and end <= now:
            self.forget(key)
            return False
        return end is not None

    def looks(self) -> bool:
        """Whether this release looks for others that wait: one of ``RELEASES`` does."""
        self._releases = (self._releases + 1) % RELEASES
        return self._releases == 0

    def forget(self, key: bytes) -> None:
        self.until.pop(key, None)
