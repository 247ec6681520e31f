"""The blocking driver: performs a procedure's effects in the calling thread."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Pause, Reconnect, Turn, Watch
from ..engine.contract import Tally, Votes
from ..masters.faults import Fleet, note_faults, to_be_noted

Result = TypeVar("Result")


def exchange(effect: Exchange, fleet: Fleet) -> list[Votes] | Tally:
    answers: Any = fleet.engine.exchange(
        effect.requests, effect.need, effect.timeout, effect.wait, effect.stall
    )
    if to_be_noted(answers, fleet):
        note_faults(answers, fleet)
    if not effect.need:
        fleet.attend()
    return answers  # type: ignore[no-any-return]


def drive(procedure: Generator[Effect, Any, Result], fleet: Fleet, made: Any = None) -> Result:
    """Run ``procedure`` to its end and return its result.

    Whatever is raised while an effect is performed is thrown into the procedure, which may clean
    up with further effects before it lets the exception go.
    ``made``: what came of its first effect, where that was performed already: answers, or an exception.
    """
    resume: Any = procedure.send
    argument: Any = None
    while True:
        try:
            while True:  # in here, so that what a signal handler raises between two steps is caught too
                effect = resume(argument)
                resume, argument = procedure.send, None
                if made is not None:
                    resume = procedure.throw if isinstance(made, BaseException) else procedure.send
                    argument, made = made, None
                elif type(effect) is Exchange:
                    argument = exchange(effect, fleet)
                elif type(effect) is Pause:
                    fleet.pause(effect.seconds)
                elif type(effect) is Watch:
                    argument = exchange(effect, fleet)
                elif type(effect) is Reconnect:
                    fleet.reconnect(effect.seconds, effect.gone)
                elif type(effect) is Turn:
                    fleet.wait_for_turn(effect.place, effect.seconds)
                else:
                    fleet.wait_for_quorum(effect.timeout)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended: this is its own
            resume, argument, made = procedure.throw, error, None
