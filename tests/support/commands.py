"""``redlock-fast`` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from support.python_process import PythonProcess
from support.waiting import DEADLINE, PROCESS_DEADLINE, eventually, start

from redlock_fast.embedded import Masters

ROOT = Path(__file__).parents[2]


def _traced() -> list[str]:
    """Where lines are counted, those of this process, too. It forks before it has a second thread."""
    coverage = sys.modules.get("coverage")
    counted = coverage is not None and coverage.Coverage.current() is not None
    where = [f"--rcfile={ROOT / 'pyproject.toml'}", f"--data-file={ROOT / '.coverage'}"]
    return ["-m", "coverage", "run", *where] if counted else []


class Command:
    """How to start it: with these masters, on this engine."""

    def __init__(self, masters: Masters | None, engine: str = "auto") -> None:
        ours = "REDLOCK_FAST_", "COLUMNS"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.environment |= {
            "REDLOCK_FAST_ENGINE": engine,
            "REDLOCK_FAST_CONFIG": str(Path(__file__).with_name("fresh.toml")),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": str(ROOT),
            # The scripts that tests run need sh and sleep, which no test may expect on the PATH of the tests.
            "PATH": os.pathsep.join([os.environ["PATH"], os.defpath]),
        }
        if masters is not None:
            self.environment["REDLOCK_FAST_MASTERS"] = " ".join(masters.urls)

    def with_options(self, folder: Path, **options: Any) -> Command:
        """The same with these options of the client, in a configuration file in ``folder``."""
        options = {"assume_fresh": True, **options}
        path = folder / "redlock-fast.toml"
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in options.items())
        path.write_text("[redlock-fast]\n" + "".join(lines))
        self.environment["REDLOCK_FAST_CONFIG"] = str(path)
        return self

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return PythonProcess(
            [sys.executable, *_traced(), "-m", "redlock_fast", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | environment,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Its exit code, what it printed, what it complained of."""
        with running(self.start(*arguments, **environment)) as process:
            out, err = process.communicate(timeout=PROCESS_DEADLINE)
            return process.returncode, out, err


def sh(script: str) -> list[str]:
    """The arguments that make ``exec`` or ``lead`` run a script."""
    return ["--", "sh", "-c", script]


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends the process. If it does not end in time, the stacks of its threads are printed."""
    with process:
        try:
            yield process
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                print(process.communicate(timeout=DEADLINE)[1])
            raise
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of its output, without the line end. Raises TimeoutExpired, as ``running`` expects."""
    assert process.stdout is not None
    try:
        return start(process.stdout.readline).result(PROCESS_DEADLINE).rstrip()
    except TimeoutError:
        raise subprocess.TimeoutExpired(process.args, PROCESS_DEADLINE) from None


def alive(pid: int) -> bool:
    """Whether there is such a process, and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_lines() -> list[str]:
    """Those of all processes."""
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def ends(pid: int) -> None:
    try:
        eventually(lambda: not alive(pid), f"process {pid} ends")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
