"""deploy/systemd: a master on a plain machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.inside import core_of

from redlock_fast import FastRedlock

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "redlock-master.service"
CONFIG = (DEPLOY / "valkey" / "valkey.conf").read_text()
#: How often a client tries to reconnect, with time to connect: seconds.
RECONNECT = 5.0


def option(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is installed: systemd-analyze looks whether it exists."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/usr/bin/valkey-server", sys.executable))
    return path


def analyze(*arguments: object) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is missing")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_takes_the_unit(unit: Path) -> None:
    assert analyze("verify", unit) == ""


def test_it_is_exposed_little(unit: Path) -> None:
    """Of 10.0, which is a service without any restriction."""
    if "--offline" not in analyze("--help"):
        pytest.skip("this systemd-analyze cannot judge a unit that is not loaded")
    analyze("security", "--offline=yes", "--threshold=20", unit)


def test_a_restart_respects_max_ttl() -> None:
    with FastRedlock(["redis://127.0.0.1:1"]) as client:
        assert float(option("RestartSec")) >= core_of(client).max_ttl + RECONNECT
    assert option("Restart") == "always"
    assert option("StartLimitIntervalSec") == "0"


def test_bounds_fit_the_settings() -> None:
    (memory,) = re.findall(r"^maxmemory (\d+)mb$", CONFIG, re.MULTILINE)
    (clients,) = re.findall(r"^maxclients (\d+)$", CONFIG, re.MULTILINE)
    assert option("MemoryMax") == f"{2 * int(memory)}M"
    assert option("MemorySwapMax") == "0"
    assert int(option("LimitNOFILE")) >= int(clients) + 32


@pytest.mark.parametrize("name", [path.name for path in UNIT.parent.iterdir()])
def test_each_file_is_explained(name: str) -> None:
    assert f"systemd/{name}" in (DEPLOY / "README.md").read_text()
    assert "/etc/" in (UNIT.parent / name).read_text().splitlines()[0], "the first line says where it goes"
