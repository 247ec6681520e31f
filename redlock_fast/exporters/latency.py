"""How long grants took: counted in buckets, for clients that are asked to.

The lease itself says it: what is gone of it when it is granted. So there is no clock to read, whichever
kind of lock it was, for threads or asyncio; and a client that is not asked does nothing for it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from ..algorithm.quorum import EXPIRY_GRANULARITY
from ..locks.client_base import Core
from ..masters.masters import Masters

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


class TimedMasters(Masters):
    """Masters that count, for each lease that they are told to hold, how long its grant took.

    ``left``: the share of a ttl that the drift leaves.
    """

    grants: Buckets
    left: float

    def hold(self, lease: Any) -> None:
        super().hold(lease)
        # On the way of every lock, so in one piece: ttl - drift(ttl, factor) - validity.
        seconds = lease.ttl * self.left - EXPIRY_GRANULARITY - lease.validity
        grants = self.grants
        grants.counts[bisect_left(BOUNDS, seconds)] += 1
        grants.total += seconds

    def hold_all(self, leases: Any) -> None:
        for lease in leases:
            self.hold(lease)


def time_grants(core: Core) -> None:
    """Time the grants of ``core`` from now on; does nothing the second time."""
    masters = core.masters
    if type(masters) is Masters:
        timed: Any = masters
        timed.grants = Buckets()
        timed.left = 1.0 - core.drift_factor
        timed.__class__ = TimedMasters  # the last step: other threads use it
