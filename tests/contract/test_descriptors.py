"""A process that has no file descriptor left loses none for it, and can watch when it has some again."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterator

import pytest
from support.fleet import MakeFleet
from support.scripted import granting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: More than both engines need to watch.
ENOUGH = 4


def count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def leave() -> Iterator[Callable[[int], contextlib.AbstractContextManager[None]]]:
    """``with leave(n)``: that many file descriptors can be had."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    @contextlib.contextmanager
    def only(left: int) -> Iterator[None]:
        most = max(map(int, os.listdir("/proc/self/fd"))) + ENOUGH + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        held = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(left):
                os.close(held.pop())
            yield
        finally:
            for one in held:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    yield only
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("left", range(3))
def test_a_loop_that_cannot_watch(
    fleet: MakeFleet, leave: Callable[[int], contextlib.AbstractContextManager[None]], left: int
) -> None:
    one = fleet(granting)
    before, failed = count(), 0
    with leave(left):
        for _ in range(10):
            try:
                one.engine.fileno()
            except OSError:
                failed += 1
    assert failed in (0, 10), "each attempt needs as many as the first"
    if failed:
        assert count() == before
    assert one.engine.fileno() >= 0
    one.engine.close_loop_fd()
    assert count() == before
