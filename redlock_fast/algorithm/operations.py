"""The Redlock algorithm: acquire and release, as operations.

One exchange decides nearly every acquire. What it does not decide goes on in ``attempts.RetryLoop``, a
generator that begins after it. Compiled where a compiler is available, with the types of
``algorithm/operations.pxd``.

Source: "Distributed Locks with Redis", redis.io, "The Redlock algorithm", steps 1 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from ..engine.messages import Request, Votes
from .attempts import RetryLoop
from .effects import Effect
from .fencing import agreed_number
from .lease import AcquireFailure, Lease
from .lock_kind import FencedKind, LockKind
from .operation import Message, Operation
from .policy import Policy
from .redlock import (
    Attempt,
    finish_attempt,
    finish_release,
    start_attempt,
    start_release,
    trusted_votes,
    undo_lease,
)
from .turn import look_for_turn

NO_END = math.inf


class Acquire(Attempt):
    """One acquire: it asks all masters for a lease, again and again, until they grant one or time is over.

    ``seconds``: how long it may try; infinity: without an end. ``give_up_at``: when that time is over, by
    the lease clock, the clock that also counts while the machine sleeps; known from the first attempt on.
    ``blocking``: whether another attempt may follow the first one. ``sent``: the mask of the masters that may
    have the token of this acquire, so that a release must reach them. ``lease``: what the masters granted.
    """

    __slots__ = ("_retry_loop", "_sent_before", "blocking", "give_up_at", "lease", "seconds", "sent")

    seconds: float
    give_up_at: float
    token: Any
    _sent_before: int

    def __init__(
        self,
        policy: Policy,
        lock_kind: LockKind,
        ttl: float,
        seconds: float | None = None,
        blocking: bool = True,
    ) -> None:
        Attempt.__init__(self)
        self.policy: Policy = policy
        self.ttl: float = ttl
        self.limit(seconds)
        self.blocking: bool = blocking
        self.lock_kind: LockKind = lock_kind.for_attempt(joins=self.rounds != 1)
        self.token = None  # drawn by the first attempt
        self.sent: int = 0
        self.lease: Lease | None = None
        self._retry_loop: RetryLoop | None = None

    def limit(self, seconds: float | None) -> None:
        """Try for so many seconds; None: there is no end."""
        self.seconds = NO_END if seconds is None else seconds
        self.give_up_at = NO_END

    @property
    def rounds(self) -> int | None:
        """The largest number of attempts; None: no limit."""
        limit: int | None = self.policy.retry.max_attempts
        return limit if self.blocking else 1

    def begin(self) -> Effect | Operation | None:
        policy, kind = self.policy, self.lock_kind
        waiting = policy.local_queue.waiting
        if (
            (waiting and kind.queue_key in waiting)
            or (policy.crowded and kind.key in policy.crowded)
            or (type(kind) is not LockKind and kind.first_caller_only)
        ):
            self.give_up_at = policy.clock() + self.seconds
            return self.go_on_with(self.retries(None))
        return self.attempt_again()

    def attempt_again(self) -> Operation:
        """Steps 1 and 2: read the clock, and ask all masters."""
        policy = self.policy
        if self.token is None:
            self.token = policy.token()
        start_attempt(self)
        timeout = policy.node_timeout
        if self.seconds != NO_END:
            if self.give_up_at == NO_END:
                self.give_up_at = self.start + self.seconds
            timeout = max(0.0, min(timeout, self.give_up_at - self.start))
        self._sent_before = self.sent
        self.sent |= self.masters  # until the votes are known
        return self.ask([self.request()], self.lists.need, timeout, policy.wait)

    def request(self) -> Request:
        """What asks a master for its vote."""
        return self.lock_kind.acquire_request(self.token, self.policy.ttl_on_wire(self.ttl), self.masters)

    def advance(self, result: Any) -> Effect | Operation | None:
        if self._rest is not None:
            return self.resume(result)
        votes = self.count(result)
        fencing = None
        granted = self.lists.granted(votes)
        if granted and type(self.lock_kind) is FencedKind:
            fencing = agreed_number(self.lists, votes)
            granted = fencing is not None
        if granted and self.grant(fencing):
            return None
        return self.go_on_with(self.retries(votes))

    def count(self, answers: list[Votes]) -> Votes:
        """The votes of the attempt that count."""
        votes = answers[0]
        self.sent = self._sent_before | votes.sent | self.lists.elsewhere
        return trusted_votes(self, votes)

    def grant(self, fencing: int | None) -> bool:
        """Steps 3 and 4: whether the attempt, which a quorum granted, gets a lease."""
        lease = finish_attempt(self, True, self.sent, fencing)
        if lease is None:
            return False
        self.lease = lease
        self.on_granted(lease)
        self.outcome = lease
        return True

    def other(self, lock_kind: LockKind, ttl: float, seconds: float) -> Acquire:
        """The acquire of another lock, within this one."""
        return Acquire(self.policy, lock_kind, ttl, seconds)

    @property
    def refused(self) -> bool:
        """Whether other callers had the lock."""
        return self._retry_loop is not None and self._retry_loop.failed > 0

    @property
    def unavailable(self) -> bool:
        """Whether masters prevented the grant in the last attempt."""
        return self._retry_loop is not None and self._retry_loop.failure.unavailable

    def retries(self, votes: Votes | None) -> Generator[Effect | Operation, Any, None]:
        """What follows an attempt without a lease. ``votes``: its votes; None before the first attempt."""
        self._retry_loop = RetryLoop(self)
        return self._retry_loop.run(votes)

    def on_granted(self, lease: Lease) -> None:
        """There is a lease. It is released if this raises."""

    def on_failed(self, failure: AcquireFailure) -> AcquireFailure:
        """There is none. Returns the outcome."""
        return failure

    def undo(self) -> list[Request]:
        """Step 5: the requests that delete the token on all masters that may have it."""
        return self.lock_kind.release_requests(self.token, self.sent, self.ttl) if self.sent else []

    def abort(self) -> list[Message]:
        if self._rest is not None:
            self._rest.close()
        messages: list[Message] = [self.undo() if self.lease is None else undo_lease(self.lease)]
        if self._retry_loop is not None:
            self._retry_loop.leave(granted=False)
            messages += self._retry_loop.release_turn()
        return messages

    def close(self, error: BaseException | None = None) -> None:
        self._rest = self._retry_loop = None  # they refer to this object


class Release(Operation):
    """Delete the key of ``lease`` on all masters that may have it. The outcome: whether it was alive."""

    __slots__ = ("lease", "policy")

    outcome: Any

    def __init__(self, policy: Policy, lease: Lease) -> None:
        Operation.__init__(self)
        self.policy: Policy = policy
        self.lease: Any = lease  # None: nothing is left to undo

    def begin(self) -> Effect | Operation | None:
        return self.ask_all(self.lease)

    def ask_all(self, lease: Lease) -> Operation:
        policy = self.policy
        requests = start_release(lease)
        if type(lease) is not Lease:
            requests = look_for_turn(policy, lease, requests)
        return self.ask(requests, policy.voters.lists.need, policy.node_timeout, policy.wait)

    def advance(self, result: Any) -> Effect | Operation | None:
        self.outcome = finish_release(self.policy, self.lease, result)
        return None

    def abort(self) -> list[Message]:
        return [undo_lease(self.lease)]
