"""A TLS connection of the pure-Python engine. Apart, because ``ssl`` takes long to import."""

from __future__ import annotations

import ssl

from ._pure_link import Connection


class TlsConnection(Connection):
    """Signal handlers run inside a TLS socket's methods, so they have to leave it alone meanwhile.

    ``busy`` is not reset where something else is raised: bytes may be lost, nobody can go on with it.
    """

    __slots__ = ()

    def send(self) -> None:
        self.busy = True
        try:
            super().send()
        except ssl.SSLWantWriteError:
            self.blocked = True
        except ssl.SSLWantReadError:
            self.blocked = False  # what it waits for is polled for anyway
        self.busy = False

    def receive(self) -> bool:
        self.busy = True
        received = False
        try:
            while super().receive():  # poll does not show what the TLS layer holds already
                received = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.blocked = True
        self.busy = False
        return received

    def ended(self) -> bool:
        return True
