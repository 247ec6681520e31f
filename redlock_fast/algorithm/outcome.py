"""What the masters' votes come to: whether a lease was granted, whether it was ours to the end, who failed.

Decided here for every lock, and once; compiled where it can be, with the types of ``algorithm/outcome.pxd``.
"""

from __future__ import annotations

from ..engine.messages import Votes
from .lease import Lease, lease_of
from .lock_kind import Claim
from .policy import Rules
from .quorum import deadline


def granted_lease(
    rules: Rules,
    claim: Claim,
    start: float,
    token: bytes,
    sent: int,
    ttl: float,
    granted: int,
    fencing: int | None = None,
) -> Lease | None:
    """What comes of a round that began at ``start`` and that so many masters granted."""
    end = deadline(start, ttl, rules.drift_factor)
    validity = end - rules.clock()
    if granted >= rules.need and validity > 0:
        return lease_of(claim.granted(), token, sent, ttl, end, validity, fencing)
    return None


def released(rules: Rules, lease: Lease, answers: list[Votes]) -> bool:
    """Whether the lease had not ended before its release."""
    votes = answers[0] if len(answers) == 1 else weakest(rules, answers)
    return not lease.lost and (votes.granted >= rules.need or still_alive(rules, lease, votes))


def weakest(rules: Rules, answers: list[Votes]) -> Votes:
    """Of what was asked together, the part that decides: all must be ours."""
    if len(answers) == 1:
        return answers[0]
    return min(answers, key=lambda votes: (not rules.hopeless(votes), votes.granted))


def still_alive(rules: Rules, lease: Lease, votes: Votes) -> bool:
    """Whether a lease had not ended, as far as fewer than a quorum can tell."""
    return not rules.hopeless(votes) and rules.clock() < lease.deadline
