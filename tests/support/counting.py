"""Processes that add to a number in a file, each under a lock: two at the same time would lose one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.python_process import PythonProcess

TESTS = Path(__file__).parents[1]


def counting(worker: str, setting: dict[str, Any]) -> subprocess.Popen[str]:
    """A process that runs the module ``worker`` of this package; it waits for ``begin``."""
    path = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return PythonProcess(
        [sys.executable, "-m", f"support.{worker}", json.dumps(setting)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )


def begin(workers: Iterable[subprocess.Popen[str]]) -> None:
    """All together, when all are connected."""
    for worker in workers:
        assert worker.stdout
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin
        print(file=worker.stdin, flush=True)


def end(workers: Iterable[subprocess.Popen[str]]) -> None:
    """Whatever came of it."""
    for worker in workers:
        worker.kill()
        worker.communicate()
