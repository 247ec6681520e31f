"""An error that another TLS socket left behind is not taken for one of this socket."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from redlock_fast.engine.tls_errors import move


def raising(*errors: OSError) -> tuple[Callable[[bytes], int], list[bytes]]:
    """A method of a socket that raises each error once and then moves all bytes; its calls."""
    left, calls = list(errors), list[bytes]()

    def method(buffer: bytes) -> int:
        calls.append(buffer)
        if left:
            raise left.pop(0)
        return len(buffer)

    return method, calls


@pytest.mark.parametrize("error", [BrokenPipeError, ssl.SSLSyscallError, ssl.SSLEOFError])
def test_an_error_is_tried_once_more(error: type[OSError]) -> None:
    method, calls = raising(error())
    assert move(method, b"abc") == 3
    assert calls == [b"abc", b"abc"]


def test_a_healthy_socket_that_would_block_says_so() -> None:
    method, calls = raising(ConnectionResetError(), ssl.SSLWantReadError())
    with pytest.raises(ssl.SSLWantReadError):
        move(method, b"abc")
    assert len(calls) == 2


def test_a_broken_socket_fails_again() -> None:
    method, calls = raising(BrokenPipeError("first"), BrokenPipeError("again"))
    with pytest.raises(BrokenPipeError, match="first"):
        move(method, b"abc")
    assert len(calls) == 2


def test_a_fatal_alert_is_no_end() -> None:
    """After it, OpenSSL says that the connection has ended."""
    calls: list[int] = []

    def method(size: int) -> bytes:
        calls.append(size)
        if len(calls) == 1:
            raise ssl.SSLError("certificate required")
        return b""

    with pytest.raises(ssl.SSLError, match="certificate required"):
        move(method, 1)


def test_would_block_is_raised_at_once() -> None:
    method, calls = raising(ssl.SSLWantReadError())
    with pytest.raises(ssl.SSLWantReadError):
        move(method, b"abc")
    assert len(calls) == 1
