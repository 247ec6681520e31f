"""Background threads of the library: how they are started, and how they are woken."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from support.waiting import DEADLINE

from redlock_fast.engine.threads import start_thread, wait_for_wake


def test_a_thread_is_named_and_does_not_keep_the_interpreter_alive() -> None:
    """Catches: a program that cannot end while a master hangs in a connection attempt."""
    found: Future[tuple[str, bool, object]] = Future()

    def work(argument: object) -> None:
        thread = threading.current_thread()
        found.set_result((thread.name, thread.daemon, argument))

    start_thread("example", work, 7)
    assert found.result(DEADLINE) == ("redlock-fast-example", True, 7)


def test_one_wait_takes_all_wakes() -> None:
    """Catches: a thread that looks once for each wake, although one look answers all of them."""
    wake: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(3):
        wake.put(None)
    wait_for_wake(wake, DEADLINE)
    assert wake.empty()
    wait_for_wake(wake, 0.0)
