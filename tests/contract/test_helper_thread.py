"""So many threads that the engine starts its helper: no wake-up or vote is lost, no thread is left."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from support.fleet import (
    LONG,
    NATIVE,
    SOON,
    Fleet,
    MakeFleet,
    Stopwatch,
    acquire,
    acquires,
    keys,
    numbering,
    numbers_are_right,
)
from support.forking import exit_code, fork_child, needs_fork
from support.miniloop import Loop
from support.scripted import ScriptedMaster, granting, silent, tcp_pair
from support.signalling import interrupt, pestering
from support.thorough import amount
from support.tls import Tls
from support.waiting import DEADLINE, eventually, start

from redlock_fast.engine.contract import FAULT, NO_REPLY, Engine, Wait

MANY = 48
#: For all of them together, on a machine that others use too.
PATIENCE = 3 * DEADLINE


@pytest.fixture(params=["usual", "frequent"], autouse=True)
def switching(request: pytest.FixtureRequest) -> Iterator[None]:
    """How often Python takes turns among its threads."""
    before = sys.getswitchinterval()
    if request.param == "frequent":
        sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def tls() -> Tls:
    return Tls()


def native_threads() -> int:
    """The number of threads of this process, with those that Python did not start."""
    if sys.platform != "linux":
        return threading.active_count()
    return len(os.listdir("/proc/self/task"))


def start_threads(count: int, action: Callable[[int], object]) -> list[Future[object]]:
    """So many threads, which begin at the same time."""
    gate = threading.Barrier(count)

    def one(number: int) -> object:
        gate.wait(DEADLINE)
        return action(number)

    return [start(lambda n=n: one(n)) for n in range(count)]  # type: ignore[misc]


def finish(futures: list[Future[object]]) -> None:
    for future in futures:
        future.result(PATIENCE)


def cycles(f: Fleet, rounds: int, uncertain: int = 0) -> Callable[[int], None]:
    """The work of each thread. ``uncertain``: the masters that may be disconnected."""
    # Kept, so that none is passed over because the machine was busy; but not for threads that only
    # come to go, or it would pile up.
    resend_for = 0.0 if uncertain else LONG

    def work(thread: int) -> None:
        for number in range(rounds):
            key = b"%d-%d" % (thread, number)
            numbers_are_right(key, f.ask(acquire(key, f.all, resend_for), 3, wait=Wait.ALL), uncertain)

    return work


def numbered(fleet: MakeFleet, masters: int) -> Fleet:
    return fleet(*[numbering(master) for master in range(masters)])


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """Threads that compute, in Python."""
    done = False

    def compute() -> None:
        while not done:
            sum(range(1000))

    busy = [start(compute) for _ in range(count)]
    try:
        yield
    finally:
        done = True
        for future in busy:
            future.result(DEADLINE)


def test_each_gets_its_own_votes(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    finish(start_threads(MANY, cycles(f, amount(3, 25, twice=10))))


def test_beside_threads_that_compute(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    with hogs(2):
        finish(start_threads(MANY, cycles(f, amount(2, 3, twice=3))))


def test_batches_and_single_requests(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)

    def work(thread: int) -> None:
        names = keys(20, b"-%d" % thread)
        for _ in range(amount(2, 4, twice=4)):
            tally = f.tally(acquires(names, f.all, resend_for=LONG), 4, wait=Wait.ALL)
            for number, key in enumerate(names):
                numbers_are_right(key, tally.votes[number])
        cycles(f, amount(2, 4, twice=4))(thread)

    finish(start_threads(MANY, work))


def test_while_connections_come_and_go(fleet: MakeFleet) -> None:
    f = numbered(fleet, 5)
    done = threading.Event()

    def reconnect(master: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            if number % 2:
                f.lose(master)
            f.reattach(master)

    busy = [start(lambda: reconnect(1)), start(lambda: reconnect(3))]
    try:
        finish(start_threads(MANY, cycles(f, 12, uncertain=0b01010)))
    finally:
        done.set()
    for future in busy:
        future.result(PATIENCE)


def test_while_a_master_changes_to_tls_and_back(fleet: MakeFleet, tls: Tls) -> None:
    # C cannot move TLS bytes: from then on the helper thread must not lead.
    f = numbered(fleet, 3)
    secured = ScriptedMaster(numbering(1), pair=tls.over(tcp_pair))
    plain = f.masters[1]
    done = threading.Event()

    def reconnect() -> None:
        number = 0
        while not done.is_set():
            number += 1
            f.detach(1)
            f.masters[1] = secured if number % 2 else plain
            f.attach(1)

    busy = start(reconnect)
    try:
        finish(start_threads(MANY, cycles(f, 12, uncertain=0b010)))
    finally:
        done.set()
    busy.result(PATIENCE)
    f.masters.append(secured if f.masters[1] is plain else plain)  # to be closed


def test_as_many_come_and_go_as_they_like(fleet: MakeFleet) -> None:
    # From one thread to many and back: the leader changes each time.
    f = numbered(fleet, 3)
    for number in range(amount(4, 12, twice=12)):
        for count in (1, MANY if number % 3 == 0 else 10, 3, 6):
            finish(start_threads(count, cycles(f, 2)))


def test_threads_that_leave_wake_threads_that_stay(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    futures = [f.ask_in_background(acquire(b"%d" % n, 0b01, resend_for=LONG), 1) for n in range(MANY)]
    last = f.ask_in_background(acquire(b"last", 0b10, resend_for=LONG), 1)
    for number, future in enumerate(futures):
        f.session(0).send(b":%d\r\n" % (number + 1))
        assert future.result(SOON).values[0] == number + 1
    assert not last.done()
    f.session(1).send(b":7\r\n")
    assert last.result(SOON).values[1] == 7


def test_newcomers_are_not_kept_waiting_by_silent_masters(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    waiting = [f.ask_in_background(acquire(b"%d" % n, 0b01, resend_for=LONG), 1) for n in range(MANY)]
    for number in range(30):
        with Stopwatch() as watch:
            assert f.ask(acquire(b"new%d" % number, 0b10), 1).granted == 1
        assert watch.seconds < SOON
    f.session(0).send(b"+OK\r\n" * MANY)
    for future in waiting:
        assert future.result(SOON).granted == 1


def test_timeouts_of_all_lengths(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)

    def work(thread: int) -> None:
        timeout = 0.05 + 0.01 * (thread * 7 % 20)
        with Stopwatch() as watch:
            votes = f.ask(acquire(b"%d" % thread, f.all, resend_for=LONG), 2, timeout=timeout)
        assert timeout <= watch.seconds < SOON
        assert votes.values[0] == NO_REPLY

    finish(start_threads(MANY, work))


@pytest.mark.parametrize("computing", [0, 2])
def test_signals(fleet: MakeFleet, computing: int) -> None:
    f = numbered(fleet, 3)
    inside = False
    interrupted = number = 0

    def interrupt_inside() -> None:
        if inside:
            interrupt()

    # Beside threads that compute, the leader has the GIL for moments only: an interrupt in each of
    # them would leave no time to get anything done.
    with hogs(computing), pestering(interrupt_inside, 0.5 if computing else 0.02):
        futures = start_threads(
            MANY, cycles(f, amount(2, 3, twice=3) if computing else amount(3, 20, twice=8))
        )
        end = time.monotonic() + PATIENCE
        while not all(future.done() for future in futures):
            assert time.monotonic() < end, "the threads get on"
            number += 1
            key = b"main%d" % number
            try:
                inside = True
                votes = f.ask(acquire(key, f.all, resend_for=LONG), 3, wait=Wait.ALL)
                inside = False
                numbers_are_right(key, votes)
            except KeyboardInterrupt:
                inside = False
                interrupted += 1
        finish(futures)
    assert number
    f.until(
        lambda: all(f.connection_state(master).pending == 0 for master in range(3)), "no reply is left over"
    )


def test_beside_an_event_loop(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    loop = Loop(f)
    futures = start_threads(MANY, cycles(f, 10))
    completed = 0
    while completed < 50 or not all(future.done() for future in futures):
        key = b"loop%d" % completed
        loop.submit([acquire(key, f.all, resend_for=LONG)], 3)
        numbers_are_right(key, loop.votes())
        completed += 1
    finish(futures)
    loop.settle()


def test_close_while_all_wait(fleet: MakeFleet) -> None:
    before = native_threads()
    f = fleet(silent, silent, silent)
    futures = [
        f.ask_in_background(acquire(b"%d" % n, f.all, resend_for=LONG), 2, wait=Wait.ALL) for n in range(MANY)
    ]
    f.engine.close()
    for future in futures:
        assert future.result(SOON).values == (FAULT,) * 3
    scripted = f.size  # their threads
    eventually(lambda: native_threads() <= before + scripted, "no thread of the engine is left")


@pytest.mark.parametrize("closers", [1, 3])
def test_close_while_all_are_busy(fleet: MakeFleet, closers: int) -> None:
    before = native_threads()
    for _ in range(2):
        f = numbered(fleet, 3)
        closed = threading.Event()
        futures = start_threads(MANY, until_closed(f, closed))
        f.session(0).wait_commands(MANY)
        finish(start_threads(closers, lambda n, f=f: f.engine.close()))  # type: ignore[misc]
        closed.set()
        finish(futures)
        eventually(lambda: native_threads() <= before, "no thread is left, of the engine or the masters")


def until_closed(f: Fleet, closed: threading.Event) -> Callable[[int], None]:
    """The work of each thread, until the engine is closed."""

    def work(thread: int) -> None:
        number = 0
        while number < 10 or not closed.is_set():
            number += 1
            key = b"%d-%d" % (thread, number)
            votes = f.ask(acquire(key, f.all, resend_for=LONG), 3, wait=Wait.ALL)
            numbers_are_right(key, votes, uncertain=f.all)
            if votes.values == (FAULT,) * 3:  # the engine is being closed: its closer needs the GIL
                closed.wait(0.001)
        assert f.ask(acquire(b"after", f.all), 1).values == (FAULT,) * 3

    return work


def test_drain_beside_many(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    futures = start_threads(MANY, cycles(f, 10))
    while not all(future.done() for future in futures):
        f.engine.drain(0.01)
        f.engine.maintain()
    finish(futures)
    assert f.engine.drain(LONG)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_engine_that_is_dropped_leaves_no_thread(engine_class: type[Engine]) -> None:
    master = ScriptedMaster(granting)
    before = native_threads()  # the session's is not there yet
    engines = [engine_class(1, lambda: None)]
    engines[0].attach(0, master.connect(), NATIVE)

    def work(thread: int) -> None:
        for _ in range(20):
            [votes] = engines[0].exchange([acquire(b"%d" % thread, 1, resend_for=LONG)], 1, LONG)
            assert votes.granted == 1

    finish(start_threads(MANY, work))
    engines.clear()
    gc.collect()
    eventually(master.session.ended.is_set, "the connection is closed")
    eventually(lambda: native_threads() <= before, "no thread of the engine is left")
    master.close()


@needs_fork
def test_child_of_fork_while_many_wait(fleet: MakeFleet) -> None:
    # The helper thread does not exist in the child, and may hold any lock at that moment.
    f = fleet(silent, silent)
    for number in range(3):
        futures = [
            f.ask_in_background(acquire(b"%d" % n, f.all, resend_for=LONG), 2, wait=Wait.ALL)
            for n in range(20)
        ]

        def action() -> None:
            f.engine.after_fork_in_child()
            for master in range(2):
                f.masters[master].answer = numbering(master)
                f.attach(master)

            def work(thread: int) -> None:
                key = b"child%d" % thread
                numbers_are_right(key, f.ask(acquire(key, f.all, resend_for=LONG), 2, wait=Wait.ALL))

            finish(start_threads(20, work))
            f.engine.close()

        assert exit_code(fork_child(action)) == 0
        for master in range(2):
            f.session(master).wait_commands(20 * (number + 1))
            f.session(master).send(b":9\r\n" * 20)
        for future in futures:
            assert future.result(SOON).values == (9, 9)


@needs_fork
def test_children_of_fork_while_many_are_busy(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    futures = start_threads(MANY, cycles(f, 15))

    def action() -> None:
        f.engine.after_fork_in_child()
        f.attach(0)
        finish(start_threads(10, lambda n: f.ask(acquire(b"%d" % n, 1, resend_for=LONG), 1)))
        f.engine.close()

    for _ in range(3):
        assert exit_code(fork_child(action)) == 0
    finish(futures)
