"""The pure engine, interrupted between any two of its calls: as by a signal that another thread received.

Signals that the main thread receives wait for a safe point (``test_rule_14_signals``). These are raised, or
handled, at each place where Python may run a handler.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import support.moments
from support.fleet import LONG, SOON, Fleet, MakeFleet, acquire, numbering
from support.scripted import once_all_came
from support.signalling import interrupt
from support.thorough import amount
from support.waiting import start

import redlock_fast.engine.pure
from redlock_fast.engine.contract import Engine, Wait
from redlock_fast.engine.pure.engine import PureEngine

#: Of the moments of the longest calls.
STEP = amount(3, 1, twice=1)
PURE = Path(redlock_fast.engine.pure.__file__).parent


def inside(filename: str) -> bool:
    return PURE in Path(filename).parents


at_moment = partial(support.moments.at_moment, inside=inside)
moments = partial(support.moments.moments, inside=inside)


@pytest.fixture
def engine_class() -> type[Engine]:
    return PureEngine


def mend(f: Fleet) -> None:
    """Connects the masters again whose connections the interrupt broke."""
    f.engine.maintain()
    for master in range(f.size):
        if not f.connection_state(master).attached:
            f.reattach(master)


def test_an_exchange_that_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(3)])

    def works() -> None:
        mend(f)
        assert f.ask(acquire(b"7", f.all), 3, wait=Wait.ALL).granted == 3
        f.until(lambda: all(f.connection_state(m).pending == 0 for m in range(3)), "no reply is left over")

    assert moments(lambda: f.ask(acquire(b"1", f.all), 2), interrupt, works, step=STEP) > 100


def test_another_thread_waits_while_an_exchange_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    done = False

    def work() -> int:
        rounds = 0
        while not done:
            votes = f.ask(acquire(b"5", f.all, resend_for=LONG), 2, timeout=SOON)
            assert votes.granted + votes.faulty >= 2, "its own masters may have broken, and that is reported"
            rounds += 1
        return rounds

    other = start(work)
    # While the other thread leads, an exchange has fewer moments. One that leads for both has many.
    assert moments(lambda: f.ask(acquire(b"1", f.all), 2), interrupt, lambda: mend(f), step=STEP) > 50
    done = True
    assert other.result(SOON) > 0


def test_a_reply_to_another_thread_that_was_received_before_the_interrupt(fleet: MakeFleet) -> None:
    """The master sends nothing more. Catches: a reply that is read only when the time of its request ends."""
    led = 0

    def interrupted_at(number: int) -> bool:
        nonlocal led
        both_came, others = once_all_came(2, b"+OK\r\n" * 2), list[Future[Any]]()

        def answer(words: Any) -> Any:
            if not others:  # the thread below has sent its request, and leads
                others.append(start(lambda: f.ask(acquire(b"5", f.all), 1, timeout=LONG)))
            return both_came(words)

        f = fleet(answer)
        found = at_moment(number, lambda: f.ask(acquire(b"1", f.all), 1, timeout=LONG), interrupt)
        for other in others:
            votes = other.result(SOON)
            assert votes.granted + votes.faulty == 1, number
            led += 1
        return found

    number = 0
    while interrupted_at(number):
        number += 1
    assert led > 20


def test_a_request_that_must_arrive_and_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    f = fleet(numbering(0))
    sent = 0

    def ask() -> None:
        nonlocal sent
        sent += 1
        f.ask(acquire(b"%d" % sent, 1, resend_for=LONG), 1)

    def arrived() -> None:
        mend(f)
        assert f.ask(acquire(b"0", 1, resend_for=LONG), 1).granted == 1

    assert moments(ask, interrupt, arrived) > 50


def test_a_handler_that_detaches_anywhere(fleet: MakeFleet) -> None:
    """Catches: what must be sent later is refused, deferred and called again without end."""
    f = fleet(*[numbering(master) for master in range(3)])

    def handler() -> None:
        f.ask(acquire(b"2", f.all, resend_for=LONG), 0)
        if sock := f.engine.detach(0):
            sock.close()

    assert moments(lambda: f.ask(acquire(b"1", f.all), 2), handler, lambda: mend(f), step=STEP) > 50


@pytest.mark.parametrize("resend_for", [0.0, LONG])
def test_a_handler_that_uses_the_engine_anywhere(fleet: MakeFleet, resend_for: float) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    granted = []

    def ask() -> None:
        assert f.ask(acquire(b"1", f.all), 3, wait=Wait.ALL).granted == 3

    def handler() -> None:
        votes = f.ask(acquire(b"2", f.all, resend_for=resend_for), 3)
        assert votes.granted == 3 or set(votes.details.values()) == {"called from a signal handler"}
        granted.append(votes.granted == 3)

    before = [len(f.session(master).commands) for master in range(3)]
    count = moments(ask, handler, lambda: None)
    f.until(lambda: all(f.connection_state(m).pending == 0 for m in range(3)), "all is answered")
    for master in range(3):
        commands = [words[1] for words in f.session(master).commands[before[master] :]]
        assert commands.count(b"1") == count + 1
        assert commands.count(b"2") == (count if resend_for else sum(granted)), "it is sent, or refused"
    assert not all(granted)


def closed_at_moment(f: Fleet, number: int) -> bool:
    return at_moment(number, lambda: f.ask(acquire(b"1", 1), 1), f.engine.close)


def test_a_handler_that_closes_the_engine(fleet: MakeFleet) -> None:
    number, handled = 0, True
    while handled:
        f = fleet(numbering(0))
        handled = closed_at_moment(f, number)
        assert f.connection_state(0).attached is not handled
        f.close()
        number += 7
    assert number > 50


def test_on_ready_that_is_interrupted_anywhere(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(2)])
    f.engine.fileno()

    def turn() -> None:
        f.engine.submit([acquire(b"1", f.all)], 2, LONG, Wait.EARLY, 0.0, "context")
        f.engine.flush()
        f.engine.on_ready()

    def works() -> None:
        mend(f)
        assert f.ask(acquire(b"7", f.all), 2, wait=Wait.ALL).granted == 2

    assert moments(turn, interrupt, works, step=STEP) > 50
    f.engine.close_loop_fd()
    assert f.engine.next_timeout() is None
