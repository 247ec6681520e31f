"""Signals in an exchange: handlers run and may raise, and no other thread notices."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from support.fleet import LONG, SOON, Fleet, MakeFleet, Stopwatch, acquire
from support.scripted import silent
from support.signalling import handling, interrupt, to_main
from support.waiting import DEADLINE, start

from redlock_fast.engine.contract import NO_REPLY, Wait

Handle = Callable[[Callable[[], None]], None]


@pytest.fixture
def handle() -> Iterator[Handle]:
    """``handle(action)``: what SIGUSR1 does from then on in this test."""
    with contextlib.ExitStack() as stack:
        yield lambda action: stack.enter_context(handling(action))


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Hypothesis has a hook in the garbage collector, and what a handler raises there is lost."""
    gc.disable()
    yield
    gc.enable()


def to_process() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def signal_when(f: Fleet, master: int, commands: int, send: Callable[[], None] = to_main) -> None:
    """Signal the main thread as soon as this master has that many commands."""

    def run() -> None:
        f.session(master).wait_commands(commands)
        send()

    start(run)


@pytest.mark.parametrize("send", [to_main, to_process])
def test_interrupt_is_raised_promptly_and_the_engine_goes_on(
    fleet: MakeFleet, handle: Handle, send: Callable[[], None]
) -> None:
    handle(interrupt)
    f = fleet(silent)
    for number in range(20):
        # The signal comes right after the send, whether the caller waits already or not yet.
        signal_when(f, 0, 2 * number + 1, send)
        with Stopwatch() as watch, pytest.raises(KeyboardInterrupt):
            f.ask(acquire(b"interrupted", 1, resend_for=LONG), 1)
        assert watch.seconds < SOON
        future = f.ask_in_background(acquire(b"next", 1, resend_for=LONG), 1)
        f.session(0).send(b":1\r\n:2\r\n")
        assert future.result(SOON).values == (2,)


@pytest.mark.parametrize("first", [True, False])
def test_interrupt_of_one_thread_leaves_the_others_waiting(
    fleet: MakeFleet, handle: Handle, first: bool
) -> None:
    # The main thread may be the leader or a follower.
    handle(interrupt)
    f = fleet(silent)
    futures = [] if first else [f.ask_in_background(acquire(b"a", 1, resend_for=LONG), 1)]

    def others() -> None:
        f.session(0).wait_commands(len(futures) + 1)
        futures.extend(f.ask_in_background(acquire(b"%d" % n, 1, resend_for=LONG), 1) for n in range(3))
        to_main()

    helper = start(others)
    with Stopwatch() as watch, pytest.raises(KeyboardInterrupt):
        f.ask(acquire(b"interrupted", 1, resend_for=LONG), 1)
    helper.result(SOON)
    assert watch.seconds < SOON
    count = len(futures) + 1
    f.session(0).send(b"".join(b":%d\r\n" % (n + 1) for n in range(count)))
    numbers = [future.result(SOON).values[0] for future in futures]
    assert sorted(numbers) == ([2, 3, 4] if first else [1, 3, 4, 5])


def test_handler_that_waits_for_another_thread(fleet: MakeFleet, handle: Handle) -> None:
    """As a handler that ends a pool of threads, which still release their locks.

    Catches: a thread that waits for replies, and keeps all others from reading theirs while its handler runs.
    """
    f = fleet(silent)
    others: list[Future[Any]] = []

    def handler() -> None:
        others.append(f.ask_in_background(acquire(b"other", 1, resend_for=LONG), 1))
        f.session(0).send(b":1\r\n:2\r\n")
        assert others[0].result(SOON).values == (2,)
        f.reattach(0)

    handle(handler)
    signal_when(f, 0, 1)
    assert f.ask(acquire(b"k", 1, resend_for=LONG), 1).values == (1,)
    assert others


@pytest.mark.parametrize("alone", [True, False])
def test_handler_that_returns_changes_nothing(fleet: MakeFleet, handle: Handle, alone: bool) -> None:
    handled: list[int] = []
    handle(lambda: handled.append(1))
    f = fleet(silent)
    other = None if alone else f.ask_in_background(acquire(b"other", 1), 1)
    stop = threading.Event()

    def pester() -> None:
        while not stop.wait(0.01):
            to_main()

    helper = start(pester)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", 1), 1, timeout=0.25)
    stop.set()
    helper.result(SOON)
    assert votes.values == (NO_REPLY,)
    assert 0.25 <= watch.seconds < SOON
    assert handled
    if other:
        f.session(0).send(b"+OK\r\n")
        assert other.result(SOON).granted == 1


@pytest.mark.parametrize("alone", [True, False])
def test_handler_may_use_the_engine(fleet: MakeFleet, handle: Handle, alone: bool) -> None:
    f = fleet(silent, lambda words: b":5\r\n")
    other = None if alone else f.ask_in_background(acquire(b"other", 0b01), 1)
    inner: list[int] = []

    def nested() -> None:
        inner.append(f.ask(acquire(b"inner", 0b10), 1).values[1])
        f.session(0).send(b"+OK\r\n" if alone else b"+OK\r\n:7\r\n")

    handle(nested)
    signal_when(f, 0, 1 if alone else 2)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"outer", 0b01), 1)
    assert watch.seconds < SOON
    assert inner == [5]
    assert votes.values[0] == (1 if alone else 7)
    if other:
        assert other.result(SOON).granted == 1


def test_handler_may_use_the_engine_for_the_same_master(fleet: MakeFleet, handle: Handle) -> None:
    f = fleet(lambda words: b"" if words[1] == b"outer" else b":1\r\n:2\r\n")
    inner: list[int] = []
    handle(lambda: inner.append(f.ask(acquire(b"inner", 1, resend_for=LONG), 1).values[0]))
    signal_when(f, 0, 1)
    assert f.ask(acquire(b"outer", 1, resend_for=LONG), 1).values == (1,)
    assert inner == [2]


def test_interrupt_in_the_handlers_own_exchange(fleet: MakeFleet, handle: Handle) -> None:
    f = fleet(silent, silent)

    def nested() -> None:
        handle(interrupt)
        signal_when(f, 1, 1)
        f.ask(acquire(b"inner", 0b10), 1)

    handle(nested)
    signal_when(f, 0, 1)
    with Stopwatch() as watch, pytest.raises(KeyboardInterrupt):
        f.ask(acquire(b"outer", 0b01), 1)
    assert watch.seconds < SOON
    future = f.ask_in_background(acquire(b"next", f.all, resend_for=LONG), 2)
    f.session(0).send(b":1\r\n:2\r\n")
    f.session(1).send(b":1\r\n:3\r\n")
    assert future.result(SOON).values == (2, 3)


def test_interrupt_while_draining(fleet: MakeFleet, handle: Handle) -> None:
    f = fleet(silent)
    f.ask(acquire(b"k", 1), need=0)
    caught = threading.Event()

    def once() -> None:
        if not caught.is_set():
            caught.set()
            raise KeyboardInterrupt

    def pester() -> None:
        while not caught.wait(0.02):
            to_main()

    handle(once)
    helper = start(pester)
    with Stopwatch() as watch, contextlib.suppress(KeyboardInterrupt):
        # It also ends when the master comes to lag.
        f.engine.drain(LONG)
    assert watch.seconds < SOON
    with contextlib.suppress(KeyboardInterrupt):
        helper.result(SOON)
    f.session(0).send(b"+OK\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "the engine goes on")


@pytest.mark.usefixtures("no_gc")
def test_interrupts_at_any_moment(fleet: MakeFleet, handle: Handle) -> None:
    # Wherever the caller is: writing, waiting, reading for others, handing that over.
    f = fleet(*[lambda words: b":%b\r\n" % words[1]] * 3)
    inside = done = False

    def interrupt_inside() -> None:
        if inside:
            raise KeyboardInterrupt

    def pester() -> None:
        while not done:
            time.sleep(random.random() * 0.001)
            to_main()

    def work() -> None:
        number = 1_000_000
        while not done:
            number += 1
            votes = f.ask(acquire(b"%d" % number, f.all, resend_for=LONG), 2, wait=Wait.ALL)
            assert votes.values == (number,) * 3

    handle(interrupt_inside)
    helpers = [start(pester), start(work), start(work)]
    interrupted = number = 0
    while interrupted < 300 and not any(helper.done() for helper in helpers):
        number += 1
        try:
            inside = True
            f.ask(acquire(b"%d" % number, f.all, resend_for=LONG), 2)
            inside = False
        except KeyboardInterrupt:
            inside = False
            interrupted += 1
    done = True
    for helper in helpers:
        helper.result(SOON)
    assert f.ask(acquire(b"7", f.all, resend_for=LONG), 3).values == (7,) * 3
    f.until(
        lambda: all(f.connection_state(master).pending == 0 for master in range(3)), "no reply is left over"
    )


def test_requests_are_sent_while_a_handler_runs_for_long(fleet: MakeFleet, handle: Handle) -> None:
    """They are submitted just before the last thread leaves that is not in a handler. Catches: they stay."""
    f = fleet(silent, silent)
    inside, end = threading.Event(), threading.Event()

    def last_long() -> None:
        inside.set()
        end.wait(3 * DEADLINE)

    handle(last_long)
    session, send, exchange = f.session(0), f.session(0).sock.send, f.engine.exchange
    unsent = [acquire(b"unsent", 0b01)]

    def lead() -> Future[Any]:
        return start(lambda: exchange([acquire(b"leader", 0b01)], 1, LONG))

    def others() -> None:
        f.session(1).wait_commands(1)
        to_main()
        assert inside.wait(SOON)
        for turn in range(20):
            leading = lead() if turn else first
            session.wait_commands(2 * turn + 1)
            time.sleep(0.003)  # the leader polls for long, and takes a moment to wake up
            replies = b":1\r\n" * (2 if turn else 1)
            send(replies)
            exchange(unsent, 0, 0.0)  # at once: before the leader has woken up
            leading.result(SOON)
            session.wait_commands(2 * turn + 2)

    def ended(_: object) -> None:
        end.set()
        f.session(1).send(b":1\r\n")

    first = lead()  # so that the main thread does not lead: a handler of the pure engine's leader holds it up
    session.wait_commands(1)
    helper = start(others)
    helper.add_done_callback(ended)
    f.ask(acquire(b"main", 0b10), 1)
    helper.result(SOON)
