"""What the masters really did, by their own reports, whatever the clients believe.

One connection to each master, past all proxies, is at once a subscriber of the keyspace events and
a monitor. A server writes both to it in the order in which it works: first the events of a command,
then the command with the server's time. So it is known of each command what it changed.
A master is recorded before clients reach it: a restart begins with what is there already.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field

from chaos.history import both_clocks, clock

from redlock_fast.embedded import Master

#: For the masters: they publish all events of keys.
OPTIONS = ("--notify-keyspace-events", "KEA", "--client-output-buffer-limit", "pubsub", "0", "0", "0")
GREETING = b"HELLO 3\r\nPSUBSCRIBE __keyevent@0__:*\r\nMONITOR\r\n"
START_TIMEOUT = 20.0
#: Seconds that a look at the key may take: the end of the key is known that exactly.
LOOK = 0.01


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a master's output, and when it came: by our clock and by the wall clock."""

    arrival: float
    wall: float
    data: bytes


@dataclass(slots=True)
class Chapter:
    """One process of a master: what it had at the first look, and its output, as it came.

    ``began`` by our clock, ``wall`` the same moment by the wall clock.
    """

    began: float
    wall: float
    found: dict[bytes, tuple[bytes, float]]
    pieces: list[Piece] = field(default_factory=list)
    ended: float = float("inf")


class Recorder:
    """Records one master, process by process, in ``chapters``."""

    def __init__(self, master: Master, key: bytes) -> None:
        self.chapters: list[Chapter] = []
        self._master = master
        self._key = key
        self._sock: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def attach(self) -> None:
        """Begin with the process that runs now. No client may use the master before this returns."""
        self.close()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(START_TIMEOUT)
        sock.connect(self._master.socket_path)
        sock.sendall(GREETING)
        heard = b""
        while b"+OK\r\n" not in heard:  # the monitor's, after the replies to all else
            more = sock.recv(1 << 16)
            assert more, "a master hangs up on its recorder"
            heard += more
        sock.settimeout(None)
        chapter = Chapter(*both_clocks(), self._found())
        self.chapters.append(chapter)
        self._sock = sock
        self._thread = threading.Thread(target=_listen, args=(sock, chapter), daemon=True)
        self._thread.start()

    def granted_since(self, moment: float) -> bool:
        """Whether a key was set since then, as far as it was recorded."""
        event = b"__keyevent@0__:set\r\n$%d\r\n%b\r\n" % (len(self._key), self._key)
        for piece in reversed(self.chapters[-1].pieces):
            if piece.arrival < moment:
                break
            if event in piece.data:
                return True
        return False

    def close(self) -> None:
        if self._sock is not None and self._thread is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._thread.join(START_TIMEOUT)
            self._sock.close()

    def _found(self) -> dict[bytes, tuple[bytes, float]]:
        import redis

        with redis.Redis(unix_socket_path=self._master.socket_path, protocol=2) as node:
            while True:
                before = clock()
                value, left = node.get(self._key), node.pttl(self._key)
                if clock() - before <= LOOK:
                    break
        assert value is None or isinstance(value, bytes)
        return {self._key: (value, before + left / 1000)} if value is not None and left > 0 else {}


def _listen(sock: socket.socket, chapter: Chapter) -> None:
    with contextlib.suppress(OSError):
        while data := sock.recv(1 << 16):
            chapter.pieces.append(Piece(*both_clocks(), data))
    chapter.ended = clock()
