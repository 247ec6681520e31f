"""The replies of a server during connect: whole, plain and finite, or refused."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.forking import exit_code, fork_child
from support.resp_streams import cut, stream
from support.thorough import amount

from redlock_fast.masters import bounded_socket as _bounded
from redlock_fast.masters.bounded_socket import (
    MAX_ANSWER,
    MAX_ANSWERS,
    MAX_REPLIES,
    BoundedSocket,
    Pushed,
    connect_bounded,
)
from redlock_fast.wire.resp import MAX_DEPTH, MAX_REPLY, ProtocolError, Scan, resume

Said = Callable[..., BoundedSocket]

HELLO = b"%2\r\n+server\r\n+redis\r\n$7\r\nmodules\r\n*1\r\n%1\r\n+name\r\n*1\r\n+a\r\n"


@pytest.fixture
def said() -> Iterator[Said]:
    """``said(data, timeout)``: a socket whose other end sent ``data``; it is not closed yet."""
    ends: list[socket.socket] = []

    def make(data: bytes, timeout: float = 20.0) -> BoundedSocket:
        ours, theirs = socket.socketpair()
        ends.extend((ours, theirs))
        theirs.sendall(data)
        return BoundedSocket(ours, timeout)

    yield make
    for end in ends:
        end.close()


def test_one_reply_at_a_time(said: Said) -> None:
    sock = said(b"+OK\r\n" + HELLO + b":1\r\n")
    assert [sock.recv(4096), sock.recv(4096), sock.recv(4096)] == [b"+OK\r\n", HELLO, b":1\r\n"]
    assert sock.release().fileno() == sock.fileno()


@pytest.mark.parametrize(("seconds", "error"), [(0, BlockingIOError), (3600, TimeoutError)])
def test_only_with_a_timeout_of_0_it_does_not_wait(seconds: float, error: type[Exception]) -> None:
    """redis-py before 8 asks so whether a connection of its pool has unread data."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = BoundedSocket(ours, timeout=0.01 if seconds else 20.0)
        sock.settimeout(seconds)
        with pytest.raises(error):
            sock.recv(4096)
        if not seconds:
            theirs.sendall(b"+a\r\n")
            assert sock.recv(4096) == b"+a\r\n"


def test_a_reply_in_small_pieces(said: Said) -> None:
    sock, into = said(b"+abc\r\n"), bytearray(4)
    assert sock.recv_into(into) == 4
    assert (bytes(into), sock.recv(1), sock.recv(9)) == (b"+abc", b"\r", b"\n")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"$%d\r\n" % (MAX_ANSWER - 1),
        b"$2147483647\r\n",
        b"*4294967296\r\n",
        b"*2147483647\r\n" + b":1\r\n" * 30_000,
        b"+" + b"x" * MAX_ANSWER,
        b"+OK\rX",
        b"*1\r\n" * (MAX_DEPTH + 1) + b":1\r\n",
        b"*1\r\n" * 10_000,
        b"|1\r\n+a\r\n:1\r\n+OK\r\n",
        b"%1\r\n*1\r\n:1\r\n:2\r\n",
        b"*1\r\n%1\r\n%0\r\n:2\r\n",
        b"~1\r\n%1\r\n_\r\n:2\r\n",
        b"*1\r\n|0\r\n:2\r\n",
    ],
    ids=lambda data: repr(data[:20])[2:-1],
)
def test_refused(said: Said, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        said(data).recv(4096)


def test_more_replies_than_anybody_asked_for(said: Said) -> None:
    sock = said(b"*1\r\n+x\r\n" * (MAX_REPLIES + 1))
    for _ in range(MAX_REPLIES):
        assert sock.recv(4096) == b"*1\r\n+x\r\n"
    with pytest.raises(ProtocolError, match="unrequested"):
        sock.recv(4096)


def test_a_reply_may_be_longer_than_that_to_a_lock(said: Said) -> None:
    info = b"$%d\r\n%b\r\n" % (5 * MAX_REPLY, b"x" * 5 * MAX_REPLY)
    sock, got = said(info), b""
    while len(got) < len(info):
        got += sock.recv(4096)
    assert got == info


def test_more_bytes_than_anybody_asked_for() -> None:
    reply = b"$60000\r\n" + b"x" * 60_000 + b"\r\n"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = BoundedSocket(ours, 20.0)

        def take() -> None:
            theirs.sendall(reply)
            left = len(reply)
            while left:
                left -= len(sock.recv(left))

        for _ in range(MAX_ANSWERS // len(reply)):
            take()
        with pytest.raises(ProtocolError, match="more than was asked for"):
            take()


@pytest.mark.parametrize(
    "reply",
    [b"*9000\r\n" + b":1\r\n" * 9000, b"$50000\r\n" + b"x" * 50_000 + b"\r\n", HELLO * 9],
    ids=["array", "bulk", "maps"],
)
def test_no_byte_is_looked_at_more_than_twice(
    said: Said, reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def counting(data: bytearray, scan: Scan, most: int) -> tuple[int, Scan]:
        nonlocal looked
        end, after = resume(data, scan, most)
        looked += after.looked - scan.looked
        return end, after

    monkeypatch.setattr(_bounded, "resume", counting)
    monkeypatch.setattr(_bounded, "RECEIVE_SIZE", 7)
    sock, got = said(reply), b""
    while len(got) < len(reply):
        got += sock.recv(4096)
    assert got == reply
    assert looked <= 2 * len(reply)


def test_a_push_is_not_passed_over(said: Said) -> None:
    """All that it can say so early is that keys were flushed; redis-py would drop it."""
    push = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
    with pytest.raises(Pushed):
        said(push).recv(4096)
    sock = said(b"+OK\r\n" + push)
    assert sock.recv(4096) == b"+OK\r\n"
    with pytest.raises(Pushed):
        sock.release()


def test_each_command_may_have_replies(said: Said) -> None:
    sock = said(b"+OK\r\n" * 3 * MAX_REPLIES)
    for _ in range(3):
        sock.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert [sock.recv(4096) for _ in range(MAX_REPLIES)] == [b"+OK\r\n"] * MAX_REPLIES


@pytest.mark.parametrize("rest", [b"+OK\r\n", b"$5\r\n"])
def test_what_is_left_at_the_end(said: Said, rest: bytes) -> None:
    sock = said(b"+OK\r\n" + rest)
    assert sock.recv(4096) == b"+OK\r\n"
    with pytest.raises(ProtocolError, match="unrequested"):
        sock.release()


def test_time_is_for_the_whole_answer(said: Said) -> None:
    sock = said(b"$100\r\nx", timeout=0.05)
    with pytest.raises(TimeoutError):
        sock.recv(4096)
    with pytest.raises(TimeoutError):
        sock.recv(4096)  # nor does it start again with what comes then


def test_the_end_of_the_stream(said: Said) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            BoundedSocket(ours, 20.0).recv(4096)


@settings(max_examples=amount(50, 300, twice=300), deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_what_it_hands_on_is_what_was_said(chance: Random) -> None:
    data = stream(chance)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        got, sock = bytearray(), BoundedSocket(ours, 20.0)
        theirs.setblocking(False)
        for piece in cut(data[:100_000], chance.randrange(len(data) + 1)):
            theirs.sendall(piece)
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ProtocolError, ConnectionError):
            while True:
                got += sock.recv(1 + chance.randrange(100))
        assert data.startswith(got)


def test_child_of_fork_closes_its_copy() -> None:
    """Catches: a greenlet of the parent that goes on in the child, and reads the replies to its parent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bounded = BoundedSocket(ours, 20.0)

        def child() -> None:
            with pytest.raises(OSError, match="its descriptor was closed"):
                bounded.recv(1)
            released.sendall(b"x")

        other, peer = socket.socketpair()
        with other, peer:
            released = BoundedSocket(other, 20.0).release()
            assert exit_code(fork_child(child)) == 0
            assert peer.recv(1) == b"x"
        theirs.sendall(b"+OK\r\n")
        assert bounded.recv(4096) == b"+OK\r\n", "the parent's is open, and not shut down"


def test_connection_that_a_fork_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()

    def connect() -> socket.socket:
        monkeypatch.setattr(os, "getpid", lambda: -1)  # as in the child, where the greenlet goes on
        return ours

    with theirs:
        with pytest.raises(ConnectionError, match="parent process"):
            connect_bounded(object(), connect, 20.0)
        assert ours.fileno() == -1
        assert theirs.recv(1) == b""
