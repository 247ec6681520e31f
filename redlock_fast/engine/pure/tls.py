"""A TLS connection of the pure-Python engine. Apart, because ``ssl`` takes long to import."""

from __future__ import annotations

import signal
import ssl
import threading
from collections.abc import Callable

from .connection import Connection

try:
    # Without the enums around it: six times faster.
    from _signal import pthread_sigmask  # type: ignore[import-not-found]
except ImportError:
    from signal import pthread_sigmask

#: Not those that tell of a crash.
SIGNALS = set(range(1, 32)) - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


class TlsConnection(Connection):
    """Signal handlers run inside a TLS socket's methods, where nobody knows what has been moved.

    So signals wait meanwhile. Other threads may be sent them all the same and have them handled here:
    then ``busy`` makes a handler leave the connection alone, and it stays so if the handler raises,
    because nobody can go on with it.
    """

    __slots__ = ()

    sock: ssl.SSLSocket

    def send(self) -> None:
        undisturbed(self._send)

    def receive(self, now: float, polled: float) -> None:
        undisturbed(lambda: self._receive(now, polled))

    def ended(self) -> bool:
        return True

    def _send(self) -> None:
        self.busy = True
        try:
            super().send()
        except ssl.SSLWantWriteError:
            self.blocked = True
        except ssl.SSLWantReadError:
            self.blocked = False  # what it waits for is polled for anyway
        self.busy = False

    def _receive(self, now: float, polled: float) -> None:
        self.busy = True
        try:
            super().receive(now, polled)
            while self.sock.pending():  # poll does not show what the TLS layer holds already
                super().receive(now, polled)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.blocked = True
        self.busy = False


def undisturbed(move: Callable[[], None]) -> None:
    """Call it with signals blocked in the thread that handles them."""
    if threading.get_ident() != threading.main_thread().ident:
        move()
        return
    before = pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        move()
    finally:
        pthread_sigmask(signal.SIG_SETMASK, before)
