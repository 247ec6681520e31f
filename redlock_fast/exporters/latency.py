"""How long grants took: counted in buckets, for clients that are asked to.

The lease itself says it: what is gone of it when it is granted. So there is no clock to read, whichever
kind of lock it was, for threads or asyncio; and a client that is not asked does nothing for it.
"""

from __future__ import annotations

from bisect import bisect_left

from ..algorithm.lease import Lease
from ..algorithm.quorum import EXPIRY_GRANULARITY
from ..locks.client_base import BaseClient

#: Upper ends of the buckets, in seconds; the last bucket has none.
BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Buckets:
    """How many grants of one client took as long as each of BOUNDS; ``total``: seconds, all together.

    ``left``: the share of a ttl that the drift leaves.
    """

    __slots__ = ("counts", "left", "total")

    def __init__(self, left: float) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0
        self.left = left

    def add(self, lease: Lease) -> None:
        # For every lock, so in one piece: ttl - drift(ttl, factor) - validity.
        seconds = lease.ttl * self.left - EXPIRY_GRANULARITY - lease.validity
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


def time_grants(core: BaseClient) -> None:
    """Time the grants of ``core`` from now on; does nothing the second time."""
    observer = core.observe()
    if observer.grants is None:
        observer.grants = Buckets(1.0 - core.drift_factor)


def grants(core: BaseClient) -> Buckets | None:
    """Those of a client that is timed."""
    observer = core.client_state.observer
    found = None if observer is None else observer.grants
    return found if isinstance(found, Buckets) else None
