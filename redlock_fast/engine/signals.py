"""The signals that threads of the library block, so that handlers run in threads of the program only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from .greenlets import patched_by

__all__ = ["SIGNALS", "block_signals", "pthread_sigmask", "restore_signals", "signals_blocked"]

try:
    # Without the enums around it: six times faster.
    from _signal import pthread_sigmask  # type: ignore[import-not-found]
except ImportError:
    from signal import pthread_sigmask

#: All signals but those that report a crash.
SIGNALS = set(map(int, signal.valid_signals())) - {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL
}  # fmt: skip


def block_signals() -> Any:
    """In a background thread of the library: leave all signals to the threads of the program.

    The kernel then gives a signal of the process to a thread of the program. Returns the mask of before, for
    ``restore_signals``. A greenlet has no mask of its own: returns None, and changes nothing.
    """
    if patched_by():
        return None
    return pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


@contextlib.contextmanager
def signals_blocked() -> Iterator[Any]:
    """Block all signals in this thread while the block starts another thread.

    Yields the mask of before, which the new thread restores when it calls the program's code.

    A handler that raises inside ``Thread.start`` leaves a lock of Python 3.11 taken, and each later start of
    a thread waits for that lock without end. The new thread inherits that all signals are blocked.
    """
    mask = block_signals()
    try:
        yield mask
    finally:
        restore_signals(mask)


def restore_signals(mask: Any) -> None:
    """In a thread that a background thread started, and that calls the program's code. None: no mask."""
    if mask is not None:
        pthread_sigmask(signal.SIG_SETMASK, mask)
