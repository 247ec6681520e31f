"""Rule 2: a time that ends late, because the process did not run, goes on once."""

from __future__ import annotations

import time

import pytest
from support.fleet import SOON, Fleet, MakeFleet, Stopwatch, acquire
from support.miniloop import Loop
from support.scripted import silent
from support.signalling import handling, to_main
from support.waiting import start

from redlock_fast.engine.contract import NO_REPLY, Wait
from redlock_fast.engine.pure.engine import PureEngine

#: Seconds. A busy machine replies in less.
TIMEOUT = 1.0
#: Seconds for which the process does not look at its requests.
PAUSE = 2.5 * TIMEOUT
#: Seconds.
SHORT = 0.1


def stand_still(f: Fleet) -> None:
    """The thread that looks at the deadlines does not, for a while: that of the caller, or the I/O thread."""
    if isinstance(f.engine, PureEngine):
        f.engine._hub.call(time.sleep, PAUSE)
    else:
        time.sleep(PAUSE)


@pytest.mark.parametrize("stall", [0.0, TIMEOUT])
def test_a_loop_that_was_blocked(fleet: MakeFleet, stall: float) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([acquire(b"k", 1)], 1, TIMEOUT if not stall else SOON, stall=stall)
    f.engine.flush()
    f.session(0).wait_commands(1)
    stand_still(f)  # a callback blocks the loop
    loop.ready()
    assert not loop.completed
    left = f.engine.next_timeout()
    assert left is not None
    assert 0.0 < left <= TIMEOUT
    f.session(0).send(b"+OK\r\n")
    assert loop.votes().values == (1,)


def test_it_ends_the_second_time(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([acquire(b"k", 1)], 1, SHORT)
    f.engine.flush()
    time.sleep(2 * SHORT)
    loop.ready()
    while (left := f.engine.next_timeout()) is not None:
        assert not loop.completed
        time.sleep(left + SHORT)
        loop.ready()
        assert loop.completed, "it went on a second time"
    assert [votes.values for _, [votes] in loop.completed] == [(NO_REPLY,)]


def test_a_request_with_a_quorum_does_not_go_on(fleet: MakeFleet) -> None:
    """Its lease might end while it waits for a master that hangs."""
    f = fleet(silent, silent)
    loop = Loop(f)
    loop.submit([acquire(b"k", 0b11)], 1, SHORT, Wait.ALL)
    f.engine.flush()
    f.session(0).wait_commands(1)
    f.session(0).send(b"+OK\r\n")
    time.sleep(2 * SHORT)
    loop.ready()
    assert [votes.values for _, [votes] in loop.completed] == [(1, NO_REPLY)]


@pytest.mark.parametrize("stall", [0.0, TIMEOUT])
def test_a_thread_whose_signal_handler_takes_long(fleet: MakeFleet, stall: float) -> None:
    f = fleet(silent)

    def handler() -> None:
        stand_still(f)
        start(reply)

    def reply() -> None:
        f.ask(acquire(b"other", 1), 1, timeout=SHORT)  # the engine has looked at all deadlines
        f.session(0).send(b"+OK\r\n")

    def send_signal() -> None:
        f.session(0).wait_commands(1)
        to_main()

    with handling(handler):
        start(send_signal)
        with Stopwatch() as watch:
            timeout = SOON if stall else TIMEOUT
            [votes] = f.engine.exchange([acquire(b"k", 1)], 1, timeout, Wait.EARLY, stall)
    assert watch.seconds > PAUSE
    assert votes.values == (1,)
