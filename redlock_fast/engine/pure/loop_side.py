"""The event loop's side of the hub: decided tickets, and the descriptor that says that there are some."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ..greenlets import patched_by
from .pipe import Pipe

if TYPE_CHECKING:
    from .waiter import Ticket


class LoopSide:
    """``decided``: tickets that ``on_ready`` has not returned; the I/O thread appends, the loop takes.

    ``notified``: the descriptor is readable. The loop clears it before it looks at ``decided``, and the I/O
    thread looks at it after it has appended, so no ticket is left behind.
    """

    __slots__ = ("__weakref__", "decided", "notified", "pipe")

    def __init__(self) -> None:
        self.pipe: Pipe | None = None
        self.decided: deque[Ticket] = deque()
        self.notified: bool = False

    def fileno(self) -> int:
        """The descriptor that the loop watches. The first call opens it."""
        if self.pipe is None:
            if library := patched_by():
                raise ConfigError(
                    f"{library} removes epoll and kqueue, and asyncio clients need one: use FastRedlock"
                )
            self.pipe = Pipe()
            if self.decided:
                self.notify()
        return self.pipe.fd

    def is_due(self) -> bool:
        """Whether there are tickets of which the descriptor does not tell yet."""
        return bool(self.decided) and not self.notified and self.pipe is not None

    def notify(self) -> None:
        """Makes the descriptor readable: the loop must call ``on_ready``."""
        pipe = self.pipe
        if pipe is not None and not self.notified:
            self.notified = True
            pipe.signal()

    def begin_collecting(self) -> None:
        """Clears the descriptor. If a signal handler raises here, the I/O thread makes it readable again."""
        if self.notified and self.pipe is not None:
            try:
                self.pipe.drain()
            finally:
                self.notified = False

    def close(self) -> None:
        pipe, self.pipe = self.pipe, None
        self.notified = False
        if pipe is not None:
            pipe.close()

    # Here, and not in Pipe: the garbage collector may finalize coroutines later, and these use the hub.
    __del__ = close
