"""What the masters' votes come to: whether a lease was granted, whether it was ours to the end, who failed.

Decided here for every lock, and once; compiled where it can be, with the types of ``_verdict.pxd``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ._claim import Claim
from ._engine import LEFT_OUT, NOT_ASKED
from ._lease import Lease, lease_of
from ._messages import Tally, Votes
from ._quorum import deadline
from ._rules import Rules


class Seated(Protocol):
    """Masters, and where they sit."""

    @property
    def seats(self) -> Sequence[Any]: ...


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


def to_be_noted(answers: list[Votes] | Tally, masters: Seated) -> bool:
    """Whether a master failed, so that somebody has to look at it.

    Those that were only left out are counted in here: while a master is stopped that is each time.
    """
    noted = False
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            for master, detail in votes.details.items():
                if detail in LEFT_OUT:
                    masters.seats[master].skipped[detail] += 1
                elif detail != NOT_ASKED:
                    noted = True
    return noted
