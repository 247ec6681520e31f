"""Python programs as processes, by fork from ``fork_server.py`` where that is no different from a start.

A fresh interpreter that connects to masters takes 0.3 s of a processor, a child of fork 0.05 s.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fork_server import INT, take_terminal

SERVER = Path(__file__).with_name("fork_server.py")
ROOT = Path(__file__).parents[2]
#: Variables that an interpreter, or its C library, reads when it starts.
AT_START = "PYTHON", "LC_", "LANG", "LD_", "DYLD_", "MALLOC_", "TZ"
#: Those that children of the server obey, too.
OBEYED = {"PYTHONPATH", "PYTHONFAULTHANDLER"}


class PythonProcess(subprocess.Popen[Any]):
    """As subprocess.Popen. What only a fresh interpreter can do is done by one.

    Overrides the methods of Popen that start and wait. They are the same in Python 3.11 to 3.15.
    """

    _reports: socket.socket | None = None

    def _execute_child(self, *all_arguments: Any) -> None:
        arguments, _, preexec_fn, _, pass_fds, cwd, env, *_, new_session, _ = all_arguments
        fds = all_arguments[10:16]
        env = dict(os.environ if env is None else env)
        words = [os.fsdecode(word) for word in arguments]
        server = Server.present() if not pass_fds and can_fork(words, preexec_fn) else None
        if server is None or read_at_start(env) != server.env:
            super()._execute_child(*all_arguments)  # type: ignore[misc]
            return
        stdin, _, _, stdout, _, stderr = fds
        request = {
            "arguments": words[1:],
            "env": env,
            "cwd": os.path.abspath(cwd or "."),
            "new_session": new_session,
            "terminal": preexec_fn is take_terminal,
        }
        standard = [fd if fd >= 0 else number for number, fd in enumerate((stdin, stdout, stderr))]
        self._reports = server.fork(request, standard)
        self.pid = self._read()
        self._child_created = True
        self._close_pipe_fds(*fds)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None, **more: Any) -> int | None:
        if self._reports is None:
            return super()._internal_poll(_deadstate, **more)  # type: ignore[misc, no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._reports is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        try:
            status = self._read(socket.MSG_DONTWAIT if wait_flags else 0)
        except BlockingIOError:
            return 0, 0
        self._reports.close()
        return self.pid, status

    def _read(self, flags: int = 0) -> int:
        assert self._reports
        data = self._reports.recv(INT.size, flags)
        if not data:
            raise RuntimeError("the fork server has ended")
        return int(INT.unpack(data)[0])


def can_fork(arguments: Sequence[str], preexec_fn: Any) -> bool:
    """Whether it is a program of this Python, without options of the interpreter."""
    python, first, *rest = [*arguments, ""]
    if first == "-m" and rest[0] == "coverage":  # it counts the lines of imports, too
        return False
    options = first.startswith("-") and first not in ("-c", "-m")
    return python == sys.executable and bool(first) and not options and preexec_fn in (None, take_terminal)


def run_python(
    args: Sequence[Any], *, input: Any = None, timeout: float | None = None, check: bool = False,
    capture_output: bool = False, **options: Any,
) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """As subprocess.run."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with PythonProcess(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def support_program(name: str, setting: object) -> dict[str, Any]:
    """The command and the environment by which a module of tests/support runs with this setting."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {
        "args": [sys.executable, "-m", f"support.{name}", json.dumps(setting)],
        "env": {**os.environ, "PYTHONPATH": paths},
    }


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in env if name.startswith(AT_START) and name not in OBEYED}


class Server:
    """The fork server of this process, started at its first use."""

    _present: Server | None = None
    _mutex = threading.Lock()

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.env = read_at_start(os.environ)
        self._sending = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, str(SERVER), str(theirs.fileno()), str(ROOT)]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[theirs.fileno()])
        atexit.register(self.close)

    @classmethod
    def present(cls) -> Server:
        with cls._mutex:
            if cls._present is None or cls._present.owner != os.getpid():  # a child of fork has its own
                cls._present = Server()
            return cls._present

    def fork(self, request: Mapping[str, Any], standard: Sequence[int]) -> socket.socket:
        """From the socket come the number of the child, and in the end its wait status."""
        reports, theirs = socket.socketpair()
        body = json.dumps(request).encode()
        with theirs, self._sending:
            socket.send_fds(self._control, [INT.pack(len(body))], [*standard, theirs.fileno()])
            self._control.sendall(body)
        return reports

    def close(self) -> None:
        if self.owner == os.getpid():
            self._control.close()
            self._process.wait()
