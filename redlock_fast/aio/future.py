"""What a task waits for: the answers to one exchange.

An asyncio.Future wakes its task by way of the loop's queue, and that costs as much as all else that an
exchange does in Python. This one is for one task only, and wakes it at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import Any, NoReturn, Protocol, Self


class TicketOwner(Protocol):
    """Who was asked."""

    loop: asyncio.AbstractEventLoop

    def cancel(self, ticket: object) -> None: ...


def exchange_future(owner: TicketOwner, loop: asyncio.AbstractEventLoop) -> ExchangeFuture:
    """An Answer, ``loop`` is that of ``owner``. Compiled: 19 ns, where ``ExchangeFuture()`` takes 28 ns."""
    made = ExchangeFuture.__new__(ExchangeFuture)
    made._owner, made._loop = owner, loop
    made._asyncio_future_blocking = False
    made._wakeup = made._context = made.answers = made.ticket = None
    return made


class ExchangeFuture:
    """An asyncio.Future, as far as its task uses one; to be awaited once, by whoever asked.

    What came of it is in ``answers`` then.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_loop", "_owner", "_wakeup", "answers", "ticket")

    def __init__(self, owner: TicketOwner) -> None:
        self._owner = owner
        self._loop = owner.loop  # that of the task has to be the same
        self._asyncio_future_blocking = False
        self._wakeup: Callable[[Any], object] | None = None  # nobody waits yet, or any more
        self._context: contextvars.Context | None = None
        #: None until it is told, an exception where nobody waits any more.
        self.answers: Any = None
        #: The engine's, by which it is forgotten.
        self.ticket: object = None

    # --- for the coroutine: an iterator that pauses once ---

    def __await__(self) -> Generator[Self, None, None]:
        return self  # type: ignore[return-value]  # as much of a generator as a coroutine needs

    def __next__(self) -> Self:
        if self.answers is None:
            self._asyncio_future_blocking = True
            return self
        raise StopIteration

    def throw(self, kind: Any, error: Any = None, trace: Any = None) -> NoReturn:
        """The coroutine is cancelled, or given up."""
        self.drop()
        raise kind if error is None else error

    def close(self) -> None:
        """The coroutine is destroyed."""
        self.drop()

    # --- for who was asked ---

    def wake(self, done: asyncio.Future[None] | None = None) -> None:
        """Its task goes on, in here. Not while a task runs.

        ``done``: what its task looks at in place of this, if it was told and not dropped. A task knows an
        asyncio.Future from within, and has to look the ``result`` of anything else up.
        """
        if self._wakeup is None:
            return
        if self._context is not None:
            self._context.run(self._wakeup, self if done is None else done)
        else:  # not a task: somebody steps the coroutine by hand
            self._wakeup(self)

    def drop(self, *why: object) -> None:
        """Nobody waits any more."""
        if self.answers is None:
            self.answers = asyncio.CancelledError(*why)
            self._owner.cancel(self.ticket)

    # --- for the task ---

    def add_done_callback(
        self, wakeup: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        self._wakeup = wakeup
        self._context = context

    def remove_done_callback(self, wakeup: Callable[[Any], object]) -> None:
        self._wakeup = self._context = None

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
