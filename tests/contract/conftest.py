"""Fleets for the tests of the engine contract, and nothing left behind by any of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.fleet import Fleet, MakeFleet
from support.scripted import Answer
from support.waiting import eventually

from redlock_fast.engine.contract import Engine


def threads_and_fds() -> tuple[int, int]:
    """How many this process has; native threads are counted on Linux."""
    if sys.platform != "linux":
        return threading.active_count(), 0
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    threads, fds = threads_and_fds()
    yield
    eventually(lambda: threads_and_fds()[0] <= threads, "all threads have ended")
    eventually(lambda: threads_and_fds()[1] <= fds, "all sockets are closed")


@pytest.fixture
def fleet(engine_class: type[Engine]) -> Iterator[MakeFleet]:
    """``fleet(answer, answer, ..., **options)``: a Fleet that is closed after the test."""
    made: list[Fleet] = []

    def make(*answers: Answer, **options: Any) -> Fleet:
        made.append(Fleet(engine_class, *answers, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
