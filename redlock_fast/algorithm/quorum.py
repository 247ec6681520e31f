"""The numbers of the Redlock algorithm. No I/O, no clock, no randomness: all come in as arguments.

Source: "Distributed Locks with Redis", redis.io, the section on the Redlock algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Added to the drift for the masters' expiry granularity, in seconds.
EXPIRY_GRANULARITY = 0.002


def quorum(masters: int) -> int:
    """The smallest number of masters that any two such groups share one of."""
    return masters // 2 + 1


def impossible(masters: int, need: int, refused: int, faulty: int) -> bool:
    """Whether ``need`` grants can no longer come: right for even ``masters`` too."""
    return refused + faulty > masters - need


def fencing_token(counters: Sequence[int], masters: int) -> int:
    """The q-th smallest of the counters that decided a grant, for a quorum of q.

    Large enough: every earlier holder had raised the counters of a quorum to its token at least, so fewer
    than q of these can be as low as that. Small enough: a quorum can be raised to it. (Counted
    from the largest, with an even number of masters, it would be a rank lower, where no quorum may meet.)
    """
    return sorted(counters)[quorum(masters) - 1]


def drift(ttl: float, factor: float) -> float:
    """How much of a lease of ``ttl`` seconds clocks may disagree by."""
    return ttl * factor + EXPIRY_GRANULARITY


def deadline(start: float, ttl: float, factor: float) -> float:
    """When a lease ends that was asked for at ``start``: before any master lets the key go."""
    return start + ttl - drift(ttl, factor)


def milliseconds(ttl: float) -> int:
    """The lease as it goes on the wire: rounded up, so that masters never keep it shorter."""
    return math.ceil(round(ttl * 1000, 6))


@dataclass(frozen=True, slots=True)
class Retry:
    """When to try again after a refusal.

    Delays are uniformly random between a lower end and an upper end that doubles with every attempt. The
    lower end is never below the time that the last round took: shorter than that, two clients that split
    the votes would only split them again. Where masters tell when a lock is free (``wait="push"``), a delay
    is the most that is waited. Source: the Redlock document, "Retry on failure".

    Args:
        min_delay: Seconds.
        max_delay: Seconds, up to which the upper end doubles.
        max_attempts: How many rounds there may be; None: only time bounds them.
    """

    min_delay: float = 0.005
    max_delay: float = 0.2
    max_attempts: int | None = None

    def delay(self, attempt: int, round_time: float, chance: float) -> float:
        """Seconds to pause after the ``attempt``-th round (from 1); ``chance`` is in [0, 1)."""
        low = min(max(self.min_delay, round_time), self.max_delay)
        high = min(self.max_delay, self.min_delay * 2.0 ** min(attempt, 30))
        return low + max(0.0, high - low) * chance


class WakeJitter:
    """How long one that was told "it is free" lets others go first: all of them were told at once.

    Uniformly random within a window, which doubles each time that the votes were split: that is, others
    try at the same time. (In simulation a fixed window, or none, had herds of waiters split their votes
    again and again.)
    """

    FIRST, LAST, ROUND_TRIPS = 0.002, 0.064, 4

    __slots__ = ("window",)

    def __init__(self) -> None:
        self.window = 0.0

    def delay(self, split: bool, round_time: float, chance: float) -> float:
        """Seconds, after a round that took ``round_time`` and whose votes were ``split`` or not."""
        first = min(self.LAST, max(self.FIRST, self.ROUND_TRIPS * round_time))
        self.window = min(self.LAST, max(first, 2 * self.window)) if split else first
        return self.window * chance
