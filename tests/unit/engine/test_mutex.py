"""A mutex is free after an interrupt, and in a child of fork unless the thread that forked had it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.forking import exit_code, fork_child, needs_fork
from support.waiting import DEADLINE

from redlock_fast.engine import mutex as module
from redlock_fast.engine.mutex import new_mutex


@pytest.fixture(params=["of Python 3.14", "of this Python"])
def mutex(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> threading.RLock:
    if request.param == "of Python 3.14":
        monkeypatch.setattr(module, "ENTER_IS_INTERRUPTIBLE", True)
    return new_mutex()


@pytest.fixture
def alarm() -> Iterator[None]:
    class Alarm(KeyboardInterrupt): ...

    def handler(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")
@pytest.mark.usefixtures("alarm")
def test_a_handler_that_raises_leaves_it_free(mutex: threading.RLock) -> None:
    """Python 3.14 runs handlers where ``__enter__`` of a mutex has returned, before the body of ``with``."""

    def use() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0002)
        while True:
            with mutex:
                pass

    for _ in range(200):
        with pytest.raises(KeyboardInterrupt):
            use()
        assert not mutex._is_owned()  # type: ignore[attr-defined]


def test_it_is_reentrant_and_exclusive(mutex: threading.RLock) -> None:
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(mutex.acquire(blocking=False)))
    with mutex, mutex:
        other.start()
        other.join()
    assert taken == [False]
    assert not mutex._is_owned()  # type: ignore[attr-defined]


@needs_fork
def test_a_child_has_no_mutex_of_another_thread(mutex: threading.RLock) -> None:
    has_it, forked = threading.Event(), threading.Event()

    def other() -> None:
        with mutex:
            has_it.set()
            forked.wait()

    thread = threading.Thread(target=other)
    thread.start()
    has_it.wait()

    def child() -> None:
        assert mutex.acquire(timeout=DEADLINE)
        mutex.release()

    pid = fork_child(child)
    assert not mutex.acquire(blocking=False), "the parent's thread has it"
    forked.set()
    thread.join()
    assert exit_code(pid) == 0
    with mutex:
        pass


@needs_fork
def test_a_child_releases_what_its_thread_had(mutex: threading.RLock) -> None:
    def child() -> None:
        mutex.release()
        mutex.release()
        with pytest.raises(RuntimeError):
            mutex.release()

    with mutex, mutex:
        pid = fork_child(child)
    assert exit_code(pid) == 0
