"""SingleRun: a job that runs once in a fleet, for threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ..locks.decorated import check_plain
from ..locks.single_run import SingleRunState, keep_until
from .driver import drive

if TYPE_CHECKING:
    from .client import Lock

P = ParamSpec("P")
R = TypeVar("R")


class SingleRun(SingleRunState["Lock"]):
    """A job that runs once in a fleet: a decorator, and a context manager. See [`FastRedlock.single_run`][].

    ``with`` gives the held lock, or None where the run is skipped. Use one object for each ``with``.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        check_plain(function, "single_run")

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
            with self._for_call(args, kwargs) as lock:
                return None if lock is None else function(*args, **kwargs)

        return run

    def __enter__(self) -> Lock | None:
        lock = self._enter()
        try:
            if self._if_taken != "skip":
                lock.__enter__()
            elif not lock.acquire(blocking=False):
                self._lock = None
                return None
            self._granted(lock)
            return lock
        except BaseException:
            self._lock = None
            lock.release()  # a signal handler may raise after the grant
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if kind is None and self._once_per is not None:
                drive(keep_until(lock, self._keep_until), lock._core.masters)
        except BaseException as raised:
            lock.__exit__(type(raised), raised, None)
            raise
        lock.__exit__(kind, error, trace)
