"""Half-closed connections: read until the other side closes, closed in the end, and never too many."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from support.waiting import DEADLINE, eventually, start

from redlock_fast.masters.lingering_close import LINGER_TIMEOUT, MAX_PER_MASTER, LingeringSockets, at_end

#: Sockets that one thread adds while another looks through them.
ADDITIONS = 300

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(2 * MAX_PER_MASTER + 1)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def closed(theirs: socket.socket) -> bool:
    """Whether our end is: then the other can read the end of the stream."""
    theirs.setblocking(False)
    try:
        return theirs.recv(1) == b""
    except BlockingIOError:
        return False


def test_open_until_the_other_side_has_closed(pairs: list[Pair]) -> None:
    lingering = LingeringSockets(1)
    ours, theirs = pairs[0]
    lingering.add(ours)
    theirs.sendall(b"+OK\r\n")
    lingering.reap(time.monotonic())
    assert len(lingering) == 1
    theirs.sendall(b"+OK\r\n")
    theirs.shutdown(socket.SHUT_WR)
    assert not closed(theirs)
    lingering.reap(time.monotonic())
    assert len(lingering) == 0
    assert closed(theirs)


def test_open_no_longer_than_that(pairs: list[Pair]) -> None:
    lingering = LingeringSockets(1)
    lingering.add(pairs[0][0])
    lingering.reap(time.monotonic() + LINGER_TIMEOUT / 2)
    assert len(lingering) == 1
    lingering.reap(time.monotonic() + LINGER_TIMEOUT + 1)
    assert len(lingering) == 0


def test_the_oldest_make_room(pairs: list[Pair]) -> None:
    lingering = LingeringSockets(2)
    for ours, _ in pairs:
        lingering.add(ours)
    assert len(lingering) == 2 * MAX_PER_MASTER
    assert [closed(theirs) for _, theirs in pairs] == [True] + [False] * 2 * MAX_PER_MASTER
    lingering.close()
    assert all(closed(theirs) for _, theirs in pairs)


def test_closing_waits_for_the_other_side(pairs: list[Pair]) -> None:
    lingering = LingeringSockets(2)
    for ours, theirs in pairs[:2]:
        lingering.add(ours)
        theirs.sendall(b"+OK\r\n")
    pairs[0][1].shutdown(socket.SHUT_WR)
    closing = start(lambda: lingering.close(DEADLINE))
    eventually(lambda: len(lingering) == 1, "the first is closed")
    assert not closed(pairs[1][1])
    pairs[1][1].shutdown(socket.SHUT_WR)
    closing.result(DEADLINE)
    assert closed(pairs[1][1])


class Endless(socket.socket):
    """Always has more to read."""

    def recv(self, *_: int) -> bytes:
        return b"+OK\r\n"


def test_a_sender_without_end_delays_no_other() -> None:
    with Endless() as sock:
        assert at_end(sock) is False


def test_what_is_forgotten_is_closed() -> None:
    """Of a client that was never closed. A socket left open would be a ResourceWarning."""
    ours, theirs = socket.socketpair()
    with theirs:
        lingering = LingeringSockets(1)
        lingering.add(ours)
        del lingering
        gc.collect()
        assert theirs.recv(1) == b""


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_none_is_forgotten_that_another_thread_adds() -> None:
    """Catches: a look through all of them that ends with a list from before the other's addition."""
    lingering, ended = LingeringSockets(ADDITIONS), threading.Event()

    def reap() -> None:
        while not ended.is_set():
            lingering.reap(time.monotonic())

    reaping = start(reap)
    with contextlib.ExitStack() as stack:
        for _ in range(ADDITIONS):
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            lingering.add(ours)
        ended.set()
        reaping.result(DEADLINE)
        assert len(lingering) == ADDITIONS
        lingering.close()
