"""Acquire, release and extend many locks with one exchange.

The algorithm of ``algorithm/procedures.py`` with columns in place of single values. Each lock is decided by
itself. A large batch is split into parts (see ``parts``), because the engine bounds what is under way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

from ..engine.contract import Batch, BatchVotes, Request, Votes, Wait
from ..errors import CLOSED, ClientClosed
from .attempts import unavailable
from .effects import Effect, Exchange
from .keys import size_of
from .lease import ExtendOutcome, Lease, all_plain, begin_release, columns, keys_of, never_lost
from .lock_kind import EXTEND, RELEASE, wire_ttl
from .master_lists import MasterLists
from .operation import Message
from .policy import Policy
from .procedures import extended, extended_already
from .redlock import Attempt, finish_attempts, start_attempts, start_release, was_alive, weakest
from .refill import Given, lacking, lacking_of_many, put, refill

#: The largest part of a batch: requests, and bytes of keys.
MOST, MOST_BYTES = 4096, 4 << 20

T = TypeVar("T")
Value = TypeVar("Value", int, float, bytes)


class Completion:
    """Whether a call of ``acquire_many`` was completed or cancelled. The first of both decides.

    Each method needs one step of a list, which is atomic: its first entry is whether the call was completed.
    Several batches share it in a sharded client.
    """

    __slots__ = ("_completed",)

    def __init__(self) -> None:
        self._completed: list[bool] = []

    def complete(self) -> None:
        """From now on the locks belong to the caller. Raises ClientClosed if the call was cancelled.

        It is the last step of ``acquire_many``, and makes no call: after a call a signal handler may close
        the client and raise. Then the caller has no locks, and a closed client cannot release them.
        """
        self._completed += [True]
        if not self._completed[0]:
            raise ClientClosed(CLOSED)

    def cancel(self) -> bool:
        """Cancel the call, unless it was completed. Returns whether it is cancelled."""
        self._completed.append(False)
        return not self._completed[0]

    def check(self) -> None:
        """Raise ClientClosed if the call was cancelled."""
        if self._completed[:1] == [False]:
            raise ClientClosed(CLOSED)


class UnfinishedBatch:
    """The attempts of one call of ``acquire_many``, until that call returns its locks.

    A call makes one attempt for some thousands of keys at a time. Its caller has none of the locks before it
    returns. So if the client is closed in the meantime, ``close`` cancels the call and undoes its attempts.
    ``decided``: the number of attempts whose replies the call has counted. Of these it holds the leases that
    were granted, and has released the keys that were not, so that only later attempts are left to undo.
    """

    __slots__ = ("__weakref__", "_attempts", "completion", "decided")

    def __init__(self, completion: Completion) -> None:
        self.completion: Completion = completion
        self._attempts: list[tuple[list[bytes], Attempt]] = []
        self.decided: int = 0

    def begin_part(self, keys: list[bytes], attempt: Attempt) -> None:
        """Record the attempt on ``keys``, before its exchange. Raises ClientClosed if it must not be sent."""
        self._attempts.append((keys, attempt))
        self.completion.check()  # last: a call that is cancelled from now on has the attempt

    def undo(self, first: int = 0) -> list[Message]:
        """The releases of the tokens of all attempts from number ``first`` on."""
        return [
            undo(keys, attempt.token, attempt.masters, attempt.ttl)
            for keys, attempt in self._attempts[first:]
        ]


def parts(keys: Sequence[bytes]) -> Iterator[slice]:
    """Slices of ``keys`` that are small enough for one exchange."""
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
    policy: Policy, keys: list[bytes], ttl: float, held: list[Lease | None], batch: UnfinishedBatch
) -> Generator[Effect, BatchVotes, tuple[int, Votes] | None]:
    """Make one attempt for each key, and append its lease or None to ``held``.

    Attempts without a lease are undone. Returns the first key that masters did not decide, by its position,
    and its votes. ``batch`` gets the attempt; if an exception ends this, it undoes the attempt.
    """
    attempt = start_attempts(policy, keys, ttl)
    batch.begin_part(keys, attempt)
    tally = yield Exchange(attempt.requests, attempt.lists.need, ttl, policy.wait, policy.node_timeout)
    leases, why = finish_attempts(attempt, keys, tally)
    held += leases
    failed = [number for number, lease in enumerate(leases) if lease is None]
    if failed:
        sent = [tally.sent[number] for number in failed]
        releases = undo([keys[n] for n in failed], [attempt.token[n] for n in failed], sent, ttl)
        yield Exchange(releases, 0, 0.0)
    batch.decided += 1
    if failed and why is not None:
        return failed[0], why
    votes = ((number, tally.votes[number]) for number in failed)
    return next(((number, one) for number, one in votes if unavailable(attempt.lists, one)), None)


def undo(keys: list[bytes], tokens: list[bytes], sent: int | list[int], ttl: float | list[float]) -> Batch:
    """The releases of ``tokens`` on all masters that may have them."""
    return Batch(RELEASE, (keys, tokens), len(keys), sent, ttl)


def parts_of(leases: Sequence[Lease]) -> Iterator[slice]:
    """Slices of ``leases`` for one exchange each. A lease of several keys takes several requests."""
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


def undo_leases(leases: Sequence[Lease]) -> list[Message]:
    """The releases of ``leases``, where no reply is awaited."""
    begin_release(leases)
    return [_releases(leases[part]) for part in parts_of(leases)]


def release(policy: Policy, leases: Sequence[Lease]) -> Generator[Effect, Any, list[bool]]:
    """Delete the keys of ``leases`` on all masters that may have them. False: a lease had ended before.

    If an exception ends this, the leases must be undone.
    """
    longest = begin_release(leases)
    requests, lists = _releases(leases), policy.voters.lists
    answers = yield Exchange(requests, lists.need, longest, policy.wait, policy.node_timeout)
    if type(answers) is BatchVotes and not answers.votes:  # a quorum of each, and no master failed
        return never_lost(leases)
    each = zip(leases, _each(lists, leases, requests, answers), strict=True)
    return [was_alive(policy, lists, lease, granted, votes) for lease, (granted, votes) in each]


def _releases(leases: Sequence[Lease]) -> list[Request] | Batch:
    if not all_plain(leases):
        return list(itertools.chain.from_iterable(map(start_release, leases)))
    keys, tokens, sent, ttls = columns(leases)
    return Batch(RELEASE, (keys, tokens), len(keys), _same(sent), _same(ttls))


def extend(
    policy: Policy,
    leases: Sequence[Lease],
    ttls: Sequence[float],
    given: list[Given],
    timeout: float = math.inf,
    thorough: bool = False,
) -> Generator[Effect, Any, list[ExtendOutcome]]:
    """Extend each lease as ``procedures.extend`` does, within ``timeout`` seconds for all.

    ``thorough``: no caller waits, so the exchange may wait for all masters, to find those that lost a key.
    """
    start = policy.clock()
    outcomes = [extended_already(policy, lease, ttl, start) for lease, ttl in zip(leases, ttls, strict=True)]
    asked = [number for number, outcome in enumerate(outcomes) if outcome is None]
    if asked:
        lists = policy.voters.lists  # after the clock, as of an attempt
        asking = [leases[number] for number in asked]
        wanted = [ttls[number] for number in asked]
        fresh = yield from put(policy, lists, list(zip(asking, wanted, strict=True)), start, given)
        masters = lists.extending()
        requests = _extensions(asking, wanted, masters)
        longest = min(timeout, max(lease.deadline for lease in asking) - start)
        stall = min(longest, policy.node_timeout)
        all_replied = policy.refill and thorough and all(one.deadline - start > one.ttl / 3 for one in asking)
        if all_replied:  # a slow master must not delay any extension beyond its deadline
            longest = min(longest, (min(lease.deadline for lease in asking) - start) / 2)
        wait = Wait.ALL if all_replied else policy.wait
        answers = yield Exchange(requests, lists.need, longest, wait, stall)
        trusted = policy.voters.trust(lists, fresh, masters)
        for number, (granted, votes) in zip(asked, _each(lists, asking, requests, answers), strict=True):
            granted = granted and trusted
            outcomes[number] = extended(policy, lists, leases[number], ttls[number], start, granted, votes)
        if policy.refill:
            confirmed = [outcomes[number] is ExtendOutcome.EXTENDED for number in asked]
            found = list(_missing(lists, asking, confirmed, requests, answers, all_replied))
            if found:
                yield from refill(found, given)
    return [outcome for outcome in outcomes if outcome is not None]


def _missing(
    lists: MasterLists,
    leases: Sequence[Lease],
    confirmed: Sequence[bool],
    requests: list[Request] | Batch,
    answers: Any,
    all_replied: bool,
) -> Iterator[tuple[Lease, int]]:
    """The leases to refill, each with its masters. ``all_replied``: every master had time to reply."""
    each = _each(lists, leases, requests, answers)
    for number, (lease, good, (_, votes)) in enumerate(zip(leases, confirmed, each, strict=True)):
        if not good or not lease.refillable:
            continue
        if votes is None:
            all_granted = answers.granted[number] == answers.sent[number].bit_count()
            missing = lacking_of_many(lists, lease, all_granted, all_replied)
        else:
            missing = lacking(lists, lease, votes)
        if missing:
            yield lease, missing


def _extensions(leases: Sequence[Lease], ttls: list[float], masters: int) -> list[Request] | Batch:
    wires = [wire_ttl(ttl) for ttl in ttls]
    if all_plain(leases):
        keys, tokens, sent, _ = columns(leases)
        asked = [one & masters for one in sent]
        return Batch(EXTEND, (keys, tokens, _same(wires)), len(keys), _same(asked))
    pairs = zip(leases, wires, strict=True)
    more = (lease.lock_kind.extend_requests(lease.token, wire, lease.sent & masters) for lease, wire in pairs)
    return list(itertools.chain.from_iterable(more))


def _each(
    lists: MasterLists, leases: Sequence[Lease], requests: list[Request] | Batch, answers: Any
) -> Iterator[tuple[bool, Votes | None]]:
    """For each lease whether a quorum granted, and its votes if a master failed or a quorum is missing."""
    if isinstance(requests, Batch):
        for number, granted in enumerate(answers.granted):
            yield granted >= lists.counted, answers.votes.get(number)
        return
    at = 0
    for lease in leases:
        votes = weakest(lists, answers[at : at + lease.lock_kind.request_count])
        at += lease.lock_kind.request_count
        yield lists.granted(votes), votes


def _same(values: list[Value]) -> Value | list[Value]:
    """One value in place of a column of equal values, which is the usual case."""
    return values[0] if values.count(values[0]) == len(values) else values
