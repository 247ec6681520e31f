"""Bounds the size, depth, number and time of a server's replies while it is connected and probed.

redis-py sets no bounds: a length of gigabytes, nested arrays, an endless line, a single byte now and then.
So its connections get a socket that reads a whole reply and checks it before redis-py sees any of it.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..engine.descriptors import NOT_OURS, close_copy, close_own, file_of, is_file
from ..engine.fork import in_child_of_fork
from ..wire.resp import NEW, PARTIAL, ProtocolError, resume

#: Replies between two writes. One write asks for some ten at most.
MAX_REPLIES = 50
#: Bytes of one reply, and of all replies between two writes. INFO has 110 bytes for each command in use.
MAX_ANSWER = 128 << 10
MAX_ANSWERS = 512 << 10
RECEIVE_SIZE = 1 << 16
CLOSED = "connection closed by the master"
#: A proxy that does not know the first command of a connection, HELLO, closes it without a reply.
CLOSED_AT_ONCE = f"{CLOSED} before its first reply, as by twemproxy: a master is reached without such a proxy"


class Pushed(ProtocolError):
    """A push message. No key is watched yet, so it can only say that the keys were flushed."""


class BoundedSocket:
    """Wraps ``sock``: all replies to a write must arrive within ``timeout`` seconds of it.

    ``recv`` returns bytes of one reply at a time, so an unrequested reply stays in this buffer.
    """

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._sock = sock
        self._file = file_of(sock.fileno())  # see ``engine/descriptors.py``
        self._timeout = timeout
        self._waits = True
        self._received = bytearray()
        self._silent = True  # nothing was received yet
        self._scan = NEW
        self._reply_bytes = 0  # how many bytes of ``_received`` are the rest of a complete reply
        self._on_write()
        _wrapped.add(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        """With 0, ``recv`` does not wait. Other times are ignored: redis-py must not change the timeout.

        Before it uses a pooled connection, redis-py before 8 asks with 0 whether there is unread data.
        """
        self._waits = seconds != 0

    def _on_write(self) -> None:
        self._deadline = monotonic() + self._timeout
        self._replies = 0
        self._bytes = 0

    def _check_ours(self) -> None:
        if not is_file(self._sock.fileno(), self._file):
            raise ConnectionError(NOT_OURS)

    def shutdown(self, how: int) -> None:
        self._check_ours()
        self._sock.shutdown(how)

    def close(self) -> None:
        close_own(self._sock, self._file)

    def sendall(self, data: Any) -> None:
        self._on_write()
        self._check_ours()
        self._sock.settimeout(self._timeout)
        self._sock.sendall(data)

    def recv(self, size: int, *_: int) -> bytes:
        if not self._reply_bytes:
            self._reply_bytes = self._next()
        data = bytes(self._received[: min(size, self._reply_bytes)])
        del self._received[: len(data)]
        self._reply_bytes -= len(data)
        return data

    def recv_into(self, buffer: Any, *_: int) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self) -> int:
        """Receive the next reply completely, and return its size in bytes."""
        self._replies += 1
        if self._replies > MAX_REPLIES:
            raise ProtocolError("unrequested replies")
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
        self._check_ours()
        self._sock.settimeout(left if self._waits else 0)
        try:
            data = self._sock.recv(RECEIVE_SIZE)
        except BlockingIOError:
            if self._waits:
                return  # TLS without plaintext
            raise
        if not data:
            raise ConnectionError(CLOSED_AT_ONCE if self._silent else CLOSED)
        self._silent = False
        self._bytes += len(data)
        if self._bytes > MAX_ANSWERS:
            raise ProtocolError("more than was asked for")
        self._received += data

    def release(self) -> socket.socket:
        """The wrapped socket, after all requests were answered. Raises ProtocolError if there is more."""
        self._refuse_push()
        if self._received:
            raise ProtocolError("an unrequested reply")
        _wrapped.discard(self)
        return self._sock

    def after_fork_in_child(self) -> None:
        """Close the child's copy, without a shutdown that the parent's connection would share."""
        close_copy(self._sock, self._file)


#: All bounded sockets that are not released.
_wrapped: weakref.WeakSet[BoundedSocket] = weakref.WeakSet()


def connect_bounded(connection: Any, connect: Callable[[], socket.socket], timeout: float) -> BoundedSocket:
    """The bounded socket of ``connection``, one of redis-py, whose ``connect`` makes a socket."""
    process = os.getpid()
    if hasattr(connection, "_wrap_socket_with_ssl"):
        from .secured import secured

        connection._wrap_socket_with_ssl = lambda sock: secured(connection, sock, timeout)
    sock = connect()
    if hasattr(sock, "do_handshake"):
        sock.close()
        raise ConnectionError("its class of connections has TLS of its own, which has no bounds")
    bounded = BoundedSocket(sock, timeout)
    if os.getpid() != process:  # a greenlet of the parent goes on in the child of a fork
        bounded.after_fork_in_child()
        raise ConnectionError("a connection of the parent process")
    return bounded


def _after_fork_in_child() -> None:
    """A greenlet of the parent goes on in the child: it must not read replies to its parent."""
    for bounded in list(_wrapped):
        bounded.after_fork_in_child()


in_child_of_fork(_after_fork_in_child)


def _check(data: bytearray, at: int) -> int:
    """Return where a value ends. Raises ProtocolError for what crashes hiredis 3.0.

    These are attributes, and maps with keys that are not strings. ``resume`` has found that the reply is
    complete.
    """
    kind, end = data[at : at + 1], data.index(b"\r\n", at) + 2
    if kind == b"|":
        raise ProtocolError("an unrequested attribute")
    if kind in b"+-,#_:(":
        return end
    number = int(data[at + 1 : end - 2])
    if kind in b"$!=":
        return end if number < 0 else end + number + 2
    for item in range(number * (2 if kind == b"%" else 1)):
        if kind == b"%" and item % 2 == 0 and data[end : end + 1] not in b"+$":
            raise ProtocolError("a map with keys that are not strings")
        end = _check(data, end)
    return end
