"""The monitor of one client: the mutex around what is known of its masters, and how a change is announced.

A monitor is a mutex together with the condition that threads wait for while they do not hold it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ..engine.condition import Condition
from ..engine.mutex import new_mutex
from .client_state import ClientState


def do_nothing() -> None:
    """What is called where no event loop listens."""


class Monitor:
    """The mutex that all parts of one connector share, and those who are told of changes."""

    def __init__(self, client_state: ClientState) -> None:
        self.client_state = client_state
        self.generation: int = client_state.generation()
        #: Guards the masters of the client, and attach().
        self.mutex: threading.RLock = new_mutex()
        #: Notified when a connection attempt finishes, and on close().
        self.changed: Condition = Condition(self.mutex)
        #: What wakes the connector thread. SimpleQueue.put may be called anywhere: in signal handlers,
        #: finalizers and callbacks.
        self.wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.listen()

    def listen(
        self, on_change: Callable[[], None] = do_nothing, on_tick: Callable[[], None] = do_nothing
    ) -> None:
        """Call ``on_change`` with each change, from any thread, and ``on_tick`` about once a second, from the
        connector thread: an event loop listens. Without arguments no loop listens any more.
        """
        self.on_change = on_change
        self.on_tick = on_tick

    def ended(self) -> bool:
        """Whether the client was closed, or a child of fork has replaced its connector."""
        return self.client_state.closed or self.generation != self.client_state.generation()

    def notify(self) -> None:
        """Tell all that wait that something has changed. The caller holds the mutex."""
        self.changed.notify_all()
        self.on_change()

    def wake(self) -> None:
        """Let the connector thread look at the masters now."""
        self.wakes.put(None)
