"""Renewal: which leases to extend and when, and which are lost. No I/O, no threads, no clock of its own.

A lease is due when a third of it has run; what is due within a short window goes out together. Where too
few masters answer it is tried again soon, with pauses that grow, until the deadline. Two heaps: what is
due, and when leases end. Drivers for threads and for asyncio do what this says (``threads/renewal.py``,
``aio/renewal.py``).
"""

from __future__ import annotations

import heapq
import itertools
import math
import weakref
from typing import Protocol

from .lease import Lease
from .quorum import deadline

#: How much of a lease is left when it is extended.
LEFT = 2 / 3
#: What is due within so many seconds, and within this share of its lease, is extended along with others.
WINDOW, WINDOW_SHARE = 0.05, 1 / 12
#: Pauses after inconclusive extensions, in seconds: doubled each time, up to this share of the lease.
FIRST_PAUSE, LONGEST_PAUSE_SHARE = 0.01, 1 / 30
#: In this last share of a lease nothing is tried again that may take longer than what is left.
LAST_SHARE = 1 / 10

# Why a lock was lost: the ``reason`` for ``on_lost``.
GONE = "gone: a quorum of masters no longer has the key"
UNCONFIRMED = "unconfirmed: too few masters answered before the lease ended"
LATE = "late: this process was held up until the lease had ended"
MAX_EXTENSIONS = "max_extensions: extended as often as allowed, then the lease ended"
MAX_HOLD = "max_hold: held as long as allowed, then the lease ended"


class Renewable(Protocol):
    """What is asked of a lock."""

    @property
    def key(self) -> bytes: ...

    @property
    def ttl(self) -> float: ...

    @property
    def lease(self) -> Lease | None: ...

    def may_be_extended(self, lease: Lease) -> bool: ...


class Hold:
    """One lease under renewal, from its grant to its release or loss. ``until``: not extended beyond this.

    It has its lock only weakly: one that nobody has any more is not renewed.
    """

    __slots__ = ("_lock", "failures", "key", "lease", "over", "stopped", "told", "ttl", "until")

    def __init__(self, lock: Renewable, lease: Lease, until: float = math.inf) -> None:
        self._lock = weakref.ref(lock)
        self.key = lock.key
        self.ttl = lock.ttl
        self.lease = lease
        self.until = until
        self.failures = 0  # since it was last extended
        self.stopped = ""  # why it is not extended any more
        self.over = True  # of no interest: released, lost or abandoned; or not in the schedule yet
        self.told = False  # that it is lost

    def lock(self) -> Renewable | None:
        """The lock, while it has this lease."""
        lock = self._lock()
        return lock if lock is not None and lock.lease is self.lease else None

    def due(self) -> float:
        """When to extend it, whoever extended it last."""
        return self.lease.deadline - self.ttl * LEFT

    def slack(self) -> float:
        """How much earlier it may be, along with others."""
        return 0.0 if self.failures else min(WINDOW, self.ttl * WINDOW_SHARE)

    def pause(self) -> float:
        """Before the next attempt, after so many failures."""
        longest = max(FIRST_PAUSE, self.ttl * LONGEST_PAUSE_SHARE)
        return min(longest, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 30))

    def reason(self) -> str:
        """Why it was lost, if its deadline has passed."""
        return self.stopped or (UNCONFIRMED if self.failures else LATE)


Heap = list[tuple[float, int, Hold]]


class Schedule:
    """All holds of a client. Times are those of the lease clock, handed in.

    ``took``: seconds that the last exchange took; what cannot be answered in time is not asked.
    """

    def __init__(self, drift_factor: float) -> None:
        self.took = 0.0
        self._drift_factor = drift_factor
        self._dues: Heap = []
        self._ends: Heap = []
        self._numbers = itertools.count()  # so that no two entries of a heap are equal
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, hold: Hold) -> None:
        self._count += 1
        hold.over = False  # so that whoever is interrupted, here or before, may drop it: it is counted or not
        self._push(self._ends, hold.lease.deadline, hold)
        self._push(self._dues, hold.due(), hold)

    def drop(self, hold: Hold) -> None:
        """It is released, lost or abandoned."""
        if not hold.over:
            hold.over = True
            self._count -= 1

    def sweep(self) -> None:
        """Forget what was dropped, if it is much. Not part of ``drop``, which a signal handler may call."""
        for heap in (self._dues, self._ends):
            if len(heap) > 2 * self._count + 64:
                heap[:] = [entry for entry in heap if not entry[2].over]
                heapq.heapify(heap)

    def next(self) -> float:
        """When there is something to do again; infinity: never."""
        while self._dues and self._dues[0][2].over:
            heapq.heappop(self._dues)
        return min(self.first_end(), self._dues[0][0] if self._dues else math.inf)

    def first_end(self) -> float:
        """When the first of all leases ends, as they are now."""
        ends = self._ends
        while ends:
            at, _, hold = ends[0]
            if hold.over:
                heapq.heappop(ends)
            elif at < hold.lease.deadline:  # it was extended
                heapq.heapreplace(ends, (hold.lease.deadline, next(self._numbers), hold))
            else:
                return at
        return math.inf

    def ended(self, now: float) -> list[Hold]:
        """Those whose lease has ended and whose lock is still there: lost."""
        self.sweep()
        lost = []
        while self.first_end() <= now:
            hold = heapq.heappop(self._ends)[2]
            if hold.lock() is None:
                self.drop(hold)
            else:
                lost.append(hold)
        return lost

    def due(self, now: float) -> list[tuple[Hold, float]]:
        """Those to extend now, and for how many seconds each. ``settle`` must follow."""
        found = []
        while self._dues and (self._dues[0][2].over or self._dues[0][0] - self._dues[0][2].slack() <= now):
            hold = heapq.heappop(self._dues)[2]
            if not hold.over:
                ttl = self._wanted(hold, now)
                if ttl:
                    found.append((hold, ttl))
        return found

    def _wanted(self, hold: Hold, now: float) -> float:
        """For how many seconds to extend it; 0.0: not now."""
        lock = hold.lock()
        if lock is None:
            self.drop(hold)
            return 0.0
        if hold.due() - hold.slack() > now:  # somebody else extended it
            hold.failures = 0
            self._push(self._dues, hold.due(), hold)
            return 0.0
        left = hold.lease.deadline - now
        if hold.failures and left < min(self.took, hold.ttl * LAST_SHARE):
            return 0.0  # only the telling of its end would be late
        ttl = min(hold.ttl, hold.until - now)
        if not lock.may_be_extended(hold.lease):
            hold.stopped = MAX_EXTENSIONS
        elif deadline(now, ttl, self._drift_factor) < hold.lease.deadline + hold.ttl * WINDOW_SHARE:
            hold.stopped = MAX_HOLD  # what is left to gain is not worth it
        else:
            return ttl
        return 0.0

    def settle(self, hold: Hold, extended: bool, now: float) -> None:
        """What came of it, unless it is lost."""
        if hold.over:
            return
        hold.failures = 0 if extended else hold.failures + 1
        self._push(self._dues, hold.due() if extended else now + hold.pause(), hold)

    def _push(self, heap: Heap, at: float, hold: Hold) -> None:
        heapq.heappush(heap, (at, next(self._numbers), hold))
