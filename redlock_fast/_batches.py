"""Acquire, release, extend for many resources at once: one exchange with the masters for all of them.

The same algorithm as in ``_procedures``, with columns in place of single values; each resource is decided
by itself. A batch of any size is done part by part (see ``parts``), so that what is on its way to a master
stays within the engine's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

from ._engine import FAULT, Batch, Tally, Votes
from ._procedures import (
    ACQUIRE,
    EXTEND,
    RELEASE,
    Effect,
    Exchange,
    Extension,
    Lease,
    Rules,
    extended,
    extended_already,
    send_surely,
    still_alive,
    unavailable,
    wire_ttl,
)
from ._quorum import deadline

#: What one part of a batch has at most.
MOST, MOST_BYTES = 4096, 4 << 20

T = TypeVar("T")
Value = TypeVar("Value", int, float, bytes)


def parts(keys: Sequence[bytes]) -> Iterator[slice]:
    """Slices of a batch that are small enough for one exchange."""
    if len(keys) <= MOST and sum(map(len, keys)) <= MOST_BYTES:
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
    start = rules.clock()
    tokens = rules.tokens(len(keys))
    try:
        asked = rules.electorate.mask
        batch = Batch(ACQUIRE, (keys, tokens, wire_ttl(ttl)), len(keys), asked)
        tally = yield Exchange(batch, rules.need, ttl, rules.wait, rules.node_timeout)
        end = deadline(start, ttl, rules.drift_factor)
        validity = end - rules.clock()
        late = validity <= 0
        forgetful = asked & ~rules.electorate.mask  # restarted meanwhile: no lease counts on their grants
        need = rules.masters + 1 if late or forgetful else rules.need
        leases = [
            Lease(token, sent, ttl, end, validity) if granted >= need else None
            for token, granted, sent in zip(tokens, tally.granted, tally.sent, strict=True)
        ]
        held += leases
    except GeneratorExit:
        raise
    except BaseException:
        yield from undo(keys, tokens, rules.everyone, ttl)
        raise
    if None not in leases:
        return None
    failed = [number for number, lease in enumerate(leases) if lease is None]
    sent = [tally.sent[number] for number in failed]
    yield from undo([keys[n] for n in failed], [tokens[n] for n in failed], sent, ttl)
    if late:
        return Votes((), 0, rules.need, 0, 0, {})
    if forgetful:
        return _forgotten(rules.masters, forgetful)
    votes = (tally.votes[number] for number in failed)
    return next((one for one in votes if unavailable(rules, one)), None)


def _forgotten(masters: int, mask: int) -> Votes:
    """Instead of what these masters said."""
    details: dict[int, str | bytes] = {n: "it restarted meanwhile" for n in range(masters) if mask >> n & 1}
    values = tuple(FAULT if n in details else 0 for n in range(masters))
    return Votes(values, 0, 0, 0, len(details), details)


def undo(
    keys: list[bytes], tokens: list[bytes], sent: int | list[int], ttl: float | list[float]
) -> Generator[Effect, Tally, None]:
    """Take back tokens from all masters that may have them, without waiting for their replies."""
    yield from send_surely(Batch(RELEASE, (keys, tokens), len(keys), sent, ttl))


def undo_leases(keys: Sequence[bytes], leases: Sequence[Lease]) -> Generator[Effect, Tally, None]:
    """The same for what was granted."""
    for part in parts(keys):
        yield from send_surely(_releases(keys[part], leases[part]))


def release(
    rules: Rules, keys: Sequence[bytes], leases: Sequence[Lease]
) -> Generator[Effect, Tally, list[bool]]:
    """Delete our keys wherever they may be. False: that lease had ended on a quorum before.

    What interrupts it is for the caller to undo.
    """
    longest = max(lease.ttl for lease in leases)
    batch = _releases(keys, leases)
    tally = yield Exchange(batch, rules.need, longest, rules.certain, rules.node_timeout)
    return [
        not leases[number].lost
        and (granted >= rules.need or still_alive(rules, leases[number], tally.votes[number]))
        for number, granted in enumerate(tally.granted)
    ]


def _releases(keys: Sequence[bytes], leases: Sequence[Lease]) -> Batch:
    tokens, sent, ttls = [], [], []
    for lease in leases:
        tokens.append(lease.token)
        sent.append(lease.sent)
        ttls.append(lease.ttl)
    return Batch(RELEASE, (list(keys), tokens), len(tokens), _same(sent), _same(ttls))


def extend(
    rules: Rules,
    keys: Sequence[bytes],
    leases: Sequence[Lease],
    ttls: Sequence[float],
    timeout: float = math.inf,
) -> Generator[Effect, Tally, list[Extension]]:
    """Compare-and-extend for each lease, as ``_procedures.extend``; at most ``timeout`` seconds for all."""
    start = rules.clock()
    outcomes = [
        extended_already(rules, lease, ttl, start) for lease, ttl in zip(leases, ttls, strict=True)
    ]
    asked = [number for number, outcome in enumerate(outcomes) if outcome is None]
    if asked:
        asking = [leases[number] for number in asked]
        tokens, sent = [lease.token for lease in asking], [lease.sent for lease in asking]
        wanted = _same([ttls[number] for number in asked])
        wire = [wire_ttl(ttl) for ttl in wanted] if isinstance(wanted, list) else wire_ttl(wanted)
        batch = Batch(EXTEND, ([keys[number] for number in asked], tokens, wire), len(asked), _same(sent))
        longest = min(timeout, max(lease.deadline for lease in asking) - start)
        stall = min(longest, rules.node_timeout)
        tally = yield Exchange(batch, rules.need, longest, rules.certain, stall)
        for place, number in enumerate(asked):
            granted, votes = tally.granted[place], tally.votes.get(place)
            outcomes[number] = extended(rules, leases[number], ttls[number], start, granted, votes)
    return [outcome for outcome in outcomes if outcome is not None]


def _same(values: list[Value]) -> Value | list[Value]:
    """One value for all where they are equal, as they nearly always are."""
    return values[0] if values.count(values[0]) == len(values) else values
