"""The asyncio driver: performs a procedure's effects in one event loop, for all tasks of a client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import Future  # the one in C: half the price of loop.create_future()
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ._drive import note_faults
from ._effects import Effect, Exchange, Pause, Turn, Watch
from ._engine import Tally, Votes
from ._line import Place
from ._masters import Masters, nothing

Result = TypeVar("Result")

#: Seconds; timers of event loops are not finer.
TIMER = 0.001
#: Seconds, for who would wait without end: a week.
LONG = 604_800.0


class Pump:
    """One client's engine in the loop that it belongs to: one reader, one timer, one flush for all tasks."""

    def __init__(self, masters: Masters, loop: asyncio.AbstractEventLoop) -> None:
        self.masters = masters
        self.loop = loop
        self.engine = masters.engine
        self.generation = masters.generation
        self._pending = 0  # submitted, and not yet told
        self._alone = True  # the last flush was of one exchange
        self._submitted = 0  # since the last flush
        self._timer: asyncio.TimerHandle | None = None
        self._timer_seconds = 0.0  # what it was set to
        self._watching = 0  # exchanges whose time may be over earlier than they were told
        self._waiting: set[asyncio.Future[None]] = set()  # for the masters to change
        self._fd = self.engine.fileno()
        loop.add_reader(self._fd, self._on_ready)
        masters.on_change = self._on_change

    # --- exchanges ---

    def submit(self, effect: Exchange, whom: asyncio.Future[Any] | None) -> object:
        """The engine's ticket. ``whom`` gets the answers; nobody where none are needed."""
        if whom is not None and self._fd < 0:
            self.masters.check_open()  # nobody would tell
        ticket = self.engine.submit(
            effect.requests, effect.need, effect.timeout, effect.wait, effect.stall, whom
        )
        self._submitted += 1
        if whom is None:
            self.masters.attend()
        else:
            self._pending += 1
            seconds = effect.stall or effect.timeout
            if self._timer is None or seconds < self._timer_seconds:
                self._set_timer(seconds)
        if self._submitted == 1:
            if self._alone and self._pending == 1:
                self.flush()  # nobody else is about to have something to send
            else:
                self.loop.call_soon(self.flush)
        return ticket

    def forget(self, ticket: object) -> None:
        self._pending -= 1
        self.engine.forget(ticket)

    def flush(self) -> None:
        if self._submitted:
            self._alone = self._submitted == 1
            self._submitted = 0
            self.engine.flush()

    def _on_ready(self) -> None:
        future: Any
        for future, answers in self.engine.on_ready():
            if type(answers) is Tally or len(answers) > 1 or answers[0].faulty:
                note_faults(answers, self.masters)
            if not future.done():  # else it was cancelled, and will be forgotten
                self._pending -= 1
                future.set_result(answers)
        if self._watching:
            self._hasten()

    def _hasten(self) -> None:
        due = self.engine.due()
        if due is not None and (self._timer is None or self.loop.time() + due < self._timer.when()):
            self._set_timer(due)

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_seconds = seconds
        self._timer = self.loop.call_later(max(TIMER, seconds), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._on_ready()
        due = self.engine.due()
        if due is not None and self._timer is None:
            self._set_timer(due)

    # --- waiting ---

    async def watch(self, effect: Watch) -> list[Votes]:
        """What came of it; this may take long."""
        future: asyncio.Future[list[Votes]] = self.loop.create_future()
        self._watching += 1
        ticket = self.submit(effect, future)
        try:
            return await future
        except BaseException:
            if not future.done() or future.cancelled():
                self.forget(ticket)
            raise
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

    async def wait_for_turn(self, place: Place, seconds: float) -> None:
        """As that of the masters, without blocking the loop."""
        turn: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self.loop.call_soon_threadsafe(_wake, turn)

        place.stand.wake = wake
        timer = self.loop.call_later(min(seconds, LONG), _wake, turn)
        try:
            if not place.first and not self.masters.closed:
                await turn
        finally:
            timer.cancel()
        self.masters.check_open()

    async def wait_for_quorum(self, timeout: float) -> bool:
        """As that of the masters, without blocking the loop."""
        self.masters.start()
        for condition, seconds in self.masters.quorum(timeout):
            await self.until(condition, seconds)
        return self.masters.joined()

    def _on_change(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._wake_waiting)
        except RuntimeError:  # the loop is closed: nobody can be told any more, nothing keeps its tasks
            self.masters.on_change = nothing
            self._waiting.clear()
            self.engine.unwatch()

    def _wake_waiting(self) -> None:
        for change in self._waiting:
            _wake(change)

    # --- the end ---

    def alive(self) -> bool:
        """Whether there is a loop to let go of."""
        ours = self.generation == self.masters.generation
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
            self._on_ready()
            self.loop.remove_reader(self._fd)
            self._fd = -1
        if self._timer is not None:
            self._timer.cancel()
        self.masters.on_change = nothing
        self.engine.unwatch()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def drive(procedure: Generator[Effect, Any, Result], pump: Pump) -> Result:
    """Run ``procedure`` to its end and return its result; what is raised meanwhile is thrown into it.

    A cancellation is: the procedure takes back what it had sent before it lets that go. Its clean-up
    waits for nothing, so it is done even where the task is never resumed.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:
                effect = resume(argument)
                resume, argument = procedure.send, None
                if type(effect) is not Exchange:
                    argument = await _wait(effect, pump)
                elif effect.need:
                    future: asyncio.Future[Any] = Future(loop=pump.loop)
                    ticket = pump.submit(effect, future)
                    try:
                        argument = await future
                    except BaseException:
                        if not future.done() or future.cancelled():
                            pump.forget(ticket)
                        raise
                else:
                    pump.submit(effect, None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except GeneratorExit:
            drive_now(procedure, pump, asyncio.CancelledError())
            raise
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended: this is its own
            resume, argument = procedure.throw, error


async def _wait(effect: Effect, pump: Pump) -> Any:
    if type(effect) is Watch:
        return await pump.watch(effect)
    if type(effect) is Pause:
        await pump.until(lambda: pump.masters.closed, effect.seconds)
        pump.masters.check_open()
    elif type(effect) is Turn:
        await pump.wait_for_turn(effect.place, effect.seconds)
    else:
        await pump.wait_for_quorum(effect.timeout)  # type: ignore[union-attr]
    return None


def drive_now(
    procedure: Generator[Effect, Any, Any], pump: Pump, error: BaseException | None = None
) -> None:
    """As much of ``procedure`` as waits for nothing, for who cannot wait: a task that is destroyed.

    ``error`` is thrown into it. Where the collector destroys the task, the connections may have been
    closed before.
    """
    with contextlib.suppress(StopIteration, asyncio.CancelledError, OSError, ValueError):
        effect = procedure.throw(error) if error else procedure.send(None)
        while type(effect) is Exchange and not effect.need:
            pump.engine.submit(effect.requests, 0, 0.0, effect.wait, 0.0, None)
            pump.engine.flush()
            effect = procedure.send(None)
