"""A condition variable that signal handlers may interrupt anywhere."""

from __future__ import annotations

import threading

import pytest
from support.moments import at_moment
from support.signalling import interrupt
from support.waiting import DEADLINE, eventually, start

import redlock_fast.engine.condition
from redlock_fast.engine.condition import Condition

INTERRUPTED = threading.__file__, redlock_fast.engine.condition.__file__


def test_a_wait_ends_when_the_predicate_is_true() -> None:
    condition, ready = Condition(), threading.Event()
    waiting = start(lambda: condition.wait_for(ready.is_set, DEADLINE))
    eventually(lambda: condition._condition._waiters, "it waits")
    ready.set()
    with condition.mutex:
        condition.notify_all()
    assert waiting.result(DEADLINE) is True


def test_a_runtime_error_of_a_handler_comes_out() -> None:
    """A handler raised it while it handled another error. Catches: a wait that raises the other one."""

    def fails() -> bool:
        try:
            raise KeyError("of the handler")
        except KeyError:
            raise RuntimeError("stop")  # noqa: B904

    with pytest.raises(RuntimeError, match="stop"):
        Condition().wait_for(fails, 0.001)


def test_a_wait_ends_after_its_timeout() -> None:
    assert Condition().wait_for(lambda: False, 0.001) is False


@pytest.mark.parametrize("seconds", [2 * threading.TIMEOUT_MAX, 1e300])
def test_a_timeout_that_no_lock_takes(seconds: float) -> None:
    condition, ready = Condition(), threading.Event()
    waiting = start(lambda: condition.wait_for(ready.is_set, seconds))
    eventually(lambda: waiting.done() or condition._condition._waiters, "it waits")
    ready.set()
    with condition.mutex:
        condition.notify_all()
    assert waiting.result(DEADLINE) is True


def test_an_error_of_the_predicate_reaches_the_caller() -> None:
    with pytest.raises(RuntimeError, match="a predicate that fails"):
        Condition().wait_for(fails, 0.001)


def test_a_handler_that_raises_anywhere_in_a_wait() -> None:
    """Its exception reaches the caller, and the mutex is free."""
    condition, number = Condition(), 0
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            condition.wait_for(lambda: False, 0.001)
        except BaseException as error:
            raised.append(error)

    def another_thread() -> bool:
        with condition.mutex:
            return True

    while at_moment(number, wait, interrupt, INTERRUPTED.__contains__):
        assert [type(error) for error in raised] in ([], [KeyboardInterrupt])
        assert start(another_thread).result(DEADLINE)
        raised.clear()
        number += 1
    assert number > 10


def fails() -> bool:
    raise RuntimeError("a predicate that fails")
