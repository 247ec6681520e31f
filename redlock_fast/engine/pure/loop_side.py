"""The event loop's side of the hub: decided tickets, the next deadline, and its file descriptor."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from .loop_fd import LoopFd

if TYPE_CHECKING:
    from .waiter import Ticket


class LoopSide:
    """``decided``: tickets that ``on_ready`` has not returned. ``deadline``: no ticket ends before.

    ``notified``: the descriptor is readable. ``collecting``: ``on_ready`` runs, so the loop needs no
    notification. The hub's mutex guards every field.
    """

    __slots__ = ("__weakref__", "collecting", "deadline", "decided", "fd", "notified")

    def __init__(self) -> None:
        self.fd: LoopFd | None = None
        self.decided: deque[Ticket] = deque()
        self.deadline: float = inf
        self.collecting: bool = False
        self.notified: bool = False

    def add_decided(self, ticket: Ticket) -> None:
        self.decided.append(ticket)
        self.notify()

    def move_deadline(self, deadline: float) -> None:
        """Notifies the loop if a ticket ends sooner than the loop knows."""
        if deadline < self.deadline:
            self.deadline = deadline
            self.notify()

    def notify(self) -> None:
        """Makes the descriptor readable: the loop must call ``on_ready``."""
        if self.fd is not None and not (self.collecting or self.notified):
            self.notified = True
            self.fd.signal()

    def begin_collecting(self) -> None:
        self.collecting = True
        if self.notified and self.fd is not None:
            self.fd.drain()
            self.notified = False

    def close(self) -> None:
        fd, self.fd = self.fd, None
        self.notified = False
        if fd is not None:
            fd.close()

    # Here, and not in LoopFd: the garbage collector may finalize coroutines later, and these use the hub.
    __del__ = close
