"""How much of a test runs: each behaviour once, what a change must pass, or all that there is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)

#: ``make test-full`` sets it.
FULL = "REDLOCK_FAST_TEST_FULL" in os.environ
#: Combinations of engine, server and client for each test. ``make coverage``, ``make matrix`` and
#: ``make mutants`` set the variable: two have both engines, both kinds of server and both kinds of client.
TWICE = "REDLOCK_FAST_TEST_TWICE" in os.environ
COMBINATIONS = 2 if TWICE else 1
#: ``make matrix`` sets it: only some tests start a redis-server.
ONLY_REDIS = "REDLOCK_FAST_TEST_ONLY_REDIS" in os.environ

#: What another test nearly covers, and what takes long: not in plain pytest.
MORE = FULL or TWICE


def amount(usual: Number, full: Number, twice: Number | None = None) -> Number:
    """How many runs, rounds or steps. ``twice``: in two combinations, if it is more."""
    if FULL:
        return full
    return twice if TWICE and twice is not None else usual


def crossed(cases: Iterable[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each case with one of ``others`` in turn; with each of them where more than the usual runs."""
    if MORE:
        return [(case, other) for case in cases for other in others]
    return [(case, others[number % len(others)]) for number, case in enumerate(cases)]
