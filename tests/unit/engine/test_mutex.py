"""A mutex is free in a child of fork, unless the thread that forked had it."""

from __future__ import annotations

import os
import threading

import pytest
from support.forking import exit_code, fork_child
from support.waiting import DEADLINE

from redlock_fast.engine.mutex import new_mutex

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def test_a_child_has_no_mutex_of_another_thread() -> None:
    mutex = new_mutex()
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


def test_a_child_releases_what_its_thread_had() -> None:
    mutex = new_mutex()

    def child() -> None:
        mutex.release()
        mutex.release()
        with pytest.raises(RuntimeError):
            mutex.release()

    with mutex, mutex:
        pid = fork_child(child)
    assert exit_code(pid) == 0
