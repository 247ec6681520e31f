"""What one exchange does not decide of an acquire: whether another round follows, and when.

With ``push`` the masters report when the lock may be free (RESP3 client tracking). Of all callers of one
client only the first of the local queue asks them. Without ``push``, or while masters fail, pauses are
random.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ..engine.contract import BACKLOG, NO_REPLY, NOT_ASKED, Request, Votes
from ..wire.slots import share_slot
from .crowds import COURTESY, LONG_QUEUE, REFUSED_ROUNDS
from .effects import Effect, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from .fencing import fence
from .keys import derived
from .lease import AcquireFailure, Lease
from .local_queue import QueueEntry
from .lock_kind import FencedKind, LockKind
from .master_lists import MasterLists
from .operation import Message, Operation
from .policy import Policy
from .quorum import wake_jitter
from .turn import Turn

if TYPE_CHECKING:
    from .operations import Acquire

T = TypeVar("T")
Steps = Generator[Effect | Operation, Any, T]

#: Seconds after which a round follows although no push came.
REARM = 1.0
#: As REARM, while a connected master cannot push: the first and the longest interval.
POLL_INTERVAL, MAX_POLL_INTERVAL = 0.05, 0.25
#: Seconds for which an acquire of one round waits for connections: most masters reconnect at once.
BLIP = 0.1
#: Why a master that is connected was not asked.
CONNECTED = frozenset({NOT_ASKED, "lagging"}) | BACKLOG


class RetryLoop:
    """What one exchange does not decide of ``acquire``: fencing tokens, waiting, and further rounds."""

    # Defaults in the class, because few acquires need more than their first round.
    failed: int = 0
    outage: float | None = None
    began: float | None = None  # the start of the first round
    took: float = 0.0  # seconds that the last round took
    splits: int = 0  # how many rounds in a row had votes that may be split
    spare: float = math.inf  # seconds until the last round must begin
    entry: QueueEntry | None = None
    notified: bool = False  # whether a watch that ended before its time preceded the present round
    unreleased: bool = False  # whether the last round must still be undone
    without_place: LockKind | None = None  # of a caller that took a place: the kind that it had before
    turn: Turn | None = None
    _refusal: AcquireFailure | None = None

    def __init__(self, acquire: Acquire) -> None:
        self.acquire = acquire
        self.policy: Policy = acquire.policy

    def run(self, votes: Votes | None) -> Steps[None]:
        """Make attempts until one gets a lease, or until the last one is undone: sets the outcome.

        ``votes``: those of the first attempt; None: it was not made yet.
        """
        acquire = self.acquire
        if votes is not None or (yield from self.begin()):
            lease = yield from self._attempts(votes)
            if lease is not None:
                yield from self._end_turn()
                self.leave(granted=True)
                return
            yield from self.undo()
        yield from self._end_turn()
        self.leave(granted=False)
        acquire.outcome = acquire.on_failed(self.failure)

    def _attempts(self, votes: Votes | None) -> Steps[Lease | None]:
        """Make attempts until one gets a lease. None: the last one is not undone yet."""
        acquire = self.acquire
        while True:
            if votes is None:
                votes = acquire.count((yield acquire.attempt_again()))
            if (yield from self._has_lease(votes)):
                return acquire.lease
            acquire.lock_kind.observe(votes, acquire.lists)
            if self.exhausted(votes, acquire.start) or not (yield from self.wait(votes)):
                return None
            votes = None

    def _has_lease(self, votes: Votes) -> Steps[bool]:
        """Whether the attempt with these votes gets a lease. A fenced one needs a token before."""
        acquire, fencing = self.acquire, None
        granted = acquire.lists.granted(votes)
        if granted and type(acquire.lock_kind) is FencedKind:
            left = acquire.start + acquire.timeout - self.policy.clock()
            fencing, granted = yield from fence(acquire, acquire.lock_kind, votes, left)
        return granted and acquire.grant(fencing)

    # --- whether another round follows ---

    @property
    def failure(self) -> AcquireFailure:
        """Why there is no lease. Before the first attempt: other callers of this client were first."""
        if self._refusal is not None:
            return self._refusal
        lists = self.policy.voters.lists
        return AcquireFailure(Votes((NO_REPLY,) * lists.masters, 0, 0, 0, 0, {}), False, 0, lists=lists)

    def begin(self) -> Steps[bool]:
        """Before the first round. False: the time ended in the local queue."""
        policy, key = self.policy, self.acquire.lock_kind.key
        crowded = self.acquire.rounds is None and policy.crowds.until
        if crowded and policy.crowds.recent(key, policy.clock()):
            if self._may_queue():
                self._queue()
            yield Sleep(COURTESY)
            if self._may_take_turn() and not (
                yield from self._take_turn(self.acquire.give_up_at - policy.clock())
            ):
                return False
        if self.others_first() and not (yield from self.queue()):
            return False
        if self.acquire.lock_kind.first_caller_only:
            policy.server_entries.begin_round(self)
        return True

    def others_first(self) -> bool:
        """Whether the acquire must enter the local queue before it asks. Not with ``rounds``."""
        kind = self.acquire.lock_kind
        return self.acquire.rounds is None and (
            kind.first_caller_only or kind.queue_key in self.policy.local_queue.waiting
        )

    def exhausted(self, votes: Votes, start: float) -> bool:
        """Record a round that began at ``start`` and got no lease. Returns whether it was the last."""
        policy, now = self.policy, self.policy.clock()
        if self.acquire.lock_kind.keeps_place:
            policy.server_entries.begin_round(self)
        self.took = now - start
        self.began = start if self.began is None else self.began
        self._note(votes, start)
        again_at_once = self.acquire.lock_kind.retry_at_once and not self.failure.unavailable
        last = self.acquire.rounds is not None and self.failed >= self.acquire.rounds and not again_at_once
        blip = now - self.began < min(BLIP, policy.node_timeout)
        if last and not (blip and self.disconnected(votes)):
            return True
        if not self.failure.unavailable:
            self.outage = None
        elif self.outage is None:
            self.outage = now - min(self.took, policy.node_timeout)
        too_long = self.outage is not None and now - self.outage > policy.outage_timeout
        if too_long and self.entry is not None:
            self.entry.admit_all()  # otherwise each of them would wait as long, one after the other
        if self.acquire.give_up_at < math.inf:
            # The last round must end by ``give_up_at``, not begin then.
            left = self.acquire.give_up_at - now
            self.spare = left - min(policy.node_timeout, max(4 * self.took, left / 10))
            return self.spare <= 0
        return too_long

    def disconnected(self, votes: Votes) -> list[int]:
        """The masters that were not connected, if no quorum could answer. Without silent masters."""
        if not unavailable(self.acquire.lists, votes):
            return []
        return [n for n, why in votes.details.items() if type(why) is str and why not in CONNECTED]

    def silent(self, votes: Votes) -> list[int]:
        """The connected masters that did not reply, if no quorum could answer."""
        if not unavailable(self.acquire.lists, votes):
            return []
        mute = [n for n, value in enumerate(votes.values) if value == NO_REPLY and votes.sent >> n & 1]
        return mute + [n for n, why in votes.details.items() if why == "lagging"]

    def _note(self, votes: Votes, start: float) -> None:
        self.unreleased = True
        self.failed += 1
        bad = unavailable(self.acquire.lists, votes)
        self.splits = self.splits + 1 if not bad and is_split(self.acquire.lists, votes) else 0
        cut_short = start + self.policy.node_timeout > self.acquire.give_up_at
        waited = self.failed > 1 or self.entry is not None
        if waited and bad and cut_short:  # the masters had no time to answer: they may be up
            self._refusal = self.failure._replace(rounds=self.failed)
        else:
            self._refusal = AcquireFailure(votes, bad, self.failed, lists=self.acquire.lists)

    # --- when the next round begins ---

    def wait(self, votes: Votes) -> Steps[bool]:
        """Undo the round, and wait until the next one. False: the time ended in the local queue."""
        kind, crowds = self.acquire.lock_kind, self.policy.crowds
        if kind.rank is not None and kind.rank >= LONG_QUEUE:
            crowds.note(kind.key, self.policy.clock())
        if self.failed >= REFUSED_ROUNDS and not self.failure.unavailable and self._may_queue():
            yield from self.roll_back()
            self._queue()
            return True
        if self.without_place is not None and self.failure.unavailable:
            yield from self._leave_queue(votes)
        if not self.acquire.lock_kind.keeps_place:
            return (yield from self._wait(votes))
        self.policy.server_entries.end_round(self, self.acquire.undo())
        again = yield from self._wait(votes)
        self.policy.server_entries.begin_round(self)
        return again

    def _wait(self, votes: Votes) -> Steps[bool]:
        policy = self.policy
        if self.turn is not None:
            if prolong := self.turn.prolong():
                yield self.acquire.send(prolong)
        elif self.failed >= REFUSED_ROUNDS and not self.failure.unavailable and self._may_take_turn():
            yield from self.roll_back()
            return (yield from self._take_turn(self.spare))
        if not self._watches_at_once(votes):
            yield from self.roll_back()
        if self.acquire.lock_kind.retry_at_once and not self.failure.unavailable:
            yield Sleep(min(self.spare, self._jitter()))
            return True
        round_time = 0.0 if self.failure.unavailable else self.took  # a timeout is no round trip
        usual = policy.retry.delay(self.failed, round_time, policy.chance(), self.splits)
        if self.acquire.lock_kind.first_caller_only and self._entry_behind() is not None:
            return (yield from self._become_first(min(self.spare, usual)))
        pause = min(self.spare, self.acquire.lock_kind.delay(usual, notified=False))
        lists = policy.voters.lists
        watch = self.acquire.lock_kind.watch_request(policy.voters.asked()) if policy.push else None
        if watch is None or self.failure.unavailable:
            disconnected, silent = self.disconnected(votes), self.silent(votes)
            lost = disconnected or silent
            yield WaitForReconnect(pause, disconnected, silent) if lost else Sleep(pause)
            return True
        until = policy.clock() + (pause if self.acquire.rounds is not None else self.spare)
        if not (yield from self.queue(until)):
            return self.acquire.rounds is not None
        if self.entry is not None and self.entry.slot.admitted:
            yield from self.roll_back()
            return True
        contention, began = policy.contention, policy.clock()
        split = is_split(lists, votes)
        if split or self.notified:
            contention.note(began, split)
        longest = max(0.0, min(until - began, self._rearm()))
        undo = self._rollback_requests()
        seen = (yield WaitForChange(undo, watch, lists.need, longest))[-1]
        self._rolled_back()
        self.acquire.lock_kind.watched(seen, lists)
        failed = lists.failed(seen)
        self.notified = not failed and policy.clock() < began + longest
        if failed:
            yield Sleep(max(0.0, min(pause, until - policy.clock())))
            return True
        spread = not self.notified or contention.recent(policy.clock())
        jitter = self.acquire.lock_kind.delay(self._jitter() if spread else 0.0, notified=True)
        jitter = min(jitter, until - policy.clock())
        if jitter > 0.0:
            yield Sleep(jitter)
        return True

    # --- plain locks that many clients want (algorithm/crowds.py) ---

    def _may_queue(self) -> bool:
        """Whether the lock is a plain one whose callers may take places on the masters."""
        kind = self.acquire.lock_kind
        if self.policy.voters.lists.shards and not share_slot((kind.key, derived(kind.key))):
            return False  # the keys of a queue belong to another slot
        return type(kind) is LockKind and self._queues()

    def _queues(self) -> bool:
        """Whether callers of this client wait in queues on the masters where many want a plain lock."""
        policy = self.policy
        forever = self.acquire.rounds is None
        return forever and policy.push and policy.voters.all_push and policy.crowds.queued is not None

    def _may_take_turn(self) -> bool:
        """Whether callers of the lock may wait for a turn."""
        return self.acquire.lock_kind.turn_key is not None and self._queues()

    def _take_turn(self, seconds: float) -> Steps[bool]:
        """Wait for the turn, for so many seconds. False: the time ended in the local queue."""
        kind, end = self.acquire.lock_kind, self.policy.clock() + seconds
        assert kind.turn_key is not None
        if not (yield from self.queue(end)):
            return False
        left = end - self.policy.clock()
        self.turn = Turn(self.acquire, kind.turn_key, left - min(self.policy.node_timeout, left / 10))
        yield from self.turn.take()
        if self.turn.waited:
            self.policy.crowds.note(kind.key, self.policy.clock())
        return True

    def _end_turn(self) -> Steps[None]:
        for requests in self.release_turn():
            yield self.acquire.ask(requests, 0, 0.0, 0)
        self.turn = None

    def release_turn(self) -> list[Message]:
        """The messages that give the turn to the next caller."""
        return [] if self.turn is None else self.turn.abort()

    def _queue(self) -> None:
        """Take a place with the next round."""
        assert self.policy.crowds.queued is not None
        self.without_place = self.acquire.lock_kind
        self.acquire.lock_kind = self.policy.crowds.queued(self.acquire.lock_kind.key)

    def _leave_queue(self, votes: Votes) -> Steps[None]:
        """Give the place up after a round in which masters failed, and ask without one.

        If that was because the user may not write the keys of a queue, this client takes no more places.
        """
        assert self.without_place is not None
        crowds = self.policy.crowds
        crowds.forget(self.acquire.lock_kind.key)
        if any(type(why) is bytes and b"NOPERM" in why for why in votes.details.values()):
            crowds.queued = None
        yield from self.undo()
        self.policy.server_entries.remove(self)
        self.acquire.lock_kind, self.without_place = self.without_place, None
        self.acquire.token = self.policy.token()
        self.unreleased = False

    def _watches_at_once(self, votes: Votes) -> bool:
        """Whether a watch follows now, so that one write to each master can undo the round and arm the watch.

        False after a split vote: a silent master could then delay the end of the watch.
        """
        kind = self.acquire.lock_kind
        if not self.policy.push or self.failure.unavailable or kind.retry_at_once:
            return False
        if is_split(self.acquire.lists, votes):
            return False
        return kind.watch_request(0) is not None and self._entry_behind() is None

    def _entry_behind(self) -> QueueEntry | None:
        """Enter the local queue, if the kind has one. Returns the entry if other callers are before it."""
        key = self.acquire.lock_kind.queue_key
        if key is not None and (self.entry is None or self.entry.slot.admitted):
            self.entry = self.policy.local_queue.enter(key)
        return None if self.entry is None or self.entry.is_first else self.entry

    def _become_first(self, pause: float) -> Steps[bool]:
        """Wait in the local queue without a place on the masters. False: the time ended before.

        The place on the masters is given up: a place by an old ticket would be before later callers of other
        clients that wait already.
        """
        yield from self.undo()
        self.acquire.lock_kind = self.acquire.lock_kind.for_attempt()
        limit = pause if self.acquire.rounds is not None else self.spare
        first = yield from self.queue(self.policy.clock() + limit)
        return first or self.acquire.rounds is not None

    def _jitter(self) -> float:
        return wake_jitter(self.splits, self.took, self.policy.chance())

    def _rearm(self) -> float:
        if self.policy.voters.all_push:
            return REARM
        longest = min(MAX_POLL_INTERVAL, POLL_INTERVAL * 2.0 ** min(self.failed - 1, 30))
        return longest * (0.5 + self.policy.chance() / 2)

    def queue(self, until: float = math.inf) -> Steps[bool]:
        """Wait in the local queue. Returns whether the caller is the first; False: the time ended before."""
        entry = self._entry_behind()
        if entry is None:
            return True
        until = min(until, self.acquire.give_up_at)
        yield WaitForTurn(entry, max(0.0, until - self.policy.clock()))
        return entry.is_first

    # --- cleaning up ---

    def roll_back(self) -> Steps[None]:
        """Undo the grants of a round, before another one."""
        requests = self._rollback_requests()
        if requests:
            yield self.acquire.send(requests)
        self._rolled_back()

    def _rollback_requests(self) -> list[Request]:
        acquire = self.acquire
        if not (self.unreleased and acquire.sent):
            return []
        return acquire.lock_kind.rollback_requests(acquire.token, acquire.sent, acquire.ttl)

    def _rolled_back(self) -> None:
        acquire = self.acquire
        if not self.unreleased:
            return
        self.unreleased = False
        if not acquire.lock_kind.keeps_place:
            acquire.sent = 0  # not before: ``abort`` must find what may not be sent
        if acquire.lock_kind.new_token_per_round or not acquire.lock_kind.keeps_place:
            acquire.token = self.policy.token()

    def undo(self) -> Steps[None]:
        """Release the token on all masters that may have it, without waiting for replies."""
        if self.acquire.sent:
            yield self.acquire.send(self.acquire.undo())
            self.acquire.sent = 0

    def leave(self, granted: bool) -> None:
        """Leave all queues, at the end of every acquire. If an exception interrupts this, call it again."""
        if self.acquire.lock_kind.keeps_place:
            self.policy.server_entries.remove(self)
        if self.entry is not None:
            if granted and self.acquire.lock_kind.shared:
                self.entry.admit_all()
            self.entry.leave()


def is_split(lists: MasterLists, votes: Votes) -> bool:
    """Whether the votes of a round that was not granted may be divided among several clients.

    A single vote is a sign of it. With an odd number of masters a round ends without a grant only when a
    quorum refused, so it cannot show whether one client has those masters, or several.
    """
    return votes.granted > 0 or not lists.refused(votes)


def unavailable(lists: MasterLists, votes: Votes) -> bool:
    """Whether masters prevented the grant: too many failed, did not answer, or granted too late.

    Where no quorum answered, a minority that refuses shows no holder: it may have the token of an attempt
    that gets no quorum either. So a round must not end by faults before a quorum could answer (``Wait``).
    """
    if lists.failed(votes) or not lists.hopeless(votes):
        return True
    return bool(lists.unanswered(votes)) and not lists.refused(votes)
