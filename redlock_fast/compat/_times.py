"""Times in the units of other libraries, checked before they are calculated with."""

from __future__ import annotations

from typing import Any

from ..algorithm.quorum import Retry
from ..errors import ConfigError
from ..locks.config import number

#: In one second.
MILLISECONDS = 1000


def seconds_of_ttl(ttl: Any) -> float:
    """``ttl``, in milliseconds, as seconds. Raises ConfigError."""
    return number("ttl", ttl, above=0.0) / MILLISECONDS


def retry_of(delay: Any, attempts: Any = None, *, units: int = 1) -> Retry:
    """Pauses of at most ``delay`` between ``attempts``; ``units`` of ``delay`` are a second.

    Raises ConfigError. FastRedlock checks ``attempts``.
    """
    longest = number("retry_delay", delay, low=0.0) / units
    return Retry(longest / 2, longest, attempts)


def time_left(name: str, seconds: Any) -> float:
    """``seconds``; 0, which is one attempt, for a negative number. Raises ConfigError."""
    return max(0, check_seconds(name, seconds))


def check_seconds(name: str, seconds: Any) -> float:
    """``seconds``, which may be negative or infinite. Raises ConfigError for anything but a number."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise ConfigError(f"{name} must be a number of seconds, not {seconds!r}")
    return seconds
