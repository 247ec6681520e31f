"""Effects: what an operation wants done, and a driver performs with threads, asyncio or in virtual time."""

from __future__ import annotations

from ..engine.contract import Batch, Quorums, Request, Wait
from .local_queue import QueueEntry


class Exchange:
    """Effect: send ``requests``. Its result is the engine's votes; ``need=0`` waits for none."""

    __slots__ = ("need", "requests", "stall", "timeout", "wait")

    def __init__(
        self,
        requests: list[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: Wait = Wait.EARLY,
        stall: float = 0.0,
    ) -> None:
        self.requests: list[Request] | Batch = requests
        self.need: int | Quorums = need
        self.timeout: float = timeout
        self.wait: Wait = wait
        self.stall: float = stall


class WaitForChange(Exchange):
    """Effect: wait until what ``watch`` watches changes, for ``timeout`` seconds at most.

    ``undo``: the requests that undo a round. They are sent in the same write, before the watch. The wait ends
    without their replies: a master that is slow to undo a round must not delay the end of the watch.
    """

    __slots__ = ()

    def __init__(self, undo: list[Request], watch: Request, need: int | Quorums, timeout: float) -> None:
        for request in undo:
            request.awaited = False
        Exchange.__init__(self, [*undo, watch], need, timeout)


class Sleep:
    """Effect: wait for ``seconds``."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds: float = seconds


class WaitForReconnect(Sleep):
    """Effect: connect masters, until the first new connection or for ``seconds``.

    ``disconnected``: those that had no connection. ``silent``: those that did not reply on theirs, which
    stays if they are silent on a new one, too.
    """

    __slots__ = ("disconnected", "silent")

    def __init__(self, seconds: float, disconnected: list[int], silent: list[int]) -> None:
        super().__init__(seconds)
        self.disconnected: list[int] = disconnected
        self.silent: list[int] = silent


class WaitForQuorum:
    """Effect: wait up to ``timeout`` seconds for the first quorum of connections."""

    __slots__ = ("timeout",)

    def __init__(self, timeout: float) -> None:
        self.timeout: float = timeout


class WaitForTurn:
    """Effect: wait until ``entry`` is the first of its local queue, at most for ``seconds``."""

    __slots__ = ("entry", "seconds")

    def __init__(self, entry: QueueEntry, seconds: float) -> None:
        self.entry: QueueEntry = entry
        self.seconds: float = seconds


Effect = Exchange | Sleep | WaitForQuorum | WaitForTurn
