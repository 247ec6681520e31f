"""How much of a test runs: what a change must pass, or all that there is."""

from __future__ import annotations

import os

#: ``make test-full`` sets it.
FULL = "REDLOCK_FAST_TEST_FULL" in os.environ


def amount(usual: int, full: int) -> int:
    """How many runs, rounds or steps."""
    return full if FULL else usual
