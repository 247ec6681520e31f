"""Which open file the number of a descriptor stands for: its device and inode.

A program may close our descriptors, as a daemon does, and the system then gives their numbers to files of the
program. So the file behind a number is compared before the number is used after idle time. If it is another
file, nothing is written to it, read from it, or closed. The twin of ``src/descriptor.h``.
"""

from __future__ import annotations

import contextlib
import os
import socket

#: Why a connection ended whose descriptor is a stranger's.
NOT_OURS = "its descriptor was closed by another part of this program"
#: Device and inode.
FileId = tuple[int, int]


def file_of(fd: int) -> FileId:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def is_file(fd: int, file: FileId) -> bool:
    """Whether the descriptor ``fd`` is of ``file``."""
    try:
        return file_of(fd) == file
    except OSError:  # it is closed
        return False


def close_own(sock: socket.socket, file: FileId) -> None:
    """Close ``sock``, unless the number of its descriptor stands for another file by now."""
    if is_file(sock.fileno(), file):
        sock.close()
    else:
        sock.detach()


def close_copy(sock: socket.socket, file: FileId) -> None:
    """As ``close_own``, for the copy of its parent's socket that a child of fork has.

    Nothing of TLS is sent, and there is no shutdown: both would end the connection of the parent.
    """
    ours, fd = is_file(sock.fileno(), file), sock.detach()
    if ours:
        with contextlib.suppress(OSError):  # a thread that does not exist in the child may have closed it
            os.close(fd)
