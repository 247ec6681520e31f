"""The Redlock algorithm without I/O: what an attempt and a release send, and what the masters' votes come to.

Procedures, batches and the fast paths of threads and asyncio all call these functions. Compiled where it can
be, with the types of ``algorithm/redlock.pxd``.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.contract import FAULT
from ..engine.messages import Batch, Request, Tally, Votes
from .lease import Lease, granted_leases, lease_of
from .lock_kind import ACQUIRE, Claim
from .policy import Rules
from .quorum import deadline


class Attempt:
    """One attempt on all masters that vote. Only ``start_attempt`` and ``start_attempts`` make it.

    ``start``: the lease clock before the first byte. ``end``: the deadline of a lease that it gets.
    ``masters``: the mask of the masters that it asks. ``token``, ``requests``: what they are sent.
    """

    __slots__ = ("claim", "end", "masters", "requests", "rules", "start", "token", "ttl")

    rules: Rules
    claim: Claim
    ttl: float
    start: float
    end: float
    masters: int
    token: Any  # of a batch: a list of tokens
    requests: Any


def start_attempt(rules: Rules, claim: Claim, ttl: float, token: bytes) -> Attempt:
    """Steps 1 and 2: the time, and the request for each master that votes."""
    attempt = _attempt(rules, ttl)
    attempt.claim = claim
    attempt.token = token
    attempt.requests = [claim.ask(token, rules.wire_of(ttl), attempt.masters)]
    return attempt


def start_attempts(rules: Rules, keys: list[bytes], ttl: float) -> Attempt:
    """The same for a batch: plain locks on ``keys``, with a token each."""
    attempt = _attempt(rules, ttl)
    attempt.token = rules.tokens(len(keys))
    columns = (keys, attempt.token, rules.wire_of(ttl))
    attempt.requests = Batch(ACQUIRE, columns, len(keys), attempt.masters)
    return attempt


def _attempt(rules: Rules, ttl: float) -> Attempt:
    attempt = Attempt.__new__(Attempt)
    attempt.rules = rules
    attempt.ttl = ttl
    attempt.start = rules.clock()
    attempt.end = deadline(attempt.start, ttl, rules.drift_factor)
    attempt.masters = rules.electorate.mask
    return attempt


def validity_left(attempt: Attempt) -> float:
    """Seconds that a lease of this attempt lasts from now."""
    now = attempt.rules.clock()
    return attempt.end - now


def restarted(attempt: Attempt) -> int:
    """The masters that restarted since they were asked: they may have forgotten locks."""
    return attempt.masters & ~attempt.rules.electorate.mask


def trusted_votes(attempt: Attempt, votes: Votes) -> Votes:
    """``votes`` without the grants of ``restarted`` masters."""
    if not restarted(attempt):
        return votes
    values = attempt.rules.electorate.heard(votes.values)
    granted = sum([value > 0 for value in values])
    return Votes(values, votes.sent, granted, votes.refused, votes.faulty, votes.details)


def finish_attempt(attempt: Attempt, granted: int, sent: int, fencing: int | None = None) -> Lease | None:
    """Steps 3 and 4: the lease, if a quorum granted it and validity is left.

    ``sent``: the masters that may have the key, of this attempt and of those before it.
    """
    rules, validity = attempt.rules, validity_left(attempt)
    if granted >= rules.need and validity > 0:
        claim = attempt.claim.granted()
        return lease_of(claim, attempt.token, sent, attempt.ttl, attempt.end, validity, fencing)
    return None


def finish_attempts(
    attempt: Attempt, keys: Sequence[bytes], tally: Tally
) -> tuple[list[Lease | None], Votes | None]:
    """The same for a batch: its leases; and votes that tell why there is none at all.

    A tally has no votes of single masters: none of its grants counts if a master restarted.
    """
    rules, validity, forgetful = attempt.rules, validity_left(attempt), restarted(attempt)
    why: Votes | None = None
    if validity <= 0:
        why = Votes((), 0, rules.need, 0, 0, {})
    elif forgetful:
        why = _forgotten(rules.masters, forgetful)
    need = rules.need if why is None else rules.masters + 1
    leases = granted_leases(
        keys, attempt.token, tally.granted, tally.sent, need, attempt.ttl, attempt.end, validity
    )
    return leases, why


def _forgotten(masters: int, mask: int) -> Votes:
    """Instead of what these masters said."""
    details: dict[int, str | bytes] = {n: "it restarted meanwhile" for n in range(masters) if mask >> n & 1}
    values = tuple([FAULT if n in details else 0 for n in range(masters)])
    return Votes(values, 0, 0, 0, len(details), details)


def start_release(lease: Lease) -> list[Request]:
    """Step 5: what deletes the keys of a lease, on every master that may have one."""
    lease.released = True  # first: a refill that is under way takes back what it sent
    return lease.undo()


def finish_release(rules: Rules, lease: Lease, answers: list[Votes]) -> bool:
    """Whether the lease had not ended before its release."""
    votes = answers[0] if len(answers) == 1 else weakest(rules, answers)
    return was_alive(rules, lease, votes.granted, votes)


def was_alive(rules: Rules, lease: Lease, granted: int, votes: Votes | None) -> bool:
    """The same of a part of a batch. It has no votes where a quorum granted and no master failed."""
    if lease.lost:
        return False
    return granted >= rules.need or (votes is not None and still_alive(rules, lease, votes))


def weakest(rules: Rules, answers: list[Votes]) -> Votes:
    """Of what was asked together, the part that decides: all must be ours."""
    if len(answers) == 1:
        return answers[0]
    return min(answers, key=lambda votes: (not rules.hopeless(votes), votes.granted))


def still_alive(rules: Rules, lease: Lease, votes: Votes) -> bool:
    """Whether a lease had not ended, as far as fewer than a quorum can tell."""
    return not rules.hopeless(votes) and rules.clock() < lease.deadline
