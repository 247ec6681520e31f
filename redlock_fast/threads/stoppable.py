"""Waits that another thread can stop. (For asyncio a task is cancelled.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..algorithm.effects import Effect, Sleep, WaitForChange, WaitForTurn
from ..masters.masters import Masters
from .operations import perform

#: Seconds after which a wait sees that it was stopped.
SLICE = 0.25


class Stopped(Exception):
    """The operation was stopped while it waited for another holder."""


def stoppable(stopping: Callable[[], bool]) -> Callable[[Effect, Masters], Any]:
    """As ``perform``, but a wait for another holder raises Stopped soon after ``stopping()`` is true."""

    def wait(effect: Effect, masters: Masters) -> Any:
        if not isinstance(effect, WaitForChange | WaitForTurn | Sleep):
            return perform(effect, masters)
        if stopping():
            raise Stopped
        if isinstance(effect, Sleep):
            return perform(effect, masters)  # a short one
        return _in_slices(effect, masters, stopping)

    return wait


def _in_slices(effect: WaitForChange | WaitForTurn, masters: Masters, stopping: Callable[[], bool]) -> Any:
    """Perform a wait. Raises Stopped within SLICE seconds after a stop."""
    left = effect.timeout if isinstance(effect, WaitForChange) else effect.seconds
    requests: Any = effect.requests if isinstance(effect, WaitForChange) else []
    while True:
        part = min(left, SLICE)
        end = time.monotonic() + part
        if isinstance(effect, WaitForChange):
            result = perform(WaitForChange(requests[:-1], requests[-1], effect.need, part), masters)
            requests = requests[-1:]  # the watch: what came before it has been sent
            over = time.monotonic() < end  # it was decided
        else:
            result = perform(WaitForTurn(effect.entry, part), masters)
            over = effect.entry.is_first
        left -= part
        if over or left <= 0.0:
            return result
        if stopping():
            raise Stopped
