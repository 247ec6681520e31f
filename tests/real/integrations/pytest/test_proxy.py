"""The proxy in front of a master: bytes stay in order, also those that were held."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from support.waiting import eventually

from redlock_fast.embedded import Masters
from redlock_fast.integrations.pytest.proxy import Proxy


def answer(sock: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        received += sock.recv(1000)
    return received


def test_order_after_a_hold(valkey: Masters) -> None:
    with closing(Proxy(valkey[0].port)) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as sock:
        sock.settimeout(20)
        sock.sendall(b"INCR n\r\n")
        assert answer(sock, b"\r\n") == b":1\r\n"
        proxy.hold(replies=False)
        for _ in range(50):
            sock.sendall(b"INCR n\r\n")
        assert valkey[0].ask("GET n") == "$1", "one digit: nothing was delivered"
        proxy.deliver()
        assert answer(sock, b":51\r\n") == b"".join(b":%d\r\n" % n for n in range(2, 52))


def test_what_is_held_comes_before_what_is_sent_later(valkey: Masters) -> None:
    """Also the end of a connection is held, and arrives behind its bytes."""
    with closing(Proxy(valkey[0].port)) as proxy:
        proxy.hold()
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
            sock.sendall(b"SET late 1\r\n")
        proxy.deliver()
        eventually(lambda: valkey[0].ask("EXISTS late") == ":1", "the late request is executed")


def test_cut_loses_what_is_held(valkey: Masters) -> None:
    with closing(Proxy(valkey[0].port)) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as sock:
        sock.settimeout(20)
        sock.sendall(b"PING\r\n")
        assert answer(sock, b"\r\n") == b"+PONG\r\n"
        proxy.hold()
        sock.sendall(b"SET lost 1\r\n")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        proxy.deliver()
        assert valkey[0].ask("EXISTS lost") == ":0"
