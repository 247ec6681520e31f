"""Runs procedures with the calling thread.

Not compiled: Python runs signal handlers after a call of a compiled function. A handler that raised after
``drive`` returned the locks of a batch would lose them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..engine.contract import BatchVotes, Votes
from ..errors import ClientClosed
from ..masters.client_state import CONTINUED_BY_PARENT
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters

Result = TypeVar("Result")


def drive(
    procedure: Generator[Effect, Any, Result],
    masters: Masters,
    first_result: Any = None,
    generation: int | None = None,
) -> Result:
    """Run ``procedure`` to its end and return its result.

    An exception that is raised while an effect is performed is thrown into the procedure. The procedure may
    clean up with further effects before it raises the exception again.
    ``first_result``: the result of the first effect if that was performed already: answers or an exception.
    ``generation``: the generation of the client when the procedure began; None: it begins now.
    Raises ClientClosed in a child of fork that has a copy of the caller: the parent's call goes on, with the
    same token. So the child must neither use nor release it.
    """
    resume: Any = procedure.send
    argument: Any = None
    state = masters.client_state
    generation = state.generation() if generation is None else generation
    while True:
        try:
            while True:  # inside the try: a signal handler may raise between two steps
                if state.generation() != generation:
                    procedure.close()
                    raise ClientClosed(CONTINUED_BY_PARENT)
                effect = resume(argument)
                resume, argument = procedure.send, None
                if first_result is not None:
                    resume = procedure.throw if isinstance(first_result, BaseException) else procedure.send
                    argument, first_result = first_result, None
                elif type(effect) is Exchange:
                    argument = exchange(effect, masters)
                elif type(effect) is WaitForChange:
                    argument = exchange(effect, masters)
                    masters.check_not_closed()  # the change may be a release at the end of this process
                elif type(effect) is Sleep:
                    masters.pause(effect.seconds)
                elif type(effect) is WaitForReconnect:
                    masters.reconnect(effect.seconds, effect.disconnected, effect.silent)
                elif type(effect) is WaitForTurn:
                    masters.wait_for_turn(effect.entry, effect.seconds)
                else:
                    masters.wait_for_quorum(effect.timeout)
        except StopIteration as done:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                # No call: a handler that raised in it would lose the result. One may have forked before.
                if state.known_generation != generation:
                    raise ClientClosed(CONTINUED_BY_PARENT) from None
                return done.value  # type: ignore[no-any-return]
            # The procedure has not ended: a signal handler raised this.
            resume, argument, first_result = procedure.throw, done, None
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended with this exception
            resume, argument, first_result = procedure.throw, error, None


def exchange(effect: Exchange, masters: Masters) -> list[Votes] | BatchVotes:
    """The answers to one exchange."""
    answers: Any = masters.engine.exchange(
        effect.requests, effect.need, effect.timeout, effect.wait, effect.stall
    )
    if has_faults(answers, masters):
        note_faults(answers, masters)
    if not effect.need:
        masters.connector.wake_soon()
    return answers  # type: ignore[no-any-return]
