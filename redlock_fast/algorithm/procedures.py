"""Acquire, release, extend: the Redlock algorithm as generators without I/O.

A procedure yields what it wants done (an effect) and is sent what came of it. A driver performs the
effects: with threads, with asyncio, or in a simulation in virtual time. Exceptions of a driver
(a signal, a cancellation) are thrown into the procedure, which cleans up and raises them again.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..engine.contract import Request, Votes
from .attempts import RetryLoop
from .effects import Effect, Exchange, send_no_reply, undo_after
from .lease import AcquireFailure, ExtendOutcome, Lease
from .lock_kind import EXISTS, FencedKind, LockKind, wire_ttl
from .policy import Policy
from .quorum import deadline, fencing_token
from .redlock import (
    Attempt,
    finish_attempt,
    finish_release,
    start_attempt,
    start_release,
    trusted_votes,
    weakest,
)
from .refill import lacking, refill


def acquire(
    policy: Policy,
    lock_kind: LockKind,
    ttl: float,
    give_up_at: float | None,
    rounds: int | None,
    on_granted: Callable[[Lease], None],
    first: Attempt | None = None,
) -> Generator[Effect, list[Votes], Lease | AcquireFailure]:
    """Attempts until one gets a lease, or until ``give_up_at`` (lease clock) or ``rounds`` ends them.

    What an attempt without a lease leaves behind is undone. ``on_granted`` is handed the lease at once: what
    interrupts from then on is for the caller to undo. ``first``: an attempt whose exchange the caller makes.
    """
    token = policy.token() if first is None else first.token
    retry_loop = RetryLoop(policy, lock_kind.for_attempt(), give_up_at, rounds, ttl, token)
    try:
        if first is None and retry_loop.others_first() and not (yield from retry_loop.queue()):
            return retry_loop.failure
        while True:
            attempt = first or start_attempt(policy, retry_loop.lock_kind, ttl, retry_loop.token)
            first = None
            votes, lease = yield from ask(attempt, retry_loop)
            if lease is not None:
                on_granted(lease)
                return lease
            if retry_loop.exhausted(votes, attempt.start):
                break
            yield from retry_loop.roll_back()
            if not (yield from retry_loop.wait(votes)):
                break
        yield from retry_loop.undo()
        return retry_loop.failure
    except BaseException as error:
        yield from undo_after(error, retry_loop.undo())
        raise
    finally:
        retry_loop.leave()


def ask(
    attempt: Attempt, retry_loop: RetryLoop
) -> Generator[Effect, list[Votes], tuple[Votes, Lease | None]]:
    """Make one attempt: its votes, and the lease if it gets one."""
    policy, lock_kind, sent = retry_loop.policy, retry_loop.lock_kind, retry_loop.sent
    timeout = policy.node_timeout
    if retry_loop.give_up_at is not None:
        timeout = max(0.0, min(timeout, retry_loop.give_up_at - attempt.start))
    retry_loop.sent |= attempt.masters  # unless the votes say otherwise
    wait = policy.certain if lock_kind.needs_certain else policy.wait
    votes = (yield Exchange(attempt.requests, policy.need, timeout, wait))[0]
    retry_loop.sent = sent | votes.sent
    trusted, fencing = trusted_votes(attempt, votes), None
    granted = trusted.granted
    if type(lock_kind) is FencedKind and granted >= policy.need:
        left = attempt.start + timeout - policy.clock()
        fencing, granted = yield from fence(policy, lock_kind, attempt.token, trusted.values, left)
    lease = finish_attempt(attempt, granted, retry_loop.sent, fencing)
    if lease is None:
        lock_kind.observe(votes)
    return votes, lease


def fence(
    policy: Policy, lock_kind: FencedKind, token: bytes, values: Sequence[int], timeout: float
) -> Generator[Effect, list[Votes], tuple[int, int]]:
    """The fencing token of a grant, and how many masters vouch for it: whose counter it was raised to.

    A master vouches only if this grant, or this holder, raised its counter to exactly that number;
    so no two holders ever get the same. Usually all counters agree, and nobody is asked.
    """
    counters = {master: value for master, value in enumerate(values) if value > 0}
    fencing = fencing_token(list(counters.values()), policy.masters)
    vouching = sum(value == fencing for value in counters.values())
    behind = sum(1 << master for master, value in counters.items() if value < fencing)
    if not behind:
        return fencing, vouching
    lift = lock_kind.raise_fence_request(token, fencing, behind)
    missing = policy.need - vouching
    if missing > 0:
        votes = (yield Exchange([lift], missing, max(0.0, timeout)))[0]
        vouching += votes.granted
    else:
        yield Exchange([lift], 0, 0.0)  # so that the counters are equal the next time
    return fencing, vouching


def undo_lease(lease: Lease) -> Generator[Effect, Any, None]:
    """Take a lease back from all masters that may have it, without waiting for their replies."""
    yield from send_no_reply(start_release(lease))


def release(policy: Policy, lease: Lease) -> Generator[Effect, list[Votes], bool]:
    """Delete our key wherever it may be. False: the lease had ended on a quorum before.

    What interrupts it is for the caller to undo, who knows of the lease before the first step.
    """
    requests = start_release(lease)
    answers = yield Exchange(requests, policy.need, policy.node_timeout, policy.certain)
    return finish_release(policy, lease, answers)


def extend(
    policy: Policy, lease: Lease, ttl: float, confirm: bool = False
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes | None]]:
    """Compare-and-extend on all masters that were sent the SET; on success ``lease`` says the new end.

    It never shortens. A lease that lasts longer than ``ttl`` from now stays as it is; its masters are
    asked only to ``confirm`` it. A master does not shorten its key either: a request that it executes
    after a longer one changes nothing.
    """
    start = policy.clock()
    known = extended_already(policy, lease, ttl, start)
    if confirm and known is ExtendOutcome.EXTENDED:
        known = None
    if known is not None:
        return known, None
    requests = lease.lock_kind.extend_requests(lease.token, wire_ttl(ttl), lease.sent)
    timeout = min(policy.node_timeout, lease.deadline - start)
    votes = weakest(policy, (yield Exchange(requests, policy.need, timeout, policy.certain)))
    outcome = extended(policy, lease, ttl, start, votes.granted, votes)
    if policy.refill and outcome is ExtendOutcome.EXTENDED and lease.batchable:
        missing = lacking(policy, lease, votes)
        if missing:
            yield from refill([(lease, missing)])
    return outcome, votes


def extended_already(policy: Policy, lease: Lease, ttl: float, start: float) -> ExtendOutcome | None:
    """What an extension comes to where no master needs to be asked: the lease lasts so long as it was
    confirmed, or has ended.
    """
    if start >= lease.deadline or lease.lost:
        return ExtendOutcome.LOST
    if deadline(start, ttl, policy.drift_factor) > lease.deadline:
        return None
    lease.validity = lease.deadline - start
    return ExtendOutcome.EXTENDED


def extended(
    policy: Policy, lease: Lease, ttl: float, start: float, granted: int, votes: Votes | None
) -> ExtendOutcome:
    """What the masters made of an extension that began at ``start``; no votes: all is well."""
    now = policy.clock()
    lease.ttl = max(lease.ttl, ttl)
    if now >= lease.deadline or (votes is not None and policy.refused_by_quorum(votes)):
        return ExtendOutcome.LOST
    if granted < policy.need:
        return ExtendOutcome.INCONCLUSIVE
    # Another extension, which began later, may have been confirmed before.
    lease.deadline = max(lease.deadline, deadline(start, ttl, policy.drift_factor))
    lease.validity = lease.deadline - now
    lease.extensions += 1
    if lease.lost:  # found by another thread since the look at the deadline
        lease.mark_lost(now)
        return ExtendOutcome.LOST
    return ExtendOutcome.EXTENDED


def exists(policy: Policy, key: bytes) -> Generator[Effect, list[Votes], Votes]:
    """Which masters have the key, whosever it is; of those that have forgotten none."""
    request = Request(EXISTS, (key,), policy.voters.mask)
    return (yield Exchange([request], policy.need, policy.node_timeout, policy.certain))[0]
