"""A master that behaves until some command comes, and from then on attacks each connected client."""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.listening import Listening
from support.scripted import Words

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
    b"CLIENT": b"+OK\r\n",
    b"HELLO": b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n",
    b"ROLE": b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
    b"CONFIG": b"%0\r\n",
    b"DELIFEQ": b":0\r\n",
}


class Hostile(Listening):
    """Attacks at the first ``trigger``: the name of a command, or ACQUIRE for a lock's SET."""

    def __init__(self, attack: Attack, trigger: bytes, context: ssl.SSLContext | None = None) -> None:
        self._attack = attack
        self._trigger = trigger
        super().__init__(self._polite, context)

    def answer(self, sock: socket.socket, words: Words) -> None:
        if words[0] == self._trigger or (self._trigger == b"ACQUIRE" and b"NX" in words):
            self.attack(sock)
        super().answer(sock, words)

    def attack(self, sock: Any) -> None:
        for piece in self._attack():
            sock.sendall(piece)

    def _polite(self, words: Words) -> bytes:
        if words[0] == b"INFO":
            return bulk(b"# Server\r\nrun_id:%040d\r\n" % self.port)
        return POLITE.get(words[0], b"-ERR unknown command\r\n")


class Flooding(Hostile):
    """Sends messages of TLS itself without end. ``context``: of ``tls_flood.prepared``."""

    def __init__(self, trigger: bytes, context: ssl.SSLContext) -> None:
        super().__init__(dribble, trigger, context)

    def attack(self, sock: Any) -> None:
        sock.flood()


class Talking(Hostile):
    """A master with replies of its own: by a command's name, or ACQUIRE for a lock's SET."""

    def __init__(self, replies: Mapping[bytes, bytes]) -> None:
        self._replies = replies
        super().__init__(dribble, b"")

    def _polite(self, words: Words) -> bytes:
        name = b"ACQUIRE" if b"NX" in words else words[0]
        return self._replies[name] if name in self._replies else super()._polite(words)


def bulk(text: bytes, kind: bytes = b"$") -> bytes:
    """A reply that may have line ends in it; ``kind`` "!" makes it an error of RESP3."""
    return b"%b%d\r\n%b\r\n" % (kind, len(text), text)


def array(*items: bytes) -> bytes:
    """Of bulk strings."""
    return b"*%d\r\n%b" % (len(items), b"".join(map(bulk, items)))
