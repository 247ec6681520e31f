"""Threads that only watch: they delay no other thread, and a push for their key wakes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.fleet import LONG, SOON, Fleet, MakeFleet, Stopwatch
from support.forking import exit_code, fork_child, needs_fork
from support.scripted import silent
from support.signalling import handling, interrupt, to_main
from support.waiting import eventually, start
from support.watching import EVERYTHING, WATCHING, busy, expiring, get, invalidate, watch

from redlock_fast.engine.contract import FAULT, NO_REPLY

THREADS = 12


def parked(f: Fleet, names: list[bytes], need: int | None = None) -> list[Any]:
    """One thread for each key, whose replies have all come."""
    sessions = [f.session(master) for master in range(f.size)]
    came = [len(session.commands) for session in sessions]
    futures: list[Any] = [f.ask_in_background(watch(name, f.all), need=need or f.size) for name in names]
    for session, before in zip(sessions, came, strict=True):
        session.wait_commands(before + 2 * len(names))
    f.until(
        lambda: not any(f.connection_state(master).pending for master in range(f.size)),
        "the replies are there",
    )
    return futures


def names_of(count: int) -> list[bytes]:
    return [b"watched %d" % number for number in range(count)]


@pytest.mark.parametrize("threads", [1, THREADS])
def test_each_is_woken_by_its_key(fleet: MakeFleet, threads: int) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    names = names_of(threads)
    futures = [f.ask_in_background(watch(name, f.all), need=2) for name in names]
    for name, future in reversed(list(zip(names, futures, strict=True))):
        assert not future.done()
        for master in range(2):
            f.session(master).send(invalidate(name))
        assert future.result(SOON).values == (1, 1)


def test_others_work_beside_them(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    names = names_of(THREADS)
    futures = [f.ask_in_background(watch(name, f.all), need=2) for name in names]

    def work() -> None:
        for number in range(200):
            assert f.ask(get(b"%d" % number, f.all), need=2).values == (1, 1)

    workers = [start(work) for _ in range(3)]
    for name in names[::2]:
        for master in range(2):
            f.session(master).send(invalidate(name))
    for worker in workers:
        worker.result(SOON)
    for future in futures[::2]:
        assert future.result(SOON).values == (1, 1)
    assert not any(future.done() for future in futures[1::2])
    for master in range(2):
        f.session(master).send(EVERYTHING)
    for future in futures[1::2]:
        assert future.result(SOON).values == (1, 1)


def test_some_are_decided_by_threads_that_work(fleet: MakeFleet) -> None:
    """Catches: another thread decides the request of the watch poller, and no thread polls from then on."""
    f = fleet(busy, busy, commands=WATCHING)
    names = names_of(2 * THREADS)
    futures = [f.ask_in_background(watch(name, f.all), need=2) for name in names]
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            assert f.ask(get(b"k", f.all), need=2).values == (1, 1)

    workers = [start(work) for _ in range(THREADS)]
    for name, future in list(zip(names, futures, strict=True))[:-2]:
        for master in range(2):
            f.session(master).send(invalidate(name))
        assert future.result(SOON).values == (1, 1)
    over.set()
    for worker in workers:
        worker.result(SOON)
    for master in range(2):
        f.session(master).send(EVERYTHING)
    for future in futures[-2:]:
        assert future.result(SOON).values == (1, 1)


def test_while_a_thread_waits_for_a_slow_master(fleet: MakeFleet) -> None:
    # That thread leads: it reads for the waiters that watch, and their times end all the same.
    f = fleet(silent, expiring(50), commands=WATCHING, lag_after=1e6)
    slow = f.ask_in_background(get(b"g", 0b01), need=1)
    assert f.ask(watch(b"k", 0b10), need=1).values == (FAULT, NO_REPLY)
    f.masters[1].answer = busy
    future = f.ask_in_background(watch(b"k", 0b10), need=1)
    f.session(1).send(invalidate(b"k"))
    assert future.result(SOON).values == (FAULT, 1)
    assert not slow.done()
    f.session(0).send(b"+OK\r\n")
    assert slow.result(SOON).values == (1, FAULT)


def test_hastened_by_what_another_thread_reads(fleet: MakeFleet) -> None:
    f = fleet(expiring(60_000), busy, commands=WATCHING)
    futures = parked(f, names_of(3), need=1)
    f.masters[1].answer = expiring(10)
    hastened = f.ask_in_background(watch(b"k", f.all), need=1)
    assert hastened.result(SOON).values == (NO_REPLY, NO_REPLY)
    assert not any(future.done() for future in futures)
    f.session(0).send(EVERYTHING)
    for future in futures:
        assert future.result(SOON).granted == 1


def test_nothing_happens_and_nothing_is_burnt(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    futures = parked(f, names_of(3))
    used = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - used < 0.1
    f.engine.close()
    eventually(lambda: all(future.done() for future in futures), "all end")


# --- signals, fork ---


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGUSR1 raises KeyboardInterrupt."""
    with handling(interrupt):
        yield


@pytest.mark.parametrize("others", [0, 2])
def test_interrupt(fleet: MakeFleet, alarm: None, others: int) -> None:
    f = fleet(busy, commands=WATCHING)
    before = len(f.session(0).commands)
    futures = [f.ask_in_background(watch(name, 1), need=1) for name in names_of(others)]
    came = len(f.session(0).wait_commands(before + 2 * others))  # two commands for each

    def send() -> None:
        f.session(0).wait_commands(came + 2)
        eventually(lambda: not f.connection_state(0).pending, "the reply is there")
        to_main()

    sending = start(send)
    with Stopwatch() as watched, pytest.raises(KeyboardInterrupt):
        f.ask(watch(b"k", 1), need=1)
    sending.result(SOON)
    assert watched.seconds < SOON
    f.session(0).send(invalidate(*names_of(others)))
    for future in futures:
        assert future.result(SOON).values == (1,)
    assert f.ask(get(b"g", 1), need=1).values == (1,)
    assert not len(getattr(getattr(f.engine, "_hub", None), "subscriptions", ()))


@needs_fork
def test_fork(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    futures = [f.ask_in_background(watch(name, f.all), need=2) for name in names_of(3)]

    def action() -> None:
        f.engine.after_fork_in_child()
        assert f.engine.exchange([watch(b"k", f.all)], 1, LONG)[0].faulty == 2
        f.engine.close()

    assert exit_code(fork_child(action)) == 0
    for master in range(2):
        f.session(master).send(EVERYTHING)
    for future in futures:
        assert future.result(SOON).values == (1, 1)


@needs_fork
def test_fork_from_a_signal_handler_that_interrupted_it(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    children = []

    def fork_here() -> None:
        def action() -> None:
            f.engine.after_fork_in_child()
            assert f.engine.exchange([watch(b"k", 1)], 1, LONG)[0].faulty == 1

        children.append(fork_child(action))
        f.session(0).send(EVERYTHING)

    def send() -> None:
        f.session(0).wait_commands(2)
        to_main()

    with handling(fork_here):
        sending = start(send)
        assert f.ask(watch(b"k", 1), need=1).values == (1,)
        sending.result(SOON)
    assert [exit_code(child) for child in children] == [0]
