"""Signals to the main thread of the tests, now or again and again."""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from support.waiting import DEADLINE, start


def interrupt() -> None:
    raise KeyboardInterrupt


def to_main() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


@contextlib.contextmanager
def handling(action: Callable[[], object]) -> Iterator[None]:
    """What SIGUSR1 does in this block."""

    def handler(number: int, frame: FrameType | None) -> None:
        action()

    signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        # Not the default: a helper of a test that failed may still send one, and that would end the run.
        # Not SIG_IGN: a process that a later test starts would inherit that.
        signal.signal(signal.SIGUSR1, lambda *_: None)


@contextlib.contextmanager
def pestering(action: Callable[[], None], longest: float = 0.001) -> Iterator[None]:
    """The main thread gets signals in this block, at random moments; ``action`` handles them.

    Garbage collection is off: hypothesis has a hook there, and what a handler raises in it is lost.
    """
    done = threading.Event()

    def pester() -> None:
        while not done.is_set():
            time.sleep(random.random() * longest)
            to_main()

    with handling(action):
        gc.disable()
        helper = start(pester)
        try:
            yield
        finally:
            done.set()
            helper.result(DEADLINE)
            gc.enable()
