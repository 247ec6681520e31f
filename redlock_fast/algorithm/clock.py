"""The lease clock: monotonic, and running on while the machine is suspended where it can.

Leases run on the masters while this machine sleeps, so the clock that measures
them must not stop: ``CLOCK_BOOTTIME`` on Linux. macOS' monotonic clock counts
sleep by itself. A wall clock is never used: it can be set back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], float]

lease_clock: Clock = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    lease_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
