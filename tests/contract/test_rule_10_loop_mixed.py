"""An event loop beside threads, signal handlers and children of fork, on the same connections."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest
from support.fleet import (
    LONG,
    SOON,
    Fleet,
    MakeFleet,
    acquire,
    acquires,
    keys,
    number_for,
    numbering,
    numbers_are_right,
    release,
)
from support.forking import exit_code, fork_child, needs_fork
from support.miniloop import Loop
from support.scripted import Pair, always, granting, silent, tcp_pair
from support.signalling import interrupt, pestering
from support.waiting import DEADLINE, eventually, start

from redlock_fast.engine.contract import FAULT, BatchVotes, Engine, Votes, Wait


def numbered(fleet: MakeFleet, masters: int, **options: Any) -> Fleet:
    return fleet(*[numbering(master) for master in range(masters)], **options)


def work(f: Fleet, name: bytes, rounds: int, uncertain: int = 0) -> None:
    """What a thread does: one request, a batch, and one that no thread waits for.

    ``uncertain``: the masters that may be disconnected.
    """
    # Kept, so that none is passed over because the machine was busy; but not for threads that only
    # come to go, or it would pile up.
    resend_for = 0.0 if uncertain else LONG
    for number in range(rounds):
        names = [b"%b-%d-%d" % (name, number, part) for part in range(4)]
        single = f.ask(acquire(names[0], f.all, resend_for), f.size - 1, wait=Wait.ALL)
        tally = f.tally(acquires(names, f.all, resend_for), f.size + 1, wait=Wait.ALL)
        f.ask(acquire(names[1], f.all, resend_for), need=0)
        for key, votes in [(names[0], single), *zip(names, (tally.votes[n] for n in range(4)), strict=True)]:
            numbers_are_right(key, votes, uncertain)


def submit_some(loop: Loop, names: list[bytes]) -> None:
    """Every third as a batch of two."""
    f = loop.fleet
    for number, key in enumerate(names):
        if number % 3:
            loop.submit([acquire(key, f.all, resend_for=LONG)], f.size, wait=Wait.ALL, context=key)
        else:
            batch = acquires([key, key], f.all, resend_for=LONG)
            loop.submit(batch, f.size + 1, wait=Wait.ALL, context=key)


def check_completed(loop: Loop, names: list[bytes], uncertain: int = 0) -> None:
    assert sorted(context for context, _ in loop.completed) == sorted(names), "each once"
    for key, answer in loop.completed:
        for votes in answer.votes.values() if isinstance(answer, BatchVotes) else answer:
            numbers_are_right(key, votes, uncertain)


# --- threads ---


@pytest.mark.parametrize("threads", [1, 3, 12])
def test_submissions_and_exchanges_side_by_side(fleet: MakeFleet, threads: int) -> None:
    f = numbered(fleet, 3)
    loop = Loop(f)
    names = keys(600)
    futures = [start(lambda n=n: work(f, b"thread%d" % n, 25)) for n in range(threads)]  # type: ignore[misc]
    for first in range(0, 600, 20):
        submit_some(loop, names[first : first + 20])
        loop.turn()
    loop.until(lambda: len(loop.completed) >= 600, "all are reported")
    for future in futures:
        future.result(2 * DEADLINE)
    check_completed(loop, names)
    loop.settle()
    assert len(loop.completed) == 600
    assert f.engine.next_timeout() is None


def test_one_at_a_time_beside_threads(fleet: MakeFleet) -> None:
    # Each submission depends on the one before: a wake-up that is lost is a loop that hangs.
    f = numbered(fleet, 3)
    loop = Loop(f)
    futures = [start(lambda n=n: work(f, b"thread%d" % n, 40)) for n in range(3)]  # type: ignore[misc]
    for key in keys(200):
        loop.submit([acquire(key, f.all, resend_for=LONG)], 3)
        numbers_are_right(key, loop.votes())
    for future in futures:
        future.result(DEADLINE)


def test_connections_come_and_go_beneath_the_loop(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    loop = Loop(f)
    done = threading.Event()

    def reconnect() -> None:
        number = 0
        while not done.is_set():
            number += 1
            if number % 2:
                f.lose(1)
            f.reattach(1)

    busy = [start(reconnect), start(lambda: work(f, b"thread", 30, uncertain=0b010))]
    completed: list[bytes] = []
    for key in keys(300):
        loop.submit([acquire(key, f.all)], 2, wait=Wait.ALL, context=key)
        if len(completed) % 3 == 0:
            loop.turn()
        completed.append(key)
    loop.until(lambda: len(loop.completed) >= 300, "all are reported")
    done.set()
    for future in busy:
        future.result(DEADLINE)
    check_completed(loop, completed, uncertain=0b010)
    loop.settle()


def test_watching_again_and_again_beside_threads(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    busy = [start(lambda n=n: work(f, b"thread%d" % n, 40)) for n in range(3)]  # type: ignore[misc]
    for key in keys(60):
        loop = Loop(f)
        loop.submit([acquire(key + b"-forgotten", f.all, resend_for=LONG)], 3)
        f.engine.flush()
        f.engine.close_loop_fd()
        loop = Loop(f)
        loop.submit([acquire(key, f.all, resend_for=LONG)], 3)
        numbers_are_right(key, loop.votes())
        f.engine.close_loop_fd()
    for future in busy:
        future.result(DEADLINE)


def test_close_beneath_a_loop_and_threads(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    for key in keys(10):
        loop.submit([acquire(key, f.all)], 2, wait=Wait.ALL, context=key)
    loop.turn(0.0)
    waiting = [f.ask_in_background(acquire(b"%d" % n, f.all), 2, wait=Wait.ALL) for n in range(10)]
    start(f.engine.close).result(SOON)
    for future in waiting:
        assert future.result(SOON).values == (FAULT, FAULT)
    assert all(votes.values == (FAULT, FAULT) for [votes] in loop.hear(10))
    loop.settle()


def test_forgetting_beside_threads(fleet: MakeFleet) -> None:
    f = numbered(fleet, 2)
    loop = Loop(f)
    busy = [start(lambda n=n: work(f, b"thread%d" % n, 30)) for n in range(3)]  # type: ignore[misc]
    kept: list[bytes] = []
    for number, key in enumerate(keys(400)):
        ticket = loop.submit([acquire(key, f.all, resend_for=LONG)], 2, context=key)
        if number % 4 == 3:
            loop.turn(0.0)
        if number % 2:
            f.engine.cancel(ticket)
            loop.submit([release(key, f.all, resend_for=LONG)], 0)
        else:
            kept.append(key)
    f.engine.flush()
    loop.until(lambda: {context for context, _ in loop.completed} >= set(kept), "the others are reported")
    for future in busy:
        future.result(DEADLINE)
    completed = [context for context, _ in loop.completed]
    assert len(completed) == len(set(completed))
    expected = [
        (verb, key)
        for number, key in enumerate(keys(400))
        for verb in ((b"SET", b"DELIFEQ") if number % 2 else (b"SET",))
    ]

    def executed(master: int) -> list[Any]:
        session = f.session(master)
        return [words[:2] for words in session.commands if not words[1].startswith(b"thread")]

    for master in range(2):
        eventually(lambda master=master: len(executed(master)) >= len(expected), "the last release")  # type: ignore[misc]
        assert executed(master) == expected


# --- signals ---


def test_handlers_use_the_engine_beneath_the_loop(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    loop = Loop(f)
    handled = 0

    def handler() -> None:
        nonlocal handled
        handled += 1
        key = b"handler%d" % handled
        numbers_are_right(key, f.ask(acquire(key, f.all, resend_for=LONG), 3))

    names = keys(300)
    with pestering(handler, 0.01):
        for first in range(0, 300, 10):
            submit_some(loop, names[first : first + 10])
            loop.turn()
        loop.until(lambda: len(loop.completed) >= 300, "all are reported")
    check_completed(loop, names)
    assert handled
    loop.settle()


def test_interrupts_at_any_moment_in_the_loop(fleet: MakeFleet) -> None:
    # An interrupt loses what is reported at that moment: the engine must go on.
    f = numbered(fleet, 3)
    loop = Loop(f)
    inside = False

    def interrupt_inside() -> None:
        if inside:
            interrupt()

    completed: list[tuple[bytes, Votes]] = []
    interrupted = number = 0
    busy = start(lambda: work(f, b"thread", 100))
    with pestering(interrupt_inside):
        while interrupted < 150 and number < 20_000:
            number += 1
            try:
                inside = True
                loop.submit([acquire(b"%d" % number, f.all, resend_for=LONG)], 3, context=b"%d" % number)
                loop.turn()
                loop.turn()
                inside = False
            except KeyboardInterrupt:
                inside = False
                interrupted += 1
            completed += [(context, votes) for context, [votes] in loop.completed]
            loop.completed.clear()
    busy.result(DEADLINE)
    assert interrupted
    for key, votes in completed:
        numbers_are_right(key, votes)
    assert len({key for key, _ in completed}) == len(completed), "none is reported twice"
    loop.submit([acquire(b"last", f.all, resend_for=LONG)], 3, context=b"last")
    loop.until(lambda: b"last" in [context for context, _ in loop.completed], "the loop goes on")
    loop.until(
        lambda: all(f.connection_state(master).pending == 0 for master in range(3)), "no reply is left over"
    )
    loop.settle()


# --- fork ---


@needs_fork
@pytest.mark.parametrize("abandon", [True, False])
@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_loop_of_the_parent_goes_on(fleet: MakeFleet, pair: Pair, abandon: bool) -> None:
    f = fleet(silent, always(b":2\r\n"), pair=pair)
    loop = Loop(f)
    loop.submit([acquire(b"before", f.all, resend_for=LONG)], 2)
    loop.turn(0.0)
    f.session(0).wait_commands(1)

    def action() -> None:
        if abandon:
            f.engine.after_fork_in_child()
            assert f.engine.next_timeout() is None

    for _ in range(3):
        assert exit_code(fork_child(action)) == 0
    f.session(0).send(b":1\r\n")
    assert loop.votes().values == (1, 2)
    loop.submit([acquire(b"after", f.all, resend_for=LONG)], 2)
    loop.turn(0.0)
    f.session(0).wait_commands(2)
    f.session(0).send(b":3\r\n")
    assert loop.votes().values == (3, 2)
    loop.settle()


@needs_fork
def test_child_can_start_again(fleet: MakeFleet, engine_class: type[Engine]) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([acquire(b"parents", 1, resend_for=LONG)], 1, context="parent")
    loop.submit([acquire(b"unsent", 1, resend_for=LONG)], 1, context="parent")
    loop.fleet.engine.flush()
    f.session(0).wait_commands(2)

    def action() -> None:
        f.engine.after_fork_in_child()
        f.masters[0].answer = always(b":3\r\n")
        own = Loop(f)
        f.attach(0)
        for _ in range(3):
            own.submit([acquire(b"child", 1)], 1, context="child")
            own.until(lambda: own.completed, "the child is reported")
            assert [(context, votes.values) for context, [votes] in own.completed] == [("child", (3,))]
            own.completed.clear()
        own.settle()
        assert own.completed == []
        assert f.ask(acquire(b"child", 1), 1).values == (3,)
        with Fleet(engine_class, always(b":4\r\n")) as other:
            third = Loop(other)
            third.submit([acquire(b"child", 1)], 1)
            assert third.votes().values == (4,)
        f.engine.close()

    assert exit_code(fork_child(action)) == 0
    f.session(0).send(b":1\r\n:2\r\n")
    assert [answer[0].values for answer in loop.hear(2)] == [(1,), (2,)]
    loop.settle()
    assert len(f.session(0).commands) == 2


@needs_fork
def test_copies_of_a_child_keep_no_loop_busy(fleet: MakeFleet) -> None:
    # A connection that the parent has closed stays open in the child: no thread may wait for it any more.
    f = fleet(silent, granting)
    loop = Loop(f)
    loop.submit([acquire(b"k", 0b01)], 1)
    loop.turn(0.0)
    f.session(0).wait_commands(1)
    go_on, tell = os.pipe()
    pid = fork_child(lambda: assert_read(go_on))
    try:
        old = f.session(0)
        f.detach(0)
        assert len(loop.hear()) == 1
        loop.settle()
        old.send(b"+OK\r\n" * 3)
        assert not loop.readable(0.02)
        f.attach(0)
        loop.settle()
        loop.submit([acquire(b"k", 0b10)], 1)
        assert loop.votes().granted == 1
        f.session(1).finish()
        loop.until(lambda: f.connection_state(1).broken, "the end is noticed")
        f.detach(1)
        loop.settle()
        f.engine.close_loop_fd()
        loop = Loop(f)
        loop.settle()
    finally:
        os.write(tell, b".")
        code = exit_code(pid)
        for fd in (go_on, tell):
            os.close(fd)
    assert code == 0


def assert_read(fd: int) -> None:
    assert os.read(fd, 1) == b"."


@needs_fork
def test_child_while_threads_and_a_loop_are_busy(fleet: MakeFleet) -> None:
    f = numbered(fleet, 3)
    loop = Loop(f)
    busy = [start(lambda n=n: work(f, b"thread%d" % n, 60)) for n in range(4)]  # type: ignore[misc]

    def action() -> None:
        f.engine.after_fork_in_child()
        f.attach(0)
        own = Loop(f)
        own.submit([acquire(b"child", 1, resend_for=LONG)], 1)
        assert own.votes().values[0] == number_for(b"child", 0)
        f.engine.close()

    for number in range(4):
        names = keys(20, b"-%d" % number)
        submit_some(loop, names)
        loop.turn(0.0)
        assert exit_code(fork_child(action)) == 0
        loop.until(lambda: len(loop.completed) >= 20, "all are reported")
        check_completed(loop, names)
        loop.completed.clear()
    for future in busy:
        future.result(DEADLINE)
    loop.settle()
