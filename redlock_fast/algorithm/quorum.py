"""The numbers of the Redlock algorithm. No I/O; clock and randomness are arguments.

Source: "Distributed Locks with Redis", redis.io, the section on the Redlock algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Added to the drift for the masters' expiry granularity, in seconds.
EXPIRY_GRANULARITY = 0.002


def quorum(masters: int) -> int:
    """The smallest size of a group of masters such that any two groups share a master."""
    return masters // 2 + 1


def drift(ttl: float, factor: float) -> float:
    """The seconds that are taken off a lease of ``ttl`` seconds, because clocks may disagree."""
    return ttl * factor + EXPIRY_GRANULARITY


def deadline(start: float, ttl: float, factor: float) -> float:
    """When a lease that was requested at ``start`` ends: before any master expires the key."""
    return start + ttl - drift(ttl, factor)


def milliseconds(ttl: float) -> int:
    """``ttl`` (seconds) in whole milliseconds, rounded up: no master keeps the key for less."""
    return math.ceil(round(ttl * 1000, 6))


#: A pause is spread over this many round trips, twice as many after each further split, up to the second
#: number of doublings.
ROUND_TRIPS, DOUBLINGS = 4, 5


def window(round_time: float, splits: int, shortest: float = 0.0) -> float:
    """Seconds over which the pauses of clients that want the same lock must be spread.

    Clients split the votes of a lock when their requests reach the masters within one round trip, each at
    another master first. If they pause for about the same time, they split the votes again. So the pauses of
    all clients, those in distant zones too, are random within a window of several round trips.

    ``round_time``: seconds that the last round took. ``splits``: how many rounds in a row had split votes.
    ``shortest``: the window of clients that are close to the masters, in seconds.
    """
    return max(shortest, ROUND_TRIPS * round_time) * 2.0 ** min(max(0, splits - 1), DOUBLINGS)


@dataclass(frozen=True, slots=True)
class Retry:
    """The pauses between the attempts of an acquire, and the number of attempts.

    A pause is uniformly random between a lower and an upper end. The upper end doubles with every attempt.
    The lower end is at least the duration of the last round: after a shorter pause two clients that split
    the votes would split them again. The ends are at least four such durations apart, and further apart
    after each further split, even if the upper end then exceeds ``max_delay``. Where masters report that a
    lock is free (``wait="push"``), a pause is the longest wait.

    Source: the Redlock document, "Retry on failure".

    Example: ``FastRedlock(urls, retry=Retry(min_delay=0.01, max_delay=1.0, max_attempts=5))``.

    Args:
        min_delay: The lower end, in seconds.
        max_delay: The largest upper end, in seconds, where a round takes less than a fifth of it.
        max_attempts: The maximum number of attempts; None: only the timeout of the acquire bounds them.
    """

    min_delay: float = 0.005
    max_delay: float = 0.2
    max_attempts: int | None = None

    def delay(self, attempt: int, round_time: float, chance: float, splits: int = 0) -> float:
        """Seconds to pause after attempt number ``attempt`` (from 1). Never raises.

        ``chance``: a random number in [0, 1). ``splits``: how many rounds in a row had split votes.
        """
        low = max(self.min_delay, round_time)
        high = min(self.max_delay, self.min_delay * 2.0 ** min(attempt, 30))
        return low + max(high - low, window(round_time, splits)) * chance


#: The window of wake-ups near the masters, in seconds: the first, and the longest after splits.
FIRST_WAKE, LAST_WAKE = 0.002, 0.064


def wake_jitter(splits: int, round_time: float, chance: float) -> float:
    """The random delay of an acquire after a push, where other clients wait too: all get it at the same time.

    Seconds, uniformly random within a window from 0: no votes of an earlier round are in the way. The window
    doubles each time that the votes were split, because then several clients try at once. (In simulation a
    fixed window, or none, let the waiting clients split the votes again and again.)
    """
    return min(max(LAST_WAKE, window(round_time, 0)), window(round_time, splits, FIRST_WAKE)) * chance


class ContentionHistory:
    """Whether other clients lately wanted a lock at the same time as this client. One for each client.

    Without such a client there is nothing to spread, so a waiter that is notified asks at once. Two kinds of
    rounds show another client: one whose votes were split, and one that followed a wake-up and found the lock
    taken again. An extension by the holder looks like the latter, so that counts for a short time only.
    """

    #: Seconds for which a round with split votes counts, and one that found the lock taken again.
    SPLIT, TAKEN = 60.0, 1.0

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until: float = -math.inf  # by the lease clock

    def note(self, now: float, split: bool) -> None:
        """Record a round that shows another client."""
        self.until = max(self.until, now + (self.SPLIT if split else self.TAKEN))

    def recent(self, now: float) -> bool:
        """Whether wake-ups must be spread."""
        return now < self.until
