"""A child of fork forgets what is its parent's, before it uses any of it and before a signal handler runs.

Python calls the hooks below in a child of its own forks. A child that was forked in C notices that with its
first call, see ``engine/process.py``, and calls ``forget_parent``.

Python reports what a hook of ``os.register_at_fork`` raises, and goes on. So a signal handler that raises in
such a hook would leave the child with the locks and connections of its parent.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ..telemetry import log_error
from .signals import SIGNALS, restore_signals

_steps: list[Callable[[], object]] = []
_mask: Any = None  # the signals that the thread blocked before the fork


def in_child_of_fork(step: Callable[[], object]) -> None:
    """Call ``step`` in each child of fork from now on, after the steps of earlier calls."""
    _steps.append(step)


def _block_signals() -> None:
    global _mask
    _mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _take_steps() -> None:
    global _mask
    try:
        for step in _steps:
            try:
                step()
            except Exception:  # the other steps are for other objects
                log_error("fork-error")
    finally:
        mask, _mask = _mask, None
        if mask is not None:
            restore_signals(mask)


def will_fork_unseen() -> bool:
    """Whether this is a master process of uWSGI that has the application, and will fork its workers, in C.

    CPython may hang in such a worker, if this process has threads: one of them may have the GIL at that
    moment, and the worker lacks that thread. ``process.expect_fork`` prevents that.
    """
    uwsgi: Any = sys.modules.get("uwsgi")  # uWSGI puts it there
    if uwsgi is None or not hasattr(uwsgi, "worker_id"):
        return False
    return uwsgi.worker_id() == 0 and not uwsgi.opt.keys() & {b"lazy-apps", "lazy-apps", b"lazy", "lazy"}


def forget_parent() -> None:
    """Do what the hooks below would have done, in a child that was forked in C.

    It drops the connections, threads, leases and mutexes of the parent.
    """
    _block_signals()
    _take_steps()


# Two hooks: if a handler raises before the first one has blocked signals, Python still calls the second.
os.register_at_fork(after_in_child=_block_signals)
os.register_at_fork(after_in_child=_take_steps)
