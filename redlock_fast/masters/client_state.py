"""What all locks of one client read and write: whether the client is usable, its leases, its counters.

Compiled where it can be, with the types of ``masters/client_state.pxd``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..algorithm.batch import UnfinishedBatch
from ..algorithm.lease import Lease
from ..engine import process
from ..engine.fork import forget_parent
from ..engine.mutex import new_mutex
from ..telemetry import EventLog
from .stats import Stats

#: Why a copy of a call ends in a child of fork.
CONTINUED_BY_PARENT = "this process is a child of fork: its parent continues this call"
#: A client is used before uWSGI forks its workers.
UNSEEN_FORK = (
    "uWSGI forks its workers after this client has begun to connect, and CPython may hang in a worker then: "
    "use the client in the workers only, or set lazy-apps = true (docs/operations.md)"
)


class ClientState:
    """The flags, leases, counters and log of one client.

    ``masters`` returns the client's masters, or None. It is a weak reference, because masters refer to their
    client state: a client without leases is freed as soon as its last user drops it.
    """

    def __init__(self, masters: Callable[[], Any]) -> None:
        self._masters = masters
        #: As ``generation()``, before a fork in C is noticed. No signal handler runs when it is read.
        self.known_generation: int = 0
        self._process = process.number()
        #: Set by close(), and never reset.
        self.closed = False
        #: The interpreter ends: a lease that is lost from now on is not reported.
        self.ending = False
        self.counts: Stats = Stats()
        self.events: EventLog = EventLog()
        #: Receives each grant; None unless metrics or traces were asked for.
        self.observer: Any = None
        self._reset()

    def _reset(self) -> None:
        #: A first quorum of connections exists, or a caller has waited for it.
        self.ready = False
        #: The leases of this client, also those whose lock object is gone, until they end.
        self.held: set[Lease] = set()
        #: The calls of ``acquire_many`` that have not returned. Their leases are in no caller's hands. A call
        #: that returns its locks only drops its batch: see ``Completion.complete``.
        self.batches: set[weakref.ref[UnfinishedBatch]] = set()
        #: Guards the state of lock objects and the choice of the renewal, for a few instructions without I/O.
        #: Reentrant: a signal handler may use the client while its own thread is inside.
        self.mutex: threading.RLock = new_mutex()

    def generation(self) -> int:
        """The number of forks since the client was made. A lease of another generation belongs to a parent.

        Every call on a lock or a client asks for it before anything else. So after a fork in C, which no hook
        has seen, the first call forgets what is the parent's.
        """
        if self._process != process.number():
            forget_parent()
        return self.known_generation

    def expect_fork(self) -> None:
        """Another program will fork in C, while this process has threads: see ``will_fork_unseen``."""
        if not process.expect_fork():
            self.events.warn_of("unseen-fork", UNSEEN_FORK)

    def after_fork_in_child(self) -> None:
        """Forget the leases of the parent."""
        self._process = process.number()
        self.known_generation += 1
        self._reset()
        clients_with_leases.pop(self, None)

    def add_batch(self, batch: UnfinishedBatch) -> None:
        """Record a call of ``acquire_many`` that begins. Forget those that have returned."""
        self.batches.difference_update([one for one in list(self.batches) if one() is None])
        self.batches.add(weakref.ref(batch))

    def unfinished_batches(self) -> list[UnfinishedBatch]:
        """The calls of ``acquire_many`` that have not returned."""
        return [batch for one in list(self.batches) if (batch := one()) is not None]

    def add_lease(self, lease: Lease) -> None:
        """Record a granted lease. While at least one is held, ``clients_with_leases`` has the masters."""
        if not self.held:
            clients_with_leases[self] = self._masters()
        self.held.add(lease)
        if self.observer is not None:
            self.observer.granted(lease)

    def add_leases(self, leases: Collection[Lease]) -> None:
        """Record the granted leases of a batch."""
        if leases and not self.held:
            clients_with_leases[self] = self._masters()
        self.held.update(leases)
        if self.observer is not None:
            for lease in leases:
                self.observer.granted(lease)

    def remove_lease(self, lease: Lease) -> None:
        """Forget a lease that was released or has ended."""
        self.held.discard(lease)
        if not self.held:
            clients_with_leases.pop(self, None)

    def remove_leases(self, leases: Iterable[Lease]) -> None:
        """Forget the leases of a batch."""
        self.held.difference_update(leases)
        if not self.held:
            clients_with_leases.pop(self, None)

    def remove_ended_leases(self, now: float) -> None:
        """Forget leases that ended before ``now`` (seconds on the lease clock) without a release.

        Also corrects ``clients_with_leases``: ``add_lease`` takes no mutex, so another thread's
        ``remove_lease`` may have removed the client while a lease was added.
        """
        self.remove_leases([lease for lease in list(self.held) if lease.deadline < now])
        if self.held and (masters := self._masters()) is not None:
            clients_with_leases[self] = masters


#: The masters of each client with leases. The reference keeps them connected until the last lease ends.
clients_with_leases: dict[ClientState, Any] = {}
