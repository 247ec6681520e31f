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

from ..engine.contract import Batch, Request, Tally, Votes, Wait
from .attempts import unavailable
from .effects import Effect, Exchange, send_surely, undo_after
from .keys import size_of
from .lease import Extension, Lease, all_plain, begin_release, columns, keys_of, never_lost
from .lock_kind import EXTEND, RELEASE, wire_ttl
from .policy import Rules
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
    rules: Rules, keys: list[bytes], ttl: float, held: list[Lease | None]
) -> Generator[Effect, Tally, Votes | None]:
    """One attempt for each key; ``held`` gets one entry for each: its lease, or None.

    What was not granted is undone. Returns the votes of the first key that failed because of masters.
    """
    attempt = start_attempts(rules, keys, ttl)
    tokens: list[bytes] = attempt.token
    try:
        tally = yield Exchange(attempt.requests, rules.need, ttl, rules.wait, rules.node_timeout)
        leases, why = finish_attempts(attempt, keys, tally)
        held += leases
    except BaseException as error:
        yield from undo_after(error, undo(keys, tokens, rules.everyone, ttl))
        raise
    if None not in leases:
        return None
    failed = [number for number, lease in enumerate(leases) if lease is None]
    sent = [tally.sent[number] for number in failed]
    yield from undo([keys[n] for n in failed], [tokens[n] for n in failed], sent, ttl)
    votes = (tally.votes[number] for number in failed)
    return why or next((one for one in votes if unavailable(rules, one)), None)


def undo(
    keys: list[bytes], tokens: list[bytes], sent: int | list[int], ttl: float | list[float]
) -> Generator[Effect, Tally, None]:
    """Take back tokens from all masters that may have them, without waiting for their replies."""
    yield from send_surely(Batch(RELEASE, (keys, tokens), len(keys), sent, ttl))


def parts_of(leases: Sequence[Lease]) -> Iterator[slice]:
    """The same of leases, some of which may take many requests each."""
    if all_plain(leases):
        yield from parts(keys_of(leases))
        return
    start = count = size = 0
    for at, claim in enumerate(lease.claim for lease in leases):
        if at > start and (count + claim.parts > MOST or size + claim.size > MOST_BYTES):
            yield slice(start, at)
            start, count, size = at, 0, 0
        count += claim.parts
        size += claim.size
    yield slice(start, len(leases))


def undo_leases(leases: Sequence[Lease]) -> Generator[Effect, Any, None]:
    """The same for what was granted."""
    for part in parts_of(leases):
        begin_release(leases[part])
        yield from send_surely(_releases(leases[part]))


def release(rules: Rules, leases: Sequence[Lease]) -> Generator[Effect, Any, list[bool]]:
    """Delete our keys wherever they may be. False: that lease had ended on a quorum before.

    What interrupts it is for the caller to undo.
    """
    longest = begin_release(leases)
    requests = _releases(leases)
    answers = yield Exchange(requests, rules.need, longest, rules.certain, rules.node_timeout)
    if type(answers) is Tally and not answers.votes:  # a quorum of each, and no master failed
        return never_lost(leases)
    each = zip(leases, _each(rules, leases, requests, answers), strict=True)
    return [was_alive(rules, lease, granted, votes) for lease, (granted, votes) in each]


def _releases(leases: Sequence[Lease]) -> list[Request] | Batch:
    if not all_plain(leases):
        undone = (lease.undo() for lease in leases)
        return list(itertools.chain.from_iterable(undone))
    keys, tokens, sent, ttls = columns(leases)
    return Batch(RELEASE, (keys, tokens), len(keys), _same(sent), _same(ttls))


def extend(
    rules: Rules,
    leases: Sequence[Lease],
    ttls: Sequence[float],
    timeout: float = math.inf,
    thorough: bool = False,
) -> Generator[Effect, Any, list[Extension]]:
    """Compare-and-extend for each lease, as ``procedures.extend``; at most ``timeout`` seconds for all.

    ``thorough``: nobody waits for the outcome, so every master may be waited for, to see who lost a key.
    """
    start = rules.clock()
    outcomes = [
        extended_already(rules, lease, ttl, start) for lease, ttl in zip(leases, ttls, strict=True)
    ]
    asked = [number for number, outcome in enumerate(outcomes) if outcome is None]
    if asked:
        asking = [leases[number] for number in asked]
        requests = _extensions(asking, [ttls[number] for number in asked])
        longest = min(timeout, max(lease.deadline for lease in asking) - start)
        stall = min(longest, rules.node_timeout)
        heard = rules.refill and thorough and all(one.deadline - start > one.ttl / 3 for one in asking)
        if heard:  # a master that is slow must not make any of them late
            longest = min(longest, (min(lease.deadline for lease in asking) - start) / 2)
        wait = Wait.ALL if heard else rules.certain
        answers = yield Exchange(requests, rules.need, longest, wait, stall)
        for number, (granted, votes) in zip(asked, _each(rules, asking, requests, answers), strict=True):
            outcomes[number] = extended(rules, leases[number], ttls[number], start, granted, votes)
        if rules.refill:
            confirmed = [outcomes[number] is Extension.EXTENDED for number in asked]
            found = list(_missing(rules, asking, confirmed, requests, answers, heard))
            if found:
                yield from refill(found)
    return [outcome for outcome in outcomes if outcome is not None]


def _missing(
    rules: Rules,
    leases: Sequence[Lease],
    confirmed: Sequence[bool],
    requests: list[Request] | Batch,
    answers: Any,
    heard: bool,
) -> Iterator[tuple[Lease, int]]:
    """Which of them to put back where. ``heard``: every master was waited for."""
    each = _each(rules, leases, requests, answers)
    for number, (lease, good, (granted, votes)) in enumerate(zip(leases, confirmed, each, strict=True)):
        if not good or not lease.plain:
            continue
        if votes is None:
            everybody = granted == answers.sent[number].bit_count()
            missing = lacking_of_many(rules, lease, everybody, heard)
        else:
            missing = lacking(rules, lease, votes)
        if missing:
            yield lease, missing


def _extensions(leases: Sequence[Lease], ttls: list[float]) -> list[Request] | Batch:
    wires = [wire_ttl(ttl) for ttl in ttls]
    if all_plain(leases):
        keys, tokens, sent, _ = columns(leases)
        return Batch(EXTEND, (keys, tokens, _same(wires)), len(keys), _same(sent))
    pairs = zip(leases, wires, strict=True)
    more = (lease.claim.more(lease.token, wire, lease.sent) for lease, wire in pairs)
    return list(itertools.chain.from_iterable(more))


def _each(
    rules: Rules, leases: Sequence[Lease], requests: list[Request] | Batch, answers: Any
) -> Iterator[tuple[int, Votes | None]]:
    """For each lease how many granted, and the votes where something was wrong."""
    if isinstance(requests, Batch):
        for number, granted in enumerate(answers.granted):
            yield granted, answers.votes.get(number)
        return
    at = 0
    for lease in leases:
        votes = weakest(rules, answers[at : at + lease.claim.parts])
        at += lease.claim.parts
        yield votes.granted, votes


def _same(values: list[Value]) -> Value | list[Value]:
    """One value for all where they are equal, as they nearly always are."""
    return values[0] if values.count(values[0]) == len(values) else values
