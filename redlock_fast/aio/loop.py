"""One client's engine in an event loop: who asks, who is told, and when what was asked goes out.

Compiled where it can be, with the types of ``aio/loop.pxd``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

from ..algorithm.effects import Exchange, WaitForChange
from ..algorithm.local_queue import QueueEntry
from ..engine.messages import Batch, Request
from ..masters.connector import do_nothing
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters
from .future import ExchangeFuture, exchange_future

#: Seconds; timers of event loops are not finer.
TIMER = 0.001
#: So many requests are worth a flush of their own, unless masters have more than that to do: they work on
#: them while others are made. (Each flush wakes every master: smaller ones cost them, and us, more.)
FLUSH_AT = 64
#: Seconds, for who would wait without end: a week.
MAX_TIMER = 604_800.0


class LoopBinding:
    """One client's engine in the loop that it belongs to: one reader, one timer, one flush for all tasks."""

    def __init__(self, masters: Masters, loop: asyncio.AbstractEventLoop) -> None:
        self.masters = masters
        self.client_state = masters.client_state
        self.loop = loop
        self.engine = masters.engine
        self.generation = self.client_state.generation
        self._pending = 0  # submitted, and not yet told
        self._single = True  # the last flush was of one exchange
        self._submitted = 0  # since the last flush
        self._waking = False  # tasks go on, and a flush will follow
        self._thread = get_ident()  # that they go on in
        self._timer: asyncio.TimerHandle | None = None
        self._timer_seconds = 0.0  # what it was set to
        self._watching = 0  # exchanges whose time may be over earlier than they were told
        self._waiting: set[asyncio.Future[None]] = set()  # for the masters to change
        self._done: asyncio.Future[None] = loop.create_future()  # what tasks see that are woken
        self._done.set_result(None)
        self._fd = self.engine.fileno()
        loop.add_reader(self._fd, self._on_ready)
        masters.connector.on_change = self._on_change

    def is_current(self) -> bool:
        """Whether the caller runs in this loop, in the process that it belongs to."""
        if self.generation != self.client_state.generation:
            return False
        if self._waking:  # the caller, usually: there is no other loop in this thread then, nor a need to ask
            return get_ident() == self._thread
        return asyncio.get_running_loop() is self.loop

    # --- exchanges ---

    def submit(
        self, requests: list[Request] | Batch, need: int, timeout: float, wait: int, stall: float = 0.0
    ) -> ExchangeFuture:
        """To be awaited at once; then it has what the engine answered."""
        if self._fd < 0:
            self.masters.check_open()  # nobody would tell
        future = exchange_future(self, self.loop)
        future.ticket = self.engine.submit(requests, need, timeout, wait, stall, future)
        self._pending += 1
        seconds = stall or timeout
        if self._timer is None or seconds < self._timer_seconds:
            self._set_timer(seconds)
        self._submitted += 1
        if self._submitted == 1:
            self._flush_soon()
        elif self._submitted >= FLUSH_AT and self._submitted >= self._pending - self._submitted:
            self.flush()
        return future

    def send(self, effect: Exchange) -> None:
        """Nobody waits for what comes of it."""
        self.engine.submit(effect.requests, 0, effect.timeout, effect.wait, effect.stall, None)
        self.masters.connector.wake_soon()
        self._submitted += 1
        if self._submitted == 1:
            self._flush_soon()

    def cancel(self, ticket: object) -> None:
        self._pending -= 1
        self.engine.cancel(ticket)

    def _flush_soon(self) -> None:
        if self._waking:
            return  # when all tasks that can go on have said what they want
        if self._single and self._pending == 1:
            self.flush()  # nobody else is about to have something to send
        else:
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        if self._submitted:
            self._single = self._submitted == 1
            self._submitted = 0
            self.engine.flush()

    def _on_ready(self) -> None:
        completed: list[tuple[Any, Any]] = self.engine.on_ready()
        for future, answers in completed:
            if has_faults(answers, self.masters):
                note_faults(answers, self.masters)
            future.answers = answers
        self._pending -= len(completed)
        if self._watching:
            self._move_timer_earlier()
        if asyncio.current_task(self.loop) is None and not hasattr(self.loop, "_nest_patched"):
            self._wake(iter(completed))
        else:  # a task may run the loop (nest_asyncio): no callback may wait for a task that does
            for context, _ in completed:
                self.loop.call_soon(context.wake, self._done)

    def _wake(self, completed: Iterator[tuple[Any, Any]]) -> None:
        """All go on, one after the other; what they ask for next goes out together."""
        self._thread, self._waking = get_ident(), True
        try:
            for future, _ in completed:
                future.wake(self._done)
        except BaseException:  # of a task that wants the loop to end
            self.loop.call_soon(self._wake, completed)
            raise
        finally:
            self._waking = False
            self.flush()

    def _move_timer_earlier(self) -> None:
        left = self.engine.next_timeout()
        if left is not None and (self._timer is None or self.loop.time() + left < self._timer.when()):
            self._set_timer(left)

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_seconds = seconds
        self._timer = self.loop.call_later(max(TIMER, seconds), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._on_ready()
        left = self.engine.next_timeout()
        if left is not None and self._timer is None:
            self._set_timer(left)

    # --- waiting ---

    async def exchange(self, effect: Exchange) -> Any:
        """What came of it."""
        future = self.submit(effect.requests, effect.need, effect.timeout, effect.wait, effect.stall)
        await future
        return future.answers

    async def watch(self, effect: WaitForChange) -> Any:
        """What came of it; this may take long."""
        self._watching += 1
        try:
            return await self.exchange(effect)
        finally:
            self._watching -= 1

    async def until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait up to ``timeout`` seconds for what depends on the masters' connections."""
        end = self.loop.time() + timeout
        while not condition() and (left := end - self.loop.time()) > 0:
            change: asyncio.Future[None] = self.loop.create_future()
            self._waiting.add(change)
            timer = self.loop.call_later(left, _wake, change)
            try:
                await change
            finally:
                timer.cancel()
                self._waiting.discard(change)

    async def reconnect(self, seconds: float, disconnected: list[int]) -> None:
        """As that of the masters, without blocking the loop."""
        await self.until(*self.masters.reconnect_condition(seconds, disconnected))
        self.masters.check_open()

    async def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None:
        """As that of the masters, without blocking the loop."""
        turn: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self.loop.call_soon_threadsafe(_wake, turn)

        entry.slot.wake = wake
        timer = self.loop.call_later(min(seconds, MAX_TIMER), _wake, turn)
        try:
            if not entry.is_first and not self.client_state.closed:
                await turn
        finally:
            timer.cancel()
        self.masters.check_open()

    async def wait_for_quorum(self, timeout: float) -> bool:
        """As that of the masters, without blocking the loop."""
        self.masters.connector.start()
        for condition, seconds in self.masters.quorum_conditions(timeout):
            await self.until(condition, seconds)
        return self.masters.end_quorum_wait()

    def _on_change(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._wake_waiting)
        except RuntimeError:  # the loop is closed: nobody can be told any more, nothing keeps its tasks
            self.masters.connector.on_change = do_nothing
            self._waiting.clear()
            self.engine.close_loop_fd()

    def _wake_waiting(self) -> None:
        for change in self._waiting:
            _wake(change)

    # --- the end ---

    def alive(self) -> bool:
        """Whether there is a loop to let go of."""
        ours = self.generation == self.client_state.generation
        return ours and self._fd >= 0 and not self.loop.is_closed()

    async def close(self) -> None:
        """Close the masters in a thread, for that waits for what they owe; then let go of the loop."""
        closed: asyncio.Future[None] = self.loop.create_future()

        def ended() -> None:
            self.end()
            _wake(closed)

        def close() -> None:
            self.masters.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(ended)

        threading.Thread(target=close, name="redlock-fast-close", daemon=True).start()
        await closed

    def end(self) -> None:
        """Tell everybody who waits, and let go of the loop."""
        if self.alive():
            fd, self._fd = self._fd, -1  # who goes on now shall not ask anew
            self.loop.remove_reader(fd)
            self._on_ready()
        if self._timer is not None:
            self._timer.cancel()
        self.masters.connector.on_change = do_nothing
        self.engine.close_loop_fd()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
