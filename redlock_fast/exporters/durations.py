"""Waiting times and holding times of locks, by kind, label and outcome.

The waiting time is that of a call: from ``acquire()`` or ``with`` to the grant or the failure. The holding
time ends with the release, or with the end of the lease if that was earlier. Batches have neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Add = Callable[[float], None]


class Durations:
    """Sorts the times of the locks of one client into histograms.

    ``histogram``: called once with the name of a metric and the values of its labels. It returns the function
    that adds one time in seconds.
    """

    slower_than: float = 0.0

    def __init__(self, histogram: Callable[[str, tuple[str, ...]], Add]) -> None:
        self._histogram = histogram
        self._adds: dict[tuple[str, ...], Add] = {}

    def record(
        self, operation: str, lock: Any, seconds: float, outcome: str, error: BaseException | None
    ) -> None:
        if operation == "acquire":
            self._add("wait_time_seconds", lock, seconds, outcome)

    def held(self, lock: Any, seconds: float, outcome: str) -> None:
        self._add("hold_time_seconds", lock, seconds, outcome)

    def _add(self, metric: str, lock: Any, seconds: float, outcome: str) -> None:
        key = (metric, kind_of(lock), lock.label, outcome)
        add = self._adds.get(key)
        if add is None:
            add = self._adds.setdefault(key, self._histogram(metric, key[1:]))
        add(seconds)


def kind_of(lock: Any) -> str:
    """The name of the kind of ``lock``, such as "plain"."""
    return str(lock._lock_kind.kind)
