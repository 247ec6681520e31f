"""Proxies between a client and its masters."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    """Whether the proxy forwards a command."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), DEADLINE) as sock:
        sock.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
        return sock.recv(100) == b"$-1\r\n"
    return False


@pytest.mark.skipif(shutil.which("nutcracker") is None, reason="no nutcracker (twemproxy) on PATH")
def test_twemproxy_is_named(valkey: Masters, client: MakeClient, tmp_path: Path) -> None:
    """Catches: an error that says no more than "connection closed" of a master that answers others."""
    port = free_port()
    server = valkey.urls[0].removeprefix("redis://").partition("/")[0]
    settings = tmp_path / "pool.yml"
    settings.write_text(f"pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  servers:\n   - {server}:1\n")
    log, statistics = tmp_path / "log", str(free_port())
    proxy = subprocess.Popen(["nutcracker", "-c", settings, "-o", log, "-s", statistics])
    try:
        eventually(lambda: answers(port), "the proxy answers")
        one = client([f"redis://127.0.0.1:{port}"])
        assert one.connect(0.01) is False
        eventually(lambda: "first reply, as by twemproxy" in one.health()[0].error, "the error names it")
    finally:
        proxy.terminate()
        proxy.wait(DEADLINE)
