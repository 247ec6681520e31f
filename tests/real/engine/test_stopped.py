"""A process that does not run for a while finds replies when it goes on: no master was late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support.python_process import PythonProcess, support_program

from redlock_fast.embedded import Masters

#: Seconds. The masters, which are not stopped, reply in much less, also on a busy machine.
NODE_TIMEOUT, SOCKET_TIMEOUT, STOPPED = 1.0, 2.0, 2.1
STOPS = 3


@pytest.mark.skipif(sys.platform != "linux", reason="stops a process")
@pytest.mark.parametrize("threads", [1, 12])
def test_no_master_was_late(masters: Masters, engine_name: str, threads: int) -> None:
    """Catches: a deadline, or a lagging master, that is judged by a clock before the input is read."""
    setting = {
        "urls": masters.urls,
        "engine": engine_name,
        "node_timeout": NODE_TIMEOUT,
        "socket_timeout": SOCKET_TIMEOUT,
        "threads": threads,
    }
    worker = PythonProcess(
        **support_program("worker_stopped", setting),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout
        assert worker.stdout.readline() == "running\n"
        for _ in range(STOPS):
            os.kill(worker.pid, signal.SIGSTOP)
            time.sleep(STOPPED)
            os.kill(worker.pid, signal.SIGCONT)
            time.sleep(0.1)  # it runs for a while before the next stop
        output, _ = worker.communicate("")
    finally:
        worker.kill()
        worker.communicate()
    assert json.loads(output) == []
