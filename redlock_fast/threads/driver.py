"""Runs procedures with the calling thread, and the first exchange of a lock without its procedure.

The fast path: one exchange decides nearly every acquire and release, and a generator with effects costs more
time than that exchange. The fast path therefore calls the functions of ``algorithm/redlock.py`` itself. If
the exchange does not decide, or is interrupted, the procedure is started. Its first effect is not performed
again: the procedure gets the answers, or the exception.

A signal handler may raise between any two steps. All steps from the first change of state on are therefore
inside a ``try``, and the fields of the lock say how far they came.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.redlock import finish_release, start_release
from ..engine.contract import BatchVotes, Votes
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, release_lock
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters

Result = TypeVar("Result")


def acquire(
    lock: LockState, blocking: bool, timeout: float | None, masters: Masters
) -> Lease | AcquireFailure:
    """Acquire ``lock``; see ``acquire_lock`` for the arguments, the result and what is raised."""
    attempt = lock._start_attempt(blocking, timeout)
    if attempt is None:
        return drive(acquire_lock(lock, blocking, timeout), masters)
    policy = lock._policy
    try:
        lock._mark_acquiring(attempt)
        answers = masters.engine.exchange(attempt.requests, policy.need, policy.node_timeout, policy.wait)
        if has_faults(answers, masters):
            note_faults(answers, masters)
        outcome: Lease | AcquireFailure | None = lock._finish_attempt(attempt, answers[0])
        if outcome is None:
            outcome = drive(acquire_lock(lock, blocking, timeout, attempt), masters, answers)
        lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is attempt:
            try:
                drive(acquire_lock(lock, blocking, timeout, attempt), masters, error)
            finally:
                lock._acquiring = None
        raise


def release(lock: LockState, masters: Masters) -> bool:
    """Release ``lock``. True: a quorum still had the lease."""
    lease = lock._lease
    try:
        lease = lock._start_release()
        if lease is None:
            return False
        policy = lock._policy
        requests = start_release(lease)
        answers = masters.engine.exchange(requests, policy.need, policy.node_timeout, policy.certain)
        if has_faults(answers, masters):
            note_faults(answers, masters)
        return lock.note_release(lease, finish_release(policy, lease, answers))
    except BaseException as error:
        if lease is not None and lock._lease is lease:  # another thread may have acquired the lock since
            drive(release_lock(lock), masters, error)
        raise


def drive(procedure: Generator[Effect, Any, Result], masters: Masters, first_result: Any = None) -> Result:
    """Run ``procedure`` to its end and return its result.

    An exception that is raised while an effect is performed is thrown into the procedure. The procedure may
    clean up with further effects before it raises the exception again.
    ``first_result``: the result of the first effect if that was performed already: answers or an exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:  # inside the try: a signal handler may raise between two steps
                effect = resume(argument)
                resume, argument = procedure.send, None
                if first_result is not None:
                    resume = procedure.throw if isinstance(first_result, BaseException) else procedure.send
                    argument, first_result = first_result, None
                elif type(effect) is Exchange or type(effect) is WaitForChange:
                    argument = exchange(effect, masters)
                elif type(effect) is Sleep:
                    masters.pause(effect.seconds)
                elif type(effect) is WaitForReconnect:
                    masters.reconnect(effect.seconds, effect.disconnected)
                elif type(effect) is WaitForTurn:
                    masters.wait_for_turn(effect.entry, effect.seconds)
                else:
                    masters.wait_for_quorum(effect.timeout)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended with this exception
            resume, argument, first_result = procedure.throw, error, None


def exchange(effect: Exchange, masters: Masters) -> list[Votes] | BatchVotes:
    """The answers to one exchange."""
    answers: Any = masters.engine.exchange(
        effect.requests, effect.need, effect.timeout, effect.wait, effect.stall
    )
    if has_faults(answers, masters):
        note_faults(answers, masters)
    if not effect.need:
        masters.connector.wake_soon()
    return answers  # type: ignore[no-any-return]
