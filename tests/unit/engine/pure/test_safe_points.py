"""When the main thread lets signals in while it is inside the pure engine."""

from __future__ import annotations

import signal
import threading

import pytest
from support.signalling import handling
from support.waiting import DEADLINE, start

import redlock_fast.engine.pure.safe_points
from redlock_fast.engine.pure.safe_points import SafePoints


@pytest.mark.parametrize(("longest", "expected"), [(DEADLINE, [0, 0, 1]), (0.0, [0, 1, 1])])
def test_brief_waits_let_signals_in_after_a_while(
    monkeypatch: pytest.MonkeyPatch, longest: float, expected: list[int]
) -> None:
    """Catches: a leader of busy threads that holds Ctrl-C back until its own request is decided."""
    monkeypatch.setattr(redlock_fast.engine.pure.safe_points, "LONGEST_BLOCK", longest)
    points = SafePoints()
    interrupted: list[bool] = []
    counts: list[int] = []

    def inside() -> None:
        signal.raise_signal(signal.SIGUSR1)
        counts.append(len(interrupted))
        for wait in (points.wait_briefly, points.wait):
            wait(lambda: None)
            counts.append(len(interrupted))

    with handling(lambda: interrupted.append(points.interrupted())):
        points.call(inside)
    assert counts == expected
    assert interrupted == [False]


def test_a_signal_of_another_thread_is_handled_in_a_brief_wait() -> None:
    """Catches: a handler whose requests are refused although the main thread only polls."""
    points, polls = SafePoints(), threading.Event()
    interrupted: list[bool] = []

    def receive_signal() -> None:
        polls.wait()
        signal.raise_signal(signal.SIGUSR1)

    def poll() -> None:
        polls.set()
        other.result(DEADLINE)

    with handling(lambda: interrupted.append(points.interrupted())):
        other = start(receive_signal)
        points.call(points.wait_briefly, poll)
    assert interrupted == [False]
