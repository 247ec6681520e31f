"""The renewal schedule: which leases to extend and when, and which are lost. No I/O, no threads, no clock.

A lease is due after a third of its ttl. Leases that are due within a short window are extended together.
After too few replies an extension is repeated, with growing pauses, until the deadline. There are two heaps:
one by due time, one by end. ``threads/renewal.py`` and ``aio/renewal.py`` run the schedule.
"""

from __future__ import annotations

import heapq
import itertools
import math
import weakref
from typing import Protocol

from .lease import Lease
from .quorum import deadline

#: The share of a lease that is left when it is due. Of a lease that has lost much to the drift, the share of
#: the rest.
EXTEND_AT_SHARE_LEFT, EXTEND_AT_SHARE_OF_REST = 2 / 3, 3 / 4
#: Leases that are due within these seconds, and this share of their ttl, are extended together.
WINDOW, WINDOW_SHARE = 0.05, 1 / 12
#: Pauses after inconclusive extensions, in seconds: doubled each time, up to this share of the lease.
FIRST_PAUSE, LONGEST_PAUSE_SHARE = 0.01, 1 / 30
#: The share of ``max_hold`` after which a lease is reported as held for long.
LONG_HOLD_SHARE = 0.8
#: In this last share of a lease no extension is repeated that may take longer than the rest.
LAST_SHARE = 1 / 10

# Why a lock was lost: the ``reason`` for ``on_lost``, and of LockLost.
GONE = "gone: a quorum of masters no longer has the key"
UNCONFIRMED = "unconfirmed: too few masters answered before the lease ended"
LATE = "late: this process was held up until the lease had ended"
MAX_EXTENSIONS = "max_extensions: extended as often as allowed, then the lease ended"
MAX_HOLD = "max_hold: held as long as allowed, then the lease ended"
# Why a lock is not held that renewal did not lose: the ``reason`` of LockLost.
ENDED = "ended: the lease has ended, and nothing extended it"
NOT_HELD = "not held: it was not acquired, or was released"
FORKED = "forked: this process is a child of fork, and the lock belongs to its parent"


class Renewable(Protocol):
    """The part of a lock that renewal needs."""

    @property
    def key(self) -> bytes: ...

    @property
    def ttl(self) -> float: ...

    _lease: Lease | None

    def _may_be_extended(self, lease: Lease) -> bool: ...


class RenewedLease:
    """One lease under renewal, from its grant to its release or loss.

    ``until``: the latest end, by the lease clock. ``warn_at``: when the lease is reported as held for long;
    infinity after the report. ``early``: how many seconds before its end it is due; a schedule lowers it. It
    has a weak reference to its lock: a lock without other references is not renewed.
    """

    __slots__ = (
        "_lock", "early", "failures", "key", "lease", "notified", "over", "stopped", "ttl", "until",
        "warn_at",
    )  # fmt: skip

    def __init__(
        self, lock: Renewable, lease: Lease, until: float = math.inf, warn_at: float = math.inf
    ) -> None:
        self._lock = weakref.ref(lock)
        self.key: bytes = lock.key
        self.ttl: float = lock.ttl
        self.lease: Lease = lease
        self.until: float = until
        self.warn_at: float = warn_at
        self.early: float = self.ttl * EXTEND_AT_SHARE_LEFT
        self.failures: int = 0  # since the last extension
        self.stopped: str = ""  # the reason why it is no longer extended
        self.over: bool = True  # released, lost or abandoned; or not in the schedule yet
        self.notified: bool = False  # whether the loss was reported

    def lock(self) -> Renewable | None:
        """The lock, while it has this lease; otherwise None."""
        lock = self._lock()
        return lock if lock is not None and lock._lease is self.lease else None

    def due_at(self) -> float:
        """When to extend it, by its present deadline."""
        return self.lease.deadline - self.early

    def slack(self) -> float:
        """Seconds by which it may be extended earlier, together with other leases."""
        return 0.0 if self.failures else min(WINDOW, self.early * WINDOW_SHARE / EXTEND_AT_SHARE_LEFT)

    def pause(self) -> float:
        """Seconds before the next attempt, after ``failures``."""
        longest = max(FIRST_PAUSE, self.ttl * LONGEST_PAUSE_SHARE)
        return min(longest, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 30))

    def reason(self) -> str:
        """Why the lease was lost, if its deadline has passed."""
        return self.stopped or (UNCONFIRMED if self.failures else LATE)


Heap = list[tuple[float, int, RenewedLease]]


class Schedule:
    """All renewed leases of a client. Times are those of the lease clock.

    ``took``: seconds that the last exchange took. No extension is sent that would be answered too late.
    """

    def __init__(self, drift_factor: float) -> None:
        self.took: float = 0.0
        self._drift_factor = drift_factor
        self._dues: Heap = []
        self._ends: Heap = []
        self._numbers = itertools.count()  # so that no two entries of a heap are equal
        self._count = 0
        self._long_held: list[RenewedLease] = []

    def __len__(self) -> int:
        return self._count

    def leases(self) -> list[RenewedLease]:
        """All renewed leases."""
        return [renewed for _, _, renewed in self._ends if not renewed.over]

    def add(self, renewed: RenewedLease) -> None:
        self._count += 1
        # before the pushes: after an exception in here ``drop`` restores the count
        renewed.over = False
        rest = deadline(0.0, renewed.ttl, self._drift_factor)
        renewed.early = min(renewed.early, rest * EXTEND_AT_SHARE_OF_REST)
        self._push(self._ends, renewed.lease.deadline, renewed)
        self._push(self._dues, renewed.due_at(), renewed)

    def drop(self, renewed: RenewedLease) -> None:
        """Remove a lease that is released, lost or abandoned. Further calls do nothing."""
        if not renewed.over:
            renewed.over = True
            self._count -= 1

    def sweep(self) -> None:
        """Remove dropped leases from the heaps, if they are many. Signal handlers may call only ``drop``."""
        for heap in (self._dues, self._ends):
            if len(heap) > 2 * self._count + 64:
                heap[:] = [entry for entry in heap if not entry[2].over]
                heapq.heapify(heap)

    def next(self) -> float:
        """When the next lease is due or ends; infinity: never."""
        while self._dues and self._dues[0][2].over:
            heapq.heappop(self._dues)
        return min(self.first_end(), self._dues[0][0] if self._dues else math.inf)

    def first_end(self) -> float:
        """When the first lease ends; infinity if there is none."""
        ends = self._ends
        while ends:
            at, _, renewed = ends[0]
            if renewed.over:
                heapq.heappop(ends)
            elif at < renewed.lease.deadline:  # it was extended
                heapq.heapreplace(ends, (renewed.lease.deadline, next(self._numbers), renewed))
            else:
                return at
        return math.inf

    def pop_ended(self, now: float) -> list[RenewedLease]:
        """Remove the leases that have ended. Returns those whose lock still exists: they are lost."""
        self.sweep()
        lost = []
        while self.first_end() <= now:
            renewed = heapq.heappop(self._ends)[2]
            if renewed.lock() is None:
                self.drop(renewed)
            else:
                lost.append(renewed)
        return lost

    def pop_due(self, now: float) -> list[tuple[RenewedLease, float]]:
        """Remove the leases that are due. Returns each with its new ttl. ``settle`` must follow."""
        found = []
        while self._dues and (self._dues[0][2].over or self._dues[0][0] - self._dues[0][2].slack() <= now):
            renewed = heapq.heappop(self._dues)[2]
            if not renewed.over:
                ttl = self._extension_ttl(renewed, now)
                if ttl:
                    found.append((renewed, ttl))
        return found

    def pop_long_held(self) -> list[RenewedLease]:
        """The leases that ``pop_due`` found held for LONG_HOLD_SHARE of ``max_hold``, each once."""
        found, self._long_held = self._long_held, []
        return found

    def _extension_ttl(self, renewed: RenewedLease, now: float) -> float:
        """The ttl of its extension in seconds; 0.0: no extension now."""
        lock = renewed.lock()
        if lock is None:
            self.drop(renewed)
            return 0.0
        if renewed.due_at() - renewed.slack() > now:  # an extension by its caller moved it
            renewed.failures = 0
            self._push(self._dues, renewed.due_at(), renewed)
            return 0.0
        if renewed.warn_at <= now:
            renewed.warn_at = math.inf
            self._long_held.append(renewed)
        left = renewed.lease.deadline - now
        if renewed.failures and left < min(self.took, renewed.ttl * LAST_SHARE):
            # An extension would only delay the report of its end. The caller may still extend the lease.
            if left > 0.0:
                self._push(self._dues, now + left, renewed)
            return 0.0
        ttl = min(renewed.ttl, renewed.until - now)
        if not lock._may_be_extended(renewed.lease):
            renewed.stopped = MAX_EXTENSIONS
        elif ttl < renewed.ttl and self._gain(renewed, now, ttl) < renewed.ttl * WINDOW_SHARE:
            renewed.stopped = MAX_HOLD
            if renewed.warn_at < math.inf:
                self._push(self._dues, renewed.warn_at, renewed)
        else:
            return ttl
        return 0.0

    def _gain(self, renewed: RenewedLease, now: float, ttl: float) -> float:
        """The seconds by which an extension for ``ttl`` seconds would make the lease longer."""
        return deadline(now, ttl, self._drift_factor) - renewed.lease.deadline

    def settle(self, renewed: RenewedLease, extended: bool, now: float) -> None:
        """Schedule the next extension, unless the lease is lost."""
        if renewed.over:
            return
        renewed.failures = 0 if extended else renewed.failures + 1
        self._push(self._dues, renewed.due_at() if extended else now + renewed.pause(), renewed)

    def _push(self, heap: Heap, at: float, renewed: RenewedLease) -> None:
        heapq.heappush(heap, (at, next(self._numbers), renewed))
