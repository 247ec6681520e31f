"""A TLS connection. Apart, because ``ssl`` takes long to import."""

from __future__ import annotations

import ssl

from .connection import Connection


class TlsConnection(Connection):
    """Moves bytes through a TLS socket, which may have to read in order to write, and the other way round.

    The methods of a TLS socket are Python: a signal handler that raises inside leaves an unknown number of
    bytes.
    """

    __slots__ = ()

    sock: ssl.SSLSocket
    would_block: tuple[type[OSError], ...] = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
    wants_input: tuple[type[OSError], ...] = (ssl.SSLWantReadError,)
    wants_output: tuple[type[OSError], ...] = (ssl.SSLWantWriteError,)
    in_change: bool

    def send(self) -> None:
        self.in_change = True
        super().send()
        self.in_change = False

    def receive(self) -> None:
        self.in_change = True
        super().receive()
        while self.sock.pending() and not self.failure:  # poll does not show what the TLS layer holds
            super().receive()
        self.in_change = False
