"""Starts the background threads of the library, and lets them sleep until they are woken."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable


def start_thread(name: str, work: Callable[..., object], *args: object) -> None:
    """Run ``work`` in a thread that does not keep the interpreter alive."""
    threading.Thread(target=work, args=args, name=f"redlock-fast-{name}", daemon=True).start()


def wait_for_wake(wake: queue.SimpleQueue[None], seconds: float) -> None:
    """Wait for ``seconds``, or until something is in ``wake``, which is empty afterwards.

    Another thread, a signal handler or a finalizer wakes this thread by ``wake.put(None)``.
    """
    with contextlib.suppress(queue.Empty):
        wake.get(timeout=seconds)
        while True:
            wake.get_nowait()
