"""An operation: one call on the masters, without I/O. A driver performs its effects and reports what came.

    effect = operation.begin()
    while effect is not None:
        effect = operation.advance(perform(effect))
    operation.close()
    return operation.outcome

A driver that cannot go on (a signal, a cancellation, a destroyed task) sends what ``abort`` returns, without
waiting for replies, and calls ``close`` then. Nothing is thrown into an operation. Three drivers perform the
same operations: for threads, for asyncio, and in virtual time for the simulation.

Compiled where a compiler is available, with the types of ``algorithm/operation.pxd``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..engine.messages import Batch, Quorums, Request
from .effects import Effect

#: Requests that leave together.
Message = list[Request] | Batch


def nothing() -> list[Message]:
    return []


class Operation:
    """One call on the masters, such as an acquire. It asks for effects, and computes with their results.

    An *effect* is something that only a driver can do: to send requests and wait for replies, to sleep, or to
    wait for a connection. ``begin`` and ``advance`` return the next effect, or None when the call is over;
    ``outcome`` is its result then, and None before.

    The commonest effect, an exchange of requests and replies, is the operation object itself, which therefore
    has the fields of an ``Exchange``: so no further object is made for it. Most operations need a single
    exchange. An operation that needs more, because another client has the lock for example, continues as a
    generator, which ``go_on_with`` starts after the first exchange; this generator stores the outcome.
    """

    __slots__ = ("_rest", "need", "outcome", "requests", "timeout", "wait")

    def __init__(self) -> None:
        self.outcome: Any = None
        self.requests: Message = []
        self.need: int | Quorums = 0
        self.timeout: float = 0.0
        self.wait: int = 0
        self._rest: Generator[Effect | Operation, Any, None] | None = None

    def begin(self) -> Effect | Operation | None:
        """The first effect; None: there is an outcome. Raises for what forbids the call."""
        raise NotImplementedError

    def advance(self, result: Any) -> Effect | Operation | None:
        """The next effect after the ``result`` of the one before; None: there is an outcome."""
        raise NotImplementedError

    def abort(self) -> list[Message]:
        """The messages that the driver must still send if it will not perform further effects.

        They delete what the operation may have left on the masters, and leave in this order, without waiting
        for replies. May be called again: a master that has executed such a request before does nothing the
        second time.
        """
        return []

    def close(self, error: BaseException | None = None) -> None:
        """The last step: after an outcome, or after what ``abort`` returned was sent. May be called again.

        ``error``: the exception that ended the operation.
        """

    def ask(self, requests: Message, need: int | Quorums, timeout: float, wait: int) -> Operation:
        """The effect of an exchange."""
        self.requests = requests
        self.need = need
        self.timeout = timeout
        self.wait = wait
        return self

    def send(self, requests: list[Request]) -> Operation:
        """The effect of sending ``requests`` without waiting for replies."""
        return self.ask(requests, 0, 0.0, 0)

    def go_on_with(self, rest: Generator[Effect | Operation, Any, None]) -> Effect | Operation | None:
        """Go on with ``rest``, which begins here."""
        self._rest = rest
        return self.resume(None)

    def resume(self, result: Any) -> Effect | Operation | None:
        """Go on with the generator of ``go_on_with``."""
        assert self._rest is not None
        try:
            return self._rest.send(result)
        except StopIteration:
            if self.outcome is None:  # not its end: a signal handler raised this
                raise
            return None


class Procedure(Operation):
    """An operation that is written as one generator, for calls that are not on the hot path.

    ``steps`` yields each effect, receives its result, and returns the outcome. ``undo`` is called when the
    operation is aborted, after the generator was closed, and returns the messages that must be sent then.
    """

    __slots__ = ("_steps", "_undo")

    outcome: Any

    def __init__(
        self, steps: Generator[Effect, Any, Any], undo: Callable[[], list[Message]] = nothing
    ) -> None:
        Operation.__init__(self)
        self._steps = steps
        self._undo = undo

    def begin(self) -> Effect | Operation | None:
        return self.advance(None)

    def advance(self, result: Any) -> Effect | Operation | None:
        try:
            return self._steps.send(result)
        except StopIteration as done:
            if self._steps.gi_frame is not None:  # type: ignore[attr-defined]
                raise  # not its end: a signal handler raised this
            self.outcome = done.value
            return None

    def abort(self) -> list[Message]:
        self._steps.close()
        return self._undo()
