"""The first exchange of a lock, without its procedure.

The fast path: one exchange decides nearly every acquire and release, and a generator with effects costs more
time than that exchange. The fast path therefore calls the functions of ``algorithm/redlock.py`` itself. If
the exchange does not decide, or is interrupted, the procedure is started. Its first effect is not performed
again: the procedure gets the answers, or the exception.

A signal handler may raise between any two steps. All steps from the first change of state on are therefore
inside a ``try``, and the fields of the lock say how far they came. It may also raise at the entry of a
function of Python, before its ``try``: so ``with`` ends in a compiled function, where no handler runs.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import finish_release, start_release
from ..errors import ClientClosed
from ..locks.bodies import Body
from ..locks.handover import HandoverKind
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, release_lock, release_token
from ..masters.client_state import CONTINUED_BY_PARENT
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters
from .driver import drive


def acquire(
    lock: LockState, blocking: bool, timeout: float | None, masters: Masters, body: Body | None = None
) -> Lease | AcquireFailure:
    """Acquire ``lock``; see ``acquire_lock`` for the arguments, the result and what is raised."""
    generation = lock._client_state.generation()  # first: a signal handler may fork at any step
    attempt = lock._start_attempt(blocking, timeout)
    if attempt is None:
        return drive(acquire_lock(lock, blocking, timeout, None, body), masters)
    policy = lock._policy
    try:
        ended = lock._mark_acquiring(attempt)
        if ended is not None:  # another thread has acquired the lock since, and lost it
            lock.note_loss(ended)
        if lock._generation != generation:
            raise ClientClosed(CONTINUED_BY_PARENT)
        need = attempt.lists.need
        answers = masters.engine.exchange(attempt.requests, need, policy.node_timeout, policy.wait)
        if has_faults(answers, masters):
            note_faults(answers, masters)
        outcome: Lease | AcquireFailure | None = lock._finish_attempt(attempt, answers[0], body)
        if lock._client_state.generation() != generation:  # a signal handler forked in the meantime
            raise ClientClosed(CONTINUED_BY_PARENT)
        if outcome is None:
            procedure = acquire_lock(lock, blocking, timeout, attempt, body)
            outcome = drive(procedure, masters, answers, generation)
        lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is attempt:
            try:
                drive(acquire_lock(lock, blocking, timeout, attempt), masters, error, generation)
            finally:
                lock._acquiring = None
        raise


def release(lock: LockState, masters: Masters, only: Lease | None = None) -> bool:
    """Release ``lock``. True: a quorum still had the lease. ``only``: no other lease is released."""
    lease, handover = only or lock._lease, lock._lock_kind
    try:
        lease = lock._start_release(only)
        if lease is None:
            return only is None and type(handover) is HandoverKind and drive(release_lock(lock), masters)
        policy = lock._policy
        requests = start_release(lease)
        need = policy.voters.lists.need
        answers = masters.engine.exchange(requests, need, policy.node_timeout, policy.wait)
        if has_faults(answers, masters):
            note_faults(answers, masters)
        return lock.note_release(lease, finish_release(policy, lease, answers))
    except BaseException as error:
        if lease is not None:  # another thread may have acquired the lock since
            drive(release_lock(lock, lease), masters, error)
        elif only is None and type(handover) is HandoverKind and handover.released:
            drive(release_token(lock, handover), masters, error)
        raise


def exit_lock(
    lock: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """The end of ``with lock``: ``Lock._exit`` releases the lock.

    If a signal handler raises just when ``_exit`` is entered, before it can release the lock, this does so.
    """
    lease = lock._lease
    try:
        lock._exit(error)
    except BaseException:
        lock._drop(lease)
        raise


def exit_run(
    run: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """The same for ``with`` a SingleRun."""
    try:
        run._exit(kind, error, trace)
    except BaseException:
        run._interrupted(kind)
        raise
