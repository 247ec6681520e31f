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
from .attempts import Tries
from .effects import Effect, Exchange, send_surely, undo_after
from .lease import Extension, Lease, Refusal
from .lock_kind import EXISTS, Claim, Fenced, wire_ttl
from .policy import Rules
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
    rules: Rules,
    claim: Claim,
    ttl: float,
    give_up_at: float | None,
    rounds: int | None,
    keep: Callable[[Lease], None],
    first: Attempt | None = None,
) -> Generator[Effect, list[Votes], Lease | Refusal]:
    """Attempts until one gets a lease, or until ``give_up_at`` (lease clock) or ``rounds`` ends them.

    What an attempt without a lease leaves behind is undone. ``keep`` is handed the lease at once: what
    interrupts from then on is for the caller to undo. ``first``: an attempt whose exchange the caller makes.
    """
    token = rules.token() if first is None else first.token
    tries = Tries(rules, claim.begin(), give_up_at, rounds, ttl, token)
    try:
        if first is None and tries.others_first() and not (yield from tries.queue()):
            return tries.refusal
        while True:
            attempt = first or start_attempt(rules, tries.claim, ttl, tries.token)
            first = None
            votes, lease = yield from ask(attempt, tries)
            if lease is not None:
                keep(lease)
                return lease
            if tries.over(votes, attempt.start):
                break
            yield from tries.retreat()
            if not (yield from tries.wait(votes)):
                break
        yield from tries.undo()
        return tries.refusal
    except BaseException as error:
        yield from undo_after(error, tries.undo())
        raise
    finally:
        tries.leave()


def ask(attempt: Attempt, tries: Tries) -> Generator[Effect, list[Votes], tuple[Votes, Lease | None]]:
    """Make one attempt: its votes, and the lease if it gets one."""
    rules, claim, sent = tries.rules, tries.claim, tries.sent
    timeout = rules.node_timeout
    if tries.give_up_at is not None:
        timeout = max(0.0, min(timeout, tries.give_up_at - attempt.start))
    tries.sent |= attempt.masters  # unless the votes say otherwise
    wait = rules.certain if claim.certain else rules.wait
    votes = (yield Exchange(attempt.requests, rules.need, timeout, wait))[0]
    tries.sent = sent | votes.sent
    trusted, fencing = trusted_votes(attempt, votes), None
    granted = trusted.granted
    if type(claim) is Fenced and granted >= rules.need:
        left = attempt.start + timeout - rules.clock()
        fencing, granted = yield from fence(rules, claim, attempt.token, trusted.values, left)
    lease = finish_attempt(attempt, granted, tries.sent, fencing)
    if lease is None:
        claim.learn(votes)
    return votes, lease


def fence(
    rules: Rules, claim: Fenced, token: bytes, values: Sequence[int], timeout: float
) -> Generator[Effect, list[Votes], tuple[int, int]]:
    """The fencing token of a grant, and how many masters vouch for it: whose counter it was raised to.

    A master vouches only if this grant, or this holder, raised its counter to exactly that number;
    so no two holders ever get the same. Usually all counters agree, and nobody is asked.
    """
    counters = {master: value for master, value in enumerate(values) if value > 0}
    fencing = fencing_token(list(counters.values()), rules.masters)
    vouching = sum(value == fencing for value in counters.values())
    behind = sum(1 << master for master, value in counters.items() if value < fencing)
    if not behind:
        return fencing, vouching
    lift = claim.lift(token, fencing, behind)
    missing = rules.need - vouching
    if missing > 0:
        votes = (yield Exchange([lift], missing, max(0.0, timeout)))[0]
        vouching += votes.granted
    else:
        yield Exchange([lift], 0, 0.0)  # so that the counters are equal the next time
    return fencing, vouching


def undo_lease(lease: Lease) -> Generator[Effect, Any, None]:
    """Take a lease back from all masters that may have it, without waiting for their replies."""
    yield from send_surely(start_release(lease))


def release(rules: Rules, lease: Lease) -> Generator[Effect, list[Votes], bool]:
    """Delete our key wherever it may be. False: the lease had ended on a quorum before.

    What interrupts it is for the caller to undo, who knows of the lease before the first step.
    """
    requests = start_release(lease)
    answers = yield Exchange(requests, rules.need, rules.node_timeout, rules.certain)
    return finish_release(rules, lease, answers)


def extend(
    rules: Rules, lease: Lease, ttl: float, confirm: bool = False
) -> Generator[Effect, list[Votes], tuple[Extension, Votes | None]]:
    """Compare-and-extend on all masters that were sent the SET; on success ``lease`` says the new end.

    It never shortens. A lease that lasts longer than ``ttl`` from now stays as it is; its masters are
    asked only to ``confirm`` it. A master does not shorten its key either: a request that it executes
    after a longer one changes nothing.
    """
    start = rules.clock()
    known = extended_already(rules, lease, ttl, start)
    if confirm and known is Extension.EXTENDED:
        known = None
    if known is not None:
        return known, None
    requests = lease.claim.more(lease.token, wire_ttl(ttl), lease.sent)
    timeout = min(rules.node_timeout, lease.deadline - start)
    votes = weakest(rules, (yield Exchange(requests, rules.need, timeout, rules.certain)))
    outcome = extended(rules, lease, ttl, start, votes.granted, votes)
    if rules.refill and outcome is Extension.EXTENDED and lease.plain:
        missing = lacking(rules, lease, votes)
        if missing:
            yield from refill([(lease, missing)])
    return outcome, votes


def extended_already(rules: Rules, lease: Lease, ttl: float, start: float) -> Extension | None:
    """What an extension comes to where no master needs to be asked: the lease lasts so long as it was
    confirmed, or has ended.
    """
    if start >= lease.deadline or lease.lost:
        return Extension.LOST
    if deadline(start, ttl, rules.drift_factor) > lease.deadline:
        return None
    lease.validity = lease.deadline - start
    return Extension.EXTENDED


def extended(
    rules: Rules, lease: Lease, ttl: float, start: float, granted: int, votes: Votes | None
) -> Extension:
    """What the masters made of an extension that began at ``start``; no votes: all is well."""
    now = rules.clock()
    lease.ttl = max(lease.ttl, ttl)
    if now >= lease.deadline or (votes is not None and rules.hopeless(votes)):
        return Extension.LOST
    if granted < rules.need:
        return Extension.INCONCLUSIVE
    # Another extension, which began later, may have been confirmed before.
    lease.deadline = max(lease.deadline, deadline(start, ttl, rules.drift_factor))
    lease.validity = lease.deadline - now
    lease.extensions += 1
    if lease.lost:  # found by another thread since the look at the deadline
        lease.lose(now)
        return Extension.LOST
    return Extension.EXTENDED


def exists(rules: Rules, key: bytes) -> Generator[Effect, list[Votes], Votes]:
    """Which masters have the key, whosever it is; of those that have forgotten none."""
    request = Request(EXISTS, (key,), rules.electorate.mask)
    return (yield Exchange([request], rules.need, rules.node_timeout, rules.certain))[0]
