"""What every lock of a client looks at, and writes into: whether masters are there, and what is held on them.

Compiled where it can be, with the types of ``masters/held_leases.pxd``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from .._stats import Stats


class HasDeadline(Protocol):
    """Something that ends by the lease clock."""

    deadline: float


class ClientState:
    """Of one client."""

    def __init__(self) -> None:
        #: One for each process: what a parent of fork held is not the child's.
        self.generation = 0
        #: For good.
        self.closed = False
        self.counts = Stats()
        #: Is told of each grant. None: nothing observes this client.
        self.observer: Any = None
        self.open()

    def open(self) -> None:
        """An empty one: in a new process."""
        #: A first quorum was there, or was waited for.
        self.ready = False
        #: What is held; also what nobody refers to any more, until its lease has ended.
        self.held: set[HasDeadline] = set()
        #: Guards what the client's locks hold, and its renewal: for a few instructions, never across I/O.
        #: Reentrant: a signal handler may use the client while its own thread is inside.
        self.mutex = threading.RLock()

    def add_lease(self, lease: HasDeadline) -> None:
        """Granted: while there is any, the client is there, also if all have forgotten it."""
        if not self.held:
            clients_with_leases.add(self)
        self.held.add(lease)
        if self.observer is not None:
            self.observer.granted(lease)

    def add_leases(self, leases: Collection[HasDeadline]) -> None:
        """The same of many."""
        if leases and not self.held:
            clients_with_leases.add(self)
        self.held.update(leases)
        if self.observer is not None:
            for lease in leases:
                self.observer.granted(lease)

    def remove_lease(self, lease: HasDeadline) -> None:
        """Released."""
        self.held.discard(lease)
        if not self.held:
            clients_with_leases.discard(self)

    def remove_leases(self, leases: Iterable[HasDeadline]) -> None:
        """The same of many."""
        self.held.difference_update(leases)
        if not self.held:
            clients_with_leases.discard(self)


#: Those of the clients that hold something.
clients_with_leases: set[ClientState] = set()
