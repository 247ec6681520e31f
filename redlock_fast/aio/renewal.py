"""Renewal for asyncio: one timer for all auto-extended locks of a client, and a task when some are due."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections.abc import Awaitable
from typing import Any

from ..algorithm.renewal_schedule import FIRST_PAUSE, Hold
from ..errors import ConfigError
from ..locks.auto_extend import Keeper, Kept, Renewal, check_terms
from ..locks.client_base import Core
from ..telemetry import log_error
from .driver import drive
from .loop import TIMER, Pump


class LoopRenewal(Renewal):
    """In the loop of the client; there is no timer while there is nothing to renew."""

    def __init__(self, core: Core, pump: Pump) -> None:
        super().__init__(core)
        self._pump = pump
        self._loop = pump.loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._telling: set[asyncio.Future[Any]] = set()  # nobody else keeps them
        self._context = contextvars.Context()  # not that of whoever happens to set the timer

    def attend(self) -> None:
        if self._task is None:
            self._set_timer()

    def drop(self, hold: Hold) -> None:
        super().drop(hold)
        if not self.schedule:
            self.schedule.sweep()
            self._stop_timer()

    def _set_timer(self, least: float = 0.0) -> None:
        """To the next time that there is something to do, unless it rings before that."""
        if self._ended or self.masters.closed or not self.schedule:
            return
        when = self._loop.time() + max(least, self.wait())
        if self._timer is None or self._timer.when() > when + TIMER:
            self._stop_timer()
            self._timer = self._loop.call_at(when, self._ring, context=self._context)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        try:
            asks = [] if self.masters.closed else self.look()
        except Exception:  # locks without their renewal would all be lost
            log_error("renewal-error")
            asks = []
        if asks:
            self._task = self._loop.create_task(self._extend(asks), context=self._context)
        elif self._timer is None:
            self._set_timer(TIMER)

    async def _extend(self, asks: list[tuple[Hold, float]]) -> None:
        least = 0.0
        try:
            await drive(self.extend(asks), self._pump)
        except Exception:
            log_error("renewal-error")
            least = FIRST_PAUSE
        finally:
            self._task = None
            self._set_timer(least)

    async def end(self) -> None:
        """The client is being closed: nothing is renewed any more, and nobody is told."""
        self._ended = True
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- losses ---

    def tell(self, lock: Kept, reason: str) -> None:
        keeper = lock._keeper
        if keeper is None:
            return
        keeper.lost.set()
        try:
            told = keeper.on_lost(lock, reason) if keeper.on_lost is not None else None
            if inspect.isawaitable(told):
                task = self._loop.create_task(_finish(told), context=self._context)
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)
        except Exception:
            log_error("on-lost-error")
        if keeper.body is not None:
            keeper.body.cancel(reason)


async def _finish(told: Awaitable[Any]) -> None:
    try:
        await told
    except Exception:
        log_error("on-lost-error")


class Body:
    """The body of an ``async with``, to be cancelled on a loss; done as ``asyncio.timeout`` does it.

    It does not keep its task: one that nobody waits for, nor anything else knows, is to be collected.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = weakref.ref(task)
        self._before = task.cancelling()
        self._cancelled = False

    def cancel(self, why: str) -> None:
        """Not where the task itself found out: an exception tells it."""
        task = self._task()
        if not self._cancelled and task is not None and task is not asyncio.current_task():
            self._cancelled = True
            task.cancel(why)

    def left(self, kind: type[BaseException] | None) -> bool:
        """The body is over; whether by our cancellation and nobody else's."""
        task = self._task()
        if not self._cancelled or task is None:
            return False
        return task.uncancel() <= self._before and kind is asyncio.CancelledError


def loop_keeper(
    core: Any, auto_extend: Any, on_lost: Any, max_hold: Any, cancel_on_loss: Any
) -> Keeper | None:
    """For a lock that is renewed; None for others. Raises ConfigError."""
    if auto_extend is False and on_lost is None and max_hold is None and cancel_on_loss is True:
        return None
    longest = check_terms(auto_extend, on_lost, max_hold)
    if not isinstance(cancel_on_loss, bool):
        raise ConfigError(f"cancel_on_loss must be True or False, not {cancel_on_loss!r}")
    return Keeper(core.renewal, asyncio.Event, on_lost, longest, cancel_on_loss)
