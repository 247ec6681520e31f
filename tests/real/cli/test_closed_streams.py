"""Commands whose stdin, stdout or stderr is closed, as some daemons start them, or whose disk is full."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.commands import Command
from support.waiting import PROCESS_DEADLINE

from redlock_fast.embedded import Masters


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["exec", "name", "--", "sh", "-c", "exit 7"], 7),
        (["exec", "name", "--", "/no/such/command"], 127),
        (["status"], 0),
        (["locks", "--json"], 0),
        (["break", "nothing", "--yes"], 1),
        (["status", "--masters", "no url"], 64),
    ],
    ids=["exec", "exec_without_command", "status", "locks", "break", "usage"],
)
def test_the_exit_code_stays(once: Command, arguments: list[str], expected: int, closed: str) -> None:
    script = f'exec "$@" {closed}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "redlock_fast", *arguments]
    ended = subprocess.run(
        command, env=once.environment, capture_output=True, text=True, timeout=PROCESS_DEADLINE
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (expected, False), ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["status"], ["status", "--json"], ["locks"], ["top", "--json", "--once"]]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_is_full(valkey: Masters, arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "redlock_fast", *arguments],
            env={**Command(valkey).environment, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PROCESS_DEADLINE,
        )
    assert ended.returncode == 74
    assert ended.stderr.splitlines()[-1] == "redlock-fast: cannot write the output: No space left on device"
    assert "Traceback" not in ended.stderr
