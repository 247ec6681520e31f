"""Signals: first they end the wait for the lock, later they are forwarded to the command."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

#: Signals that ask a process to end.
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
#: Also signals that ask a daemon for something else, such as to reload its settings.
CAUGHT = (*ENDS, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: Seconds after a signal in which this process releases the lock and ends. Further signals would interrupt
#: that, and are ignored. Later ones raise again, because the exception of the first may have been dropped.
ENDING = 5.0
#: Seconds until an exception is raised again that a destructor or a weakref's callback dropped.
AGAIN = 0.05


class Stopped(BaseException):
    """A signal arrived before the command was started; an acquired lock is released.

    ``number``: that of the first signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """A context manager that passes each signal of CAUGHT to ``deliver``. Ignored signals stay ignored.

    ``deliver`` raises Stopped until the caller replaces it. The entry and the exit may raise it too. After it
    the signals are ignored to the end of the process, which has the exit code of the first.
    ``unstoppable``: Ctrl-Z is ignored. It would stop this process and so the renewal, but not a command in
    another process group.
    """

    def __init__(self, *, unstoppable: bool) -> None:
        self.deliver: Callable[[int], None] = self._stop
        self._first: int | None = None
        self._ends = 0.0  # by time.monotonic()
        self._unstoppable = unstoppable
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> Self:
        self._unless_stopped(self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        self._unless_stopped(self._restore if self._first is None else _ignore)

    def _catch(self) -> None:
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._repeat)
        sys.unraisablehook = self._dropped
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        if self._unstoppable:
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)

    def _restore(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = self._unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _unless_stopped(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Stopped:
            _ignore()
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.deliver(number)

    def _dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise a dropped Stopped again soon, outside of the destructor. Imports have such callbacks, too."""
        if unraisable.exc_type is Stopped:
            self._ends = 0.0
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            self._unraisable(unraisable)

    def _repeat(self, number: int, frame: FrameType | None) -> None:
        if self._first is not None:
            self.deliver(self._first)

    def _stop(self, number: int) -> None:
        if self._first is None:
            self._first = number
        if time.monotonic() >= self._ends:
            self._ends = time.monotonic() + ENDING
            raise Stopped(self._first)


def _ignore() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    for number in CAUGHT:
        signal.signal(number, signal.SIG_IGN)
