"""Acquire, release, extend: the Redlock algorithm as generators without I/O.

A procedure yields what it wants done (an effect) and is sent what came of it. A driver performs the
effects: with threads, with asyncio, or in a simulation in virtual time. Exceptions of a driver
(a signal, a cancellation) are thrown into the procedure, which cleans up and raises them again.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from ._clock import Clock, lease_clock
from ._commands import Verb
from ._engine import Batch, Request, Votes, Wait
from ._guard import Electorate
from ._quorum import Retry, deadline, fencing_token, impossible, milliseconds
from ._tokens import new_token, new_tokens

#: As plain numbers, for the hot path.
ACQUIRE, RELEASE, EXTEND, EXISTS, FENCE, LIFT = map(int, Verb)


@lru_cache(maxsize=256)
def wire_ttl(ttl: float) -> bytes:
    """Whole milliseconds, as they go into a command."""
    return b"%d" % milliseconds(ttl)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all procedures of one client go by. Times in seconds.

    ``patience``: how long an acquire without a deadline bears with masters that form no quorum.
    ``wait``: what decides an acquire; all else waits for certainty at least. ``electorate``: whose yes
    counts. ``retention``: how long a counter of fencing tokens outlives its last use, for the wire.
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
    tokens: Callable[[int], list[bytes]] = new_tokens
    electorate: Electorate = None  # type: ignore[assignment]  # all masters, unless it is given
    retention: bytes = b"86400000"
    #: The mask of all masters.
    everyone: int = field(init=False)
    #: Where a failing master must not pass for one that refused.
    certain: Wait = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "everyone", (1 << self.masters) - 1)
        object.__setattr__(self, "electorate", self.electorate or Electorate(self.masters))
        object.__setattr__(self, "certain", max(self.wait, Wait.CERTAIN))

    def hopeless(self, votes: Votes) -> bool:
        """Whether so many masters refused that others hold, or ours is lost, for certain."""
        return impossible(self.masters, self.need, votes.refused, 0)


class Exchange:
    """Effect: send ``requests``, come back with what the engine says. ``need=0``: without waiting."""

    __slots__ = ("need", "requests", "stall", "timeout", "wait")

    def __init__(
        self,
        requests: list[Request] | Batch,
        need: int,
        timeout: float,
        wait: Wait = Wait.EARLY,
        stall: float = 0.0,
    ) -> None:
        self.requests = requests
        self.need = need
        self.timeout = timeout
        self.wait = wait
        self.stall = stall


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
    """What a grant gives: ``token`` on the masters of the mask ``sent``, valid until ``deadline``.

    ``fencing``: larger than that of every earlier holder; None where it was not asked for.
    """

    __slots__ = (
        "_asked",
        "_asking",
        "deadline",
        "extensions",
        "fencing",
        "lost",
        "sent",
        "token",
        "ttl",
        "validity",
    )

    def __init__(
        self, token: bytes, sent: int, ttl: float, end: float, validity: float, fencing: int | None = None
    ) -> None:
        self.token = token
        self.sent = sent
        self.ttl = ttl
        self.deadline = end
        self.validity = validity
        self.extensions = 0
        self.fencing = fencing
        self.lost = False  # for good, whatever a master says later
        self._asking = 0  # how many extensions are under way
        self._asked = 0.0  # what for

    def ask(self, ttl: float) -> bool:
        """Whether an extension for ``ttl`` may begin now; then ``answered`` must follow.

        Those that overlap must want the same: a master might execute the shorter one last.
        """
        if self._asking and self._asked != ttl:
            return False
        self._asking += 1
        self._asked = ttl
        return True

    def answered(self) -> None:
        self._asking -= 1

    def lose(self, now: float) -> None:
        """It stays with its lock until the release, which takes back what a minority may still have."""
        self.lost = True
        self.deadline = min(self.deadline, now)


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
    counter: bytes | None = None,
) -> Generator[Effect, list[Votes], Lease | Refusal]:
    """Rounds until a lease is granted, or until ``give_up_at`` (lease clock) or ``rounds`` ends them.

    Each round is one attempt on all masters with a token of its own; what it leaves behind is undone.
    ``keep`` is handed the lease at once: what interrupts from then on is for the caller to undo.
    ``counter``: the key to count a fencing token with, if one is wanted.
    """
    tries: Tries | None = None
    while True:
        start = rules.clock()
        timeout = rules.node_timeout
        if give_up_at is not None:
            timeout = max(0.0, min(timeout, give_up_at - start))
        token = rules.token()
        sent = asked = rules.electorate.mask  # unless the votes say otherwise
        fencing = None
        try:
            if counter is None:
                request = Request(ACQUIRE, (key, token, wire_ttl(ttl)), asked)
            else:
                request = Request(FENCE, (key, token, wire_ttl(ttl), counter, rules.retention), asked)
            votes = (yield Exchange([request], rules.need, timeout, rules.wait))[0]
            sent = votes.sent
            granted, values = votes.granted, votes.values
            if asked != rules.electorate.mask:  # one has restarted meanwhile, and may have forgotten locks
                values = rules.electorate.heard(values)
                granted = sum(value > 0 for value in values)
            if counter is not None and granted >= rules.need:
                left = start + timeout - rules.clock()
                fencing, granted = yield from fence(rules, key, token, counter, values, left)
            end = deadline(start, ttl, rules.drift_factor)
            validity = end - rules.clock()
            if granted >= rules.need and validity > 0:
                lease = Lease(token, sent, ttl, end, validity, fencing)
                keep(lease)
                return lease
        except GeneratorExit:
            raise
        except BaseException:
            yield from undo(key, token, sent, ttl)
            raise
        yield from undo(key, token, sent, ttl)
        tries = tries or Tries(rules, give_up_at, rounds)
        pause = tries.pause_after(votes, start)
        if pause is None:
            return tries.refusal
        yield Pause(pause)


def fence(
    rules: Rules, key: bytes, token: bytes, counter: bytes, values: Sequence[int], timeout: float
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
    lift = Request(LIFT, (key, token, b"%d" % fencing, counter, rules.retention), behind)
    missing = rules.need - vouching
    if missing > 0:
        votes = (yield Exchange([lift], missing, max(0.0, timeout)))[0]
        vouching += votes.granted
    else:
        yield Exchange([lift], 0, 0.0)  # so that the counters are equal the next time
    return fencing, vouching


class Tries:
    """What came of the rounds so far, and whether another one is worth it."""

    refusal: Refusal

    def __init__(self, rules: Rules, give_up_at: float | None, rounds: int | None) -> None:
        self.rules = rules
        self.give_up_at = give_up_at
        self.rounds = rounds
        self.failed = 0
        self.outage: float | None = None

    def pause_after(self, votes: Votes, start: float) -> float | None:
        """After a round that began at ``start`` and got no lease: seconds to pause, None to give up."""
        rules, now = self.rules, self.rules.clock()
        self._note(votes, start)
        pause = rules.retry.delay(self.failed, now - start, rules.chance())
        if self.rounds is not None and self.failed >= self.rounds:
            return None
        if self.give_up_at is not None:
            # The last round is to end with the time, not to begin then.
            left = self.give_up_at - now
            spare = left - min(rules.node_timeout, max(4 * (now - start), left / 10))
            return min(pause, spare) if spare > 0 else None
        if not self.refusal.unavailable:
            self.outage = None
        else:
            self.outage = start if self.outage is None else self.outage
            if now - self.outage > rules.patience:
                return None
        return pause

    def _note(self, votes: Votes, start: float) -> None:
        self.failed += 1
        bad = unavailable(self.rules, votes)
        cut_short = self.give_up_at is not None and start + self.rules.node_timeout > self.give_up_at
        if self.failed > 1 and bad and cut_short:  # masters that had no time to answer are not down
            self.refusal = replace(self.refusal, rounds=self.failed)
        else:
            self.refusal = Refusal(votes, bad, self.failed)


def unavailable(rules: Rules, votes: Votes) -> bool:
    """Whether it was the masters: too many failed, were silent to the end, or granted too late."""
    if impossible(rules.masters, rules.need, votes.refused, votes.faulty):
        return impossible(rules.masters, rules.need, 0, votes.faulty)
    return True


def undo(key: bytes, token: bytes, sent: int, ttl: float) -> Generator[Effect, Any, None]:
    """Take back a token from all masters that may have it, without waiting for their replies."""
    yield from send_surely([Request(RELEASE, (key, token), sent, ttl)])


def send_surely(requests: list[Request] | Batch) -> Generator[Effect, Any, None]:
    """Hand over what must arrive, without waiting for replies; once more if that is interrupted."""
    exchange = Exchange(requests, 0, 0.0)
    try:
        yield exchange
    except GeneratorExit:
        raise
    except BaseException:
        yield exchange  # it may not have gone out; deleting twice compares twice
        raise


def release(rules: Rules, key: bytes, lease: Lease) -> Generator[Effect, list[Votes], bool]:
    """Delete our key wherever it may be. False: the lease had ended on a quorum before.

    What interrupts it is for the caller to undo, who knows of the lease before the first step.
    """
    request = Request(RELEASE, (key, lease.token), lease.sent, lease.ttl)
    votes = (yield Exchange([request], rules.need, rules.node_timeout, rules.certain))[0]
    return not lease.lost and (votes.granted >= rules.need or still_alive(rules, lease, votes))


def still_alive(rules: Rules, lease: Lease, votes: Votes) -> bool:
    """Whether a lease had not ended, as far as fewer than a quorum can tell."""
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
    known = extended_already(rules, lease, ttl, start)
    if known is not None:
        return known, None
    request = Request(EXTEND, (key, lease.token, wire_ttl(ttl)), lease.sent)
    timeout = min(rules.node_timeout, lease.deadline - start)
    votes = (yield Exchange([request], rules.need, timeout, rules.certain))[0]
    return extended(rules, lease, ttl, start, votes.granted, votes), votes


def extended_already(rules: Rules, lease: Lease, ttl: float, start: float) -> Extension | None:
    """What an extension comes to if no master needs to be asked."""
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
