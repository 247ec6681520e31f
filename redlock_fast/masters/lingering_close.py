"""Half-closed connections, kept until the master has read what was written last ("lingering close").

If a socket is closed earlier, the master's next reply resets the connection. Then releases that were written
behind unanswered acquires are lost.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque

from ..engine.descriptors import FileId, close_copy, close_own, file_of, is_file

#: Seconds that a half-closed connection is kept for the master to read it.
LINGER_TIMEOUT = 60.0
#: Half-closed connections per master; with more, the oldest is closed. Only many reconnects to a hanging
#: master reach this.
MAX_PER_MASTER = 4
#: Reads per socket and check, so that a master that sends without end does not block the connector.
READS = 16


class LingeringSockets:
    """The connections of one client that it has half-closed: it sends nothing more, and still reads.

    They stay open until their master has read the releases that were written last. The connector's own
    thread looks through them while other threads add more. Every socket is either in the deque, or belongs
    to the one thread that has just taken it out. So this needs no lock, and no socket is forgotten.
    """

    def __init__(self, masters: int) -> None:
        self._most = masters * MAX_PER_MASTER
        self._open: deque[tuple[float, socket.socket, FileId]] = deque()

    def grow(self, masters: int) -> None:
        """Have room for so many masters."""
        self._most = masters * MAX_PER_MASTER

    def __len__(self) -> int:
        return len(self._open)

    def add(self, sock: socket.socket) -> None:
        # Without the TLS layer: nothing more is sent, and its context would stay in memory.
        plain = socket.socket(fileno=sock.detach())
        plain.setblocking(False)
        self._open.append((time.monotonic() + LINGER_TIMEOUT, plain, file_of(plain.fileno())))
        self._close_all_but(self._most)

    def reap(self, now: float) -> None:
        """Close the sockets that the master has closed too, and those whose LINGER_TIMEOUT has passed."""
        for _ in range(len(self._open)):
            if (oldest := self._take()) is None:
                return
            until, sock, file = oldest
            if now < until and is_file(sock.fileno(), file) and not at_end(sock):
                self._open.append(oldest)
            else:
                close_own(sock, file)

    def close(self, timeout: float = 0.0) -> None:
        """Close each socket as soon as the master has closed it too; after ``timeout`` seconds, all."""
        end = time.monotonic() + timeout
        try:
            self.reap(time.monotonic())
            while self._open and (left := end - time.monotonic()) > 0:
                self._wait(left)
                self.reap(time.monotonic())
        finally:
            self._close_all_but(0)

    def __del__(self) -> None:
        """Close the sockets of a client that was dropped without close()."""
        self._close_all_but(0)

    def _close_all_but(self, most: int) -> None:
        """Close the oldest, until ``most`` are left."""
        while len(self._open) > most and (oldest := self._take()) is not None:
            close_own(*oldest[1:])

    def _take(self) -> tuple[float, socket.socket, FileId] | None:
        """Take the oldest out. None: another thread took the last one."""
        try:
            return self._open.popleft()
        except IndexError:
            return None

    def _wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until a socket is readable."""
        poll = select.poll()
        for _, sock, _ in tuple(self._open):
            if (fd := sock.fileno()) >= 0:  # the connector may have closed it, if it did not end in time
                poll.register(fd, select.POLLIN)
        poll.poll(timeout * 1000)

    def after_fork_in_child(self) -> None:
        """Close the child's copies, without a shutdown that the parent's connections would share."""
        for _, sock, file in self._open:
            close_copy(sock, file)


def at_end(sock: socket.socket) -> bool:
    """Whether the other side has closed the connection too. Drops what it sent before."""
    try:
        for _ in range(READS):
            if not sock.recv(65536):
                return True
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return False
