"""Bounds calls that may never return: what a program, or its system, does on the way to a connection.

A credential provider, the resolver of names, a key file on a network file system: none of these has a timeout
of its own. If one hangs once, its master must not be lost for the life of the process. So the call runs in a
thread of its own, and is abandoned when its time has ended: the next attempt makes another call.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .probe import ConnectError

T = TypeVar("T")

#: Calls for one master that were abandoned and have not ended. With so many of them no further call is made,
#: because each holds a thread.
MAX_HANGING = 3
WHAT_HANGS = "a credential provider, the resolver of names, or a file that cannot be read"


class BoundedCalls:
    """The calls for one master. ``abandoned``: how many did not end in time, so far."""

    def __init__(self) -> None:
        self.abandoned: int = 0
        self._hanging = 0
        self._mutex = threading.Lock()

    def run(self, call: Callable[[], T], seconds: float, drop: Callable[[T], object]) -> T:
        """What ``call`` returns, or raises, within ``seconds``. Raises ConnectError if it does not end.

        Whatever it raises that is no Exception, like SystemExit or CancelledError, becomes a ConnectError.
        ``drop``: takes what an abandoned call returns after all.
        """
        if self._hanging >= MAX_HANGING:
            raise ConnectError(f"{self._hanging} attempts to connect still hang: {WHAT_HANGS}")
        one = _Call(call)
        threading.Thread(target=self._finish, args=(one, drop), name="redlock-fast-dial", daemon=True).start()
        try:
            one.ended.get(timeout=seconds)
        except queue.Empty:
            with self._mutex:
                one.is_abandoned = not one.has_ended
                if one.is_abandoned:
                    self.abandoned += 1
                    self._hanging += 1
                    raise ConnectError(
                        f"the attempt to connect did not end within {seconds:.1f} s: {WHAT_HANGS}, hangs"
                    ) from None
        return one.result()

    def _finish(self, one: _Call[T], drop: Callable[[T], object]) -> None:
        one.perform()
        with self._mutex:
            one.has_ended = True
            if one.is_abandoned:
                self._hanging -= 1
        if not one.is_abandoned:
            one.ended.put(None)
        elif one.error is None:
            drop(one.value)

    def after_fork_in_child(self) -> None:
        """In a child of fork: the threads that hang are the parent's."""
        self._hanging = 0
        self._mutex = threading.Lock()


class _Call(Generic[T]):
    """One call, and what came of it."""

    value: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.error: BaseException | None = None
        self.is_abandoned = self.has_ended = False
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def perform(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    def result(self) -> T:
        error, self.error = self.error, None  # no cycle of the exception and its traceback
        if error is None:
            return self.value
        if isinstance(error, Exception):
            raise error
        raise ConnectError(f"the attempt to connect raised {type(error).__name__}") from None
