"""deploy/systemd: by the steps of deploy/README.md, the unit starts a master that locks."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.deployment import DEPLOY, make_secrets
from support.waiting import eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import find_server

UNIT = (DEPLOY / "systemd" / "redlock-master.service").read_text()
README = (DEPLOY / "README.md").read_text()


def answers(url: str) -> bool:
    """Not yet where the socket exists, and nothing listens to it."""
    with redis.Redis.from_url(url) as node, contextlib.suppress(redis.ConnectionError):
        return bool(node.ping())
    return False


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The URL of a master that runs the unit's command, with the folders of a test."""
    make_secrets(tmp_path / "secrets")
    (command,) = re.findall(r"^ExecStart=/usr/bin/valkey-server (.*)$", UNIT, re.MULTILINE)
    (state,) = re.findall(r"^StateDirectory=(.*)$", UNIT, re.MULTILINE)
    (sed,) = re.findall(r"^sed (?:.*\\\n)*.*$", README, re.MULTILINE)
    data, config, socket = tmp_path / state, tmp_path / "valkey.conf", tmp_path / "socket"
    data.mkdir()
    places = {
        "/etc/redlock/users.acl": tmp_path / "secrets" / "users.acl",
        f"/var/lib/{state}": data,
        command: config,
    }
    for place, here in places.items():
        assert place in sed, "the configuration has the folders of the unit"
        sed = sed.replace(place, str(here))
    subprocess.run(["sh", "-c", sed], cwd=DEPLOY, check=True)
    start = [find_server("valkey"), config, "--port", "0", "--unixsocket", socket]
    password = (tmp_path / "secrets" / "redlock-password").read_text().strip()
    url = f"unix://redlock:{password}@{socket}"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(start, stdout=log)
    try:
        eventually(lambda: answers(url) or process.poll() is not None, "it answers")
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait()


def test_the_command_of_the_unit(address: str, tmp_path: Path) -> None:
    with redis.Redis.from_url(address) as node:
        assert node.config_get("append*")["appendfsync"] == "always"  # type: ignore[index]
        assert node.config_get("dir")["dir"] == str(tmp_path / "redlock-master")  # type: ignore[index]
    with (
        FastRedlock([address], node_timeout=5.0, connect_timeout=20.0) as client,
        client.lock("r", fencing=True, timeout=5.0) as lock,
    ):
        assert lock.fencing_token
    assert any((tmp_path / "redlock-master").rglob("*.aof"))
