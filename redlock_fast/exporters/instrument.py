"""Passes what the locks of one client do on to recorders, which measure it.

Operations report their ends themselves, where a client has an observer: one comparison where it has none.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.policy import Clock
from ..errors import Contended, LockLost, QuorumUnavailable
from ..locks.client_base import BaseClient
from ..locks.failures import acquire_error
from ..telemetry import EventLog

#: Outcomes that are recorded only if the operation was slow.
GOOD: set[str] = {"acquired", "released", "not held", "extended"}


class Recorder(Protocol):
    """Receives what the locks of one client do.

    ``slower_than``: seconds; an operation with a good outcome that took less is not recorded.
    """

    slower_than: float

    def record(
        self, operation: str, lock: Any, seconds: float, outcome: str, error: BaseException | None
    ) -> None:
        """``operation`` ("acquire", "release" or "extend") has just ended after ``seconds``."""
        ...

    def held(self, lock: Any, seconds: float, outcome: str) -> None:
        """A hold has just ended, or its lease did before: ``seconds`` after the grant."""
        ...


class Reports:
    """Passes operations on to the recorders of one client. An error of a recorder is logged, not raised."""

    def __init__(self, clock: Clock, events: EventLog) -> None:
        self.clock: Clock = clock
        self.slower_than: float = 0.0
        self._events = events
        self._recorders: tuple[Recorder, ...] = ()

    def add(self, recorder: Recorder) -> None:
        self._recorders = (*self._recorders, recorder)
        self.slower_than = min(one.slower_than for one in self._recorders)

    def acquired(
        self, lock: Any, start: float, outcome: Lease | AcquireFailure | None, error: BaseException | None
    ) -> None:
        """An acquire that began at ``start`` has ended, with ``outcome`` or with ``error``."""
        if lock._generation != lock._client_state.generation():
            return  # a child of fork: the parent's call goes on
        now = self.clock()
        if error is None and isinstance(outcome, Lease):
            lock._granted_at = now
            self._record("acquire", lock, now - start, "acquired")
        elif error is not None or outcome is not None:
            if isinstance(outcome, AcquireFailure) and outcome.unavailable:
                error = acquire_error(lock._core, lock.resource, lock._lock_kind, outcome)
            self._record("acquire", lock, now - start, outcome_of(error), error)

    def extended(self, lock: Any, start: float, error: BaseException | None) -> None:
        """An explicit extension that began at ``start`` has ended: with ``error``, or well."""
        outcome = "extended" if error is None else outcome_of(error)
        self._record("extend", lock, self.clock() - start, outcome, error)

    def released(
        self, lock: Any, start: float, lease: Lease | None, done: bool | None, error: BaseException | None
    ) -> None:
        """A release that began at ``start`` has ended.

        ``lease``: the one that was released, or None. ``done``: whether it had not ended before; None: an
        exception ended the release.
        """
        now = self.clock()
        if error is not None:
            self._record("release", lock, now - start, outcome_of(error), error)
        elif done is not None:
            outcome = "released" if done else "expired"
            self._record("release", lock, now - start, outcome if lease is not None else "not held")
            granted_at, lock._granted_at = lock._granted_at, 0.0
            if lease is not None and granted_at:
                self._held(lock, max(0.0, min(now, lease.deadline) - granted_at), outcome)

    def _held(self, lock: Any, seconds: float, outcome: str) -> None:
        for recorder in self._recorders:
            try:
                recorder.held(lock, seconds, outcome)
            except Exception as error:
                log_unmeasured(self._events, error)

    def _record(
        self, operation: str, lock: Any, seconds: float, outcome: str, error: BaseException | None = None
    ) -> None:
        if outcome in GOOD and seconds < self.slower_than:
            return
        for recorder in self._recorders:
            if outcome not in GOOD or seconds >= recorder.slower_than:
                try:
                    recorder.record(operation, lock, seconds, outcome, error)
                except Exception as failure:
                    log_unmeasured(self._events, failure)


def log_unmeasured(events: EventLog, error: Exception) -> None:
    """Log that a meter or a tracer has failed: its error does not disturb the lock."""
    events.warn_of("recorder-error", f"a lock was not measured: {type(error).__name__}: {error}")


def outcome_of(error: BaseException | None) -> str:
    if error is None or isinstance(error, Contended):
        return "contended"
    if isinstance(error, QuorumUnavailable):
        return "unavailable"
    return "expired" if isinstance(error, LockLost) else "failed"


def instrument(client: BaseClient, recorder: Recorder) -> None:
    """Make the locks of ``client`` report to ``recorder``, besides the recorders that it has."""
    core = client._core
    observer = core.observe()
    with core.client_state.mutex:
        if observer.reports is None:
            observer.reports = Reports(core.policy.clock, core.client_state.events)
        observer.reports.add(recorder)
