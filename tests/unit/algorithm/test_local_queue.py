"""The local queue of one key in one client: first come, first served, and each entry is woken."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from support.waiting import DEADLINE, start

from redlock_fast.algorithm.local_queue import LocalQueue, QueueEntry

KEY, OTHER = b"key", b"other"


class Queue:
    """A queue with entries, and the entries that were woken, by number."""

    def __init__(self, places: int, key: bytes = KEY) -> None:
        self.line = LocalQueue()
        self.woken: list[int] = []
        self.places = [self.line.enter(key) for _ in range(places)]
        for number, place in enumerate(self.places):
            place.slot.wake = self.waking(number)

    def waking(self, number: int) -> Callable[[], None]:
        return lambda: self.woken.append(number)

    def is_first(self) -> list[int]:
        return [number for number, place in enumerate(self.places) if place.is_first]


def test_first_come_first_served() -> None:
    queue = Queue(4)
    for number in range(4):
        assert queue.is_first()[-1] == number
        queue.places[number].leave()
    assert queue.woken == [1, 2, 3]
    assert queue.line.waiting == {}


@pytest.mark.parametrize("place", range(4))
def test_an_entry_that_leaves_wakes_exactly_the_next_that_has_become_first(place: int) -> None:
    queue = Queue(4)
    queue.places[place].leave()
    assert queue.woken == ([1] if place == 0 else [])
    for one in queue.places:
        one.leave()
    assert sorted(queue.woken) == [number for number in (1, 2, 3) if number != place]
    assert queue.line.waiting == {}


def test_leaving_twice_is_leaving_once() -> None:
    """Catches: the second time removes the entry that is first now."""
    queue = Queue(3)
    for _ in range(2):
        queue.places[0].leave()
    assert queue.woken == [1]
    assert [place.is_first for place in queue.places[1:]] == [True, False]


def test_an_unreferenced_entry_leaves_the_queue() -> None:
    """As an interrupt between ``enter`` and whatever would have come next leaves it."""
    queue = Queue(3)
    del queue.places[0]
    gc.collect()
    assert queue.woken == [1]
    assert queue.is_first() == [0]


def test_an_entry_that_does_not_listen_yet_sees_that_it_is_first() -> None:
    line = LocalQueue()
    before, behind = line.enter(KEY), line.enter(KEY)
    assert (before.is_first, behind.is_first) == (True, False)
    before.leave()
    assert behind.is_first


def test_each_key_has_a_queue_of_its_own() -> None:
    line = LocalQueue()
    one, other = line.enter(KEY), line.enter(OTHER)
    assert one.is_first
    assert other.is_first
    one.leave()
    assert list(line.waiting) == [OTHER]


def test_callers_that_are_admitted_have_none_before_them() -> None:
    """Also behind callers that come later. A caller that has left admits none."""
    queue = Queue(3)
    left = queue.places.pop(0)
    left.leave()
    queue.woken.clear()
    left.admit_all()
    assert [place.is_first for place in queue.places] == [True, False]
    queue.places[0].admit_all()
    later = queue.line.enter(KEY)
    assert queue.woken == [1, 2]
    assert [place.is_first for place in queue.places] == [True, True]
    for place in queue.places:
        place.leave()
    assert list(queue.line.waiting[KEY]) == [later.slot]


def test_a_woken_entry_may_use_the_queue_at_once() -> None:
    """It leaves, and enters again: as a signal handler does that waits, too."""
    queue = Queue(3)
    again: list[QueueEntry] = []

    def leave_and_enter() -> None:
        queue.places[1].leave()
        again.append(queue.line.enter(KEY))

    queue.places[1].slot.wake = leave_and_enter
    queue.places[0].leave()
    assert queue.woken == [2]
    assert (queue.places[2].is_first, again[0].is_first) == (True, False)


def test_a_signal_handler_may_wait_while_its_thread_changes_the_queue() -> None:
    """Catches: a mutex that the thread itself holds, which it would wait for without end."""
    line = LocalQueue()

    def handle() -> bool:
        with line._mutex:
            line.enter(KEY).leave()
        return True

    assert start(handle).result(DEADLINE)


def test_all_entries_are_woken_when_the_client_is_closed() -> None:
    queue = Queue(3)
    silent = queue.line.enter(OTHER)
    queue.line.wake_all()
    assert queue.woken == [0, 1, 2]
    assert silent.is_first


def test_a_child_of_fork_waits_for_none_of_its_parents_threads() -> None:
    """Not even for a caller that held the mutex."""
    queue = Queue(2)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with queue.line._mutex:
            held.set()
            done.wait(DEADLINE)

    holding = start(hold)
    assert held.wait(DEADLINE)
    queue.line.after_fork_in_child()
    mine = queue.line.enter(KEY)
    assert mine.is_first
    for place in queue.places:
        place.leave()
    assert queue.woken == []
    assert mine.is_first
    done.set()
    holding.result(DEADLINE)


def test_many_threads_one_at_a_time() -> None:
    """Each waits until it is first, or gives up wherever it stands. Catches: a wake-up that is lost."""
    line, inside, most = LocalQueue(), 0, 0

    def work(seed: int) -> None:
        nonlocal inside, most
        chance = random.Random(seed)
        for _ in range(150):
            place, turn, patient = line.enter(KEY), threading.Event(), chance.random() < 0.7
            place.slot.wake = turn.set
            if patient and not place.is_first:
                assert turn.wait(DEADLINE), "it is woken"
                assert place.is_first
            if place.is_first:
                inside += 1
                most = max(most, inside)
                time.sleep(0)  # for another to come in, if it may
                inside -= 1
            place.leave()

    threads = [start(partial(work, seed)) for seed in range(8)]
    for one in threads:
        one.result(DEADLINE)
    assert most == 1
    assert line.waiting == {}
