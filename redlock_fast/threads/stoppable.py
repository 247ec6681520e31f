"""A procedure whose waits can be stopped by another thread. (For asyncio a task is cancelled.)"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Sleep, WaitForChange, WaitForTurn

Result = TypeVar("Result")

#: Seconds after which a wait sees that it was stopped.
SLICE = 0.25


class Stopped(Exception):
    """The procedure was stopped while it waited for another holder."""


def stoppable(
    procedure: Generator[Effect, Any, Result], stopping: Callable[[], bool]
) -> Generator[Effect, Any, Result]:
    """``procedure``, into which Stopped is thrown where it waits for another holder, once ``stopping()``."""
    resume: Any = procedure.send
    argument: Any = None
    stopped = False
    try:
        while True:
            effect = resume(argument)
            resume = procedure.send
            try:
                if stopped or not isinstance(effect, WaitForChange | WaitForTurn | Sleep):
                    argument = yield effect
                elif stopping():
                    raise Stopped
                else:
                    argument = yield from _in_slices(effect, stopping)
            except BaseException as error:
                resume, argument, stopped = procedure.throw, error, True  # what follows is the clean-up
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _in_slices(
    effect: WaitForChange | WaitForTurn | Sleep, stopping: Callable[[], bool]
) -> Generator[Effect, Any, Any]:
    """Perform a wait. Raises Stopped within SLICE seconds after a stop."""
    if isinstance(effect, Sleep):
        return (yield effect)  # a short one
    left = effect.timeout if isinstance(effect, WaitForChange) else effect.seconds
    requests: Any = effect.requests if isinstance(effect, WaitForChange) else []
    while True:
        part = min(left, SLICE)
        end = time.monotonic() + part
        if isinstance(effect, WaitForChange):
            result = yield WaitForChange(requests, effect.need, part)
            requests = requests[-1:]  # the watch: what came before it has been sent
            over = time.monotonic() < end  # it was decided
        else:
            result = yield WaitForTurn(effect.entry, part)
            over = effect.entry.is_first
        left -= part
        if over or left <= 0.0:
            return result
        if stopping():
            raise Stopped
