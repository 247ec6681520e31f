"""How much of a test runs: what a change must pass, all that there is, or what another version needs."""

from __future__ import annotations

import os

#: ``make test-full`` sets it.
FULL = "REDLOCK_FAST_TEST_FULL" in os.environ
#: ``make matrix`` sets them. A version does not depend on the combination of engine, server and client, and
#: only some tests start a redis-server.
ONCE = "REDLOCK_FAST_TEST_ONCE" in os.environ
ONLY_REDIS = "REDLOCK_FAST_TEST_ONLY_REDIS" in os.environ


def amount(usual: int, full: int) -> int:
    """How many runs, rounds or steps."""
    return full if FULL else usual
