"""Log events. Event names are stable; records go to the logger ``redlock_fast``.

A record's ``event`` is its name, its ``master`` the master that it is about, if it is about one.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("redlock_fast")

#: At most one line per master and event in this many seconds.
LOG_INTERVAL = 10.0

#: All that there are; docs/telemetry.md says what they mean.
EVENTS = (
    "master-connected",
    "master-trusted",
    "master-anonymous",
    "master-fault",
    "master-guarded",
    "master-lost",
    "master-may-forget",
    "master-unreachable",
    "lock-lost",
    "connector-error",
    "fork-error",
    "on-lost-error",
    "renewal-error",
)


class EventLog:
    """Log lines that a failing master cannot turn into a flood."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], float] = {}
        self._held_back: dict[tuple[str, str], int] = {}

    def warn(self, event: str, master: str, text: str) -> None:
        """Log ``event`` about ``master``, at most once in LOG_INTERVAL; the rest is counted."""
        more = self._due(event, master)
        if more is not None:
            logger.warning(
                "%s: master %s: %s%s", event, master, text, more, extra={"event": event, "master": master}
            )

    def warn_of(self, event: str, text: str) -> None:
        """The same for what is no single master's."""
        more = self._due(event, "")
        if more is not None:
            logger.warning("%s: %s%s", event, text, more, extra={"event": event})

    def _due(self, event: str, master: str) -> str | None:
        """None: not now. Otherwise words about those that were held back."""
        key = (event, master)
        now = time.monotonic()
        if now < self._next.get(key, 0.0):
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return None
        self._next[key] = now + LOG_INTERVAL
        more = self._held_back.pop(key, 0)
        return f" ({more} more like it before)" if more else ""

    def info(self, event: str, master: str, text: str) -> None:
        logger.info("%s: master %s: %s", event, master, text, extra={"event": event, "master": master})


def log_error(event: str) -> None:
    """Log the exception that is being handled: a trouble of this library's threads, or of a callback."""
    logger.exception(event, extra={"event": event})
