"""Acquire and release of a lock object, as operations without I/O.

Compiled where a compiler is available, with the types of ``locks/operations.pxd``.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from ..algorithm.effects import Effect, WaitForQuorum
from ..algorithm.lease import AcquireFailure, Lease, lease_of
from ..algorithm.lock_kind import LockKind
from ..algorithm.operation import Message, Operation
from ..algorithm.operations import Acquire, Release
from ..algorithm.redlock import finish_release, start_release, undo_lease
from ..algorithm.renewal_schedule import GONE
from ..engine.messages import Request, Votes
from ..errors import LockLost
from ..wire.text import quoted, shown
from .bodies import Body
from .failures import ITS_OWN, unavailable_error
from .handover import Handover
from .lock_state import LockState


class LockAcquire(Acquire):
    """Acquire ``lock``. The outcome is the lease, or why there is none.

    ``body``: of a caller in a thread, which gets the lease; None in asyncio, where the tasks of one loop take
    turns. ``ended``: a former lease of the lock that has ended, until its release is sent.
    """

    __slots__ = ("began", "body", "ended", "lock", "reports")

    began: float
    reports: Any
    give_up_at: float
    lock: LockState
    body: Body | None
    ended: Lease | None

    def begin(self) -> Effect | Operation | None:
        lock, state = self.lock, self.lock._client_state
        if state.observer is not None:
            self.reports, self.began = state.observer.reports, self.policy.clock()
        if state.closed:
            lock._core.check_open()
        if self.body is None:
            self.ended = lock._mark_acquiring(self)
        else:
            with state.mutex:
                self.ended = lock._mark_acquiring(self)
        if self.ended is not None:
            lock._forget_lease(self.ended)
        if self.ended is None and state.ready:
            return Acquire.begin(self)
        return self.go_on_with(self.prepare())

    def prepare(self) -> Generator[Effect | Operation, Any, None]:
        """Release a former lease, and wait for connections. Then go on as usual."""
        lock, core, ended = self.lock, self.lock._core, self.ended
        self.give_up_at = self.policy.clock() + self.seconds
        if ended is not None:
            lock._note_loss(ended)
            yield self.send(start_release(ended))
            self.ended = None
        if not core.client_state.ready:
            yield WaitForQuorum(min(self.seconds, core.connect_timeout))
            core.check_open()
        yield from self.retries(None)

    def retries(self, votes: Votes | None) -> Generator[Effect | Operation, Any, None]:
        lock, core = self.lock, self.lock._core
        if self.blocking and core.waits_for_itself(lock._lock_kind.key):
            core.client_state.events.warn_of(
                "waits-for-itself", f"{quoted(lock.resource)}: {ITS_OWN}", resource=shown(lock.resource)
            )
        return Acquire.retries(self, votes)

    def on_granted(self, lease: Lease) -> None:
        self.lock._on_granted(lease, self.body)

    def on_failed(self, failure: AcquireFailure) -> AcquireFailure:
        counts = self.lock._client_state.counts
        counts.unavailable += failure.unavailable
        counts.contended += not failure.unavailable
        if self.seconds < math.inf and (self.rounds is None or failure.rounds < self.rounds):
            return failure._replace(timed_out=True)
        return failure

    def abort(self) -> list[Message]:
        if self.lease is not None:
            self.lock._drop_lease(self.lease)
        undo = Acquire.abort(self)
        return undo if self.ended is None else [*undo, undo_lease(self.ended)]

    def close(self, error: BaseException | None = None) -> None:
        reports = self.reports
        if reports is not None:
            self.reports = None
            reports.acquired(self.lock, self.began, self.outcome, error)
        Acquire.close(self)
        if self.lock._acquiring is self:
            self.lock._acquiring = None


class TakeOver(LockAcquire):
    """Take a lock over from another process, whose token the caller has: a single attempt.

    The masters are asked to extend the key of the token. If a quorum did, this object holds the lock. If not,
    nothing is released, because the other process may still hold the lock by the same token. ``handover``:
    what the lock object has until it holds the lock; it remembers the token.
    """

    __slots__ = ("handover",)

    handover: Handover
    sent: int

    def begin(self) -> Effect | Operation | None:
        self.check()
        return LockAcquire.begin(self)

    def check(self) -> None:
        """Raise LockLost if there is no lease to take over."""
        if self.handover.lost:
            raise self.lost("a quorum does not have this token; another client may hold the lock", GONE)
        if self.handover.released:
            raise self.lost("a release of the lock of this token has begun")

    def lost(self, text: str, reason: str = "") -> LockLost:
        resource = self.lock.resource
        return LockLost(f"{quoted(resource)}: {text}", resource=resource, reason=reason)

    def request(self) -> Request:
        # A master that extends the key excludes all other tokens for the ttl, as one that grants an acquire.
        return self.lock_kind.extend_requests(self.token, self.policy.ttl_on_wire(self.ttl), self.masters)[0]

    def advance(self, result: Any) -> Effect | Operation | None:
        if self._rest is not None:
            return self.resume(result)
        self.decide(self.count(result))
        return None

    def retries(self, votes: Votes | None) -> Generator[Effect | Operation, Any, None]:
        """There are none, and no queue: only a wait for connections may precede the attempt."""
        return self.only_attempt()

    def only_attempt(self) -> Generator[Effect | Operation, Any, None]:
        self.decide(self.count((yield self.attempt_again())))

    def decide(self, votes: Votes) -> None:
        """Get the lease, or raise for what the votes say."""
        self.sent = self.lists.all | self.lists.elsewhere  # the other process may have asked any of them
        if self.lists.granted(votes) and self.grant(None):
            return
        if not self.handover.released and self.lists.refused(votes):
            self.handover.lost = True
            self.lock._client_state.counts.lost += 1
        self.check()
        raise unavailable_error(
            self.lock._core,
            self.lock.resource,
            votes,
            "too few masters confirmed the token in time; try again",
        )

    def on_granted(self, lease: Lease) -> None:
        # As an acquire, without the votes of guarded masters: no earlier lease bounds the time of this one.
        if not self.lock._end_take_over(self.handover, lease, self.body):
            self.check()
        self.lock._on_granted(lease)

    def abort(self) -> list[Message]:
        if self.lease is not None and self.body is None:  # otherwise the caller releases what its body has
            self.lock._undo_take_over(self.handover, self.lease)
        return []


def new_acquire(
    lock: LockState, blocking: bool, timeout: float | None, body: Body | None = None
) -> LockAcquire:
    """The operation that acquires ``lock``; as ``LockAcquire()``, without a call of Python."""
    if (blocking is True or blocking is False) and (timeout is None or timeout == -1):  # the usual case
        wait = lock._timeout if blocking else None
    else:
        wait = lock._waiting_time(blocking, timeout)
    if wait is not None and wait == 0.0:
        blocking, wait = False, None
    if lock._handover is not None:
        if lock._handover.token:
            return new_take_over(lock, lock._ttl, wait, body)
        lock._handover = None  # after detach(): a hold of its own
    kind = lock._lock_kind
    made = LockAcquire.__new__(LockAcquire)
    _fill(made, lock, kind, lock._ttl, wait, None, body)
    made.blocking = bool(blocking)
    if type(kind) is not LockKind:
        made.lock_kind = kind.for_attempt(joins=made.rounds != 1)
    return made


def new_take_over(
    lock: LockState, ttl: float, wait: float | None = None, body: Body | None = None
) -> TakeOver:
    """The operation that gets the lease of a token for ``ttl`` seconds. ``wait``: seconds to try."""
    handover: Any = lock._handover
    made = TakeOver.__new__(TakeOver)
    _fill(made, lock, lock._lock_kind, ttl, wait, handover.token, body)
    made.handover = handover
    made.blocking = False
    return made


def _fill(
    made: LockAcquire,
    lock: LockState,
    kind: LockKind,
    ttl: float,
    wait: float | None,
    token: bytes | None,
    body: Body | None,
) -> None:
    policy = lock._policy
    made.lock = lock
    made.policy = policy
    made.lock_kind = kind
    made.ttl = ttl
    made.limit(wait)
    made.token = token
    made.body = body
    made.sent = 0
    made.outcome = made.lease = made.ended = made.reports = made._rest = made._retry_loop = None


class LockRelease(Release):
    """Release ``lock``. The outcome is whether a quorum still had the lease. ``only``: no other lease."""

    __slots__ = ("began", "lock", "of_token", "only", "reports")

    began: float
    reports: Any
    lock: LockState
    outcome: Any
    lease: Any
    of_token: bool
    only: Lease | None

    def begin(self) -> Effect | Operation | None:
        lock, observer = self.lock, self.lock._client_state.observer
        if observer is not None:
            self.reports, self.began = observer.reports, self.policy.clock()
        if self.lease is None and self.only is None and self.has_token():
            handover: Any = lock._handover
            token, everywhere = handover.token, self.policy.voters.lists.all
            # Before ``_begin_token_release``: if an exception ends the release from there on, ``abort`` sends
            # the requests of this lease, which delete the key of the token.
            self.lease = lease_of(lock._lock_kind, token, everywhere, lock._core.max_ttl, -math.inf, 0.0)
            self.of_token = True
            if lock._begin_token_release(handover):
                return self.go_on_with(self.release_token())
            self.of_token = False
            self.lease = lock._lease  # a take-over has ended before
        self.lease = lock._start_release(self.lease) if self.lease is not None else None
        if self.lease is not None:
            return self.ask_all(self.lease)
        self.outcome = False
        return None

    def advance(self, result: Any) -> Effect | Operation | None:
        if self._rest is not None:
            return self.resume(result)
        self.finish(result)
        return None

    def has_token(self) -> bool:
        """Whether the lock has the token of another process, and may release it."""
        handover = self.lock._handover
        return handover is not None and handover.token != b"" and not self.lock._client_state.closed

    def finish(self, answers: list[Votes]) -> None:
        lock, lease = self.lock, self.lease
        alive = lock._note_release(lease, finish_release(self.policy, lease, answers))
        self.lease = None  # nothing is left to undo
        self.outcome = alive
        self.report(lease, None)

    def release_token(self) -> Generator[Effect | Operation, Any, None]:
        """Release the lock of a token from another process."""
        lock, core = self.lock, self.lock._core
        if not core.client_state.ready:
            yield WaitForQuorum(core.connect_timeout)
        lock._handover = None
        self.finish((yield self.ask_all(self.lease)))

    def abort(self) -> list[Message]:
        lease = self.lease
        if lease is None or not (self.of_token or self.lock._start_release(lease)):
            return []
        return [undo_lease(lease)]

    def report(self, lease: Lease | None, error: BaseException | None) -> None:
        """Report the end of this release, once. ``lease``: the one that was released."""
        reports = self.reports
        if reports is not None:
            self.reports = None
            reports.released(self.lock, self.began, lease, self.outcome, error)

    def close(self, error: BaseException | None = None) -> None:
        self._rest = None
        self.report(None, error)
        if self.lease is not None:
            self.lock._forget_lease(self.lease)


def new_release(lock: LockState, only: Lease | None = None) -> LockRelease:
    """The operation that releases ``lock``; as ``LockRelease()``, without a call of Python."""
    made = LockRelease.__new__(LockRelease)
    made.lock = lock
    made.policy = lock._policy
    made.only = only
    made.lease = lock._lease if only is None else only  # ``begin`` looks whose it is
    made.of_token = False
    made.outcome = made.reports = made._rest = None
    return made
