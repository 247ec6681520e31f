"""The one descriptor that an event loop watches in place of all connections: epoll, or kqueue."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import Any

from ...errors import ConfigError
from ..descriptors import file_of, is_file
from ..greenlets import patched_by


class LoopFd:
    """Readable while a connection has something to read, or can take output again, or after ``signal``."""

    _poll: Any

    def __init__(self) -> None:
        if library := patched_by():
            raise ConfigError(
                f"{library} removes epoll and kqueue, and asyncio clients need one: use FastRedlock"
            )
        self._poll = self._new()
        self._wakefd = os.pipe()
        self._files = [file_of(end) for end in self._wakefd]
        for end in self._wakefd:
            os.set_blocking(end, False)
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            self.add(self._wakefd[0])
            failed.pop_all()

    def fileno(self) -> int:
        return int(self._poll.fileno())

    def signal(self) -> None:
        if is_file(self._wakefd[1], self._files[1]):
            with contextlib.suppress(OSError):  # the pipe is full, so it is readable
                os.write(self._wakefd[1], b"!")

    def drain(self) -> None:
        if is_file(self._wakefd[0], self._files[0]):
            with contextlib.suppress(OSError):
                os.read(self._wakefd[0], 64)

    def close(self) -> None:
        """Close the descriptors, unless they are a stranger's by now. The wake-up pipe stands for all."""
        for end, file in zip(self._wakefd, self._files, strict=True):
            if is_file(end, file):
                os.close(end)
        self._poll.close()

    if sys.platform == "linux":

        def _new(self) -> select.epoll:
            return select.epoll()

        def add(self, fd: int) -> None:
            self._poll.register(fd, select.EPOLLIN)

        def set_output(self, fd: int, wanted: bool) -> None:
            """Sets whether the loop also watches for room to write."""
            self._poll.modify(fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)

        def remove(self, fd: int) -> None:
            with contextlib.suppress(OSError):  # it is closed
                self._poll.unregister(fd)

    else:

        def _new(self) -> select.kqueue:
            return select.kqueue()

        def add(self, fd: int) -> None:
            self._control(fd, select.KQ_FILTER_READ, select.KQ_EV_ADD)

        def set_output(self, fd: int, wanted: bool) -> None:
            self._control(fd, select.KQ_FILTER_WRITE, select.KQ_EV_ADD if wanted else select.KQ_EV_DELETE)

        def remove(self, fd: int) -> None:
            for filter in (select.KQ_FILTER_READ, select.KQ_FILTER_WRITE):
                with contextlib.suppress(OSError):
                    self._control(fd, filter, select.KQ_EV_DELETE)

        def _control(self, fd: int, filter: int, flags: int) -> None:
            self._poll.control([select.kevent(fd, filter, flags)], 0)
