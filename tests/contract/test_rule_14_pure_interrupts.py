"""The pure engine, interrupted between any two of its calls in the thread that asks.

Python runs the handler of a signal in the main thread, wherever that is, if another thread received the
signal. These handlers raise, or use the engine, at each such place.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import support.moments
from support.fleet import LONG, SOON, Fleet, MakeFleet, acquire, numbering
from support.scripted import once_all_came
from support.signalling import interrupt
from support.waiting import start

import redlock_fast.engine.pure
from redlock_fast.engine.contract import Engine, Wait
from redlock_fast.engine.pure.engine import PureEngine

PURE = Path(redlock_fast.engine.pure.__file__).parent
#: The fewest moments of an exchange.
SOME = 10


def inside(filename: str) -> bool:
    return PURE in Path(filename).parents


at_moment = partial(support.moments.at_moment, inside=inside)
moments = partial(support.moments.moments, inside=inside)


@pytest.fixture
def engine_class() -> type[Engine]:
    return PureEngine


def works(f: Fleet) -> None:
    """All masters reply, each to its own request, and no reply is left over."""
    assert f.ask(acquire(b"7", f.all), f.size, wait=Wait.ALL).granted == f.size
    f.until(lambda: all(f.connection_state(m).pending == 0 for m in range(f.size)), "no reply is left over")


def test_an_exchange_that_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    """Catches: a thread that an exception stops while it changes a connection that all threads share."""
    f = fleet(*[numbering(master) for master in range(3)])
    assert moments(lambda: f.ask(acquire(b"1", f.all), 2), interrupt, lambda: works(f)) > SOME
    assert all(f.connection_state(master).attached for master in range(3)), "no connection was lost for it"


def test_another_thread_waits_while_an_exchange_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    """Catches: an interrupted thread that takes the replies of another one with it."""
    f = fleet(*[numbering(master) for master in range(3)])
    done = False

    def work() -> int:
        rounds = 0
        while not done:
            assert f.ask(acquire(b"5", f.all, resend_for=LONG), 3, timeout=SOON).granted == 3
            rounds += 1
        return rounds

    other = start(work)
    assert moments(lambda: f.ask(acquire(b"1", f.all), 2), interrupt, lambda: None) > SOME
    done = True
    assert other.result(SOON) > 0


def test_a_reply_to_another_thread_that_came_with_that_of_the_interrupted_one(fleet: MakeFleet) -> None:
    """The master sends nothing more. Catches: a reply that is read only when the time of its request ends."""

    def interrupted_at(number: int) -> bool:
        f = fleet(once_all_came(2, b"+OK\r\n" * 2))
        other = f.ask_in_background(acquire(b"5", 1), 1, timeout=LONG)
        found = at_moment(number, lambda: f.ask(acquire(b"1", 1), 1, timeout=LONG), interrupt)
        if len(f.session(0).commands) > 1:
            assert other.result(SOON).granted == 1, number
        f.close()
        return found

    number = 0
    while interrupted_at(number):
        number += 1
    assert number > SOME


def test_a_handler_that_uses_the_engine_anywhere(fleet: MakeFleet) -> None:
    """Catches: a handler that is refused, or a request that is sent twice."""
    f = fleet(*[numbering(master) for master in range(3)])

    def ask() -> None:
        assert f.ask(acquire(b"1", f.all), 3, wait=Wait.ALL).granted == 3

    def handler() -> None:
        assert f.ask(acquire(b"2", f.all), 3).granted == 3

    count = moments(ask, handler, lambda: None)
    assert count > SOME
    works(f)
    for master in range(3):
        commands = [words[1] for words in f.session(master).commands]
        assert (commands.count(b"1"), commands.count(b"2")) == (count + 1, count)


@pytest.mark.parametrize("what", ["exchange", "reattach"])
def test_a_handler_that_waits_for_a_thread_anywhere(fleet: MakeFleet, what: str) -> None:
    """As one does that takes a mutex, while the thread that holds the mutex connects a master again.

    Catches: a thread that a handler interrupted while it has what all other threads need: a deadlock.
    """
    f = fleet(*[numbering(master) for master in range(3)])

    def work() -> None:
        if what == "reattach":
            f.reattach(2)
        else:
            assert f.ask(acquire(b"2", f.all, resend_for=LONG), 3).granted == 3

    asked = acquire(b"1", 0b011)
    assert moments(lambda: f.ask(asked, 2), lambda: start(work).result(SOON), lambda: works(f)) > SOME


def test_a_handler_that_closes_the_engine(fleet: MakeFleet) -> None:
    number, handled = 0, True
    while handled:
        f = fleet(numbering(0))
        handled = at_moment(number, lambda f=f: f.ask(acquire(b"1", 1), 1), f.engine.close)  # type: ignore[misc]
        assert f.connection_state(0).attached is not handled
        f.close()
        number += 3
    assert number > SOME


def test_on_ready_that_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(2)])
    f.engine.fileno()

    def turn() -> None:
        f.engine.submit([acquire(b"1", f.all)], 2, LONG, Wait.EARLY, 0.0, "context")
        f.engine.flush()
        f.engine.on_ready()

    assert moments(turn, interrupt, lambda: works(f)) > SOME
    f.engine.close_loop_fd()
    assert f.engine.next_timeout() is None
