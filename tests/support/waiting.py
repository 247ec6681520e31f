"""Waiting for what must happen: on a condition, with a deadline that only a failing test reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

#: Seconds. Generous: the machine may be busy.
DEADLINE = 20.0


def eventually(condition: Callable[[], object], what: str, *, deadline: float = DEADLINE) -> None:
    """Poll until ``condition`` holds."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.0005)


def start(call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a thread of its own; the future has its result or its exception."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
