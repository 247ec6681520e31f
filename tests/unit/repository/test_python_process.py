"""A program in a child of the fork server finds what it finds in a fresh interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.python_process import PythonProcess, run_python
from support.waiting import DEADLINE

FACTS = """
import json, os, re, signal, sys, threading
def open_files():
    folder = "/proc/self/fd/"
    paths = [folder + number for number in os.listdir(folder)] if os.path.exists(folder) else []
    return sorted(os.readlink(path) for path in paths if os.path.lexists(path))
def facts():
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path,
        "name": __name__, "file": globals().get("__file__"), "package": __package__,
        "main": sys.modules["__main__"].__dict__ is globals(),
        "cwd": os.getcwd(), "environ": dict(os.environ), "flags": list(sys.flags),
        "executable": sys.executable,
        "group": os.getpgrp() == os.getpid(), "session": os.getsid(0) == os.getpid(),
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "threads": [thread.name for thread in threading.enumerate()],
        "files": [re.sub("[0-9]+", "", file) for file in open_files()],
        "streams": [
            (one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through)
            for one in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "read": sys.stdin.read(),
    }
if __name__ == "__main__":
    print(json.dumps(facts()))
    print("said", file=sys.stderr)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "package" / "program.py"
    path.parent.mkdir()
    path.write_text(FACTS)
    return path


@pytest.mark.parametrize("how", ["-c", "-m", "script"])
@pytest.mark.parametrize("start_new_session", [False, True])
def test_it_finds_the_same(program: Path, how: str, start_new_session: bool) -> None:
    arguments = {"-c": ["-c", FACTS], "-m": ["-m", "package.program"], "script": [str(program)]}[how]
    seen = []
    for make in (subprocess.Popen, PythonProcess):
        process = make(
            [sys.executable, *arguments, "a b", "--option", "ä"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=program.parents[1],
            env={**os.environ, "PYTHONPATH": f"/one:{program.parent}:/one", "MORE": "1"},
            start_new_session=start_new_session,
        )  # fmt: skip
        out, err = process.communicate("input", timeout=DEADLINE)
        assert (process.returncode, err) == (0, "said\n")
        seen.append(json.loads(out))
    assert seen[1]["read"] == "input"
    assert seen[1] == seen[0]


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('why')", 1),
        ("raise OSError('why')", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT),
        ("import signal; signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_how_it_ends(code: str, end: int) -> None:
    done = run_python([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == end
    assert ("why" in done.stderr) == ("why" in code)
    assert ("Traceback" in done.stderr) == ("raise " in code or end == -signal.SIGINT)


def test_its_end_is_that_of_an_interpreter() -> None:
    """Threads are waited for, then atexit; the objects of the program live until then."""
    code = (
        "import atexit, threading\n"
        "class Kept:\n"
        "    def __del__(self): print('deleted')\n"
        "kept = Kept()\n"
        "atexit.register(print, 'atexit')\n"
        "event = threading.Event()\n"
        "threading.Thread(target=lambda: (event.wait(), print('thread'))).start()\n"
        "print('end')\n"
        "event.set()\n"
    )
    said = run_python([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE).stdout
    assert said.split() == ["end", "thread", "atexit", "deleted"]


def test_signals_and_waits() -> None:
    code = "print('here', flush=True); input()"
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with PythonProcess([sys.executable, "-c", code], **options) as process:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(DEADLINE) == process.poll() == process.wait() == -signal.SIGTERM
        process.kill()  # of a process that has ended: nothing


def test_a_check_that_fails() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_python([sys.executable, "-c", "exit(3)"], check=True)


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["-c"], {}),
        (["-B", "-c"], {}),
        (["-c"], {"PYTHONHASHSEED": "7"}),
        (["-c"], {"LC_ALL": "POSIX"}),
    ],
)
def test_what_needs_a_fresh_interpreter_has_one(command: list[str], environment: dict[str, str]) -> None:
    code = "import sys; print('redlock_fast' in sys.modules)"
    done = run_python(
        [sys.executable, *command, code], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.stdout == f"{not environment and command == ['-c']}\n"


def test_it_has_a_parent_without_threads() -> None:
    """A fork beside another thread could copy a lock that this thread holds."""
    code = "import os; print(len(os.listdir(f'/proc/{os.getppid()}/task')))"
    if not Path("/proc/self/task").exists():
        pytest.skip("reads /proc")
    done = run_python([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "1\n"
