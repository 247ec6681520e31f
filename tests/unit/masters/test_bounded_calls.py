"""Calls that may hang: each ends for its caller, and few hold a thread."""

from __future__ import annotations

import threading

import pytest
from support.waiting import eventually

from redlock_fast.masters.bounded_calls import MAX_HANGING, BoundedCalls
from redlock_fast.masters.probe import ConnectError

#: Seconds: longer than any call here that is not to be abandoned.
LONG = 60.0


def not_dropped(late: object) -> None:
    raise AssertionError(f"{late} was dropped")


def test_what_a_call_returns_and_raises() -> None:
    calls = BoundedCalls()
    assert calls.run(lambda: 1, LONG, not_dropped) == 1
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0, LONG, not_dropped)
    assert calls.abandoned == 0


def test_what_is_no_exception_becomes_one() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(ConnectError, match="SystemExit"):
        BoundedCalls().run(leave, LONG, not_dropped)


def test_what_an_abandoned_call_returns_is_dropped() -> None:
    """Catches: a connection that is open for ever, because no caller waits for it any more."""
    calls, over, dropped = BoundedCalls(), threading.Event(), []

    def late() -> str:
        over.wait(LONG)
        return "late"

    with pytest.raises(ConnectError, match="did not end"):
        calls.run(late, 0.0, dropped.append)
    assert calls.abandoned == 1
    over.set()
    eventually(lambda: dropped == ["late"], "it was dropped")


def test_few_calls_hang_at_once() -> None:
    calls, over = BoundedCalls(), threading.Event()
    for _ in range(MAX_HANGING):
        with pytest.raises(ConnectError, match="did not end"):
            calls.run(lambda: over.wait(LONG), 0.0, lambda late: None)
    with pytest.raises(ConnectError, match="still hang"):
        calls.run(lambda: 1, LONG, not_dropped)
    assert calls.abandoned == MAX_HANGING
    over.set()

    def again() -> bool:
        try:
            return calls.run(lambda: True, LONG, not_dropped)
        except ConnectError:
            return False

    eventually(again, "the calls that hung have ended")


def test_a_child_of_fork_has_none_of_them() -> None:
    calls, over = BoundedCalls(), threading.Event()
    for _ in range(MAX_HANGING):
        with pytest.raises(ConnectError):
            calls.run(lambda: over.wait(LONG), 0.0, lambda late: None)
    calls.after_fork_in_child()
    assert calls.run(lambda: 1, LONG, not_dropped) == 1
    over.set()
