"""A pair of sockets by which one thread ends the poll of another."""

from __future__ import annotations

import contextlib
import socket

from ..descriptors import FileId, close_copy, close_own, file_of, is_file


class Pipe:
    """The thread that polls watches ``fd``.

    Sockets, because a closed one is no number that another file may have by now.
    """

    __slots__ = ("_ends", "_files", "fd")

    def __init__(self) -> None:
        self._ends: tuple[socket.socket, socket.socket] = socket.socketpair()
        self._files: list[FileId] = [file_of(end.fileno()) for end in self._ends]
        self.fd: int = self._ends[0].fileno()
        for end in self._ends:
            end.setblocking(False)

    def is_ours(self) -> bool:
        """Whether no descriptor is a stranger's by now, see ``engine/descriptors.py``."""
        return all(is_file(end.fileno(), file) for end, file in zip(self._ends, self._files, strict=True))

    def signal(self) -> None:
        """Makes ``fd`` readable."""
        if is_file(self._ends[1].fileno(), self._files[1]):
            with contextlib.suppress(OSError):  # its buffer is full, so it is readable
                self._ends[1].send(b"!")

    def drain(self) -> None:
        if is_file(self._ends[0].fileno(), self._files[0]):
            with contextlib.suppress(OSError):
                self._ends[0].recv(64)

    def close(self) -> None:
        for end, file in zip(self._ends, self._files, strict=True):
            close_own(end, file)

    def close_copies(self) -> None:
        """In a child of fork."""
        for end, file in zip(self._ends, self._files, strict=True):
            close_copy(end, file)
