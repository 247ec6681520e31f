"""One fd for an event loop to watch, in place of all connections: epoll, or kqueue."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import Any


class Watch:
    """Readable as long as a connection has something to read or to write, or after ``ring``."""

    _bell: tuple[int, ...] = ()
    _poll: Any = None

    def __init__(self) -> None:
        self._poll = self._new()
        self._bell = os.pipe()
        for end in self._bell:
            os.set_blocking(end, False)
        self.add(self._bell[0])

    def fileno(self) -> int:
        return int(self._poll.fileno())

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it rings already
            os.write(self._bell[1], b"!")

    def silence(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._bell[0], 64)

    def close(self) -> None:
        bell, self._bell = self._bell, ()
        for end in bell:
            os.close(end)
        if self._poll is not None:  # None where __init__ got no file descriptor
            self._poll.close()

    __del__ = close

    if sys.platform == "linux":

        def _new(self) -> select.epoll:
            return select.epoll()

        def add(self, fd: int) -> None:
            self._poll.register(fd, select.EPOLLIN)

        def output(self, fd: int, wanted: bool) -> None:
            """Whether to watch for room to write, too."""
            self._poll.modify(fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)

        def remove(self, fd: int) -> None:
            with contextlib.suppress(OSError):  # it is not there any more
                self._poll.unregister(fd)

    else:

        def _new(self) -> select.kqueue:
            return select.kqueue()

        def add(self, fd: int) -> None:
            self._control(fd, select.KQ_FILTER_READ, select.KQ_EV_ADD)

        def output(self, fd: int, wanted: bool) -> None:
            self._control(fd, select.KQ_FILTER_WRITE, select.KQ_EV_ADD if wanted else select.KQ_EV_DELETE)

        def remove(self, fd: int) -> None:
            for filter in (select.KQ_FILTER_READ, select.KQ_FILTER_WRITE):
                with contextlib.suppress(OSError):
                    self._control(fd, filter, select.KQ_EV_DELETE)

        def _control(self, fd: int, filter: int, flags: int) -> None:
            self._poll.control([select.kevent(fd, filter, flags)], 0)
