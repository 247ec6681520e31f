"""Runs procedures in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from .loop import LoopBinding

Result = TypeVar("Result")


async def abort(procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException) -> None:
    """Throw ``error`` into ``procedure`` in place of its first exchange; the procedure cleans up."""
    if isinstance(error, GeneratorExit):  # the task is destroyed: nothing can be awaited
        with contextlib.suppress(StopIteration):
            procedure.send(None)
            drive_now(procedure, binding, asyncio.CancelledError())
    else:
        await drive(procedure, binding, error)


async def drive(
    procedure: Generator[Effect, Any, Result], binding: LoopBinding, first_result: Any = None
) -> Result:
    """Run ``procedure`` to its end and return its result.

    An exception that is raised while an effect is performed is thrown into the procedure; so is a
    cancellation. The procedure takes back what it has sent before it raises the exception again. That
    clean-up waits for nothing, so it is complete even if the task is never resumed.
    ``first_result``: the result of the first effect if that was performed already: answers or an exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:
                effect = resume(argument)
                resume, argument = procedure.send, None
                if first_result is not None:
                    resume = procedure.throw if isinstance(first_result, BaseException) else procedure.send
                    argument, first_result = first_result, None
                elif type(effect) is not Exchange:
                    argument = await _wait(effect, binding)
                elif effect.need:
                    argument = await binding.exchange(effect)
                else:
                    binding.send(effect)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except GeneratorExit:
            drive_now(procedure, binding, asyncio.CancelledError())
            raise
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended with this exception
            resume, argument, first_result = procedure.throw, error, None


async def _wait(effect: Effect, binding: LoopBinding) -> Any:
    """Perform an effect that is no plain exchange."""
    if type(effect) is WaitForChange:
        return await binding.watch(effect)
    if type(effect) is Sleep:
        await binding.pause(effect.seconds)
    elif type(effect) is WaitForReconnect:
        await binding.reconnect(effect.seconds, effect.disconnected)
    elif type(effect) is WaitForTurn:
        await binding.wait_for_turn(effect.entry, effect.seconds)
    else:
        await binding.wait_for_quorum(effect.timeout)  # type: ignore[union-attr]
    return None


def drive_now(
    procedure: Generator[Effect, Any, Any], binding: LoopBinding, error: BaseException | None = None
) -> None:
    """Run ``procedure`` up to its first effect that waits; for a task that is destroyed and cannot wait.

    ``error``: thrown into the procedure first. If the garbage collector destroys the task, the connections
    may be closed already.
    """
    with contextlib.suppress(StopIteration, asyncio.CancelledError, OSError, ValueError):
        effect = procedure.throw(error) if error else procedure.send(None)
        while type(effect) is Exchange and not effect.need:
            binding.engine.submit(effect.requests, 0, 0.0, effect.wait, 0.0, None)
            binding.engine.flush()
            effect = procedure.send(None)
