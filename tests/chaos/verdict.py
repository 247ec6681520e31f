"""Whether a run was right: what the workers believed, held against what the masters did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from chaos.history import READING, History, Hold
from chaos.truth import ROUNDING, Span, Truth

from proof.conformance import NotAllowed, replay

#: Milliseconds around the end of a key in which a busy server may take it for there or not.
SLACK = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """What a machine that is busy with other things may take: seconds, and bytes."""

    strength: float
    gap: float
    overtime: float
    memory: int = 32 << 20


#: Where many wait, the place of a dead client keeps the others out for ENTRY_TTL, and its key for a ttl. A
#: client that was stopped takes so much longer.
CROWDED = Limits(strength=5.0, gap=10.0, overtime=8.0)
STRICT = Limits(strength=3.0, gap=2.5, overtime=1.0)
GENEROUS = Limits(strength=20.0, gap=15.0, overtime=15.0)


@dataclass(slots=True)
class Verdict:
    """One line of the table, and ``problems``: whatever must not be."""

    name: str
    did: Counter[str] = field(default_factory=Counter)
    holds: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    overlaps: int = 0
    lost_updates: int = 0
    orphans: int = 0
    foreign: int = 0
    gap: float = 0.0
    strength: float = 0.0
    #: For how long a worker was not run by the system.
    stalled: float = 0.0
    reconnects: int = 0
    grown: int = 0
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def __str__(self) -> str:
        faults = ", ".join(f"{what} {times}" for what, times in sorted(self.did.items()))
        return (
            f"{self.name:22} {self.holds.total():5} holds, {self.refused} refused; {faults}; "
            f"overlaps {self.overlaps}, lost updates {self.lost_updates}, orphans {self.orphans}, "
            f"foreign deletes {self.foreign}; longest gap {self.gap:.2f} s, "
            f"full strength {self.strength:.2f} s, "
            f"longest stall {self.stalled:.2f} s, {self.reconnects} reconnects, "
            f"memory {self.grown / 1e6:+.1f} MB"
            + "".join(f"\n    PROBLEM: {problem}" for problem in self.problems)
        )


def overlaps(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs of which the second was granted while the first was held."""
    found = []
    last: Hold | None = None
    for hold in sorted((h for h in holds if h.granted < h.end), key=lambda hold: hold.granted):
        if last is not None and hold.granted < last.end:
            found.append((last, hold))
        if last is None or hold.end > last.end:
            last = hold
    return found


def by_token(truths: Sequence[Truth]) -> dict[bytes, list[Span]]:
    spans: dict[bytes, list[Span]] = {}
    for truth in truths:
        for span in truth.spans:
            spans.setdefault(span.token, []).append(span)
    return spans


def overstated(holds: Sequence[Hold], truths: Sequence[Truth], need: int) -> list[tuple[Hold, float]]:
    """Holds with a deadline later than ``need`` masters were to keep the key when it was stated; how much."""
    spans = by_token(truths)
    found = []
    for hold in holds:
        for stated, deadline in hold.deadlines:
            own = [s for s in spans.get(hold.token, []) if s.start - READING <= stated < s.end]
            expiries = sorted(span.expiry_at(stated) for span in own)
            majority = expiries[-need] if len(expiries) >= need else 0.0
            if stated < deadline and majority < deadline:
                found.append((hold, deadline - majority))
                break
    return found


def uncovered(holds: Sequence[Hold], truths: Sequence[Truth], need: int) -> list[tuple[Hold, float]]:
    """Holds during which, at that time, fewer than ``need`` masters had their key.

    This looks at the grant and whenever a key ends, while the lock was held.
    """
    spans = by_token(truths)
    found = []
    for hold in holds:
        own = spans.get(hold.token, [])
        moments = [hold.granted, *(span.until for span in own if hold.granted < span.until)]
        for moment in sorted(moments):
            if moment >= stated_end(hold, moment) - READING:
                break
            if sum(span.start - READING <= moment < span.until for span in own) < need:
                found.append((hold, moment))
                break
    return found


def retracted(holds: Sequence[Hold], truths: Sequence[Truth]) -> list[tuple[Hold, int, float, str]]:
    """Votes that a master took back by a request of the holder itself, while the lock was held.

    For each: the hold, the master's number, when, and how. One such master alone makes no second holder, so
    overlaps show this much more seldom. (PROTOCOLS: the rule of the vote.)
    """
    spans = [(number, span) for number, truth in enumerate(truths) for span in truth.spans]
    by_hold = {hold.token: hold for hold in holds}
    found = []
    for number, span in spans:
        hold = by_hold.get(span.token)
        if hold is None:
            continue
        if span.why == "deleted" and span.end < stated_end(hold, max(span.end, hold.granted)) - READING:
            found.append((hold, number, span.end, "deleted"))
        expiries = [expiry for _, expiry in span.before] + [span.expiry]
        for (moment, _), (before, after) in zip(span.before, pairwise(expiries), strict=True):
            if after < before - ROUNDING:
                found.append((hold, number, moment, f"shortened by {before - after:.4f} s"))
    return found


def where(hold: Hold, truths: Sequence[Truth]) -> str:
    """Which masters had the key of ``hold``: from when until when, counted from its grant."""
    return ", ".join(
        f"master {n} from {span.start - hold.granted:.4f} until {span.until - hold.granted:.4f} ({span.why})"
        for n, truth in enumerate(truths)
        for span in truth.spans
        if span.token == hold.token
    )


def stated_end(hold: Hold, moment: float) -> float:
    """Until when the lock was held, by what was stated at ``moment``."""
    deadline = next(deadline for since, deadline in reversed(hold.deadlines) if since <= moment + READING)
    return min(deadline, hold.released_at)


def not_allowed(truths: Sequence[Truth]) -> list[tuple[int, str]]:
    """Masters that executed what the model of a master does not have: the number, and the step."""
    found = []
    for number, truth in enumerate(truths):
        try:
            replay(truth.steps, SLACK)
        except NotAllowed as error:
            found.append((number, str(error)))
    return found


def lost_updates(holds: Sequence[Hold], counted: int) -> int:
    """Increments that are not in the counter.

    Without fencing tokens, a holder that is stopped between its check of the lock and its write writes late.
    Its history shows that; no lock can prevent it.
    """
    written = sum(hold.wrote is not None and hold.accepted for hold in holds)
    late = sum(hold.wrote_late and hold.fence is None for hold in holds)
    return max(0, written - counted - late)


def disorders(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs of which the second got no larger fencing token than the first."""
    fenced = sorted((hold for hold in holds if hold.fence is not None), key=lambda hold: hold.granted)
    return [(a, b) for a, b in pairwise(fenced) if a.fence is not None and not a.fence < (b.fence or 0)]


def orphans(holds: Sequence[Hold], truths: Sequence[Truth]) -> list[Span]:
    """Keys that were left to expire though their owner had released them, or never got the lock."""
    kept = {hold.token for hold in holds if hold.overslept}
    return [s for t in truths for s in t.spans if s.why == "expired" and s.token not in kept]


def longest_gap(holds: Sequence[Hold], begin: float, end: float) -> float:
    """Seconds without a grant."""
    moments = [begin, *sorted(hold.granted for hold in holds if begin < hold.granted < end), end]
    return max(after - before for before, after in pairwise(moments))


def full_strength(truths: Sequence[Truth], healed: float) -> float:
    """Seconds until every master had granted again; infinite if one never did."""
    firsts = (next((s.start for s in truth.spans if s.start > healed), float("inf")) for truth in truths)
    return max(firsts) - healed


def jumps_seen(histories: Sequence[History]) -> int:
    """How often a worker's wall clock was another than at the grant before."""
    skews = [[hold.skew for hold in history.holds] for history in histories]
    return sum(abs(a - b) > 0.5 for worker in skews for a, b in pairwise(worker))


def leaks(result: dict[str, Any], limits: Limits) -> list[str]:
    """What a worker had more of after its client's end than before its beginning; nothing if it died."""
    if not result:
        return []
    found = [
        f"{what}: {before} before, {after} after"
        for what, before, after in zip(("threads", "fds"), result["before"], result["after"], strict=True)
        if after > before
    ]
    if result["grown"] > limits.memory:
        found.append(f"memory: {result['grown'] >> 10} kB more")
    return found
