"""Signals: first they end the wait for the lock, later they are forwarded to the command."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal arrived before the command was started; an acquired lock is released."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def stop(number: int) -> None:
    raise Stopped(number)


class Signals:
    """A context manager that passes each signal of CAUGHT to ``deliver``. Ignored signals stay ignored.

    ``unstoppable``: Ctrl-Z is ignored. It would stop this process and so the renewal, but not a command in
    another process group.
    """

    def __init__(self, *, unstoppable: bool) -> None:
        self.deliver: Callable[[int], None] = stop
        self._unstoppable = unstoppable
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        if self._unstoppable:
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.deliver(number)
