"""Signals: they end the waiting for the lock; from then on they are the command's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came before the command was started. What was acquired by then is given back."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def stop(number: int) -> None:
    raise Stopped(number)


class Signals:
    """A context manager: each of CAUGHT that comes is given to ``deliver``. What was ignored stays so.

    ``unstoppable``: Ctrl-Z does nothing. It would stop this process, and with it the renewal, but not a
    command in another process group.
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
