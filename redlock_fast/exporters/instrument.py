"""Makes a client create locks that report their operations. Locks that it made before do not change.

A client that is not instrumented pays nothing: it creates locks of another class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from ..algorithm.policy import Clock
from ..errors import Contended, LockLost, QuorumUnavailable, RedlockError
from ..locks.bodies import Body
from ..locks.client_base import BaseClient
from ..telemetry import EventLog
from ..threads.client import FastRedlock, Lock

Methods = dict[str, Any]

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

    def granted(self, lock: Any, start: float) -> None:
        now = self.clock()
        lock._granted_at = now
        if now - start >= self.slower_than:
            self._record("acquire", lock, now - start, "acquired")

    def extended(self, lock: Any, start: float) -> None:
        now = self.clock()
        if now - start >= self.slower_than:
            self._record("extend", lock, now - start, "extended")

    def released(self, lock: Any, start: float, lease: Any, done: bool) -> None:
        """``lease``: the one that was released, or None. ``done``: whether it had not ended before."""
        now = self.clock()
        outcome = "released" if done else "expired"
        if now - start >= self.slower_than or not done:
            self._record("release", lock, now - start, outcome if done or lease is not None else "not held")
        granted_at = getattr(lock, "_granted_at", None)
        if lease is None or granted_at is None:
            return
        seconds = max(0.0, min(now, lease.deadline) - granted_at)
        lock._granted_at = None
        for recorder in self._recorders:
            try:
                recorder.held(lock, seconds, outcome)
            except Exception as error:
                log_unmeasured(self._events, error)

    def refused(self, operation: str, lock: Any, start: float, error: BaseException | None = None) -> None:
        """The operation ended without success: with ``error``, or because another holder has the lock."""
        self._record(operation, lock, self.clock() - start, outcome_of(error), error)

    def _record(
        self, operation: str, lock: Any, seconds: float, outcome: str, error: BaseException | None = None
    ) -> None:
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
    """Make ``client`` create locks that report to ``recorder``, besides the recorders that it has."""
    observer = client._core.observe()
    with client._core.client_state.mutex:
        if observer.reports is None:
            observer.reports = Reports(client._core.policy.clock, client._core.client_state.events)
            observer.lock_class = reporting(client, observer.reports)
        observer.reports.add(recorder)


def reporting(client: BaseClient, reports: Reports) -> type[Any]:
    """A subclass of the class of the client's locks, whose locks report to ``reports``."""
    base: type[Any]
    if isinstance(client, FastRedlock):
        base, methods = Lock, with_threads(Lock, reports)
    else:
        from ..aio.client import AsyncLock  # late: asyncio is slow to import; this client has imported it

        base, methods = AsyncLock, with_tasks(AsyncLock, reports)
    names = {"__slots__": ("_granted_at",), "__module__": base.__module__, **methods}
    return type(base.__name__, (base,), names)


def with_threads(base: Any, reports: Reports) -> Methods:
    """The methods of a lock for threads that report.

    A signal handler may raise while a grant is reported. The lease of this call is released then: its caller
    does not get it.
    """
    clock = reports.clock

    def acquiring(acquire: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(acquire)
        def reported(self: Any, body: Body, *args: Any) -> Any:
            start = clock()
            try:
                done = acquire(self, body, *args)
                if done:
                    reports.granted(self, start)
                else:
                    reports.refused("acquire", self, start)
                return done
            except BaseException as error:
                self._undo(body)
                reports.refused("acquire", self, start, error)
                raise

        return reported

    def release(self: Any) -> bool:
        lease, start = self._lease, clock()
        try:
            done: bool = base.release(self)
        except BaseException as error:
            reports.refused("release", self, start, error)
            raise
        reports.released(self, start, lease, done)
        return done

    def leave(self: Any, *error: Any) -> None:
        held, lease, start = self._lease, None, 0.0
        try:
            lease, start = self._lease, clock()
            base.__exit__(self, *error)
        except BaseException as failure:
            self._drop(held)
            if isinstance(failure, LockLost):
                reports.released(self, start or clock(), lease, False)
            else:
                reports.refused("release", self, start or clock(), failure)
            raise
        if lease is not None:  # otherwise detach() gave it up before
            reports.released(self, start, lease, clock() < lease.deadline)

    def extend(self: Any, ttl: float | None = None, *, confirm: bool = False) -> float:
        start = clock()
        try:
            validity: float = base.extend(self, ttl, confirm=confirm)
        except BaseException as error:
            reports.refused("extend", self, start, error)
            raise
        reports.extended(self, start)
        return validity

    enter = {"_acquire": acquiring(base._acquire), "_enter": acquiring(base._enter)}
    return {**enter, "release": release, "extend": extend, "__exit__": leave}


def with_tasks(base: Any, reports: Reports) -> Methods:
    """The methods of a lock for asyncio that report; see ``with_threads``."""
    clock = reports.clock

    def acquiring(acquire: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(acquire)
        async def reported(self: Any, *args: Any, **options: Any) -> Any:
            before, start = self._lease, clock()
            try:
                done = await acquire(self, *args, **options)
                if done:
                    reports.granted(self, start)
                else:
                    reports.refused("acquire", self, start)
                return done
            except GeneratorExit:  # the task is destroyed: nothing can be awaited
                raise
            except BaseException as error:
                if not isinstance(error, RedlockError) and self._lease not in (None, before):
                    await base.release(self)
                reports.refused("acquire", self, start, error)
                raise

        return reported

    async def release(self: Any) -> bool:
        lease, start = self._lease, clock()
        try:
            done: bool = await base.release(self)
        except BaseException as error:
            reports.refused("release", self, start, error)
            raise
        reports.released(self, start, lease, done)
        return done

    async def leave(self: Any, *error: Any) -> None:
        lease, start = self._lease, clock()
        try:
            await base.__aexit__(self, *error)
        except LockLost:
            reports.released(self, start, lease, False)
            raise
        except BaseException as failure:
            reports.refused("release", self, start, failure)
            raise
        if lease is not None:  # otherwise detach() gave it up before
            reports.released(self, start, lease, clock() < lease.deadline)

    async def extend(self: Any, ttl: float | None = None, *, confirm: bool = False) -> float:
        start = clock()
        try:
            validity: float = await base.extend(self, ttl, confirm=confirm)
        except BaseException as error:
            reports.refused("extend", self, start, error)
            raise
        reports.extended(self, start)
        return validity

    enter = {"acquire": acquiring(base.acquire), "__aenter__": acquiring(base.__aenter__)}
    return {**enter, "release": release, "extend": extend, "__aexit__": leave}
