"""The Redlock algorithm without I/O: the requests of an attempt and a release, and the outcome of the votes.

Operations and batches call these functions. Compiled where a compiler is available, with the types of
``algorithm/redlock.pxd``.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.contract import FAULT
from ..engine.messages import Batch, BatchVotes, Request, Votes
from . import machine
from .lease import Lease, granted_leases, lease_of
from .lock_kind import ACQUIRE, LockKind
from .master_lists import MasterLists
from .operation import Operation
from .policy import Policy, lease_clock
from .quorum import deadline
from .turn import note_turn

#: Why the vote of a ``distrusted`` master does not count.
RESTARTED, UNLISTED = "it restarted after it was asked", "its record forbids the list of this attempt"


class Attempt(Operation):
    """An operation that asks all masters that vote for a lease, at once.

    ``start``: the lease clock before the first byte. ``end``: the deadline of a lease that it gets.
    ``lists``: the masters that must agree, to its end, although they may change while it runs. ``masters``:
    the mask of the masters that it asks. ``token``, ``requests``: what it sends to them.
    """

    __slots__ = ("end", "lists", "lock_kind", "masters", "policy", "start", "token", "ttl")

    policy: Policy
    lock_kind: LockKind
    ttl: float
    start: float
    end: float
    lists: MasterLists
    masters: int
    token: Any  # of a batch: a list of tokens; None: not drawn yet


def start_attempt(attempt: Attempt) -> None:
    """Step 1: read the clock. Note the masters to ask, and when a lease would end."""
    policy = attempt.policy
    attempt.start = _now(policy)
    attempt.end = deadline(attempt.start, attempt.ttl, policy.drift_factor)
    # After the clock: a lease by former lists must not outlive the change by more than its ttl.
    attempt.lists = policy.voters.lists
    attempt.masters = policy.voters.mask & attempt.lists.all


def start_attempts(policy: Policy, keys: list[bytes], ttl: float) -> Attempt:
    """The attempt of a batch of plain locks on ``keys``. Each key gets a token of its own."""
    attempt = Attempt.__new__(Attempt)
    attempt.policy = policy
    attempt.ttl = ttl
    start_attempt(attempt)
    attempt.token = policy.tokens(len(keys))
    columns = (keys, attempt.token, policy.ttl_on_wire(ttl))
    attempt.requests = Batch(ACQUIRE, columns, len(keys), attempt.masters)
    return attempt


def validity_left(attempt: Attempt) -> float:
    """Seconds from now to the end of a lease of this attempt."""
    return attempt.end - _now(attempt.policy)


def _now(policy: Policy) -> float:
    """``policy.clock()``."""
    return machine.boot_time() if policy.clock is lease_clock else policy.clock()


def distrusted(attempt: Attempt) -> int:
    """The mask of the asked masters whose votes do not count.

    They restarted since, so they may have forgotten locks; or their records forbid the lists of this attempt,
    whatever lists the client has by now.
    """
    return attempt.masters & (~attempt.policy.voters.mask | attempt.lists.unlisted)


def trusted_votes(attempt: Attempt, votes: Votes) -> Votes:
    """``votes`` with a fault in place of each vote of a ``distrusted`` master."""
    mask = distrusted(attempt)
    if not mask:
        return votes
    values = tuple([FAULT if mask >> master & 1 else value for master, value in enumerate(votes.values)])
    granted = sum([value > 0 for value in values])
    refused = sum([FAULT < value <= 0 for value in values])
    faulty = sum([value == FAULT for value in values])
    details = {**_faults(attempt, mask), **votes.details}
    return Votes(values, votes.sent, granted, refused, faulty, details)


def finish_attempt(attempt: Attempt, granted: bool, sent: int, fencing: int | None = None) -> Lease | None:
    """Steps 3 and 4: the lease, if a quorum granted it and validity is left.

    ``granted``: whether a quorum of each list granted. ``sent``: the masters that may have the token, from
    this attempt or an earlier one.
    """
    validity = validity_left(attempt)
    if granted and validity > 0:
        lock_kind = attempt.lock_kind.held_kind()
        return lease_of(lock_kind, attempt.token, sent, attempt.ttl, attempt.end, validity, fencing)
    return None


def finish_attempts(
    attempt: Attempt, keys: Sequence[bytes], tally: BatchVotes
) -> tuple[list[Lease | None], Votes | None]:
    """As ``finish_attempt``, for a batch: the leases, and the votes that explain why no lease was granted.

    The votes of a batch do not name single masters. So no grant counts if any master is ``distrusted``.
    """
    lists, validity, mask = attempt.lists, validity_left(attempt), distrusted(attempt)
    why: Votes | None = None
    if validity <= 0:
        why = Votes((1,) * lists.masters, 0, lists.masters, 0, 0, {})
    elif mask:
        details = _faults(attempt, mask)
        values = tuple([FAULT if n in details else 0 for n in range(lists.masters)])
        why = Votes(values, 0, 0, 0, len(details), details)
    need = lists.counted if why is None else lists.masters + 1
    sent = [lists.elsewhere] * len(keys) if lists.shards else tally.sent
    leases = granted_leases(
        keys, attempt.token, tally.granted, sent, need, attempt.ttl, attempt.end, validity
    )
    return leases, why


def _faults(attempt: Attempt, mask: int) -> dict[int, str | bytes]:
    """The fault of each master of ``mask``, by its number."""
    unlisted = attempt.lists.unlisted
    return {
        n: UNLISTED if unlisted >> n & 1 else RESTARTED for n in range(mask.bit_length()) if mask >> n & 1
    }


def start_release(lease: Lease) -> list[Request]:
    """Step 5: the requests that delete the keys of ``lease`` on every master that may have them."""
    lease.released += 1  # first: a concurrent refill then undoes what it sent
    return lease.release_requests()


def undo_lease(lease: Lease) -> list[Request]:
    """As ``start_release``, where no reply is awaited. May be called again."""
    lease.released = max(lease.released, 1)
    return lease.release_requests()


def finish_release(policy: Policy, lease: Lease, answers: list[Votes]) -> bool:
    """Whether the lease had not ended before its release."""
    lists = policy.voters.lists
    if type(lease) is not Lease:
        answers = note_turn(policy, lease, answers)
    votes = answers[0] if len(answers) == 1 else weakest(lists, answers)
    return was_alive(policy, lists, lease, lists.granted(votes), votes)


def was_alive(policy: Policy, lists: MasterLists, lease: Lease, granted: bool, votes: Votes | None) -> bool:
    """As ``finish_release``, for one lease of a batch.

    ``granted``: whether a quorum of each list granted the release. ``votes`` is None if so, and if no master
    failed.
    """
    if lease.lost:
        return False
    return granted or (votes is not None and still_alive(policy, lists, lease, votes))


def weakest(lists: MasterLists, answers: list[Votes]) -> Votes:
    """The votes on the weakest key: one that a quorum refused, or else one without the quorums.

    A lease of several keys is held only if each key is. With two lists, a key with fewer grants than another
    may have both quorums, and the other one not.
    """
    if len(answers) == 1:
        return answers[0]
    return min(answers, key=lambda votes: (not lists.refused(votes), lists.granted(votes), votes.granted))


def still_alive(policy: Policy, lists: MasterLists, lease: Lease, votes: Votes) -> bool:
    """Whether the lease had not ended, if fewer than a quorum answered."""
    now = policy.clock()
    return (now < lists.settled_at or not lists.refused(votes)) and now < lease.deadline
