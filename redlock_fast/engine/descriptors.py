"""The file that a descriptor is of.

A program may close descriptors that it did not open, as a daemon does, and get their numbers for files of
its own. So a number is compared with its file before it is used after idle time: a stranger's descriptor is
neither written to, nor read, nor closed. The twin of ``src/descriptor.h``.
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
    """Close ``sock``, unless its descriptor is a stranger's by now."""
    if is_file(sock.fileno(), file):
        sock.close()
    else:
        sock.detach()


def close_copy(sock: socket.socket, file: FileId) -> None:
    """As ``close_own``, for a child's copy: without the TLS layer, and without a shutdown."""
    ours, fd = is_file(sock.fileno(), file), sock.detach()
    if ours:
        with contextlib.suppress(OSError):  # a thread that does not exist in the child may have closed it
            os.close(fd)
