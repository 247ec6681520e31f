"""The restart guard: which masters may have forgotten locks, and until when they cast no vote.

A master that restarts without its data would grant a lock that others still hold. "Distributed Locks
with Redis", the section on crash recovery: it has to stay out for the longest lease that anybody may
have; then all that it could have forgotten has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.dialect import Identity, RestartMarker

MODES = ("auto", "durable", "strict", "marker", "off")
#: Those in which this client judges by what it sees of a master when it connects it.
JUDGING = ("auto", "durable", "strict")


@dataclass(frozen=True, slots=True)
class Guard:
    """``mode``: one of MODES. ``max_ttl``: the longest lease in the fleet, in seconds.

    ``assume_fresh``: a master without a marker at the first contact has nothing to forget.
    """

    mode: str
    max_ttl: float
    assume_fresh: bool = False

    def marker(self, who: Identity, promoted: bool = False, max_lag: float = 0.0) -> RestartMarker | None:
        """What acquires compare the marker of such a master with, in the mode for it.

        Its own marker, and none that was copied to it: a master that was promoted has another name.
        """
        if self.mode != "marker":
            return None
        name = f"{who.run_id}/{who.replid}" if promoted else who.run_id
        return RestartMarker(name, round((self.max_ttl + max_lag * promoted) * 1000))

    def quarantine(
        self,
        before: Identity | None,
        now: Identity,
        *,
        uptime: float,
        away: float,
        durable: bool = False,
        promoted: bool = False,
        flushed: bool = False,
        max_lag: float = 0.0,
    ) -> float:
        """For how many seconds a master casts no vote, seen at the moment that it is connected.

        ``before``: the identity at the last contact, None at the first. ``uptime``: as it says, which may be
        a second too much and follows its wall clock. ``away``: seconds since the last connection was lost: a
        process that was started meanwhile is no older. ``durable``: it writes everything to its disk before
        it answers, then and now. ``promoted``: it was a replica once, and until when its master made
        promises is not known: with replicas that have to follow it stops ``max_lag`` seconds after these
        were cut off. ``flushed``: it lost its keys, by its own account.
        """
        if self.mode not in JUDGING:
            return 0.0
        if flushed:
            return self.max_ttl
        if before == now and now.run_id:
            return 0.0
        if before is None and self.mode != "strict":
            return 0.0
        restarted = before is None or before.run_id != now.run_id or not now.run_id
        if promoted or not restarted:  # its data may have been replaced a moment ago
            return self.max_ttl + max_lag
        if durable and now.run_id and self.mode == "durable":
            return 0.0
        age = uptime - 1 if before is None else min(uptime - 1, away)
        return max(0.0, self.max_ttl - max(0.0, age))
