"""The core of a client for threads."""

from __future__ import annotations

import threading

from ..locks.client_core import ClientCore
from .renewal import ThreadRenewal


class ThreadCore(ClientCore):
    """A ``ClientCore`` whose locks belong to threads, and are renewed by threads of the client."""

    _renewal: ThreadRenewal | None = None

    def waits_for_itself(self, key: bytes) -> bool:
        me, now = threading.get_ident(), self.policy.clock()
        return any(
            lease.key == key and lease.thread == me and now < lease.deadline
            for lease in list(self.client_state.held)
        )

    def renewal(self) -> ThreadRenewal:
        """The background renewal of this client, one for each process."""
        with self.client_state.mutex:
            if self._renewal is None or self._renewal.generation != self.client_state.generation():
                self._renewal = ThreadRenewal(self)
            return self._renewal

    def close(self) -> None:
        """Close all connections and end renewal. May be called again."""
        self.masters.close()
        if self._renewal is not None:
            self._renewal.end()
