"""AsyncSingleRun: a job that runs once in a fleet, for asyncio."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..algorithm.operation import Procedure
from ..algorithm.refusals import Refusals
from ..errors import ClientClosed, Contended
from ..locks.decorated import check_async
from ..locks.single_run import SingleRunState, new_keep
from .driver import run

if TYPE_CHECKING:
    from .lock import AsyncLock

P = ParamSpec("P")
R = TypeVar("R")


class AsyncSingleRun(SingleRunState["AsyncLock"]):
    """A job that runs once in a fleet: a decorator of async functions, and a context manager.

    ``async with`` gives the held lock, or None where the run is skipped. Use one object for each
    ``async with``. See [`AsyncFastRedlock.single_run`][].
    """

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        check_async(function, "single_run")

        @functools.wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
            async with self._for_call(args, kwargs) as lock:
                return None if lock is None else await function(*args, **kwargs)

        return run

    async def __aenter__(self) -> AsyncLock | None:
        lock = self._enter()
        try:
            self._begin(lock)
            if self._if_taken == "wait":
                try:
                    await lock.__aenter__()
                except Contended as refused:
                    self.log_outcome("run-refused", refused, logging.WARNING)
                    raise
            elif self._skips(await _enter_unless_held(lock)):
                return None
        except BaseException:
            self._end(lock)
            raise
        self._granted(lock)
        return lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._lock, self._entered = self._lock, None, False
        if lock is None:
            return
        try:
            if kind is None and self._once_per is not None:
                await self._keep(lock)
        except BaseException as raised:
            await lock.__aexit__(type(raised), raised, None)
            raise
        await lock.__aexit__(kind, error, trace)

    async def _keep(self, lock: AsyncLock) -> None:
        with contextlib.suppress(ClientClosed):
            await run(new_keep(lock, self._keep_until), lock._core.loop_binding())


async def _enter_unless_held(lock: AsyncLock) -> Contended | None:
    """Enter ``lock``, whose ``timeout`` is 0. Returns the refusal if another client holds it.

    Split votes show no holder, so a round with them is repeated.
    """
    refusals, binding = Refusals(lock._core.policy, lock.key), lock._core.loop_binding()
    while True:
        try:
            await lock.__aenter__()
            return None
        except Contended as error:
            refused = error
        if await run(Procedure(refusals.is_held(refused)), binding):
            return refused
