"""Places that waiting acquires keep: close() removes those between rounds, and waits for rounds."""

from __future__ import annotations

import threading

import pytest
from support.moments import moments
from support.signalling import interrupt
from support.waiting import DEADLINE, eventually, start

import redlock_fast.algorithm.server_queue
import redlock_fast.engine.condition
from redlock_fast.algorithm.server_queue import ServerQueueEntries
from redlock_fast.engine.contract import Request
from redlock_fast.errors import ClientClosed

ONE, OTHER = "one", "other"
UNDO = [Request(1, (b"key",), 0b11111)]


def test_without_a_waiter() -> None:
    places = ServerQueueEntries()
    assert places.close() == []
    assert places.wait_for_rounds(0.0)


def test_the_undo_of_all_that_rest() -> None:
    places = ServerQueueEntries()
    more = [Request(2, (b"key",), 0b1), *UNDO]
    places.begin_round(ONE)
    places.end_round(ONE, UNDO)
    places.end_round(OTHER, more)
    assert places.close() == [*UNDO, *more]
    assert places.wait_for_rounds(0.0), "they may rest for long"


def test_a_busy_acquire_is_waited_for() -> None:
    places = ServerQueueEntries()
    places.end_round(ONE, UNDO)
    places.begin_round(ONE)
    assert places.close() == []
    assert not places.wait_for_rounds(0.0)
    waiting = start(lambda: places.wait_for_rounds(DEADLINE))
    eventually(lambda: places._change._condition._waiters, "it waits")
    assert not waiting.done()
    places.remove(ONE)
    assert waiting.result(DEADLINE) is True


def test_no_acquire_goes_on_after_the_end() -> None:
    places = ServerQueueEntries()
    places.end_round(ONE, UNDO)
    places.close()
    with pytest.raises(ClientClosed):
        places.begin_round(ONE)
    with pytest.raises(ClientClosed):
        places.end_round(OTHER, UNDO)
    assert places.wait_for_rounds(0.0), "neither is busy now"
    places.remove(ONE)
    places.remove(OTHER)
    places.remove(OTHER)


def test_an_acquire_that_has_left_is_not_undone() -> None:
    places = ServerQueueEntries()
    places.end_round(ONE, UNDO)
    places.remove(ONE)
    assert places.close() == []


def test_a_child_of_fork_has_none() -> None:
    places = ServerQueueEntries()
    places.end_round(ONE, UNDO)
    places.begin_round(OTHER)
    places.after_fork_in_child()
    assert places.close() == []
    assert places.wait_for_rounds(0.0)


def test_a_handler_that_raises_anywhere_leaves_no_mutex_locked() -> None:
    places = ServerQueueEntries()
    files = (
        threading.__file__,
        redlock_fast.engine.condition.__file__,
        redlock_fast.algorithm.server_queue.__file__,
    )

    def use() -> None:
        places.begin_round(ONE)
        places.end_round(ONE, UNDO)
        places.remove(ONE)
        places.wait_for_rounds(0.001)

    def another_thread() -> None:
        start(lambda: places.end_round(OTHER, UNDO)).result(DEADLINE)

    assert moments(use, interrupt, another_thread, files.__contains__) > 5
