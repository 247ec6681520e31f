"""A master with scripted replies: it records the commands and answers as the test's script does.

``ScriptedMaster.connect`` makes a connection and gives the client's end away. The server's end is a
:class:`Session`: a thread that parses commands and asks ``answer`` for each reply. An empty reply
says nothing, so that the test can say it later with ``send``; a list is sent piece by piece, each
when the client has read the one before.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable

from support.waiting import DEADLINE, eventually

Words = tuple[bytes, ...]
Reply = bytes | list[bytes]
Answer = Callable[[Words], Reply]
#: Makes both ends of a connection: the client's, the server's.
Pair = Callable[[], tuple[socket.socket, socket.socket]]


def always(reply: Reply) -> Answer:
    """The same reply to everything."""
    return lambda words: reply


silent = always(b"")
granting = always(b"+OK\r\n")
refusing = always(b"$-1\r\n")
failing = always(b"-OOM command not allowed\r\n")


def once_all_came(commands: int, reply: Reply) -> Answer:
    """Nothing, until that many commands are there; then ``reply`` to all of them."""
    came = 0

    def answer(words: Words) -> Reply:
        nonlocal came
        came += 1
        return reply if came == commands else b""

    return answer


class Session:
    """One connection, from the server's side."""

    def __init__(self, sock: socket.socket, answer: Answer, reading: threading.Event) -> None:
        self.sock = sock
        self.commands: list[Words] = []
        self.raw = bytearray()
        self.ended = threading.Event()
        self._answer = answer
        self._reading = reading
        self._arrived = threading.Condition()
        self._sending = threading.RLock()
        self._held: list[Reply] | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def wait_commands(self, count: int) -> list[Words]:
        """The commands so far, once there are ``count``."""
        with self._arrived:
            came = self._arrived.wait_for(lambda: len(self.commands) >= count, DEADLINE)
        assert came, f"{count} commands expected, got {self.commands}"
        return self.commands[:]

    def send(self, reply: Reply) -> None:
        """Send this now. A client that has disconnected gets nothing."""
        pieces = [reply] if isinstance(reply, bytes) else reply
        with self._sending:
            for number, piece in enumerate(pieces):
                if number:
                    eventually(self.consumed, "the client reads the first pieces")
                try:
                    self.sock.sendall(piece)
                except OSError:
                    return

    def hold(self) -> None:
        """Keep the replies back until ``release``."""
        with self._sending:
            self._held = self._held or []

    def release(self) -> None:
        """Send the replies that were held, in order."""
        with self._sending:
            held, self._held = self._held or [], None
            for reply in held:
                self.send(reply)

    def consumed(self) -> bool:
        """Whether the client has read all that was sent; known for socket pairs on Linux."""
        if sys.platform != "linux" or self.sock.family != socket.AF_UNIX:
            return True
        try:
            unread = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return True
        return not any(unread)

    def finish(self) -> None:
        """End of file for the client; commands are still read."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._end(socket.SHUT_RDWR)
        self.sock.close()

    def reset(self) -> None:
        """Drop the connection as a crash would: RST instead of FIN."""
        self._end(socket.SHUT_RD)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _end(self, how: int) -> None:
        # A thread in recv() holds the socket open: it has to leave before close() can take effect.
        if self.sock.fileno() < 0:
            return
        self._reading.set()
        with contextlib.suppress(OSError):
            self.sock.shutdown(how)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        self._reading.wait()
        rest = bytearray()
        while data := self._receive():
            self.raw += data
            rest += data
            for words in take_commands(rest):
                with self._arrived:
                    self.commands.append(words)
                    self._arrived.notify_all()
                self._reply(self._answer(words))
        self.ended.set()

    def _receive(self) -> bytes:
        try:
            return self.sock.recv(1 << 16)
        except OSError:
            return b""

    def _reply(self, reply: Reply) -> None:
        with self._sending:
            if self._held is None:
                self.send(reply)
            else:
                self._held.append(reply)


class ScriptedMaster:
    """One master, over all its connections; ``session`` is the latest."""

    def __init__(
        self,
        answer: Answer = silent,
        *,
        pair: Pair = socket.socketpair,
        buffers: int = 0,
        reading: bool = True,
    ) -> None:
        self.answer = answer
        self.sessions: list[Session] = []
        self.reading = threading.Event()
        if reading:
            self.reading.set()
        self._pair = pair
        self._buffers = buffers

    def connect(self) -> socket.socket:
        """A new connection: the client's end."""
        client, server = self._pair()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF) if self._buffers else ():
            client.setsockopt(socket.SOL_SOCKET, option, self._buffers)
            server.setsockopt(socket.SOL_SOCKET, option, self._buffers)
        self.sessions.append(Session(server, lambda words: self.answer(words), self.reading))
        return client

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def take_commands(received: bytearray) -> list[Words]:
    """Remove the whole commands from the front of ``received``; anything but commands is an error."""
    commands, at = [], 0
    while (command := _command(received, at)) is not None:
        words, at = command
        commands.append(words)
    del received[:at]
    return commands


def _command(data: bytearray, at: int) -> tuple[Words, int] | None:
    head = _head(data, at, b"*")
    if head is None:
        return None
    count, at = head
    words = []
    for _ in range(count):
        head = _head(data, at, b"$")
        if head is None or len(data) < sum(head) + 2:
            return None
        length, at = head
        words.append(bytes(data[at : at + length]))
        at += length + 2
        assert data[at - 2 : at] == b"\r\n", f"a bulk string without its end: {words[-1]!r}"
    return tuple(words), at


def _head(data: bytearray, at: int, kind: bytes) -> tuple[int, int] | None:
    """The number after ``kind``, and where its line ends."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    assert data[at : at + 1] == kind, f"{kind!r} expected: {bytes(data[at : at + 60])!r}"
    return int(data[at + 1 : end]), end + 2
