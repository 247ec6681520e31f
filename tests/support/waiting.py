"""Waiting for what must happen: on a condition, with a deadline that only a failing test reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from redlock_fast import QuorumUnavailable

T = TypeVar("T")

#: Seconds. Generous: the machine may be busy.
DEADLINE = 20.0
#: For all that another process does. pytest ends a test after 300 s.
PROCESS_DEADLINE = 240.0
#: Settings of a client: more than a busy machine takes for a reply. A healthy quorum answers long before.
PATIENT: dict[str, Any] = {"node_timeout": 5.0, "connect_timeout": DEADLINE}


def eventually(condition: Callable[[], object], what: str, *, deadline: float = DEADLINE) -> None:
    """Poll until ``condition`` holds."""
    for pause in pauses(what, deadline):
        if condition():
            return
        time.sleep(pause)


def pauses(what: str, deadline: float) -> Iterator[float]:
    """Growing pauses between checks: a long wait must not take the processor from other threads."""
    end = time.monotonic() + deadline
    pause = 0.0005
    while time.monotonic() < end:
        yield pause
        pause = min(1.2 * pause, 0.01)
    yield 0.0  # a last look: the machine may have slept through the rest
    raise AssertionError(f"never happened: {what}")


def answered(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, once its time was enough for a reply of the masters.

    For calls with little time of their own. On a busy machine no master may answer within it, and then
    QuorumUnavailable is right.
    """
    for pause in pauses("the masters answer in the time of the call", DEADLINE):
        try:
            return call()
        except QuorumUnavailable:
            time.sleep(pause)
    raise AssertionError


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
