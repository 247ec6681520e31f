"""The driver of operations in virtual time: what steps the generator performs the effects."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from redlock_fast.algorithm.effects import Effect, Exchange
from redlock_fast.algorithm.operation import Message, Operation
from redlock_fast.engine.contract import Wait


def performed(operation: Operation) -> Generator[Effect, Any, Any]:
    """The effects of ``operation``, for a driver in virtual time. Returns the outcome."""
    try:
        effect = operation.begin()
        while effect is not None:
            effect = operation.advance((yield as_effect(operation, effect)))
        return operation.outcome
    except GeneratorExit:  # the process is dead: it sends nothing
        raise
    except BaseException:
        yield from _sent(operation.abort())
        raise
    finally:
        operation.close()


def as_effect(operation: Operation, effect: Effect | Operation) -> Effect:
    """``effect``, or the exchange of ``operation`` as an object of its own."""
    if isinstance(effect, Operation):
        return Exchange(operation.requests, operation.need, operation.timeout, Wait(operation.wait))
    return effect


def _sent(messages: list[Message]) -> Generator[Effect, Any, None]:
    """Send ``messages``, and once more if an exception interrupts this."""
    try:
        yield from _each(messages)
    except BaseException:
        yield from _each(messages)
        raise


def _each(messages: list[Message]) -> Generator[Effect, Any, None]:
    for message in messages:
        if message:
            yield Exchange(message, 0, 0.0)
