"""A master that behaves until some command comes, and from then on attacks each connected client."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from support.scripted import Words, take_commands
from support.waiting import DEADLINE

#: Bytes without end, or None to wait for the next command.
Attack = Callable[[], Iterator[bytes]]

CHUNK = 1 << 16
X = b"x" * CHUNK
LONG_REPLY = b"-ERR " + X[:4080] + b"\r\n"


def endless(data: bytes, first: bytes = b"") -> Attack:
    """``first``, and then ``data`` for ever."""
    many = data * (CHUNK // len(data) or 1)
    return lambda: itertools.chain([first], itertools.repeat(many))


def dribble() -> Iterator[bytes]:
    yield b"$4000\r\n"
    while True:
        time.sleep(0.005)
        yield b"x"


#: What a connection does not survive at once.
FATAL: dict[str, Attack] = {
    "huge bulk": endless(X, b"$2147483647\r\n"),
    "huger bulk": endless(X, b"$9223372036854775807\r\n"),
    "endless bulk": endless(X, b"$1048576\r\n"),
    "endless replies": endless(b"+OK\r\n"),
    "endless grants": endless(b":1\r\n"),
    "wide": endless(b":1\r\n", b"*2147483647\r\n"),
    "wide but allowed": endless(b":1\r\n", b"*1300\r\n"),
    "deep": endless(b"*1\r\n"),
    "endless line": endless(X, b"+"),
    "endless error": endless(X, b"-ERR "),
    "endless number": endless(b"1" * 64, b":"),
    "pushes": endless(b">2\r\n+x\r\n+y\r\n"),
    "big pushes": endless(b">1\r\n$60000\r\n" + X[:60000] + b"\r\n"),
    "attributes": endless(b"|1\r\n+a\r\n:1\r\n"),
}
#: What it survives until it has been silent for too long: no reply is among it.
SLOW: dict[str, Attack] = {"dribble": dribble}
ATTACKS = {**FATAL, **SLOW}
#: What is allowed.
BIG: dict[str, Attack] = {"big replies": endless(LONG_REPLY)}

POLITE = {
    b"HELLO": b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n",
    b"ROLE": b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
    b"CONFIG": b"%0\r\n",
    b"DELIFEQ": b":0\r\n",
}


class Hostile:
    """Attacks at the first ``trigger``: the name of a command, or ACQUIRE for a lock's SET."""

    def __init__(self, attack: Attack, trigger: bytes, context: ssl.SSLContext | None = None) -> None:
        self._attack = attack
        self._trigger = trigger
        self._context = context
        self._ending = False
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

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
            while data := sock.recv(CHUNK):
                received += data
                for words in take_commands(received):
                    self._answer(sock, words)
        with contextlib.suppress(OSError):
            sock.close()

    def _answer(self, sock: socket.socket, words: Words) -> None:
        if words[0] == self._trigger or (self._trigger == b"ACQUIRE" and b"NX" in words):
            for piece in self._attack():
                sock.sendall(piece)
        reply = POLITE.get(words[0], b"+OK\r\n" if words[0] == b"CLIENT" else b"-ERR unknown command\r\n")
        if words[0] == b"INFO":
            text = b"# Server\r\nrun_id:%040d\r\n" % self.port
            reply = b"$%d\r\n%b\r\n" % (len(text), text)
        sock.sendall(reply)

    def close(self) -> None:
        self._ending = True
        for sock in [self._listener, *self._socks]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()


class Talking(Hostile):
    """A master with replies of its own: by a command's name, or ACQUIRE for a lock's SET."""

    def __init__(self, replies: Mapping[bytes, bytes]) -> None:
        self._replies = replies
        super().__init__(dribble, b"")

    def _answer(self, sock: socket.socket, words: Words) -> None:
        name = b"ACQUIRE" if b"NX" in words else words[0]
        if name in self._replies:
            sock.sendall(self._replies[name])
        else:
            super()._answer(sock, words)


def bulk(text: bytes, kind: bytes = b"$") -> bytes:
    """A reply that may have line ends in it; ``kind`` "!" makes it an error of RESP3."""
    return b"%b%d\r\n%b\r\n" % (kind, len(text), text)


def array(*items: bytes) -> bytes:
    """Of bulk strings."""
    return b"*%d\r\n%b" % (len(items), b"".join(map(bulk, items)))
