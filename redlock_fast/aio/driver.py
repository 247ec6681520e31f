"""The asyncio driver: performs a procedure's effects in one event loop, for all tasks of a client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Pause, Reconnect, Turn, Watch
from .loop import Pump

Result = TypeVar("Result")


async def drive(procedure: Generator[Effect, Any, Result], pump: Pump, made: Any = None) -> Result:
    """Run ``procedure`` to its end and return its result; what is raised meanwhile is thrown into it.

    A cancellation is: the procedure takes back what it had sent before it lets that go. Its clean-up
    waits for nothing, so it is done even where the task is never resumed.
    ``made``: what came of its first effect, where that was performed already: answers, or an exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:
                effect = resume(argument)
                resume, argument = procedure.send, None
                if made is not None:
                    resume = procedure.throw if isinstance(made, BaseException) else procedure.send
                    argument, made = made, None
                elif type(effect) is not Exchange:
                    argument = await _wait(effect, pump)
                elif effect.need:
                    argument = await pump.exchange(effect)
                else:
                    pump.send(effect)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except GeneratorExit:
            drive_now(procedure, pump, asyncio.CancelledError())
            raise
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended: this is its own
            resume, argument, made = procedure.throw, error, None


async def _wait(effect: Effect, pump: Pump) -> Any:
    if type(effect) is Watch:
        return await pump.watch(effect)
    if type(effect) is Pause:
        await pump.until(lambda: pump.masters.closed, effect.seconds)
        pump.masters.check_open()
    elif type(effect) is Reconnect:
        await pump.reconnect(effect.seconds, effect.gone)
    elif type(effect) is Turn:
        await pump.wait_for_turn(effect.place, effect.seconds)
    else:
        await pump.wait_for_quorum(effect.timeout)  # type: ignore[union-attr]
    return None


def drive_now(
    procedure: Generator[Effect, Any, Any], pump: Pump, error: BaseException | None = None
) -> None:
    """As much of ``procedure`` as waits for nothing, for who cannot wait: a task that is destroyed.

    ``error`` is thrown into it. Where the collector destroys the task, the connections may have been
    closed before.
    """
    with contextlib.suppress(StopIteration, asyncio.CancelledError, OSError, ValueError):
        effect = procedure.throw(error) if error else procedure.send(None)
        while type(effect) is Exchange and not effect.need:
            pump.engine.submit(effect.requests, 0, 0.0, effect.wait, 0.0, None)
            pump.engine.flush()
            effect = procedure.send(None)
