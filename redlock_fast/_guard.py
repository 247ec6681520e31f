"""The restart guard: which masters may have forgotten locks, and until when they cast no vote.

A master that restarts without its data would grant a lock that others still hold. "Distributed Locks
with Redis", the section on crash recovery: it has to stay out for the longest lease that anybody may
have; then all that it could have forgotten has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._commands import Mark
from ._engine import FAULT

MODES = ("auto", "strict", "marker", "off")


class Electorate:
    """Which masters' yes counts now, as a mask: a guarded master is not asked, and not counted.

    ``pushing``: whether every connected master tells when a key changes.
    """

    __slots__ = ("mask", "pushing")

    def __init__(self, masters: int) -> None:
        self.mask = (1 << masters) - 1
        self.pushing = True

    def heard(self, values: Sequence[int]) -> tuple[int, ...]:
        """Votes that were asked for before the mask changed: none of those that may not vote any more."""
        return tuple(value if self.mask >> master & 1 else FAULT for master, value in enumerate(values))


@dataclass(frozen=True, slots=True)
class Guard:
    """``mode``: one of MODES. ``max_ttl``: the longest lease in the fleet, in seconds.

    ``assume_fresh``: a master without a marker at the first contact has nothing to forget.
    """

    mode: str
    max_ttl: float
    assume_fresh: bool = False

    def mark(self, run_id: str, durable: bool) -> Mark | None:
        """What acquires compare the marker of such a master with, in the mode for it."""
        if self.mode != "marker":
            return None
        return Mark(run_id, round(self.max_ttl * 1000), durable and run_id != "")

    def silence(
        self,
        before: str | None,
        run_id: str,
        uptime: float,
        durable: bool,
        away: float,
        promoted: bool = False,
    ) -> float:
        """For how many seconds a master casts no vote, seen at the moment that it is connected.

        ``before``: the run_id of its last connection, None at the first contact. ``uptime``: as it says,
        which may be a second too much and follows its wall clock. ``away``: seconds since the last
        connection was lost: a process that was started meanwhile is no older. ``promoted``: it was a
        replica when it was started, and nobody knows until when its master made promises.
        """
        if self.mode not in ("auto", "strict") or durable:
            return 0.0
        if (before is None and self.mode == "auto") or before == run_id != "":
            return 0.0
        if promoted:
            age = 0.0
        elif before is None:
            age = uptime - 1
        else:
            age = min(uptime - 1, away)
        return max(0.0, self.max_ttl - max(0.0, age))
