"""A server on a port of its own. It reads commands and answers them as the test's function does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

from support.scripted import Words, take_commands
from support.waiting import DEADLINE


class Listening:
    """A context manager. ``reply``: the reply to a command; None closes the connection. It may be replaced.

    Each connection has a thread. ``heard``: the commands of all connections. ``context``: for TLS.
    """

    def __init__(self, reply: Callable[[Words], bytes | None], context: ssl.SSLContext | None = None) -> None:
        self.reply = reply
        self.heard: list[Words] = []
        self._context = context
        self._ending = False
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def answer(self, sock: socket.socket, words: Words) -> None:
        """Answer one command. Subclasses may do more; an OSError closes the connection."""
        reply = self.reply(words)
        if reply is None:
            raise ConnectionAbortedError
        sock.sendall(reply)

    def _start(self, run: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ending:
                sock, _ = self._listener.accept()
                self._socks.append(sock)
                self._start(lambda sock=sock: self._serve(sock))  # type: ignore[misc]

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                self._socks.append(sock)
            received = bytearray()
            while data := sock.recv(1 << 16):
                received += data
                for words in take_commands(received):
                    self.heard.append(words)
                    self.answer(sock, words)
        with contextlib.suppress(OSError):
            sock.close()

    def close(self) -> None:
        self._ending = True
        for sock in [self._listener, *self._socks]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
