"""Log events. Event names are stable; records go to the logger ``redlock_fast``.

Each record has the fields of ``fields``, so that a formatter can name them: docs/logging.md lists the events.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Self

logger: logging.Logger = logging.getLogger("redlock_fast")
# As a library must: a program that has set up no logging gets no lines on its stderr.
logger.addHandler(logging.NullHandler())

#: At most one line per event and subject, a master or a lock, in this many seconds.
LOG_INTERVAL = 10.0
#: At most so many lines per event in these seconds, because locks may be many.
MAX_LINES = 100

#: The arguments of the error of a thread that is started while the interpreter ends.
NO_MORE_THREADS = ("can't create new thread at interpreter shutdown",)


def fields(
    event: str, *, master: str = "", resource: str = "", owner: str = "", reason: str = "", left_out: int = 0
) -> dict[str, object]:
    """The attributes of a record: "" or 0 where it is not about one, so a formatter may name any of them."""
    return {
        "event": event,
        "master": master,
        "resource": resource,
        "owner": owner,
        "reason": reason,
        "left_out": left_out,
    }


class EventLog:
    """Logs events at a limited rate, so that a failing master cannot flood the log.

    What is left out is counted. The next line of the same event and subject has the count, or a line of its
    own that ``report_left_out`` writes when the interval has ended.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], float] = {}  # until then lines of this event and subject wait
        self._left_out: dict[tuple[str, str], int] = {}
        self._lines: dict[str, tuple[float, int]] = {}  # by event: the end of its interval, lines in it

    def warn(self, event: str, master: str, text: str) -> None:
        """Log ``event`` about ``master``."""
        self._warn(event, master, f"master {master}: {text}", fields(event, master=master, reason=text))

    def warn_of(
        self, event: str, text: str, *, resource: str = "", owner: str = "", reason: str = ""
    ) -> None:
        """Log ``event``, which is not about a single master; perhaps about the lock ``resource``."""
        self._warn(event, resource, text, fields(event, resource=resource, owner=owner, reason=reason))

    def _warn(self, event: str, subject: str, text: str, extra: dict[str, object]) -> None:
        left_out = self._due(event, subject)
        if left_out is not None:
            more = f" ({left_out} more like it before)" if left_out else ""
            logger.warning("%s: %s%s", event, text, more, extra={**extra, "left_out": left_out})

    def _due(self, event: str, subject: str) -> int | None:
        """How many lines were left out, to be logged with this one; None: this one is left out, too."""
        now, key = time.monotonic(), (event, subject)
        if now < self._next.get(key, 0.0):
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return None
        end, lines = self._lines.get(event, (0.0, 0))
        if now >= end:
            end, lines = now + LOG_INTERVAL, 0
            self._next = {one: until for one, until in list(self._next.items()) if until > now}
        if lines >= MAX_LINES:
            self._left_out[event, ""] = self._left_out.get((event, ""), 0) + 1
            return None
        self._lines[event] = end, lines + 1
        self._next[key] = now + LOG_INTERVAL
        return self._left_out.pop(key, 0)

    def report_left_out(self, *, at_end: bool = False) -> None:
        """Log how many lines were left out in intervals that have ended; ``at_end``: in all intervals."""
        now = time.monotonic()
        for event, subject in list(self._left_out):
            end = self._next.get((event, subject)) or self._lines.get(event, (0.0, 0))[0]
            if (at_end or now >= end) and (count := self._left_out.pop((event, subject), 0)):
                about = f" about {subject}" if subject else ""
                logger.warning(
                    "%s: %d more like it%s were left out", event, count, about,
                    extra=fields(event, left_out=count),
                )  # fmt: skip

    def info(self, event: str, master: str, text: str) -> None:
        extra = fields(event, master=master, reason=text)
        logger.info("%s: master %s: %s", event, master, text, extra=extra)


def log_error(event: str, *, resource: str = "", reason: str = "") -> None:
    """Log the current exception, raised in a thread of this library or in a callback.

    It does not log that no thread can be started because the interpreter ends (Python 3.12 and later).
    """
    error = sys.exception()
    if not isinstance(error, RuntimeError) or error.args != NO_MORE_THREADS:
        logger.exception(event, extra=fields(event, resource=resource, reason=reason))


class CallOfTheProgram:
    """A context in which a callback of the program runs, in a thread of this library.

    Whatever the callback raises is logged as ``event`` and goes no further: the thread has more to do.
    ``failed``: whether it raised.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self.failed: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.failed = kind is not None
        if self.failed:
            log_error(self._event)
        return True


def log_outcome(
    event: str, text: str, *, resource: str = "", owner: str = "", reason: str, level: int
) -> None:
    """Log what became of one request or job. No rate limits it: a program counts these."""
    extra = fields(event, resource=resource, owner=owner, reason=reason)
    logger.log(level, "%s: %s", event, text, extra=extra)
