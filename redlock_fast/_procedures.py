"""Acquire, release, extend: the Redlock algorithm as generators without I/O.

A procedure yields what it wants done (an effect) and is sent what came of it. A driver performs the
effects: with threads, with asyncio, or in a simulation in virtual time. Exceptions of a driver
(a signal, a cancellation) are thrown into the procedure, which cleans up and raises them again.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

from ._clock import Clock, lease_clock
from ._commands import Verb
from ._engine import Request, Votes, Wait
from ._quorum import Retry, deadline, impossible, milliseconds

TOKEN_SIZE = 20


@lru_cache(maxsize=256)
def wire_ttl(ttl: float) -> bytes:
    """Whole milliseconds, as they go into a command."""
    return b"%d" % milliseconds(ttl)


def new_token() -> bytes:
    """What tells this holder from all others, ever: 160 random bits, never from a seeded generator."""
    return os.urandom(TOKEN_SIZE)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all procedures of one client go by. Times in seconds.

    ``patience``: how long an acquire without a deadline bears with masters that form no quorum.
    ``wait``: what decides an acquire; all else waits for certainty at least.
    """

    masters: int
    need: int
    node_timeout: float
    drift_factor: float
    patience: float
    retry: Retry
    wait: Wait = Wait.EARLY
    clock: Clock = lease_clock
    chance: Callable[[], float] = random.SystemRandom().random
    token: Callable[[], bytes] = new_token
    #: The mask of all masters.
    everyone: int = field(init=False)
    #: Where a failing master must not pass for one that refused.
    certain: Wait = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "everyone", (1 << self.masters) - 1)
        object.__setattr__(self, "certain", max(self.wait, Wait.CERTAIN))

    def hopeless(self, votes: Votes) -> bool:
        """Whether so many masters refused that others hold, or ours is lost, for certain."""
        return impossible(self.masters, self.need, votes.refused, 0)


class Exchange:
    """Effect: send ``requests``, come back with their votes. ``need=0``: do not wait for replies."""

    __slots__ = ("need", "requests", "timeout", "wait")

    def __init__(self, requests: list[Request], need: int, timeout: float, wait: Wait = Wait.EARLY) -> None:
        self.requests = requests
        self.need = need
        self.timeout = timeout
        self.wait = wait


class Pause:
    """Effect: wait for ``seconds``."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Connect:
    """Effect: wait up to ``timeout`` seconds for the first quorum of connections."""

    __slots__ = ("timeout",)

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout


Effect = Exchange | Pause | Connect


class Lease:
    """What a grant gives: ``token`` on the masters of the mask ``sent``, valid until ``deadline``."""

    __slots__ = ("deadline", "extensions", "sent", "token", "ttl", "validity")

    def __init__(self, token: bytes, sent: int, ttl: float, end: float, validity: float) -> None:
        self.token = token
        self.sent = sent
        self.ttl = ttl
        self.deadline = end
        self.validity = validity
        self.extensions = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no lease: the last round's votes. ``unavailable``: masters failed, not others hold."""

    votes: Votes
    unavailable: bool
    rounds: int


class Extension(Enum):
    """What came of an extension. INCONCLUSIVE: still held until the deadline as it was."""

    EXTENDED = "extended"
    LOST = "lost"
    INCONCLUSIVE = "inconclusive"


def acquire(
    rules: Rules,
    key: bytes,
    ttl: float,
    give_up_at: float | None,
    rounds: int | None,
    keep: Callable[[Lease], None],
) -> Generator[Effect, list[Votes], Lease | Refusal]:
    """Rounds until a lease is granted, or until ``give_up_at`` (lease clock) or ``rounds`` ends them.

    ``keep`` is handed the lease at once: what interrupts from then on is for the caller to undo.
    """
    failed = 0
    outage: float | None = None
    refusal: Refusal | None = None
    while True:
        start = rules.clock()
        lease_or_votes = yield from _round(rules, key, ttl, start, give_up_at, keep)
        if isinstance(lease_or_votes, Lease):
            return lease_or_votes
        failed += 1
        now = rules.clock()
        unavailable = _unavailable(rules, lease_or_votes)
        if refusal and unavailable and give_up_at is not None and start + rules.node_timeout > give_up_at:
            # This round was cut short: masters that had no time to answer are not down.
            refusal = replace(refusal, rounds=failed)
        else:
            refusal = Refusal(lease_or_votes, unavailable, failed)
        pause = rules.retry.delay(failed, now - start, rules.chance())
        if rounds is not None and failed >= rounds:
            return refusal
        if give_up_at is not None:
            # The last round is to end with the time, not to begin then.
            left = give_up_at - now
            spare = left - min(rules.node_timeout, max(4 * (now - start), left / 10))
            if spare <= 0:
                return refusal
            pause = min(pause, spare)
        elif not refusal.unavailable:
            outage = None
        else:
            outage = start if outage is None else outage
            if now - outage > rules.patience:
                return refusal
        yield Pause(pause)


def _round(
    rules: Rules,
    key: bytes,
    ttl: float,
    start: float,
    give_up_at: float | None,
    keep: Callable[[Lease], None],
) -> Generator[Effect, list[Votes], Lease | Votes]:
    """One attempt on all masters, with a token of its own; what it leaves behind is undone."""
    timeout = rules.node_timeout
    if give_up_at is not None:
        timeout = max(0.0, min(timeout, give_up_at - start))
    token = rules.token()
    args = (key, token, wire_ttl(ttl))
    sent = rules.everyone  # unless the votes say otherwise
    try:
        request = Request(Verb.ACQUIRE, args, rules.everyone)
        votes = (yield Exchange([request], rules.need, timeout, rules.wait))[0]
        sent = votes.sent
        end = deadline(start, ttl, rules.drift_factor)
        validity = end - rules.clock()
        if votes.granted >= rules.need and validity > 0:
            lease = Lease(token, sent, ttl, end, validity)
            keep(lease)
            return lease
    except GeneratorExit:
        raise
    except BaseException:
        yield from undo(key, token, sent, ttl)
        raise
    yield from undo(key, token, sent, ttl)
    return votes


def _unavailable(rules: Rules, votes: Votes) -> bool:
    """Whether it was the masters: too many failed, were silent to the end, or granted too late."""
    if impossible(rules.masters, rules.need, votes.refused, votes.faulty):
        return impossible(rules.masters, rules.need, 0, votes.faulty)
    return True


def undo(
    key: bytes, token: bytes, sent: int, ttl: float
) -> Generator[Effect, list[Votes], None]:
    """Take back a token from all masters that may have it, without waiting for their replies."""
    exchange = Exchange([_release_request(key, token, sent, ttl)], 0, 0.0)
    try:
        yield exchange
    except GeneratorExit:
        raise
    except BaseException:
        yield exchange  # it may not have gone out; deleting twice compares twice
        raise


def _release_request(key: bytes, token: bytes, sent: int, ttl: float) -> Request:
    return Request(Verb.RELEASE, (key, token), sent, keep=ttl)


def release(rules: Rules, key: bytes, lease: Lease) -> Generator[Effect, list[Votes], bool]:
    """Delete our key wherever it may be. False: the lease had ended on a quorum before.

    What interrupts it is for the caller to undo, who knows of the lease before the first step.
    """
    request = _release_request(key, lease.token, lease.sent, lease.ttl)
    votes = (yield Exchange([request], rules.need, rules.node_timeout, rules.certain))[0]
    if votes.granted >= rules.need:
        return True
    return not rules.hopeless(votes) and rules.clock() < lease.deadline


def extend(
    rules: Rules, key: bytes, lease: Lease, ttl: float
) -> Generator[Effect, list[Votes], tuple[Extension, Votes | None]]:
    """Compare-and-extend on all masters that were sent the SET; on success ``lease`` says the new end.

    It never shortens: a lease that lasts longer than ``ttl`` from now stays as it is. So a request
    that a master executes late, or that only some executed, leaves every key at least as long as
    the deadline says.
    """
    start = rules.clock()
    if start >= lease.deadline:
        return Extension.LOST, None
    end = deadline(start, ttl, rules.drift_factor)
    if end <= lease.deadline:
        lease.validity = lease.deadline - start
        return Extension.EXTENDED, None
    request = Request(Verb.EXTEND, (key, lease.token, wire_ttl(ttl)), lease.sent)
    timeout = min(rules.node_timeout, lease.deadline - start)
    votes = (yield Exchange([request], rules.need, timeout, rules.certain))[0]
    now = rules.clock()
    lease.ttl = max(lease.ttl, ttl)
    if now >= lease.deadline or rules.hopeless(votes):
        return Extension.LOST, votes
    if votes.granted < rules.need:
        return Extension.INCONCLUSIVE, votes
    lease.deadline = end
    lease.validity = end - now
    lease.extensions += 1
    return Extension.EXTENDED, votes


def exists(rules: Rules, key: bytes) -> Generator[Effect, list[Votes], Votes]:
    """Which masters have the key, whosever it is."""
    request = Request(Verb.EXISTS, (key,), rules.everyone)
    return (yield Exchange([request], rules.need, rules.node_timeout, rules.certain))[0]
