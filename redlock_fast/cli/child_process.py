"""The process of a command: forked before the lock is acquired, started with it, ended when it is lost.

It is forked while this process has a single thread, because the child runs Python before it executes the
command. After a fork with several threads that is not safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import NoReturn, Self

from ..engine.mutex import new_mutex
from . import exit_codes

#: Seconds between two polls: while processes are ended; at first, and at most, while the command runs.
TICK, SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.001, 0.05
#: PR_SET_PDEATHSIG, linux/prctl.h.
SIGNAL_OF_PARENTS_DEATH = 1


class ChildProcess:
    """The forked process, as a context manager that leaves no process behind.

    ``alone``: the command gets its own process group, and signals go to the whole group. Otherwise it stays
    in the group of this process, where the signals of a terminal (Ctrl-C) reach it.
    """

    def __init__(self, command: list[str], *, alone: bool, grace: float) -> None:
        self._command = command
        self._alone = alone
        self._grace = grace
        # No signal after the pid was reaped: another process may have it then.
        self._mutex = new_mutex()
        self._code: int | None = None
        self._pid = 0
        self._start_pipe = self._errors = -1

    def __enter__(self) -> Self:
        # The parent of this process may have ignored it. The kernel then keeps no exit code of a child.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        start_pipe, self._start_pipe = os.pipe()
        self._errors, errors = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._start_pipe)
            _exec_on_start(self._command, start_pipe, errors, parent)
        os.close(start_pipe)
        os.close(errors)
        if self._alone:
            with contextlib.suppress(OSError):  # the child may have been killed
                os.setpgid(self._pid, self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        """End the process: without a start it exits by itself, a started command is terminated."""
        if self._start_pipe >= 0:
            os.close(self._start_pipe)
            self._start_pipe = -1
            self.wait()
        elif self.poll() is None:
            self.end()
            self.wait()
        os.close(self._errors)

    def start(self, environment: Mapping[str, str]) -> OSError | None:
        """Execute the command with these additional variables. Returns None, or why that failed."""
        with contextlib.suppress(BrokenPipeError):  # killed: ``wait`` reports it
            os.write(self._start_pipe, json.dumps(dict(environment)).encode())
        os.close(self._start_pipe)
        self._start_pipe = -1
        number = os.read(self._errors, 100)  # exec closes the other end
        return OSError(int(number), os.strerror(int(number))) if number else None

    def wait(self) -> int:
        """Wait for the end. Returns the exit code, or 128 + the signal that ended the process.

        It polls: another thread may receive a signal, and its handler runs when this thread wakes up.
        """
        pause = SHORTEST_PAUSE
        while (code := self.poll()) is None:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return code

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        with self._mutex:
            if self._code is None:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = code if code >= 0 else exit_codes.SIGNALLED - code
            return self._code

    def send(self, number: int) -> None:
        """Send a signal, and SIGCONT: a stopped process handles no signal before it goes on.

        Ignored if the process has ended, or has another user.
        """
        with self._mutex, contextlib.suppress(ProcessLookupError, ChildProcessError, PermissionError):
            for one in (number, signal.SIGCONT):
                if self._alone:
                    os.killpg(self._pid, one)
                elif self.poll() is None:
                    os.kill(self._pid, one)

    def end(self) -> None:
        """Send SIGTERM, and after ``grace`` seconds SIGKILL to processes that still run."""
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + self._grace
        while self._alive():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                return
            time.sleep(TICK)

    def _alive(self) -> bool:
        running = self.poll() is None
        if not self._alone:
            return running
        try:
            os.killpg(self._pid, 0)
        except OSError:
            return False
        return True


# --- in the child --------------------------------------------------------------------------------


def _exec_on_start(command: list[str], start_pipe: int, errors: int, parent: int) -> NoReturn:
    """Wait for the environment, then execute the command; at the end of the pipe, exit."""
    try:
        _restore_signal_handling()
        _set_parent_death_signal(parent)
        environment = b"".join(iter(lambda: os.read(start_pipe, 1 << 16), b""))
        if environment:
            os.environ.update(json.loads(environment))
            os.execvp(command[0], command)
    except OSError as error:
        os.write(errors, b"%d" % (error.errno or 0))
    finally:
        os._exit(exit_codes.NOT_FOUND)


def _restore_signal_handling() -> None:
    """Restore the signals that Python ignores or handles; those that the parent ignored stay ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _set_parent_death_signal(parent: int) -> None:
    """On Linux: SIGKILL to the command when the parent dies, because then the lease ends without renewal."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(exit_codes.NOT_FOUND)
