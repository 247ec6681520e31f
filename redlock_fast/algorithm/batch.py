"""Acquire, release, extend for many resources at once: one exchange with the masters for all of them.

The same algorithm as in ``algorithm/procedures.py``, with columns in place of single values; each resource
is decided by itself. A batch of any size is done part by part (see ``parts``), so that what is on its way
to a master stays within the engine's bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

from ..engine.contract import Batch, BatchVotes, Request, Votes, Wait
from .attempts import unavailable
from .effects import Effect, Exchange, send_no_reply, undo_after
from .keys import size_of
from .lease import ExtendOutcome, Lease, all_plain, begin_release, columns, keys_of, never_lost
from .lock_kind import EXTEND, RELEASE, wire_ttl
from .policy import Policy
from .procedures import extended, extended_already
from .redlock import finish_attempts, start_attempts, was_alive, weakest
from .refill import lacking, lacking_of_many, refill

#: What one part of a batch has at most.
MOST, MOST_BYTES = 4096, 4 << 20

T = TypeVar("T")
Value = TypeVar("Value", int, float, bytes)


def parts(keys: Sequence[bytes]) -> Iterator[slice]:
    """Slices of a batch that are small enough for one exchange."""
    if len(keys) <= MOST and size_of(keys) <= MOST_BYTES:
        if keys:
            yield slice(0, len(keys))
        return
    start = size = 0
    for at, key in enumerate(keys):
        size += len(key)
        if at - start == MOST or (size > MOST_BYTES and at > start):
            yield slice(start, at)
            start, size = at, len(key)
    if start < len(keys):
        yield slice(start, len(keys))


def acquire(
    policy: Policy, keys: list[bytes], ttl: float, held: list[Lease | None]
) -> Generator[Effect, BatchVotes, Votes | None]:
    """One attempt for each key; ``held`` gets one entry for each: its lease, or None.

    What was not granted is undone. Returns the votes of the first key that failed because of masters.
    """
    attempt = start_attempts(policy, keys, ttl)
    tokens: list[bytes] = attempt.token
    try:
        tally = yield Exchange(attempt.requests, policy.need, ttl, policy.wait, policy.node_timeout)
        leases, why = finish_attempts(attempt, keys, tally)
        held += leases
    except BaseException as error:
        yield from undo_after(error, undo(keys, tokens, policy.all_masters, ttl))
        raise
    if None not in leases:
        return None
    failed = [number for number, lease in enumerate(leases) if lease is None]
    sent = [tally.sent[number] for number in failed]
    yield from undo([keys[n] for n in failed], [tokens[n] for n in failed], sent, ttl)
    votes = (tally.votes[number] for number in failed)
    return why or next((one for one in votes if unavailable(policy, one)), None)


def undo(
    keys: list[bytes], tokens: list[bytes], sent: int | list[int], ttl: float | list[float]
) -> Generator[Effect, BatchVotes, None]:
    """Take back tokens from all masters that may have them, without waiting for their replies."""
    yield from send_no_reply(Batch(RELEASE, (keys, tokens), len(keys), sent, ttl))


def parts_of(leases: Sequence[Lease]) -> Iterator[slice]:
    """The same of leases, some of which may take many requests each."""
    if all_plain(leases):
        yield from parts(keys_of(leases))
        return
    start = count = size = 0
    for at, lock_kind in enumerate(lease.lock_kind for lease in leases):
        if at > start and (count + lock_kind.request_count > MOST or size + lock_kind.key_bytes > MOST_BYTES):
            yield slice(start, at)
            start, count, size = at, 0, 0
        count += lock_kind.request_count
        size += lock_kind.key_bytes
    yield slice(start, len(leases))


def undo_leases(leases: Sequence[Lease]) -> Generator[Effect, Any, None]:
    """The same for what was granted."""
    for part in parts_of(leases):
        begin_release(leases[part])
        yield from send_no_reply(_releases(leases[part]))


def release(policy: Policy, leases: Sequence[Lease]) -> Generator[Effect, Any, list[bool]]:
    """Delete our keys wherever they may be. False: that lease had ended on a quorum before.

    What interrupts it is for the caller to undo.
    """
    longest = begin_release(leases)
    requests = _releases(leases)
    answers = yield Exchange(requests, policy.need, longest, policy.certain, policy.node_timeout)
    if type(answers) is BatchVotes and not answers.votes:  # a quorum of each, and no master failed
        return never_lost(leases)
    each = zip(leases, _each(policy, leases, requests, answers), strict=True)
    return [was_alive(policy, lease, granted, votes) for lease, (granted, votes) in each]


def _releases(leases: Sequence[Lease]) -> list[Request] | Batch:
    if not all_plain(leases):
        undone = (lease.release_requests() for lease in leases)
        return list(itertools.chain.from_iterable(undone))
    keys, tokens, sent, ttls = columns(leases)
    return Batch(RELEASE, (keys, tokens), len(keys), _same(sent), _same(ttls))


def extend(
    policy: Policy,
    leases: Sequence[Lease],
    ttls: Sequence[float],
    timeout: float = math.inf,
    thorough: bool = False,
) -> Generator[Effect, Any, list[ExtendOutcome]]:
    """Compare-and-extend for each lease, as ``procedures.extend``; at most ``timeout`` seconds for all.

    ``thorough``: nobody waits for the outcome, so every master may be waited for, to see who lost a key.
    """
    start = policy.clock()
    outcomes = [extended_already(policy, lease, ttl, start) for lease, ttl in zip(leases, ttls, strict=True)]
    asked = [number for number, outcome in enumerate(outcomes) if outcome is None]
    if asked:
        asking = [leases[number] for number in asked]
        requests = _extensions(asking, [ttls[number] for number in asked])
        longest = min(timeout, max(lease.deadline for lease in asking) - start)
        stall = min(longest, policy.node_timeout)
        all_replied = policy.refill and thorough and all(one.deadline - start > one.ttl / 3 for one in asking)
        if all_replied:  # a master that is slow must not make any of them late
            longest = min(longest, (min(lease.deadline for lease in asking) - start) / 2)
        wait = Wait.ALL if all_replied else policy.certain
        answers = yield Exchange(requests, policy.need, longest, wait, stall)
        for number, (granted, votes) in zip(asked, _each(policy, asking, requests, answers), strict=True):
            outcomes[number] = extended(policy, leases[number], ttls[number], start, granted, votes)
        if policy.refill:
            confirmed = [outcomes[number] is ExtendOutcome.EXTENDED for number in asked]
            found = list(_missing(policy, asking, confirmed, requests, answers, all_replied))
            if found:
                yield from refill(found)
    return [outcome for outcome in outcomes if outcome is not None]


def _missing(
    policy: Policy,
    leases: Sequence[Lease],
    confirmed: Sequence[bool],
    requests: list[Request] | Batch,
    answers: Any,
    all_replied: bool,
) -> Iterator[tuple[Lease, int]]:
    """Which of them to put back where. ``all_replied``: every master was waited for."""
    each = _each(policy, leases, requests, answers)
    for number, (lease, good, (granted, votes)) in enumerate(zip(leases, confirmed, each, strict=True)):
        if not good or not lease.batchable:
            continue
        if votes is None:
            all_granted = granted == answers.sent[number].bit_count()
            missing = lacking_of_many(policy, lease, all_granted, all_replied)
        else:
            missing = lacking(policy, lease, votes)
        if missing:
            yield lease, missing


def _extensions(leases: Sequence[Lease], ttls: list[float]) -> list[Request] | Batch:
    wires = [wire_ttl(ttl) for ttl in ttls]
    if all_plain(leases):
        keys, tokens, sent, _ = columns(leases)
        return Batch(EXTEND, (keys, tokens, _same(wires)), len(keys), _same(sent))
    pairs = zip(leases, wires, strict=True)
    more = (lease.lock_kind.extend_requests(lease.token, wire, lease.sent) for lease, wire in pairs)
    return list(itertools.chain.from_iterable(more))


def _each(
    policy: Policy, leases: Sequence[Lease], requests: list[Request] | Batch, answers: Any
) -> Iterator[tuple[int, Votes | None]]:
    """For each lease how many granted, and the votes where something was wrong."""
    if isinstance(requests, Batch):
        for number, granted in enumerate(answers.granted):
            yield granted, answers.votes.get(number)
        return
    at = 0
    for lease in leases:
        votes = weakest(policy, answers[at : at + lease.lock_kind.request_count])
        at += lease.lock_kind.request_count
        yield votes.granted, votes


def _same(values: list[Value]) -> Value | list[Value]:
    """One value for all where they are equal, as they nearly always are."""
    return values[0] if values.count(values[0]) == len(values) else values
