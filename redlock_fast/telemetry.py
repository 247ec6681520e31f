"""Log events. Event names are stable; records go to the logger ``redlock_fast``.

A record's ``event`` is the event's name. Its ``master`` is the name of the master, for events of one master.
"""

from __future__ import annotations

import logging
import sys
import time

logger: logging.Logger = logging.getLogger("redlock_fast")

#: At most one line per master and event in this many seconds.
LOG_INTERVAL = 10.0

#: The arguments of the error of a thread that is started while the interpreter ends.
NO_MORE_THREADS = ("can't create new thread at interpreter shutdown",)


class EventLog:
    """Logs events at a limited rate, so that a failing master cannot flood the log."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], float] = {}
        self._suppressed: dict[tuple[str, str], int] = {}

    def warn(self, event: str, master: str, text: str) -> None:
        """Log ``event`` about ``master`` at most once in LOG_INTERVAL. The rest is counted."""
        more = self._due(event, master)
        if more is not None:
            logger.warning(
                "%s: master %s: %s%s", event, master, text, more, extra={"event": event, "master": master}
            )

    def warn_of(self, event: str, text: str) -> None:
        """Log ``event`` at most once in LOG_INTERVAL. It is not about a single master."""
        more = self._due(event, "")
        if more is not None:
            logger.warning("%s: %s%s", event, text, more, extra={"event": event})

    def _due(self, event: str, master: str) -> str | None:
        """The number of suppressed lines as text, to be logged now; None: suppress this line, too."""
        key = (event, master)
        now = time.monotonic()
        if now < self._next.get(key, 0.0):
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return None
        self._next[key] = now + LOG_INTERVAL
        more = self._suppressed.pop(key, 0)
        return f" ({more} more like it before)" if more else ""

    def info(self, event: str, master: str, text: str) -> None:
        logger.info("%s: master %s: %s", event, master, text, extra={"event": event, "master": master})


def log_error(event: str) -> None:
    """Log the current exception, raised in a thread of this library or in a callback.

    It does not log that no thread can be started because the interpreter ends (Python 3.12 and later).
    """
    error = sys.exception()
    if not isinstance(error, RuntimeError) or error.args != NO_MORE_THREADS:
        logger.exception(event, extra={"event": event})
