"""Rule 10: ``fileno`` is readable as long as ``on_ready`` has something to do; ``due`` is never late."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

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
    keys,
    number_for,
    numbering,
)
from support.miniloop import Loop
from support.scripted import granting, once_all_came, silent, tcp_pair
from support.tls import Tls
from support.waiting import eventually, start

from redlock_fast.engine.contract import FAULT, LAG_AFTER, NO_REPLY, Wait

#: Turns of a loop that waits; a loop that spins takes thousands.
FEW = 100


def still(loop: Loop) -> None:
    """A loop has nothing to do here, and goes on having nothing to do."""
    loop.settle()
    assert not loop.readable(0.02)
    assert loop.fleet.engine.on_ready() == []
    assert not loop.readable()


# --- nothing to do ---


def test_idle(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, attach=False)
    loop = Loop(f)
    still(loop)
    f.attach(0)
    still(loop)
    f.attach(1)
    f.detach(0)
    still(loop)
    assert f.engine.next_timeout() is None


def test_after_all_is_reported(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting)
    loop = Loop(f)
    for key in keys(20):
        loop.submit([acquire(key, f.all, resend_for=LONG)], 2)
        loop.hear()
        loop.until(
            lambda: all(f.connection_state(master).pending == 0 for master in range(3)), "all have answered"
        )
        still(loop)
        assert f.engine.next_timeout() is None


@pytest.mark.parametrize("how", ["close", "finish", "reset", "nonsense", "too much"])
def test_after_a_connection_broke_that_was_not_detached(fleet: MakeFleet, how: str) -> None:
    f = fleet(silent, granting, pair=tcp_pair)
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all, resend_for=LONG)], 2)
    loop.turn()
    session = f.session(0)
    session.wait_commands(1)
    if how in ("close", "finish", "reset"):
        getattr(session, how)()
    else:
        session.send(b"nonsense\r\n" if how == "nonsense" else b"+OK\r\n+OK\r\n")
    loop.until(lambda: f.connection_state(0).broken, "the connection breaks")
    assert len(loop.hear()) == 1
    loop.until(lambda: f.connection_state(1).pending == 0, "the other master has answered")
    session.send(b"+more\r\n" * 100)  # it may still send
    still(loop)
    loop.submit([acquire(b"next", 0b10)], 1)
    assert loop.votes().granted == 1
    f.reattach(0)
    still(loop)


def test_beside_a_lagging_master(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent, lag_after=LAG_AFTER)
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all)], 2)
    loop.hear()
    f.until_lagging(2)
    loop.turns = 0
    for key in keys(10):
        loop.submit([acquire(key, f.all)], 2)
        assert loop.votes().granted == 2
        loop.until(
            lambda: f.connection_state(0).pending == f.connection_state(1).pending == 0, "both have answered"
        )
        still(loop)
    assert loop.turns <= FEW
    f.session(2).send(b"+OK\r\n")
    loop.until(lambda: f.connection_state(2).lag == 0.0, "it is back")
    still(loop)


def test_beside_a_master_that_takes_no_more(fleet: MakeFleet) -> None:
    f = fleet(silent, buffers=4096, reading=False)
    loop = Loop(f)
    names = keys(500, b"k" * 194)
    loop.submit(acquires(names, f.all), 1)
    loop.turn(0.0)
    assert f.connection_state(0).attached
    still(loop)
    f.masters[0].reading.set()
    loop.until(lambda: len(f.session(0).commands) == 500, "all has arrived, driven by fileno alone")
    # What was watched for room is not watched for room any more.
    still(loop)
    f.session(0).send(b"+OK\r\n" * 500)
    [tally] = loop.hear()
    assert tally.granted == [1] * 500


def test_waiting_takes_few_turns(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    with Stopwatch() as watch:
        loop.submit([acquire(b"k", f.all)], 1, 0.3)
        loop.submit(acquires(keys(10), f.all), 1, LONG, stall=0.2)
        loop.hear(2)
    assert watch.seconds >= 0.3
    assert loop.turns <= FEW


def test_threads_that_wait_keep_no_loop_busy(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    waiting = f.ask_in_background(acquire(b"k", 1), 1, timeout=0.3)
    loop.until(waiting.done, "the thread's timeout ends")
    assert loop.turns <= FEW
    assert waiting.result(0).values == (NO_REPLY,)
    still(loop)
    assert f.engine.next_timeout() is None


# --- decided by any thread ---

Decide = Callable[[Fleet], object]


def by_exchange(f: Fleet) -> None:
    """Its own reply is behind that of the submission."""
    behind = f.ask_in_background(acquire(b"behind", 1, resend_for=LONG), 1)
    f.session(0).send(b":7\r\n:8\r\n")
    assert behind.result(SOON).values[0] == 8


def by_tend(f: Fleet) -> None:
    f.session(0).send(b":7\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "the reply is read")


def by_break(f: Fleet) -> None:
    f.lose(0)


def by_drain(f: Fleet) -> None:
    f.session(0).send(b":7\r\n")
    f.engine.drain(LONG)
    f.until(lambda: f.connection_state(0).pending == 0, "the reply is read, had the master come to lag too")


@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize(
    ("decide", "value"),
    [
        (by_exchange, 7),
        (by_tend, 7),
        (by_drain, 7),
        (by_break, FAULT),
        (lambda f: f.detach(0), FAULT),
        (lambda f: f.engine.close(), FAULT),
    ],
    ids=["exchange", "tend", "drain", "break", "detach", "close"],
)
def test_decision_by_another_thread_is_reported(
    fleet: MakeFleet, decide: Decide, value: int, in_thread: bool
) -> None:
    for batch in (False, True):
        f = fleet(silent)
        loop = Loop(f)
        loop.submit(acquires([b"k"], 1) if batch else [acquire(b"k", 1)], 1)
        loop.turn(0.0)
        f.session(0).wait_commands(1)
        assert not loop.readable()
        if in_thread:
            start(lambda f=f: decide(f)).result(SOON)  # type: ignore[misc]
        else:
            decide(f)
        eventually(loop.readable, "there is something to tell")
        assert loop.readable(), "until it is reported"
        [answer] = loop.hear()
        if batch:
            assert answer.granted == [value != FAULT]
        else:
            assert answer[0].values == (value,)
        still(loop)
        f.close()


def test_decision_while_a_thread_waits_on(fleet: MakeFleet) -> None:
    # The thread reads for all: the loop has to be woken by it, each time.
    f = fleet(silent, numbering(1))
    waiting = f.ask_in_background(acquire(b"slow", 0b01), 1)
    loop = Loop(f)
    for key in keys(200):
        loop.submit([acquire(key, 0b10)], 1)
        assert loop.votes().values[1] == number_for(key, 1)
    assert not waiting.done()
    f.session(0).send(b":3\r\n")
    loop.until(waiting.done, "the thread is answered")
    assert waiting.result(0).values[0] == 3


def test_flush_does_not_wait_for_the_leader(fleet: MakeFleet) -> None:
    # A thread that polls for a silent master would look again by itself only after a while.
    f = fleet(silent, granting)
    waiting = f.ask_in_background(acquire(b"slow", 0b01), 1)
    loop = Loop(f)
    times = []
    for key in keys(40):
        with Stopwatch() as watch:
            loop.submit([acquire(key, 0b10)], 1)
            loop.hear()
        times.append(watch.seconds)
    assert sorted(times)[5] < 0.02, "the fastest of them, for the machine may be busy"
    f.session(0).send(b"+OK\r\n")
    loop.until(waiting.done, "the thread is answered")


def test_loop_reads_for_threads_too(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    futures = [f.ask_in_background(acquire(b"%d" % number, 1), 1) for number in range(5)]
    f.session(0).send(b"".join(b":%d\r\n" % (number + 1) for number in range(5)))
    loop.until(lambda: all(future.done() for future in futures), "all threads are answered")
    assert [future.result(0).values[0] for future in futures] == [1, 2, 3, 4, 5]
    still(loop)


def test_connection_attached_later_is_watched(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, attach=False)
    loop = Loop(f)
    for _ in range(3):
        f.attach(0)
        loop.submit([acquire(b"k", 0b01)], 1)
        loop.turn()
        f.session(0).wait_commands(1)
        f.session(0).send(b":4\r\n")
        assert loop.votes().values[0] == 4
        f.detach(0)
        still(loop)


@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_reply_in_pieces(fleet: MakeFleet, pair: Callable[[], tuple[socket.socket, socket.socket]]) -> None:
    f = fleet(silent, pair=pair)
    loop = Loop(f)
    loop.submit([acquire(b"k", 1, resend_for=LONG)], 1)
    loop.turn()
    f.session(0).wait_commands(1)
    for byte in b":1234\r\n":
        assert loop.completed == []
        f.session(0).send(bytes([byte]))
        loop.until(lambda: loop.completed or not loop.readable(), "the byte is read")
    assert loop.votes().values == (1234,)


# --- due ---


def test_due_is_never_late_and_none_where_nothing_is_open(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    loop = Loop(f)
    assert f.engine.next_timeout() is None
    for timeout in (30.0, 40.0, 20.0):
        before = time.monotonic()
        loop.submit([acquire(b"k", 0b01)], 1, timeout)
        due = f.engine.next_timeout()
        assert due is not None
        assert 0 <= due <= min(timeout, 30.0) - (time.monotonic() - before - SOON)
        assert due <= timeout
    shortest = loop.submit(acquires([b"k"], 0b01), 1, 30.0, stall=5.0)
    due = f.engine.next_timeout()
    assert due is not None
    assert due <= 5.0, "a stall is a timeout"
    f.engine.cancel(shortest)
    due = f.engine.next_timeout()
    assert due is not None
    assert due <= 20.0
    f.engine.close_loop_fd()
    assert f.engine.next_timeout() is None


def test_timeout_is_reported_neither_early_nor_never(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    loop = Loop(f)
    with Stopwatch() as watch:
        loop.submit([acquire(b"k", f.all)], 2, ENOUGH)
        votes = loop.votes()
    assert ENOUGH <= watch.seconds < SOON
    assert votes.values == (NO_REPLY, 1)
    assert f.engine.next_timeout() is None
    f.session(0).send(b"+OK\r\n")
    loop.until(lambda: f.connection_state(0).pending == 0, "the late reply is taken")
    still(loop)
    assert loop.completed == []


@pytest.mark.parametrize("timeout", [0.0, 1e-6, 0.0004, 0.013])
def test_short_timeouts(fleet: MakeFleet, timeout: float) -> None:
    f = fleet(silent)
    loop = Loop(f)
    for number in range(5):
        with Stopwatch() as watch:
            loop.submit([acquire(b"%d" % number, 1)], 1, timeout)
            assert loop.votes().values == (NO_REPLY,)
        assert timeout <= watch.seconds < SOON
    assert loop.turns <= FEW
    assert len(f.session(0).wait_commands(5)) == 5, "it was sent all the same"


def test_timeouts_of_all_lengths_in_any_order(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    loop = Loop(f)
    began: dict[int, tuple[float, float]] = {}
    for number in range(300):
        timeout = 0.01 + number * 7 % 50 * 0.005
        began[number] = time.monotonic(), timeout
        loop.submit([acquire(b"%d" % number, 0b01 if number % 3 else 0b11)], 1, timeout, context=number)
        loop.turn(0.0)
    heard: dict[int, float] = {}
    while len(heard) < 300:
        loop.until(lambda: loop.completed, "all are reported")
        for number, [votes] in loop.completed:
            assert number not in heard
            heard[number] = time.monotonic()
            start_at, timeout = began[number]
            if number % 3:
                assert votes.values == (NO_REPLY, FAULT)
                assert heard[number] >= start_at + timeout
            else:
                assert votes.granted == 1 or heard[number] >= start_at + timeout
        loop.completed.clear()
    assert f.engine.next_timeout() is None
    still(loop)


def test_decided_before_its_timeout_is_not_reported_again(fleet: MakeFleet) -> None:
    f = fleet(granting, silent)
    loop = Loop(f)
    loop.submit([acquire(b"quick", 0b01, resend_for=LONG)], 1, 0.2, context="quick")
    loop.submit([acquire(b"slow", 0b10)], 1, 0.4, context="slow")
    loop.until(lambda: len(loop.completed) >= 2, "both are reported")
    assert [context for context, _ in loop.completed] == ["quick", "slow"]
    assert loop.turns <= FEW


def test_timeout_while_a_thread_leads(fleet: MakeFleet) -> None:
    f = fleet(silent)
    waiting = f.ask_in_background(acquire(b"slow", 1), 1)
    loop = Loop(f)
    for number in range(10):
        with Stopwatch() as watch:
            loop.submit([acquire(b"%d" % number, 1, resend_for=LONG)], 1, 0.03)
            assert loop.votes().values == (NO_REPLY,)
        assert 0.03 <= watch.seconds < SOON
    f.session(0).send(b":3\r\n")
    loop.until(waiting.done, "the thread is answered")


# --- TLS ---


@pytest.fixture(scope="module")
def tls() -> Tls:
    return Tls()


def test_tls_records_that_are_read_in_one_go_are_not_forgotten(fleet: MakeFleet, tls: Tls) -> None:
    # The TLS layer may hold what fileno no longer shows.
    replies = b"".join(b":%d\r\n" % (number + 1) for number in range(1000))
    f = fleet(once_all_came(1000, [replies]), pair=tls.over(tcp_pair))
    loop = Loop(f)
    for number, key in enumerate(keys(1000)):
        loop.submit([acquire(key, 1, resend_for=LONG)], 1, context=number)
    loop.until(lambda: len(loop.completed) == 1000, "all are reported")
    assert all(votes.values == (number + 1,) for number, [votes] in loop.completed)
    still(loop)


def test_tls_through_small_buffers(fleet: MakeFleet, tls: Tls) -> None:
    f = fleet(numbering(0), numbering(1), pair=tls.over(socket.socketpair), buffers=4096)
    loop = Loop(f)
    names = keys(2000, b"k" * 194)
    loop.submit(acquires(names, f.all, resend_for=LONG), 3, wait=Wait.ALL)
    [tally] = loop.hear()
    for number, key in enumerate(names):
        assert tally.votes[number].values == (number_for(key, 0), number_for(key, 1))
    f.session(0).close()
    loop.until(lambda: f.connection_state(0).broken, "the end is noticed")
    still(loop)
