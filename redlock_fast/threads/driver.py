"""The blocking driver: performs a procedure's effects in the calling thread."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..engine.contract import BatchVotes, Votes
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters

Result = TypeVar("Result")


def exchange(effect: Exchange, masters: Masters) -> list[Votes] | BatchVotes:
    answers: Any = masters.engine.exchange(
        effect.requests, effect.need, effect.timeout, effect.wait, effect.stall
    )
    if has_faults(answers, masters):
        note_faults(answers, masters)
    if not effect.need:
        masters.connector.wake_soon()
    return answers  # type: ignore[no-any-return]


def drive(procedure: Generator[Effect, Any, Result], masters: Masters, first_result: Any = None) -> Result:
    """Run ``procedure`` to its end and return its result.

    Whatever is raised while an effect is performed is thrown into the procedure, which may clean
    up with further effects before it lets the exception go.
    ``first_result``: what came of its first effect, where that was performed already: answers, or an
    exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:  # in here, so that what a signal handler raises between two steps is caught too
                effect = resume(argument)
                resume, argument = procedure.send, None
                if first_result is not None:
                    resume = procedure.throw if isinstance(first_result, BaseException) else procedure.send
                    argument, first_result = first_result, None
                elif type(effect) is Exchange:
                    argument = exchange(effect, masters)
                elif type(effect) is Sleep:
                    masters.pause(effect.seconds)
                elif type(effect) is WaitForChange:
                    argument = exchange(effect, masters)
                elif type(effect) is WaitForReconnect:
                    masters.reconnect(effect.seconds, effect.disconnected)
                elif type(effect) is WaitForTurn:
                    masters.wait_for_turn(effect.entry, effect.seconds)
                else:
                    masters.wait_for_quorum(effect.timeout)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended: this is its own
            resume, argument, first_result = procedure.throw, error, None
