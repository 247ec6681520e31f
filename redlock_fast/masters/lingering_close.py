"""Half-closed connections, until the master has read what was written last.

Closed earlier they may be reset, and the releases that were written behind owed acquires be lost.
"""

from __future__ import annotations

import os
import select
import socket
import time

#: A half-closed connection is given this long (seconds) to be read by the master.
LINGER_TIMEOUT = 60.0
#: So many for each master; with more the oldest are closed. It takes many reconnects to a master that hangs.
MAX_PER_MASTER = 4
#: Reads from one at a time: a master that sends without end must not keep the connector.
READS = 16


class LingeringSockets:
    """The half-closed connections of one client."""

    def __init__(self, masters: int) -> None:
        self._most = masters * MAX_PER_MASTER
        self._open: list[tuple[float, socket.socket]] = []

    def __len__(self) -> int:
        return len(self._open)

    def add(self, sock: socket.socket) -> None:
        # Of TLS there is no more to say, and its settings would stay in memory.
        plain = socket.socket(fileno=sock.detach())
        plain.setblocking(False)
        self._open.append((time.monotonic() + LINGER_TIMEOUT, plain))
        while len(self._open) > self._most:
            self._open.pop(0)[1].close()

    def reap(self, now: float) -> None:
        """Close those that the master has read to the end."""
        still_open = []
        for until, sock in self._open:
            if now < until and not at_end(sock):
                still_open.append((until, sock))
            else:
                sock.close()
        self._open = still_open

    def close(self, timeout: float = 0.0) -> None:
        """Close them all: each when the master has read it to the end, or after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        try:
            self.reap(time.monotonic())
            while self._open and (left := end - time.monotonic()) > 0:
                self._wait(left)
                self.reap(time.monotonic())
        finally:
            for _, sock in self._open:
                sock.close()
            self._open.clear()

    def __del__(self) -> None:
        """Of a client that was forgotten, and never closed."""
        for _, sock in self._open:
            sock.close()

    def _wait(self, timeout: float) -> None:
        """Until there is something to read."""
        poll = select.poll()
        for _, sock in self._open:
            if (fd := sock.fileno()) >= 0:  # not closed by a connector that did not end in time
                poll.register(fd, select.POLLIN)
        poll.poll(timeout * 1000)

    def after_fork_in_child(self) -> None:
        """In a child of fork."""
        for _, sock in self._open:
            fd = sock.detach()
            if fd >= 0:  # not closed by a thread that the fork cut off
                os.close(fd)


def at_end(sock: socket.socket) -> bool:
    """Whether the other side has closed too; what it says meanwhile is dropped."""
    try:
        for _ in range(READS):
            if not sock.recv(65536):
                return True
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return False
