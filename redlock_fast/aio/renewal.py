"""Renewal for asyncio: one timer for all auto-extended locks of a client, and a task for each round."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import weakref
from collections.abc import Awaitable
from typing import Any

from ..algorithm.lease import ExtendOutcome, Lease
from ..algorithm.renewal_schedule import FIRST_PAUSE, RenewedLease
from ..errors import ConfigError
from ..locks.auto_extend import AutoExtended, AutoExtension, Renewal, longest_hold
from ..locks.bodies import cancel_bodies
from ..locks.client_core import ClientCore
from ..locks.config import CLIENT_DEFAULT, check_flag
from ..locks.loss import TrueWhenSet
from ..telemetry import log_error
from .driver import run
from .loop import TIMER, LoopBinding

Due = list[tuple[RenewedLease, float]]


class AsyncLossEvent(TrueWhenSet, asyncio.Event):
    """What ``lock.lost`` is: true, and set, once the lock is lost. ``wait`` waits for that."""


class LoopRenewal(Renewal):
    """Renewal in the event loop of the client. There is no timer while no lock needs renewal."""

    def __init__(self, core: ClientCore, binding: LoopBinding) -> None:
        super().__init__(core)
        self._binding = binding
        self._loop = binding.loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._due: Due = []  # what a task that has not begun is to extend
        self._ended = False
        self._notifying: set[asyncio.Future[Any]] = set()  # asyncio refers to tasks weakly
        self._context = contextvars.Context()  # empty, not the context of the task that sets the timer

    def rebind(self, binding: LoopBinding) -> None:
        """Go on in the loop of ``binding``: the earlier loop is closed. Leases that ended are reported there.

        Each lock gets another event, because waiting tasks bind an event to their loop.
        """
        self._binding, self._loop = binding, binding.loop
        task, self._task, self._timer = self._task, None, None
        self._notifying.clear()
        if task is not None and (coroutine := task.get_coro()) is not None:
            coroutine.close()  # what it extended is scheduled again
        self._take_back()
        with self.mutex:
            locks: list[Any] = [renewed.lock() for renewed in self.schedule.leases()]
        for lock in locks:
            if lock is not None:
                lock._auto_extension.lost, lock._bodies = AsyncLossEvent(), None
        self._set_timer()

    def wake_soon(self) -> None:
        if self._task is None:
            self._set_timer()

    def drop(self, renewed: RenewedLease) -> None:
        super().drop(renewed)
        if not self.schedule:
            self.schedule.sweep()
            self._stop_timer()

    def _set_timer(self, least: float = 0.0) -> None:
        """Set the timer for the next renewal, ``least`` seconds from now or later. An earlier timer stays."""
        if self._ended or self.client_state.closed or not self.schedule:
            return
        seconds = max(TIMER, least, self.wait())  # for less, uvloop returns a Handle, which has no ``when``
        if self._timer is None or self._timer.when() > self._loop.time() + seconds + TIMER:
            self._stop_timer()
            self._timer = self._loop.call_later(seconds, self._on_timer, context=self._context)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        try:
            due = [] if self.client_state.closed else self.collect_due()
        except Exception:  # renewal must go on: without it all locks would be lost
            log_error("renewal-error")
            due = []
        if due:
            self._due = due
            task = self._loop.create_task(self._extend_due(), context=self._context)
            if not task.done():  # an eager task may be
                self._task = task
                task.add_done_callback(self._on_done)
        elif self._timer is None:
            self._set_timer(TIMER)

    async def _extend_due(self) -> None:
        due, self._due = self._due, []
        least = 0.0
        try:
            await run(self.extension(due), self._binding)
        except Exception:
            log_error("renewal-error")
            least = FIRST_PAUSE
        finally:
            self._task = None
            self._set_timer(least)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Go on after a task that was cancelled before its first step: it ran nothing of ``_extend``."""
        if self._task is task:
            self._task = None
            self._take_back()
            self._set_timer(FIRST_PAUSE)

    def _take_back(self) -> None:
        """Schedule again what a task that did not begin was to extend."""
        due, self._due = self._due, []
        self._settle(due, [ExtendOutcome.INCONCLUSIVE] * len(due))

    async def end(self) -> None:
        """Stop renewal because the client is being closed. Losses are not reported any more."""
        self._ended = True
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- losses ---

    def notify_lost(self, lock: AutoExtended, lease: Lease, reason: str) -> None:
        """Report a lost lock: call ``on_lost``, cancel the body of ``async with``."""
        auto_extension = lock._auto_extension
        if auto_extension is None:
            return
        try:
            result = auto_extension.on_lost(lock, reason) if auto_extension.on_lost is not None else None
            if inspect.isawaitable(result):
                task = self._loop.create_task(_finish(result), context=self._context)
                self._notifying.add(task)
                task.add_done_callback(self._notifying.discard)
        except (Exception, asyncio.CancelledError):  # this waits for nothing: no task was cancelled
            log_error("on-lost-error")
        cancel_bodies(lock._bodies, lease, reason)


async def _finish(result: Awaitable[Any]) -> None:
    try:
        await result
    except Exception:
        log_error("on-lost-error")


class BodyTask:
    """The task of a body of ``async with``, which a loss cancels, as ``asyncio.timeout`` does.

    The references to tasks are weak, so that a task without other references can be collected. Before Python
    3.12 ``wait_for`` enters a lock in a task of its own, which has ended when the body begins: the body is in
    the task that waits for it.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = weakref.ref(task)
        self._before = task.cancelling()
        caller = caller_of(task) if sys.version_info < (3, 12) else None
        self._caller = None if caller is None else weakref.ref(caller)
        self._cancelled = False

    def cancel(self, why: str) -> None:
        """Cancel the task, unless it runs now: then it found the loss itself and gets an exception."""
        task = self._task()
        if self._caller is not None and (task is None or task.done()):
            self._task, task = self._caller, self._caller()
            self._before = 0 if task is None else task.cancelling()
        if not self._cancelled and task is not None and task is not asyncio.current_task():
            self._cancelled = True
            task.cancel(why)

    def left(self, kind: type[BaseException] | None) -> bool:
        """Whether only this cancellation ended the body. ``kind``: the exception that ended it."""
        task = self._task()
        if not self._cancelled or task is None or task is not asyncio.current_task():
            return False
        return task.uncancel() <= self._before and kind is asyncio.CancelledError


def caller_of(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The other task that waits inside ``asyncio.wait_for`` until ``task`` ends; None: there is none."""
    private: Any = task
    waiters = [
        each.args[0]
        for each, _ in private._callbacks or ()
        if getattr(each, "func", None) is getattr(asyncio.tasks, "_release_waiter", None)
    ]
    if not waiters:
        return None
    tasks: set[Any] = asyncio.all_tasks()
    return next((one for one in tasks if one._fut_waiter in waiters), None)


def loop_auto_extension(
    core: Any, auto_extend: Any, on_lost: Any, max_hold: Any, cancel_on_loss: Any = True
) -> AutoExtension | None:
    """The auto-extension of a new lock; None without ``auto_extend``. Raises ConfigError."""
    usual = auto_extend is CLIENT_DEFAULT is max_hold and on_lost is None and cancel_on_loss is True
    if usual and not core.auto_extend:
        return None  # as below; most locks are made so
    longest = longest_hold(core, auto_extend, on_lost, max_hold)
    if longest is None:
        if cancel_on_loss is not True:
            raise ConfigError("cancel_on_loss is for locks with auto_extend=True")
        return None
    check_flag("cancel_on_loss", cancel_on_loss)
    return AutoExtension(core.renewal, AsyncLossEvent, on_lost, longest, cancel_on_loss)
