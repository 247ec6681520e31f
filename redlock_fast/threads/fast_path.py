"""Acquire and release without detours, for threads: one exchange decides, as it nearly always does.

The twin of ``aio/fast_path.py``, which says why. But here a signal handler may raise between any two
steps: so all of them from the first change on stand in a ``try``, and the lock itself says how far they came.
"""

from __future__ import annotations

from ..algorithm.lease import Lease, Refusal
from ..algorithm.redlock import finish_release, start_release
from ..locks.lock_state import LockState
from ..locks.procedures import acquire_lock, release_lock
from ..masters.faults import Fleet, note_faults, to_be_noted
from .driver import drive


def acquire(lock: LockState, blocking: bool, timeout: float | None, fleet: Fleet) -> Lease | Refusal:
    attempt = lock._first(blocking, timeout)
    if attempt is None:
        return drive(acquire_lock(lock, blocking, timeout), fleet)
    rules = lock._rules
    try:
        lock._begin(attempt)
        answers = fleet.engine.exchange(attempt.requests, rules.need, rules.node_timeout, rules.wait)
        if to_be_noted(answers, fleet):
            note_faults(answers, fleet)
        outcome: Lease | Refusal | None = lock._settle(attempt, answers[0])
        if outcome is None:
            outcome = drive(acquire_lock(lock, blocking, timeout, attempt), fleet, answers)
        lock._acquiring = None
        return outcome
    except BaseException as error:
        if lock._acquiring is attempt:
            try:
                drive(acquire_lock(lock, blocking, timeout, attempt), fleet, error)
            finally:
                lock._acquiring = None
        raise


def release(lock: LockState, fleet: Fleet) -> bool:
    lease = lock._lease
    try:
        lease = lock._leaving()
        if lease is None:
            return False
        rules = lock._rules
        requests = start_release(lease)
        answers = fleet.engine.exchange(requests, rules.need, rules.node_timeout, rules.certain)
        if to_be_noted(answers, fleet):
            note_faults(answers, fleet)
        return lock.note_release(lease, finish_release(rules, lease, answers))
    except BaseException as error:
        if lease is not None and lock._lease is lease:  # another thread may have acquired with it since
            drive(release_lock(lock), fleet, error)
        raise
