"""Children of fork that run one function, and cannot hang the tests."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
import time
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

import pytest
from support.waiting import DEADLINE, eventually

#: Each object has a mutex there. Python does not reset one that a thread of the parent has locked.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or FREE_THREADED,
    reason="needs os.fork, and a Python with a GIL, where a child waits for no thread of its parent",
)


def fork_child(action: Callable[[], None], fork: Callable[[], int] | None = None) -> int:
    """Fork; the child runs ``action`` and exits 0 if it did not raise. The child's process id."""
    pid = (fork or fork_here)()
    if pid == 0:
        run_and_exit(action)
    return pid


def fork_here() -> int:
    """As os.fork."""
    with warnings.catch_warnings():
        # Forking beside threads is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def fork_in_c() -> int:
    """As uWSGI forks: Python runs none of its hooks. The thread keeps the GIL.

    CPython hangs in such a child if another thread had asked for the GIL at that moment: the child waits
    until that thread has taken it. So no thread asks for a while.
    """
    fork: Callable[[], int] = ctypes.PyDLL(None).fork
    interval = sys.getswitchinterval()
    sys.setswitchinterval(DEADLINE)
    try:
        time.sleep(4 * interval)  # longer than threads wait that began before
        return fork()
    finally:
        sys.setswitchinterval(interval)


def run_and_exit(action: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Of the child, which is killed if it does not end."""
    ended: list[int] = []

    def poll() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(found)

    try:
        eventually(poll, "the child ends", deadline=3 * DEADLINE)
    finally:
        if not ended:
            os.kill(pid, signal.SIGABRT)  # and pytest writes to stderr where it hangs
            os.waitpid(pid, 0)
    return ended[0]
