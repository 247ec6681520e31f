"""Blocking code in virtual time: it runs in a thread of its own, which never runs while the simulation does.

So the driver for threads takes part: see ``redlock_fast.threads.operations``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from redlock_fast.algorithm.effects import Exchange, Sleep, WaitForQuorum, WaitForReconnect, WaitForTurn
from redlock_fast.algorithm.local_queue import QueueEntry
from redlock_fast.engine.contract import Wait

if TYPE_CHECKING:
    from .process import Process

#: Seconds that a thread which is to end may take.
PATIENCE = 60.0


class Over(BaseException):
    """The actor performs no more effects: its process is dead, or the run has ended."""


class Crossing:
    """What blocking code asks of masters, as effects that an actor performs; see ``masters/masters.py``."""

    def __init__(self, process: Process) -> None:
        self.engine = self.connector = self.roster = self
        self.client_state = process.core.client_state
        self.masters = process.engine.states
        self.effects: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.answers: SimpleQueue[tuple[BaseException | None, Any]] = SimpleQueue()
        self.over = False

    def run(self, call: Callable[[Crossing], Any]) -> None:
        """In the thread."""
        try:
            self.effects.put(("returned", call(self)))
        except BaseException as error:
            self.effects.put(("raised", error))

    def check_not_closed(self) -> None:
        """Clients of a simulation are never closed."""

    def _perform(self, effect: Any) -> Any:
        if self.over:
            raise Over
        self.effects.put(("", effect))
        error, answer = self.answers.get()
        if error is not None:
            raise error
        return answer

    def exchange(
        self, requests: Any, need: int, timeout: float, wait: int = Wait.EARLY, stall: float = 0.0
    ) -> Any:
        return self._perform(Exchange(requests, need, timeout, Wait(wait), stall))

    def pause(self, seconds: float) -> None:
        self._perform(Sleep(seconds))

    def reconnect(self, seconds: float, gone: Any, silent: Any) -> None:
        self._perform(WaitForReconnect(seconds, gone, silent))

    def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None:
        self._perform(WaitForTurn(entry, seconds))

    def wait_for_quorum(self, timeout: float) -> None:
        self._perform(WaitForQuorum(timeout))

    def wake_soon(self) -> None:
        pass


def stepped(process: Process, call: Callable[[Crossing], Any]) -> Generator[Any, Any, Any]:
    """The effects of ``call``, and what it returns or raises. Only one of the two threads runs at a time."""
    crossing = Crossing(process)
    thread = threading.Thread(target=crossing.run, args=(call,), daemon=True)
    thread.start()
    try:
        while True:
            how, what = crossing.effects.get()
            if how == "returned":
                return what
            if how == "raised":
                raise what
            try:
                answer = yield what
            except GeneratorExit:
                raise
            except BaseException as error:
                crossing.answers.put((error, None))
            else:
                crossing.answers.put((None, answer))
    finally:
        crossing.over = True
        crossing.answers.put((Over(), None))
        thread.join(PATIENCE)
