"""Binds one client's engine to an event loop: one reader, one timer and one flush for all tasks.

Compiled with the types of ``aio/loop.pxd``, if there is a compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..algorithm import machine
from ..algorithm.effects import Exchange, WaitForChange
from ..algorithm.local_queue import QueueEntry
from ..engine.contract import Engine
from ..engine.messages import Batch, Quorums, Request
from ..engine.threads import start_thread
from ..masters.client_state import ClientState
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters
from .future import ExchangeFuture

#: Seconds; event loop timers are not finer.
TIMER = 0.001
#: Flush early when this many requests are buffered, unless more than that are in flight: masters then work
#: while tasks submit more. Each flush wakes every server, so small flushes are expensive.
FLUSH_AT = 64
#: Seconds, one week: the timer for a wait without end.
MAX_TIMER = 604_800.0


class LoopBinding:
    """Connects one client's engine to the event loop that the client belongs to."""

    def __init__(self, masters: Masters, loop: asyncio.AbstractEventLoop) -> None:
        self.masters = masters
        self.client_state: ClientState = masters.client_state
        self.loop = loop
        self.engine: Engine = masters.engine
        self.generation: int = self.client_state.generation()
        self._pending = 0  # exchanges that are submitted and not decided
        self._single = True  # the last flush sent one exchange
        self._submitted = 0  # exchanges since the last flush
        self._waking = False  # tasks are being resumed, and a flush follows
        self._thread = machine.thread_id()  # the thread that resumes them
        self._timer: asyncio.TimerHandle | None = None
        self._timer_seconds = 0.0  # the delay that the timer was set to
        self._watching = 0  # exchanges whose deadline may move earlier than the timer
        self._waiting: set[asyncio.Future[None]] = set()  # tasks that wait for a change of the masters
        self._closed: asyncio.Future[None] | None = None  # done when a call of close has ended
        self._done: asyncio.Future[None] = loop.create_future()  # what ExchangeFuture.wake passes to tasks
        self._done.set_result(None)
        with masters.connector.monitor.mutex:  # unbind() of an earlier binding must not undo this
            self._fd = self.engine.fileno()
            loop.add_reader(self._fd, self._on_ready)
            masters.connector.monitor.listen(self._on_change, self._on_tick)

    def is_current(self) -> bool:
        """Whether the caller runs in this loop and in the process that created the binding."""
        if self.generation != self.client_state.generation():
            return False
        if self._waking:  # a resumed task calls: no other loop can run in its thread, so this check is enough
            return machine.thread_id() == self._thread
        return asyncio.get_running_loop() is self.loop

    # --- exchanges ---

    def submit(
        self,
        requests: list[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float = 0.0,
    ) -> ExchangeFuture:
        """Submit an exchange. The caller must await the future at once; then ``answers`` has the votes."""
        if self._fd < 0:
            self.masters.check_open()  # the reader is removed: the future would never wake its task
        future = ExchangeFuture(self, self.loop)
        future.ticket = self.engine.submit(requests, need, timeout, wait, stall, future)
        self._pending += 1
        seconds = min(stall, timeout) if stall else timeout
        if self._timer is None or (
            seconds < self._timer_seconds and self.loop.time() + seconds < self._timer.when()
        ):
            self._set_timer(seconds)
        self._submitted += 1
        if self._submitted == 1:
            self._flush_soon()
        elif self._submitted >= FLUSH_AT and self._submitted >= self._pending - self._submitted:
            self.flush()
        return future

    def send(self, requests: list[Request] | Batch) -> None:
        """Submit requests without waiting for votes."""
        self.engine.submit(requests, 0, 0.0, 0, 0.0, None)
        self.masters.connector.wake_soon()
        self._submitted += 1
        if self._submitted == 1:
            self._flush_soon()

    def cancel(self, ticket: object) -> None:
        """Cancel a submitted exchange: its replies are dropped."""
        self._pending -= 1
        self.engine.cancel(ticket)

    def _flush_soon(self) -> None:
        if self._waking:
            return  # _wake flushes after all resumed tasks have submitted their requests
        if self._single and self._pending == 1:
            self.flush()  # one task at a time: no other requests are about to follow
        else:
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was submitted since the last flush."""
        if self._submitted:
            self._single = self._submitted == 1
            self._submitted = 0
            self.engine.flush()

    def _on_ready(self) -> None:
        """Resume the tasks whose exchanges are decided. Reader callback of the engine's fd."""
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
        else:  # a task runs the loop (nest_asyncio): a task must not be resumed inside another task
            for context, _ in completed:
                self.loop.call_soon(context.wake, self._done)

    def _wake(self, completed: Iterator[tuple[Any, Any]]) -> None:
        """Resume the tasks in turn. The requests that they submit next leave in one flush."""
        self._thread, self._waking = machine.thread_id(), True
        try:
            for future, _ in completed:
                future.wake(self._done)
        except BaseException:  # a task raised SystemExit or KeyboardInterrupt, which ends the loop
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
        """The answers to ``effect``."""
        future = self.submit(effect.requests, effect.need, effect.timeout, effect.wait, effect.stall)
        await future
        return future.answers

    async def watch(self, effect: WaitForChange) -> Any:
        """The answers to ``effect``, which may wait long for a change of a key."""
        self._watching += 1
        try:
            answers = await self.exchange(effect)
        finally:
            self._watching -= 1
        self.masters.check_not_closed()
        return answers

    async def until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until ``condition()`` is true; it is checked after each change of a master.

        ``timeout``: seconds after which the wait ends anyway.
        """
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

    async def pause(self, seconds: float) -> None:
        """Wait ``seconds``. Raises ClientClosed if the client is closed."""
        await self.until(lambda: self.client_state.closed, seconds)
        self.masters.check_open()

    async def reconnect(self, seconds: float, disconnected: list[int], silent: list[int]) -> None:
        """``Masters.reconnect`` without blocking the loop."""
        await self.until(*self.masters.reconnect_condition(seconds, disconnected, silent))
        self.masters.check_open()

    async def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None:
        """``Masters.wait_for_turn`` without blocking the loop."""
        turn: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there
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
        """``Masters.wait_for_quorum`` without blocking the loop."""
        self.masters.connector.start()
        for condition, seconds in self.masters.quorum_conditions(timeout):
            await self.until(condition, seconds)
        return self.masters.end_quorum_wait()

    def _on_change(self) -> None:
        """Wake the tasks in ``until``. Called from any thread when a master's state changes."""
        try:
            self.loop.call_soon_threadsafe(self._wake_waiting)
        except RuntimeError:  # the loop is closed: no task can be woken
            self.unbind()

    def _on_tick(self) -> None:
        """Notice a closed loop before the client is used again: what its tasks asked for is then undone."""
        if self.loop.is_closed():
            self.unbind()

    def _wake_waiting(self) -> None:
        for change in self._waiting:
            _wake(change)

    # --- the end ---

    def unbind(self) -> None:
        """Release what refers to the tasks of the loop, which is closed. Any thread may call it."""
        with self.masters.connector.monitor.mutex:
            if self._fd >= 0:
                self._fd = -1
                self._disconnect()
                self._waiting.clear()
                self.engine.close_loop_fd()

    def alive(self) -> bool:
        """Whether the binding still has a reader in an open loop of this process."""
        ours = self.generation == self.client_state.generation()
        return ours and self._fd >= 0 and not self.loop.is_closed()

    async def close(self) -> None:
        """Close the masters in a thread, because that waits for owed replies; then unbind from the loop.

        Further calls wait for the first one: exchanges are under way until it ends.
        """
        if self._closed is None:
            self._closed = self.loop.create_future()
            try:
                start_thread("close", self._close)
            except RuntimeError:  # the system has no more threads, or the interpreter ends
                self._close()
        await asyncio.wait({self._closed})

    def _close(self) -> None:
        self.masters.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._on_closed)

    def _on_closed(self) -> None:
        self.end()
        if self._closed is not None:
            _wake(self._closed)

    def end(self) -> None:
        """Resume all waiting tasks and unbind from the loop."""
        if self.alive():
            fd, self._fd = self._fd, -1  # before tasks are resumed: they must not submit again
            self.loop.remove_reader(fd)
            self._on_ready()
        if self._timer is not None:
            self._timer.cancel()
        self._disconnect()
        self.engine.close_loop_fd()

    def _disconnect(self) -> None:
        self.masters.connector.monitor.listen()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
