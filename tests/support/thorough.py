"""How much of a test runs: each behaviour once, what a change must pass, or all that there is."""

from __future__ import annotations

import os

#: ``make test-full`` sets it.
FULL = "REDLOCK_FAST_TEST_FULL" in os.environ
#: Combinations of engine, server and client for each test of tests/real. ``make coverage`` sets the variable:
#: two combinations have both engines, both kinds of server and both kinds of client.
TWICE = "REDLOCK_FAST_TEST_TWICE" in os.environ
COMBINATIONS = 2 if TWICE else 1
#: ``make matrix`` sets it: only some tests start a redis-server.
ONLY_REDIS = "REDLOCK_FAST_TEST_ONLY_REDIS" in os.environ


def amount(usual: int, full: int, twice: int | None = None) -> int:
    """How many runs, rounds or steps. ``twice``: where ``make coverage`` takes more than ``usual``."""
    if FULL:
        return full
    return twice if TWICE and twice is not None else usual
