"""The asyncio driver: performs a procedure's effects in one event loop, for all tasks of a client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from .loop import LoopBinding

Result = TypeVar("Result")


async def drive(
    procedure: Generator[Effect, Any, Result], binding: LoopBinding, first_result: Any = None
) -> Result:
    """Run ``procedure`` to its end and return its result; what is raised meanwhile is thrown into it.

    A cancellation is: the procedure takes back what it had sent before it lets that go. Its clean-up
    waits for nothing, so it is done even where the task is never resumed.
    ``first_result``: what came of its first effect, where that was performed already: answers, or an
    exception.
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
                raise  # the procedure has ended: this is its own
            resume, argument, first_result = procedure.throw, error, None


async def _wait(effect: Effect, binding: LoopBinding) -> Any:
    if type(effect) is WaitForChange:
        return await binding.watch(effect)
    if type(effect) is Sleep:
        await binding.until(lambda: binding.client_state.closed, effect.seconds)
        binding.masters.check_open()
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
    """As much of ``procedure`` as waits for nothing, for who cannot wait: a task that is destroyed.

    ``error`` is thrown into it. Where the collector destroys the task, the connections may have been
    closed before.
    """
    with contextlib.suppress(StopIteration, asyncio.CancelledError, OSError, ValueError):
        effect = procedure.throw(error) if error else procedure.send(None)
        while type(effect) is Exchange and not effect.need:
            binding.engine.submit(effect.requests, 0, 0.0, effect.wait, 0.0, None)
            binding.engine.flush()
            effect = procedure.send(None)
