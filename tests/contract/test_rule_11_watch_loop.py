"""Requests that watch, in an event loop: they are reported in time, also where a thread reads the push."""

from __future__ import annotations

import time

import pytest
from support.fleet import LONG, SOON, MakeFleet
from support.miniloop import Loop
from support.scripted import always, silent
from support.waiting import start
from support.watching import EVERYTHING, WATCHING, busy, expiring, free_with, get, invalidate, watch

from redlock_fast.engine.contract import FAULT, NO_REPLY


def test_reported_when_a_push_comes(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    loop = Loop(f)
    for name in (b"a", b"b"):
        loop.submit([watch(name, f.all)], need=2, context=name)
    f.engine.flush()
    for master in range(2):
        f.session(master).wait_commands(4)
        f.session(master).send(invalidate(b"b"))
    loop.until(lambda: loop.completed, "it is reported")
    assert [context for context, _ in loop.completed] == [b"b"]
    loop.settle()
    assert not loop.readable()
    for master in range(2):
        f.session(master).send(EVERYTHING)
    loop.hear(2)
    assert f.engine.next_timeout() is None


def test_reported_without_replies_that_are_not_awaited(fleet: MakeFleet) -> None:
    """Rule 2. Catches: a master that is slow to undo a round delays the end of the watch that follows."""
    f = fleet(silent, free_with(0), free_with(1), commands=WATCHING)
    loop = Loop(f)
    undo = get(b"k", f.all)
    undo.awaited = False
    loop.submit([undo, watch(b"k", f.all)], need=2)
    loop.until(lambda: loop.completed, "it is reported")
    ((_, (votes, seen)),) = loop.completed
    assert (votes.sent, votes.values) == (f.all, (NO_REPLY,) * 3)
    assert seen.values == (NO_REPLY, 1, 1)


def test_due_is_hastened(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent, commands=WATCHING)
    loop = Loop(f)
    loop.submit([watch(b"k", f.all)], need=2, timeout=LONG, stall=0.001)
    f.engine.flush()
    assert SOON < (f.engine.next_timeout() or 0.0) <= LONG, "stall is irrelevant"
    for master, reply in enumerate([b":30000\r\n", b":-1\r\n", b":10000\r\n"]):
        f.session(master).send(b"+OK\r\n" + reply)
    loop.until(
        lambda: not any(f.connection_state(master).pending for master in range(3)), "the replies are there"
    )
    assert 5.0 < (f.engine.next_timeout() or 0.0) <= 30.001
    f.session(0).send(invalidate(b"k"))
    loop.until(lambda: f.connection_state(0).pushes, "the push is there")
    assert (f.engine.next_timeout() or 0.0) <= 10.001
    assert not loop.completed


def test_due_is_hastened_by_a_thread_that_ends_earlier(fleet: MakeFleet) -> None:
    """Rule 10. Catches: a loop that sleeps on, because the time of the thread was earlier still."""
    f = fleet(silent, commands=WATCHING)
    loop = Loop(f)
    loop.submit([watch(b"k", f.all)], need=1, timeout=LONG)
    f.engine.flush()
    f.session(0).wait_commands(2)
    reading = start(lambda: f.ask(get(b"x", 1), 1, timeout=0.2))
    f.session(0).wait_commands(3)
    f.session(0).send(b"+OK\r\n:30000\r\n")
    assert reading.result(SOON).values == (NO_REPLY,)
    assert (f.engine.next_timeout() or 0.0) <= 30.001
    assert loop.readable()


def test_a_reply_that_is_read_late_does_not_put_off_the_end(fleet: MakeFleet) -> None:
    """The reply has the ttl of the key. Catches: a paused process that waits for so much longer."""
    f = fleet(silent, commands=WATCHING)
    loop = Loop(f)
    loop.submit([watch(b"k", f.all)], need=1, timeout=LONG)
    f.engine.flush()
    asked = time.monotonic()
    f.session(0).wait_commands(2)
    f.session(0).send(b"+OK\r\n:30000\r\n")
    time.sleep(0.5)  # it is paused
    late = time.monotonic() - asked
    loop.until(lambda: not f.connection_state(0).pending, "the reply is there")
    assert (f.engine.next_timeout() or 0.0) <= 30.001 - late


def test_its_time_ends(fleet: MakeFleet) -> None:
    f = fleet(expiring(20), always(b"-ERR\r\n"), commands=WATCHING)
    loop = Loop(f)
    began = time.monotonic()
    loop.submit([watch(b"k", f.all)], need=1)
    assert loop.votes().values in [(NO_REPLY, FAULT), (NO_REPLY, NO_REPLY)], (
        "or the second had no time to answer"
    )
    assert 0.021 <= time.monotonic() - began < SOON


@pytest.mark.parametrize("turns", [1, 5])
def test_readable_where_a_thread_has_read_an_earlier_time(fleet: MakeFleet, turns: int) -> None:
    f = fleet(expiring(60_000), commands=WATCHING)
    loop = Loop(f)
    for _ in range(turns):
        loop.submit([watch(b"k", 1)], need=1, timeout=3600.0)
        assert f.ask(get(b"g", 1), need=1).values == (1,)  # sends both, and reads both
        loop.until(lambda: (f.engine.next_timeout() or LONG * 2) < LONG * 1.5, "due is earlier")
        loop.settle()
    f.session(0).send(EVERYTHING)
    loop.hear(turns)


def test_beside_threads_that_watch(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    loop = Loop(f)
    futures = [f.ask_in_background(watch(b"k", f.all), need=2) for _ in range(3)]
    for number in range(50):
        loop.submit([get(b"%d" % number, f.all)], need=2)
        assert loop.votes().values == (1, 1)
    loop.submit([watch(b"k", f.all)], need=2)
    f.engine.flush()
    for master in range(2):
        f.session(master).wait_commands(58)
        f.session(master).send(invalidate(b"k"))
    assert loop.votes().values == (1, 1)
    for future in futures:
        assert future.result(SOON).values == (1, 1)


def test_mixed_with_what_does_not_watch(fleet: MakeFleet) -> None:
    f = fleet(lambda words: b"" if words[0] == b"GET" else busy(words), commands=WATCHING, lag_after=1e6)
    loop = Loop(f)
    loop.submit([watch(b"a", 1), watch(b"b", 1), get(b"g", 1)], need=1, stall=0.05)
    f.engine.flush()
    f.session(0).wait_commands(5)
    f.session(0).send(invalidate(b"a"))
    loop.until(lambda: f.connection_state(0).pending == 1, "all other replies are there")
    time.sleep(0.06)
    loop.turn()
    loop.turn()
    f.session(0).send(b"+OK\r\n")  # too late
    loop.until(lambda: not f.connection_state(0).pending, "the late reply is there")
    assert not loop.completed
    f.session(0).send(invalidate(b"b"))
    [votes] = loop.hear()
    assert [one.values for one in votes] == [(1,), (1,), (NO_REPLY,)]


def test_attach_and_close_are_reported(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    loop = Loop(f)
    loop.submit([watch(b"k", 0b01)], need=1)
    f.engine.flush()
    f.reattach(1)
    assert loop.votes().values == (NO_REPLY, FAULT)
    loop.submit([watch(b"k", 0b01)], need=1)
    f.engine.flush()
    f.engine.close()
    assert loop.votes().values == (FAULT, FAULT)


def test_unwatch_forgets(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    loop = Loop(f)
    future = start(lambda: f.ask(watch(b"k", 1), need=1))
    for number in range(100):
        loop.submit([watch(b"%d" % number, 1)], need=1)
    f.engine.flush()
    f.session(0).wait_commands(202)
    f.engine.close_loop_fd()
    f.session(0).send(EVERYTHING)
    assert future.result(SOON).values == (1,)
