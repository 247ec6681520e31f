"""A TLS connection. Apart, because ``ssl`` takes long to import."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from ..tls_errors import clear_errors
from .connection import Connection


class TlsConnection(Connection):
    """Moves bytes through a TLS socket, which may have to read in order to write, and the other way round.

    The methods of a TLS socket are Python: a signal handler that raises inside leaves an unknown number of
    bytes.
    """

    sock: ssl.SSLSocket
    would_block: tuple[type[OSError], ...] = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
    wants_input: tuple[type[OSError], ...] = (ssl.SSLWantReadError,)
    wants_output: tuple[type[OSError], ...] = (ssl.SSLWantWriteError,)
    moving: bool
    failure: str

    def send(self) -> None:
        self.moving = True
        super().send()
        if self.failure:
            self._once_more(super().send)
        self.moving = False

    def receive(self) -> None:
        self.moving = True
        self._receive()
        while not self.failure and self.sock.pending():  # poll does not show what the TLS layer holds
            self._receive()
        self.moving = False

    def _receive(self) -> None:
        super().receive()
        if self.failure:
            self._once_more(super().receive)

    def _once_more(self, method: Callable[[], None]) -> None:
        """The failure may be that of another TLS socket of this thread: see ``tls_errors``."""
        failure = self.failure
        self.failure = ""
        clear_errors()
        method()
        if self.failure:
            self.failure = failure
            clear_errors()
