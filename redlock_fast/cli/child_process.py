"""The process of a command: begun before there is a lock, started when there is one, ended on a loss.

It is forked at once, while this process has a single thread: a child of several could not safely run
Python any more, and there is something to do in it before the command takes it over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import NoReturn, Self

from . import exit_codes

#: Seconds between two looks where the system cannot tell.
TICK = 0.02
#: PR_SET_PDEATHSIG, linux/prctl.h.
SIGNAL_OF_PARENTS_DEATH = 1


class ChildProcess:
    """A context manager that leaves no process behind.

    ``alone``: in a process group of its own, all of which is signalled: what the command has started as
    well. Without it, it stays in ours, where a terminal's own signals (Ctrl-C) reach it.
    """

    def __init__(self, command: list[str], *, alone: bool, grace: float) -> None:
        self._command = command
        self._alone = alone
        self._grace = grace
        self._mutex = threading.RLock()  # so that nobody is signalled who has just taken over its number
        self._code: int | None = None
        self._pid = 0
        self._start_pipe = self._errors = -1

    def __enter__(self) -> Self:
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
            with contextlib.suppress(OSError):  # it may have been killed already
                os.setpgid(self._pid, self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever was not told to start, ends; whoever was, is ended."""
        if self._start_pipe >= 0:
            os.close(self._start_pipe)
            self._start_pipe = -1
            self.wait()
        elif self.poll() is None:
            self.end()
            self.wait()
        os.close(self._errors)

    def start(self, environment: Mapping[str, str]) -> OSError | None:
        """Let the command take over, with these variables in addition. Returns why it could not."""
        with contextlib.suppress(BrokenPipeError):  # it was killed: ``wait`` will say so
            os.write(self._start_pipe, json.dumps(dict(environment)).encode())
        os.close(self._start_pipe)
        self._start_pipe = -1
        number = os.read(self._errors, 100)  # ends with exec, which closes the other side
        return OSError(int(number), os.strerror(int(number))) if number else None

    def wait(self) -> int:
        """Until it has ended: its exit code, or 128 and the signal that ended it."""
        while (code := self.poll()) is None:
            if hasattr(os, "waitid"):
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            else:
                time.sleep(TICK)
        return code

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        with self._mutex:
            if self._code is None:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = code if code >= 0 else exit_codes.SIGNALLED - code
            return self._code

    def send(self, number: int) -> None:
        """A signal; nothing happens when it has ended, or has other rights than we."""
        with self._mutex, contextlib.suppress(ProcessLookupError, ChildProcessError, PermissionError):
            if self._alone:
                os.killpg(self._pid, number)
            elif self.poll() is None:
                os.kill(self._pid, number)

    def end(self) -> None:
        """SIGTERM; SIGKILL to what is still there after ``grace`` seconds. Returns when that is done."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process would not hear the other
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
    """Wait for the word to start; without it, end."""
    try:
        _restore_signal_handling()
        _set_parent_death_signal(parent)
        word = b"".join(iter(lambda: os.read(start_pipe, 1 << 16), b""))
        if word:
            os.environ.update(json.loads(word))
            os.execvp(command[0], command)
    except OSError as error:
        os.write(errors, b"%d" % (error.errno or 0))
    finally:
        os._exit(exit_codes.NOT_FOUND)


def _restore_signal_handling() -> None:
    """What Python does about signals is not for it; what our parent had us ignore, is."""
    python_ignores = (getattr(signal, name, None) for name in ("SIGPIPE", "SIGXFSZ"))
    for number in filter(None, python_ignores):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _set_parent_death_signal(parent: int) -> None:
    """Linux: a parent that was killed cannot end its command, and the lock goes to another soon: SIGKILL."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(exit_codes.NOT_FOUND)
