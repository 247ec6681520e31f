"""The clock by which the pure engine counts its timeouts."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

#: Seconds of the monotonic clock of the system. ``time.monotonic`` reads the same clock, but tests of users
#: replace that function to stop the time, as freezegun does: a call that waits would then never end.
monotonic: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
