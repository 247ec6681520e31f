"""Programs that close all descriptors, as daemons do, and open their own: a client touches none of these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PROCESS_DEADLINE, eventually

from redlock_fast.embedded import Masters

pytest.importorskip("daemon", reason="no python-daemon: pip install 'redlock-fast[integrations-test]'")

WORKER = Path(__file__).parents[2] / "support" / "worker_daemon.py"


@pytest.mark.parametrize("used", ["used", "unused"])
@pytest.mark.parametrize("detached", ["detached", "attached"])
def test_a_daemon_keeps_its_own_files_and_sockets(
    valkey: Masters, tmp_path: Path, engine_name: str, detached: str, used: str
) -> None:
    """Catches: bytes in the log of a daemon, commands to its database, and descriptors that are closed."""
    report = tmp_path / "report"
    words = [engine_name, str(report), detached, used, *valkey.urls]
    subprocess.run([sys.executable, str(WORKER), *words], check=True, timeout=PROCESS_DEADLINE)
    eventually(report.exists, "the daemon has ended", deadline=PROCESS_DEADLINE)
    assert report.read_text() == "untouched"
