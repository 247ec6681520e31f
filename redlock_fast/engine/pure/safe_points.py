"""Safe points: where signal handlers may run while the main thread is inside the engine.

Python runs signal handlers in the main thread, between any two calls. So the main thread blocks signals
inside the engine, and lets them in where it waits, and at the end: there the engine's state is whole. A
signal that another thread receives is not held back: its handler runs inside the engine, unless the main
thread waits. The engine refuses what that handler asks of it, and recovers if the handler raises
(``Hub._recover``).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..clock import monotonic
from ..signals import SIGNALS, pthread_sigmask

T = TypeVar("T")

#: While replies come soon, the main thread blocks signals for at most so long (seconds).
LONGEST_BLOCK = 0.005


class SafePoints:
    """The main thread's places inside the engine where handlers may run."""

    __slots__ = ("_inside", "_mask", "_since")

    def __init__(self) -> None:
        self._inside = False  # the main thread is in the engine, and not at a safe point
        self._mask: Any = ()  # the signals that the main thread blocks outside of the engine
        self._since: float = 0.0  # the last safe point

    def interrupted(self) -> bool:
        """Whether the caller is a signal handler that interrupted the engine between safe points."""
        return self._inside and threading.get_ident() == threading.main_thread().ident

    def call(self, operation: Callable[..., T], *args: object) -> T:
        """Calls an operation of the engine.

        Handlers run before it, after it, and in its calls of ``wait``.
        """
        if threading.get_ident() != threading.main_thread().ident:
            return operation(*args)
        mask = pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            self._mask, self._since, self._inside = mask, monotonic(), True
            return operation(*args)
        finally:
            self._inside = False
            pthread_sigmask(signal.SIG_SETMASK, mask)

    def wait(self, blocking: Callable[..., T], *args: object) -> T:
        """Makes a call that blocks, at a safe point. The caller holds no mutex."""
        if threading.get_ident() != threading.main_thread().ident:
            return blocking(*args)
        try:
            self._inside = False
            pthread_sigmask(signal.SIG_SETMASK, self._mask)
            return blocking(*args)
        finally:
            pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            self._inside, self._since = True, monotonic()

    def wait_briefly(self, blocking: Callable[..., T], *args: object) -> T:
        """As ``wait``, for a call that blocks for a millisecond at most.

        Signals stay blocked until LONGEST_BLOCK after the last safe point: most exchanges end before, and
        the two system calls of ``wait`` take 3 % of the time of an exchange. Only the handler of a signal
        that another thread received may run in the call.
        """
        if threading.get_ident() != threading.main_thread().ident:
            return blocking(*args)
        if monotonic() - self._since > LONGEST_BLOCK:
            return self.wait(blocking, *args)
        try:
            self._inside = False
            return blocking(*args)
        finally:
            self._inside = True
