"""What a task waits for: the answers to one exchange.

An asyncio.Future wakes its task by way of the loop's queue, and that costs as much as all else that an
exchange does in Python. This one is for one task only, and wakes it at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import Any, Protocol, Self


class Asked(Protocol):
    """Who was asked."""

    loop: asyncio.AbstractEventLoop

    def forget(self, ticket: object) -> None: ...


class Answer:
    """An asyncio.Future, as far as its task uses one; to be awaited once, by whoever asked."""

    __slots__ = ("_asked", "_asyncio_future_blocking", "_context", "_loop", "_wakeup", "answers", "ticket")

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._loop = asked.loop  # that of the task has to be the same
        self._wakeup: Callable[[Any], object] = _nothing
        self._context: contextvars.Context | None = None
        #: What came of it; None until then, an exception where nobody waits any more.
        self.answers: Any = None
        #: The engine's, by which it is forgotten.
        self.ticket: object = None

    def __await__(self) -> Generator[Self, None, Any]:
        if self.answers is None:
            self._asyncio_future_blocking = True
            try:
                yield self
            except BaseException:
                self.drop()
                raise
        return self.answers

    def wake(self) -> None:
        """Its task goes on, in here. Not while a task runs."""
        if self._context is not None:
            self._context.run(self._wakeup, self)
        else:  # not a task: somebody steps the coroutine by hand
            self._wakeup(self)

    def drop(self, *why: object) -> None:
        """Nobody waits any more."""
        if self.answers is None:
            self.answers = asyncio.CancelledError(*why)
            self._asked.forget(self.ticket)

    # --- for the task ---

    def add_done_callback(
        self, wakeup: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        self._wakeup = wakeup
        self._context = context

    def remove_done_callback(self, wakeup: Callable[[Any], object]) -> None:
        self._wakeup, self._context = _nothing, None

    def done(self) -> bool:
        return self.answers is not None

    def cancel(self, msg: object = None) -> bool:
        """The task is cancelled: by another, so it is woken when that one has paused."""
        if self.answers is not None:
            return False
        self.drop(*() if msg is None else (msg,))
        self._loop.call_soon(self.wake)
        return True

    def result(self) -> Any:
        if type(self.answers) is asyncio.CancelledError:
            raise self.answers
        return self.answers


def _nothing(_: object) -> None:
    """Nobody waits yet, or any more."""
