"""Acquire, release, extend: the Redlock algorithm as generators without I/O.

A procedure yields effects and is sent their results. A driver performs the effects: with threads, with
asyncio, or in a simulation in virtual time. The driver throws exceptions (a signal, a cancellation) into the
procedure, which cleans up and raises them again.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..engine.contract import Request, Votes, Wait
from .attempts import RetryLoop
from .effects import Effect, Exchange, send_no_reply, undo_after
from .fencing import fence
from .lease import AcquireFailure, ExtendOutcome, Lease
from .lock_kind import EXISTS, OWNER, FencedKind, LockKind, wire_ttl
from .master_lists import MasterLists
from .policy import Policy
from .quorum import deadline
from .redlock import (
    Attempt,
    finish_attempt,
    finish_release,
    start_attempt,
    start_release,
    trusted_votes,
    weakest,
)
from .refill import lacking, put, refill
from .tokens import TOKEN_SIZE, owner_of

#: The length of the hash in a reply to OWNER.
TOKEN_HASH = 40


def acquire(
    policy: Policy,
    lock_kind: LockKind,
    ttl: float,
    give_up_at: float | None,
    rounds: int | None,
    on_granted: Callable[[Lease], None],
    first: Attempt | None = None,
) -> Generator[Effect, list[Votes], Lease | AcquireFailure]:
    """Make attempts until one gets a lease, or until ``give_up_at`` (lease clock) or ``rounds`` ends them.

    Attempts without a lease are undone. ``on_granted`` gets the lease at once: after any later exception the
    caller must undo it. ``first``: an attempt whose exchange the caller makes.
    """
    token = policy.token() if first is None else first.token
    retry_loop = RetryLoop(policy, lock_kind, give_up_at, rounds, ttl, token)
    lease = None
    try:
        if first is None and not (yield from retry_loop.begin()):
            return retry_loop.failure
        lease = yield from _attempts(retry_loop, ttl, on_granted, first)
        if lease is not None:
            return lease
        yield from retry_loop.undo()
        return retry_loop.failure
    except BaseException as error:
        yield from undo_after(error, retry_loop.undo())
        raise
    finally:
        try:
            retry_loop.leave(granted=lease is not None)
        except BaseException:
            retry_loop.leave(granted=lease is not None)  # the callers behind must not wait for this exception
            raise


def _attempts(
    retry_loop: RetryLoop, ttl: float, on_granted: Callable[[Lease], None], first: Attempt | None
) -> Generator[Effect, list[Votes], Lease | None]:
    """Make attempts until one gets a lease. None: the last one is not undone yet.

    The caller's ``try`` protects this, and has no loop: where a turn ends with a condition, CPython 3.13 and
    3.14 may run a signal handler, and a ``try`` around the loop in one function does not catch its exception.
    """
    while True:
        attempt = first or start_attempt(retry_loop.policy, retry_loop.lock_kind, ttl, retry_loop.token)
        first = None
        votes, lease = yield from ask(attempt, retry_loop)
        if lease is not None:
            on_granted(lease)
            return lease
        if retry_loop.exhausted(votes, attempt.start):
            return None
        if not (yield from retry_loop.wait(votes)):
            return None


def ask(
    attempt: Attempt, retry_loop: RetryLoop
) -> Generator[Effect, list[Votes], tuple[Votes, Lease | None]]:
    """Make one attempt. Returns the votes that count, and the lease or None."""
    policy, lock_kind, sent = retry_loop.policy, retry_loop.lock_kind, retry_loop.sent
    timeout = policy.node_timeout
    if retry_loop.give_up_at is not None:
        timeout = max(0.0, min(timeout, retry_loop.give_up_at - attempt.start))
    retry_loop.sent |= attempt.masters  # until the votes are known
    lists = retry_loop.lists = attempt.lists
    votes = (yield Exchange(attempt.requests, lists.need, timeout, policy.wait))[0]
    retry_loop.sent = sent | votes.sent
    votes, fencing = trusted_votes(attempt, votes), None
    granted = lists.granted(votes)
    if type(lock_kind) is FencedKind and granted:
        left = attempt.start + timeout - policy.clock()
        fencing, granted = yield from fence(attempt, lock_kind, votes, left)
    lease = finish_attempt(attempt, granted, retry_loop.sent, fencing)
    if lease is None:
        lock_kind.observe(votes, lists)
    return votes, lease


def undo_lease(lease: Lease) -> Generator[Effect, Any, None]:
    """Release a lease on all masters that may have it, without waiting for replies."""
    yield from send_no_reply(start_release(lease))


def release(policy: Policy, lease: Lease) -> Generator[Effect, list[Votes], bool]:
    """Delete the key of ``lease`` on all masters that may have it. False: the lease had ended before.

    If an exception interrupts this, the caller must undo the lease.
    """
    requests = start_release(lease)
    answers = yield Exchange(requests, policy.voters.lists.need, policy.node_timeout, policy.wait)
    return finish_release(policy, lease, answers)


def extend(
    policy: Policy, lease: Lease, ttl: float, confirm: bool = False
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes | None]]:
    """Extend ``lease`` on all masters that may have its token. On success it has the new deadline.

    An extension never shortens. A lease that lasts longer than ``ttl`` from now stays unchanged, and its
    masters are asked only with ``confirm``. Masters do not shorten a key either: an extension that arrives
    after a longer one changes nothing.
    """
    start = policy.clock()
    known = extended_already(policy, lease, ttl, start)
    if confirm and known is ExtendOutcome.EXTENDED:
        known = None
    if known is not None:
        return known, None

    def requests(masters: int) -> list[Request]:
        return lease.lock_kind.extend_requests(lease.token, wire_ttl(ttl), masters)

    lists = policy.voters.lists  # after the clock, as of an attempt
    outcome, votes = yield from extension(policy, lists, lease, ttl, start, requests)
    if policy.refill and outcome is ExtendOutcome.EXTENDED and lease.refillable:
        missing = lacking(lists, lease, votes)
        if missing:
            yield from refill([(lease, missing)])
    return outcome, votes


def extension(
    policy: Policy,
    lists: MasterLists,
    lease: Lease,
    ttl: float,
    start: float,
    requests: Callable[[int], list[Request]],
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes]]:
    """Ask the masters to make ``lease`` last ``ttl`` seconds from ``start``. Returns the outcome and votes.

    ``requests``: makes the requests to the masters of a mask, when all of them have been sent the token.
    """
    fresh = yield from put(policy, lists, [(lease, ttl)], start)
    asked = lease.sent & lists.extending()
    timeout = min(policy.node_timeout, lease.deadline - start)
    votes = weakest(lists, (yield Exchange(requests(asked), lists.need, timeout, policy.wait)))
    granted = lists.granted(votes) and policy.voters.trust(lists, fresh, asked)
    return extended(policy, lists, lease, ttl, start, granted, votes), votes


def extended_already(policy: Policy, lease: Lease, ttl: float, start: float) -> ExtendOutcome | None:
    """The outcome of an extension that needs no exchange; None: the masters must be asked.

    LOST: the lease has ended. EXTENDED: a confirmed deadline is late enough.
    """
    if start >= lease.deadline or lease.lost:
        return ExtendOutcome.LOST
    if deadline(start, ttl, policy.drift_factor) > lease.deadline:
        return None
    lease.validity = lease.deadline - start
    return ExtendOutcome.EXTENDED


def extended(
    policy: Policy,
    lists: MasterLists,
    lease: Lease,
    ttl: float,
    start: float,
    granted: bool,
    votes: Votes | None,
) -> ExtendOutcome:
    """The outcome of an extension that began at ``start``. Without ``votes`` no master failed.

    ``granted``: whether a quorum of each list granted it.
    """
    now = policy.clock()
    lease.ttl = max(lease.ttl, ttl)
    # Until the lists are settled, a quorum of former lists may have the token that the present ones refuse.
    refused = votes is not None and start >= lists.settled_at and lists.refused(votes)
    if now >= lease.deadline or refused:
        return ExtendOutcome.LOST
    if not granted:
        return ExtendOutcome.INCONCLUSIVE
    # A concurrent extension may have set a later deadline.
    lease.deadline = max(lease.deadline, deadline(start, ttl, policy.drift_factor))
    lease.validity = lease.deadline - now
    lease.extensions += 1
    if lease.lost:  # found by another thread after the deadline was read
        lease.mark_lost(now)
        return ExtendOutcome.LOST
    return ExtendOutcome.EXTENDED


def exists(policy: Policy, key: bytes) -> Generator[Effect, list[Votes], Votes]:
    """The votes of the voting masters on whether they have ``key``, with any token.

    Of two lists one may have it: refusals of the other decide nothing.
    """
    lists = policy.voters.lists
    wait = policy.wait if len(lists.lists) == 1 else Wait.ALL
    request = Request(EXISTS, (key,), policy.voters.asked())
    return (yield Exchange([request], lists.need, policy.node_timeout, wait))[0]


def owners(policy: Policy, keys: Sequence[bytes]) -> Generator[Effect, list[Votes], list[str]]:
    """For each key the owner that most masters report; "" if its token names none, or too few answer.

    One exchange, of at most ``node_timeout`` seconds.
    """
    requests = [Request(OWNER, (key,), policy.voters.asked()) for key in keys]
    answers = yield Exchange(requests, policy.voters.lists.need, policy.node_timeout)
    return [_reported_owner(votes) for votes in answers]


def _reported_owner(votes: Votes) -> str:
    texts = [text[TOKEN_HASH:] for text in reported_tokens(votes).values()]
    found = Counter(owner_of(bytes(TOKEN_SIZE) + text) for text in texts)
    return found.most_common(1)[0][0] if found else ""


def reported_tokens(votes: Votes) -> dict[int, bytes]:
    """What masters reported of the token in a key, by master: a hash, and the owner part of the token.

    b"": that master has no token there. Masters that failed are missing.
    """
    replies = {n: detail for n, detail in votes.details.items() if type(detail) is bytes}
    return {n: reply.partition(b"\r\n")[2][:-2] for n, reply in replies.items() if reply.startswith(b"$")}
