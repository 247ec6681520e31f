"""How long grants took: counted in buckets, for clients that are asked to.

The lease itself says it: what is gone of it when it is granted. So there is no clock to read, whichever
kind of lock it was, for threads or asyncio; and a client that is not asked does nothing for it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from ._core import Core
from ._masters import Masters
from ._quorum import drift

#: Upper ends of the buckets, in seconds; the last bucket has none.
BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Buckets:
    """How many durations were within each of BOUNDS; ``total``: seconds, all together."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class TimedMasters(Masters):
    """Masters that count, for each lease that they are told to hold, how long its grant took."""

    grants: Buckets
    drift_factor: float

    def hold(self, lease: Any) -> None:
        Masters.hold(self, lease)
        ttl = lease.ttl
        self.grants.add(ttl - drift(ttl, self.drift_factor) - lease.validity)


def time_grants(core: Core) -> None:
    """Time the grants of ``core`` from now on; does nothing the second time."""
    masters = core.masters
    if type(masters) is Masters:
        timed: Any = masters
        timed.grants = Buckets()
        timed.drift_factor = core.drift_factor
        timed.__class__ = TimedMasters  # the last step: other threads use it
