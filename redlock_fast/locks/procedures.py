"""Acquire, release and extend of a lock object, as procedures without I/O.

The lock classes for threads and for asyncio run these procedures with their drivers. The checks of the
lock's state are here only.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial
from typing import Any

from ..algorithm import procedures
from ..algorithm.effects import Effect, Exchange, WaitForQuorum, undo_after
from ..algorithm.lease import AcquireFailure, Lease, lease_of
from ..algorithm.redlock import Attempt, finish_attempt, start_attempt, trusted_votes
from ..algorithm.renewal_schedule import GONE
from ..errors import LockLost, TooManyExtensions
from ..wire.text import quoted, shown
from .bodies import Body
from .config import check_flag
from .failures import ITS_OWN, acquire_error, unavailable_error
from .handover import HandoverKind
from .lock_state import LockState


def acquire_lock(
    lock: LockState,
    blocking: bool,
    timeout: float | None,
    first: Attempt | None = None,
    body: Body | None = None,
) -> Generator[Effect, Any, Lease | AcquireFailure]:
    """Acquire ``lock``. Returns the lease, or why there is none.

    ``first``: an attempt that the caller has started. The caller makes its exchange, and ends the acquire.
    ``body``: of the caller; it gets the lease.
    """
    core, policy = lock._core, lock._policy
    if first is None and core.client_state.closed:
        core.check_open()
    wait = lock._waiting_time(blocking, timeout)
    if wait == 0.0:
        blocking, wait = False, None
    handover = lock._lock_kind
    if isinstance(handover, HandoverKind):
        if handover.token:
            return (yield from take_over(lock, handover, lock._ttl, wait, body))
        lock._lock_kind = handover.lock_kind  # after detach(): a hold of its own
    give_up_at = None if wait is None else (first.start if first else policy.clock()) + wait
    rounds = policy.retry.max_attempts if blocking else 1
    me = first or object()
    if blocking and lock._own_lease() is None and core._waits_for_itself(lock._lock_kind.key):
        core.client_state.events.warn_of(
            "waits-for-itself", f"{quoted(lock.resource)}: {ITS_OWN}", resource=shown(lock.resource)
        )
    try:
        if first is None:
            ended = lock._mark_acquiring(me)
            if ended is not None:
                lock.note_loss(ended)
                yield from procedures.undo_lease(ended)
            if not core.client_state.ready:
                outage_timeout = core.connect_timeout
                yield WaitForQuorum(outage_timeout if wait is None else min(wait, outage_timeout))
                core.check_open()
        on_granted = partial(lock._on_granted, body=body)
        outcome = yield from procedures.acquire(
            policy, lock._lock_kind, lock._ttl, give_up_at, rounds, on_granted, first
        )
        if isinstance(outcome, AcquireFailure):
            core.client_state.counts.unavailable += outcome.unavailable
            core.client_state.counts.contended += not outcome.unavailable
            if give_up_at is not None and (rounds is None or outcome.rounds < rounds):
                return outcome._replace(timed_out=True)
        return outcome
    except BaseException as error:
        if lock._acquiring is me:  # otherwise a lease may belong to another acquire
            yield from undo_after(error, drop_lock(lock))
        raise
    finally:
        if first is None and lock._acquiring is me:
            lock._acquiring = None


def entered(lock: LockState, outcome: Lease | AcquireFailure) -> Generator[Effect, Any, None]:
    """Check the outcome for ``with``: raise without a lease, so the body never runs unlocked.

    A contended failure asks the masters once for the owner. Failed masters only mean that none is named.
    """
    if isinstance(outcome, AcquireFailure):
        core, found = lock._core, list[str]()
        if not outcome.unavailable and core.names_owners:
            keys = lock._lock_kind.owner_keys(outcome.votes)
            found = yield from procedures.owners(lock._policy, keys)
        owner = ", ".join(dict.fromkeys(filter(None, found)))
        raise acquire_error(core, lock.resource, lock._lock_kind, outcome, owner)


def release_lock(lock: LockState, only: Lease | None = None) -> Generator[Effect, Any, bool]:
    """Release ``lock``. False: there was no lease, or it had ended on a quorum before.

    ``only``: no other lease is released.
    """
    core, handover = lock._core, lock._lock_kind
    if (
        only is None
        and isinstance(handover, HandoverKind)
        and handover.token
        and not core.client_state.closed
        and lock.begin_token_release(handover)
    ):
        return (yield from release_token(lock, handover))
    lease = lock._start_release(only)
    if lease is None:
        return False
    try:
        alive = yield from procedures.release(core.policy, lease)
    except BaseException as error:
        yield from undo_after(error, procedures.undo_lease(lease))
        raise
    finally:
        lock.forget_lease(lease)
    return lock.note_release(lease, alive)


def drop_lock(lock: LockState) -> Generator[Effect, Any, None]:
    """Release ``lock`` without waiting for replies."""
    lease = lock._own_lease()
    if lease is not None:
        if lock._auto_extension is not None:
            lock._auto_extension.stop(lease)
        lock.forget_lease(lease)
        yield from procedures.undo_lease(lease)


def extend_lock(lock: LockState, ttl: float | None, confirm: bool = False) -> Generator[Effect, Any, float]:
    """Extend ``lock``. Returns the new validity in seconds.

    Raises LockLost, TooManyExtensions, QuorumUnavailable, ConfigError, ClientClosed.
    """
    core = lock._core
    core.check_open()
    ttl = lock._ttl if ttl is None else core.check_ttl(ttl)
    check_flag("confirm", confirm)
    lease = lock._own_lease()
    if lease is None:
        handover = lock._lock_kind
        if isinstance(handover, HandoverKind) and handover.token:
            return (yield from take_over(lock, handover, ttl)).validity
        raise LockLost(
            f"{quoted(lock.resource)}: nothing to extend: the lock is not held",
            resource=lock.resource,
            reason=lock._why_not_held(None),
        )
    if not lock.may_be_extended(lease):
        raise TooManyExtensions(
            f"{quoted(lock.resource)} was extended {lease.extensions} times, max_extensions allows no more; "
            f"held for {lock.remaining():.3f} s more",
            resource=lock.resource,
        )
    outcome, votes = yield from procedures.extend(core.policy, lease, ttl, confirm)
    return lock.validity_or_raise(lease, outcome, votes)


def take_over(
    lock: LockState,
    handover: HandoverKind,
    ttl: float,
    wait: float | None = None,
    body: Body | None = None,
) -> Generator[Effect, Any, Lease]:
    """Get the lease of a token from another process, for ``ttl`` seconds from now.

    ``wait``: seconds to try; None: as the client's settings say. Raises LockLost if a quorum does not have
    the token, and QuorumUnavailable, LockAlreadyHeld, ClientClosed. Nothing is undone then: the other process
    may still hold the lock.
    """
    core, policy, me = lock._core, lock._core.policy, object()
    give_up_at = math.inf if wait is None else policy.clock() + wait
    lost = LockLost(
        f"{quoted(lock.resource)}: a quorum does not have this token; another client may hold the lock",
        resource=lock.resource,
        reason=GONE,
    )
    released = LockLost(
        f"{quoted(lock.resource)}: a release of the lock of this token has begun", resource=lock.resource
    )
    if handover.lost:
        raise lost
    if handover.released:
        raise released
    try:
        lock._mark_acquiring(me)
        if not core.client_state.ready:
            yield WaitForQuorum(core.connect_timeout if wait is None else min(wait, core.connect_timeout))
            core.check_open()
        # As an acquire, without the votes of guarded masters: no earlier lease bounds the time of this one.
        attempt = start_attempt(policy, handover, ttl, handover.token)
        timeout = max(0.0, min(policy.node_timeout, give_up_at - attempt.start))
        answers = yield Exchange(attempt.requests, attempt.lists.need, timeout, policy.wait)
        votes = trusted_votes(attempt, answers[0])
        lease = finish_attempt(attempt, attempt.lists.granted(votes), attempt.lists.all)
        if lease is not None:
            try:
                if lock.end_take_over(handover, lease, body):
                    lock._on_granted(lease)
                    return lease
            except BaseException:
                if body is None:  # otherwise the caller releases what its body was given
                    lock.undo_take_over(handover, lease)
                raise
    finally:
        if lock._acquiring is me:
            lock._acquiring = None
    if handover.released:
        raise released
    if attempt.lists.refused(votes):
        handover.lost = True
        core.client_state.counts.lost += 1
        raise lost
    raise unavailable_error(
        core, lock.resource, votes, "too few masters confirmed the token in time; try again"
    )


def release_token(lock: LockState, handover: HandoverKind) -> Generator[Effect, Any, bool]:
    """Release the lock of a token from another process. False: a quorum did not confirm that it had it."""
    core, policy = lock._core, lock._policy
    everywhere = policy.voters.lists.all
    lease = lease_of(handover.lock_kind, handover.token, everywhere, core.max_ttl, -math.inf, 0.0)
    try:
        if not core.client_state.ready:
            yield WaitForQuorum(core.connect_timeout)
        lock._lock_kind = handover.lock_kind
        alive = yield from procedures.release(policy, lease)
    except BaseException as error:
        yield from undo_after(error, procedures.undo_lease(lease))
        raise
    return lock.note_release(lease, alive)
