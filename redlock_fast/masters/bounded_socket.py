"""What a server may say while it is dialled: bounded in size, depth, number and time.

redis-py takes what comes: a length of gigabytes, arrays in arrays, a line without end, a byte now and then
for ever. So its connections are given a socket that reads each reply whole, looks at it, and only then
hands it on.
"""

from __future__ import annotations

import socket
from time import monotonic
from typing import Any

from ..wire.resp import NEW, PARTIAL, ProtocolError, frame, resume

#: Replies between two things that are sent. The most that are asked for at once are some ten.
MAX_REPLIES = 50
#: Bytes of one of them, such as INFO's, and of all of them together.
MAX_ANSWER = 64 << 10
MAX_ANSWERS = 256 << 10
RECEIVE_SIZE = 1 << 16


class Pushed(ProtocolError):
    """A push, before anything was watched: all that it can say is that keys were flushed."""


class BoundedSocket:
    """``sock``, of which all that answers what was sent last has to come within ``timeout`` seconds.

    Gives one reply at a time, so that what nobody asked for stays here.
    """

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._sock = sock
        self._timeout = timeout
        self._received = bytearray()
        self._scan = NEW
        self._whole = 0  # so many bytes of them are the rest of a whole reply
        self._asked()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        """Not for redis-py to say."""

    def _asked(self) -> None:
        self._deadline = monotonic() + self._timeout
        self._replies = 0
        self._bytes = 0

    def sendall(self, data: Any) -> None:
        self._asked()
        self._sock.settimeout(self._timeout)
        self._sock.sendall(data)

    def recv(self, size: int, *_: int) -> bytes:
        if not self._whole:
            self._whole = self._next()
        data = bytes(self._received[: min(size, self._whole)])
        del self._received[: len(data)]
        self._whole -= len(data)
        return data

    def recv_into(self, buffer: Any, *_: int) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self) -> int:
        """The size of the next reply, once all of it is here."""
        self._replies += 1
        if self._replies > MAX_REPLIES:
            raise ProtocolError("replies that nobody asked for")
        while True:
            end, self._scan = resume(self._received, self._scan, MAX_ANSWER)
            if end != PARTIAL:
                self._scan = NEW
                self._refuse_push()
                _check(self._received, 0)
                return end
            self._receive()

    def _refuse_push(self) -> None:
        if self._received.startswith(b">"):
            raise Pushed("a push")

    def _receive(self) -> None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        data = self._sock.recv(RECEIVE_SIZE)
        if not data:
            raise ConnectionError("connection closed by the master")
        self._bytes += len(data)
        if self._bytes > MAX_ANSWERS:
            raise ProtocolError("more than was asked for")
        self._received += data

    def release(self) -> socket.socket:
        """The socket itself, now that all that was asked for is answered."""
        self._refuse_push()
        if self._received:
            raise ProtocolError("a reply that nobody asked for")
        return self._sock


def _check(data: bytearray, at: int) -> int:
    """No attribute, no key of a map that is no word: hiredis 3.0 crashes on these. Returns where it ends."""
    kind, end = data[at : at + 1], data.index(b"\r\n", at) + 2
    if kind == b"|":
        raise ProtocolError("an attribute that nobody asked for")
    if kind not in b"*~>%":
        return frame(data, at, MAX_ANSWER)
    for item in range(int(data[at + 1 : end - 2]) * (2 if kind == b"%" else 1)):
        if kind == b"%" and item % 2 == 0 and data[end : end + 1] not in b"+$":
            raise ProtocolError("a map with keys that are no words")
        end = _check(data, end)
    return end
