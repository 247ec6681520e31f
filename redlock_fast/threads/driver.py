"""Runs procedures with the calling thread.

Not compiled: Python runs signal handlers after a call of a compiled function. A handler that raised after
``drive`` returned the locks of a batch would lose them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..algorithm.effects import Effect
from ..errors import ClientClosed
from ..masters.client_state import CONTINUED_BY_PARENT
from ..masters.masters import Masters
from .operations import perform

Result = TypeVar("Result")


def drive(procedure: Generator[Effect, Any, Result], masters: Masters) -> Result:
    """Run ``procedure`` to its end and return its result.

    An exception that is raised while an effect is performed is thrown into the procedure. The procedure may
    clean up with further effects before it raises the exception again.
    Raises ClientClosed in a child of fork that has a copy of the caller: the parent's call goes on, with the
    same token. So the child must neither use nor release it.
    """
    resume: Any = procedure.send
    argument: Any = None
    state = masters.client_state
    generation = state.generation()
    while True:
        try:
            while True:  # inside the try: a signal handler may raise between two steps
                if state.generation() != generation:
                    procedure.close()
                    raise ClientClosed(CONTINUED_BY_PARENT)
                effect = resume(argument)
                resume, argument = procedure.send, None
                argument = perform(effect, masters)
        except StopIteration as done:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                # No call: a handler that raised in it would lose the result. One may have forked before.
                if state.known_generation != generation:
                    raise ClientClosed(CONTINUED_BY_PARENT) from None
                return done.value  # type: ignore[no-any-return]
            # The procedure has not ended: a signal handler raised this.
            resume, argument = procedure.throw, done
        except BaseException as error:
            if procedure.gi_frame is None:  # type: ignore[attr-defined]
                raise  # the procedure has ended with this exception
            resume, argument = procedure.throw, error
