"""Rule 2: what stalls is given up, and as long as replies come nothing stalls."""

from __future__ import annotations

import threading
import time

import pytest
from support.fleet import (
    ENOUGH,
    LONG,
    SOON,
    Fleet,
    MakeFleet,
    Stopwatch,
    acquire,
    acquires,
    as_requests,
    keys,
)
from support.miniloop import Ask, both_ways
from support.scripted import granting, silent
from support.waiting import start

from redlock_fast.engine.contract import NO_REPLY, Wait


class Trickle:
    """Answers that come one by one, ``pause`` seconds apart, from the first command on."""

    def __init__(self, f: Fleet, replies: int, pause: float) -> None:
        self._f = f
        self._replies, self._pause = replies, pause
        self._stop = threading.Event()
        self.longest = 0.0  # between two replies, or before the first
        self.last = 0.0  # when the last was about to be sent
        self._future = start(self._run)

    def _run(self) -> None:
        session = self._f.session(0)
        session.wait_commands(1)
        before = time.monotonic()
        for _ in range(self._replies):
            if self._stop.wait(self._pause):
                return
            self.last = time.monotonic()  # it may be read before the send returns
            session.send(b"+OK\r\n")
            self.longest = max(self.longest, self.last - before)
            before = self.last

    def end(self) -> None:
        self._stop.set()
        self._future.result(SOON)


@pytest.mark.parametrize("as_batch", [True, False])
def test_stall_ends_it(fleet: MakeFleet, as_batch: bool) -> None:
    f = fleet(silent, granting)
    batch = acquires(keys(5), f.all)
    with Stopwatch() as watch:
        if as_batch:
            votes = list(f.tally(batch, 2, LONG, stall=ENOUGH).votes.values())
        else:
            votes = f.engine.exchange(as_requests(batch), 2, LONG, Wait.EARLY, ENOUGH)
    assert ENOUGH <= watch.seconds < SOON
    assert [v.values for v in votes] == [(NO_REPLY, 1)] * 5


@both_ways
def test_stall_ends_what_is_submitted(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(5), f.all), 1, LONG, stall=0.15)
    assert 0.15 <= watch.seconds < SOON
    assert tally.granted == [0] * 5
    assert tally.sent == [1] * 5


@both_ways
def test_not_stalled_while_replies_trickle_in(fleet: MakeFleet, ask: Ask) -> None:
    stall, count = 0.6, 14
    for _ in range(20):
        f = fleet(silent)
        trickle = Trickle(f, count, 0.07)
        with Stopwatch() as watch:
            tally = ask(f, acquires(keys(count), 1), 1, LONG, stall=stall)
        trickle.end()
        if trickle.longest < stall / 2:  # else the machine is busy
            break
    assert watch.seconds > stall
    assert tally.granted == [1] * count


@both_ways
def test_stall_starts_again_with_each_reply(fleet: MakeFleet, ask: Ask) -> None:
    stall, count = 0.4, 6
    f = fleet(silent)
    trickle = Trickle(f, count - 1, 0.05)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(count), 1), 1, LONG, stall=stall)
    end = time.monotonic()
    trickle.end()
    assert watch.seconds < SOON
    assert tally.granted[-1] == 0
    if sum(tally.granted) == count - 1:
        assert end - trickle.last >= stall
    else:
        assert trickle.longest > stall / 2, "it ended although replies came"


@both_ways
def test_late_replies_are_signs_of_life_too(fleet: MakeFleet, ask: Ask) -> None:
    # Master 1 decides all but the last; master 0 answers them one by one, too late, and then the last.
    stall, count = 0.6, 14
    for _ in range(20):
        f = fleet(silent, lambda words: b"" if words[1] == keys(count)[-1] else b"+OK\r\n")
        trickle = Trickle(f, count, 0.07)
        with Stopwatch() as watch:
            tally = ask(f, acquires(keys(count), f.all, resend_for=LONG), 1, LONG, stall=stall)
        trickle.end()
        if trickle.longest < stall / 2:  # else the machine is busy
            break
    assert watch.seconds > stall
    assert min(tally.granted) == 1


@both_ways
def test_replies_to_what_has_its_quorum_are_no_progress(fleet: MakeFleet, ask: Ask) -> None:
    # Master 1 grants everything. Master 0, which only Wait.ALL waits for, answers one by one.
    f = fleet(silent, granting)
    trickle = Trickle(f, 1000, 0.05)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(1000), f.all), 1, LONG, wait=Wait.ALL, stall=2.0)
    trickle.end()
    assert watch.seconds < SOON
    assert min(tally.granted) == 1


@both_ways
def test_timeout_ends_it_while_replies_trickle_in(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent)
    trickle = Trickle(f, 5000, 0.01)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(5000), 1), 1, 0.3, stall=LONG)
    trickle.end()
    assert 0.3 <= watch.seconds < SOON
    assert tally.granted[-1] == 0


@both_ways
def test_timeout_ends_it_before_the_stall(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent)
    with Stopwatch() as watch:
        ask(f, acquires(keys(3), 1), 1, 0.1, stall=LONG)
    assert 0.1 <= watch.seconds < SOON


@both_ways
def test_stall_0_is_none(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent)
    with Stopwatch() as watch:
        ask(f, acquires(keys(3), 1), 1, 0.2, stall=0.0)
    assert 0.2 <= watch.seconds < SOON


@both_ways
def test_replies_to_others_do_not_count(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent, granting)
    done = False

    def others() -> None:
        number = 0
        while not done:
            number += 1
            f.ask(acquire(b"other", 0b10), 1)

    busy = start(others)
    f.session(1).wait_commands(1)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(3), 0b01), 1, LONG, stall=0.15)
    done = True
    busy.result(SOON)
    assert 0.15 <= watch.seconds < SOON
    assert tally.granted == [0] * 3


def test_one_stalls_and_another_does_not(fleet: MakeFleet) -> None:
    f = fleet(silent)
    patient = start(lambda: f.tally(acquires([b"patient"], 1), 1, LONG, stall=LONG))
    f.session(0).wait_commands(1)
    f.tally(acquires([b"stalls"], 1), 1, LONG, stall=0.1)
    f.ask(acquire(b"times out", 1), 1, timeout=0.1)
    assert not patient.done()
    f.session(0).send(b"+OK\r\n" * 3)
    assert patient.result(SOON).granted == [1]


@both_ways
def test_master_that_does_not_read_stalls_it(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent, buffers=4096, reading=False)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(1000, b"k" * 194), 1), 1, LONG, stall=0.2)
    assert 0.2 <= watch.seconds < SOON
    assert tally.granted == [0] * 1000
