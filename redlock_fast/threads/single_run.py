"""SingleRun: a job that runs once in a fleet, for threads."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ..algorithm.operation import Procedure
from ..algorithm.refusals import Refusals
from ..errors import ClientClosed, Contended
from ..locks.decorated import check_plain
from ..locks.single_run import SingleRunState, keep_at_once, new_keep
from .operations import exit_run, run, send

if TYPE_CHECKING:
    from .lock import Lock

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
            self._begin(lock)
            if self._if_taken == "wait":
                try:
                    lock.__enter__()
                except Contended as refused:
                    self.log_outcome("run-refused", refused, logging.WARNING)
                    raise
            elif self._skips(enter_unless_held(lock)):
                return None
            self._granted(lock)
            return lock
        except BaseException:
            self._end(lock)
            lock.release()  # a signal handler may raise after the grant
            raise

    __exit__ = exit_run

    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock = self._lock
        if lock is None:
            self._entered = False
            return
        if kind is None and self._once_per is not None:
            self._keep(lock)
        lock.__exit__(kind, error, trace)
        self._lock, self._entered = None, False

    def _interrupted(self, kind: type[BaseException] | None) -> None:
        """A signal handler raised at the end, perhaps before any of it began; or the lock was lost."""
        lock, self._lock, self._entered = self._lock, None, False
        if lock is None:
            return
        if kind is None and self._once_per is not None:  # the job has run: it must not run again
            for requests in keep_at_once(lock, self._keep_until):
                send(requests, lock._core.masters)
        lock.release()

    def _keep(self, lock: Lock) -> None:
        with contextlib.suppress(ClientClosed):
            run(new_keep(lock, self._keep_until), lock._core.masters)


def enter_unless_held(lock: Lock) -> Contended | None:
    """Enter ``lock``, whose ``timeout`` is 0. Returns the refusal if another client holds it.

    Split votes show no holder, so a round with them is repeated.
    """
    refusals = Refusals(lock._core.policy, lock.key)
    while True:
        try:
            lock.__enter__()
            return None
        except Contended as error:
            refused = error
        if run(Procedure(refusals.is_held(refused)), lock._core.masters):
            return refused
