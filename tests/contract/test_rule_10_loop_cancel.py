"""Rule 10: a forgotten ticket is not reported; what is unwatched, closed or dropped leaves nothing behind."""

from __future__ import annotations

import gc
import os
import socket
import sys
import weakref

import pytest
from support.fleet import (
    LONG,
    NATIVE,
    Fleet,
    MakeFleet,
    acquire,
    acquires,
    del_words,
    keys,
    number_for,
    numbering,
    release,
    set_words,
)
from support.miniloop import Loop
from support.scripted import ScriptedMaster, always, granting, silent, tcp_pair
from support.waiting import eventually

from redlock_fast.engine.contract import FAULT, Engine, Wait


class Context:
    """The waiter of a ticket."""


# --- forgetting ---


def test_forgotten_is_never_reported_and_its_reply_is_dropped(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    forgotten = loop.submit([acquire(b"a", 1)], 1)
    loop.turn()
    f.session(0).wait_commands(1)
    f.engine.cancel(forgotten)
    assert f.engine.next_timeout() is None
    loop.submit([acquire(b"b", 1, resend_for=LONG)], 1, context="b")
    loop.turn()
    f.session(0).send(b":1\r\n:2\r\n")
    assert loop.votes().values == (2,)
    loop.settle()
    assert loop.completed == []
    assert f.connection_state(0).late_replies == 1


@pytest.mark.parametrize("ending", ["cancel", "close_loop_fd"])
def test_forgotten_by_a_finalizer_while_it_is_collected(fleet: MakeFleet, ending: str) -> None:
    """The garbage collector runs in on_ready, and a finalizer cancels a task. Catches: use after free."""
    f = fleet(granting)
    f.engine.fileno()

    class Finalized:
        def __init__(self, tickets: list[object]) -> None:
            self.tickets, self.cycle = tickets, self

        def __del__(self) -> None:
            while self.tickets:
                f.engine.cancel(self.tickets.pop())
            if ending == "close_loop_fd":
                f.engine.close_loop_fd()

    before = gc.get_threshold()
    try:
        for turn in range(20):
            gc.disable()
            tickets = [f.engine.submit([acquire(b"%d" % n, 1)], 1, LONG, 0, 0.0, n) for n in range(20)]
            f.engine.flush()
            f.session(0).wait_commands(20 * (turn + 1))
            Finalized(tickets)
            del tickets
            lists: list[list[object]] = [[] for _ in range(200)]  # the next one is allocated
            gc.set_threshold(1)
            gc.enable()
            f.engine.on_ready()
            gc.disable()
            gc.set_threshold(*before)
            del lists
            gc.collect()
            assert f.engine.on_ready() == []
    finally:
        gc.set_threshold(*before)
        gc.enable()


def test_forgotten_keeps_its_place_on_the_wire(fleet: MakeFleet) -> None:
    f = fleet(granting, granting)
    loop = Loop(f)
    expected = []
    for key in keys(50):
        f.engine.cancel(loop.submit([acquire(key, f.all)], 2))
        loop.submit([release(key, f.all, resend_for=LONG)], 0)
        expected += [set_words(key), del_words(key)]
    loop.turn()
    for master in range(2):
        assert f.session(master).wait_commands(100) == expected
    loop.until(
        lambda: f.connection_state(0).pending == f.connection_state(1).pending == 0, "all replies are taken"
    )
    assert loop.completed == []


def test_forgotten_after_the_decision_is_not_reported(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    forgotten = loop.submit([acquire(b"a", 1)], 1, context="a")
    batch = loop.submit(acquires([b"b", b"c"], 1), 1, context="b")
    loop.submit([acquire(b"d", 1)], 1, context="d")
    f.engine.flush()
    f.until(lambda: f.connection_state(0).pending == 0, "all are decided")
    assert loop.readable()
    f.engine.cancel(forgotten)
    f.engine.cancel(batch)
    loop.until(lambda: loop.completed, "the third is reported")
    assert [context for context, _ in loop.completed] == ["d"]
    loop.settle()


def test_all_forgotten_after_the_decision_leave_nothing_to_do(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    tickets = [loop.submit([acquire(key, 1)], 1) for key in keys(3)]
    f.engine.flush()
    f.until(lambda: f.connection_state(0).pending == 0, "all are decided")
    for ticket in tickets:
        f.engine.cancel(ticket)
    loop.settle()
    assert loop.completed == []
    assert f.engine.next_timeout() is None


def test_forgetting_what_was_reported_or_forgotten_does_no_harm(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    completed = loop.submit([acquire(b"a", 1)], 1)
    loop.hear()
    forgotten = loop.submit([acquire(b"b", 1)], 1)
    for _ in range(2):
        f.engine.cancel(completed)
        f.engine.cancel(forgotten)
    loop.submit([acquire(b"c", 1)], 1)
    assert loop.votes().granted == 1
    f.engine.close()
    f.engine.cancel(completed)
    f.engine.cancel(forgotten)


def test_kept_and_forgotten_is_sent_again(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    ticket = loop.submit([release(b"a", 1, resend_for=LONG)], 1)
    loop.turn()
    f.session(0).wait_commands(1)
    f.engine.cancel(ticket)
    f.session(0).close()
    loop.until(lambda: f.connection_state(0).broken, "the connection breaks")
    session = f.reattach(0)
    loop.until(lambda: session.commands, "it is sent again")
    assert session.commands == [del_words(b"a")]
    assert loop.completed == []


# --- letting go ---


@pytest.mark.parametrize("how", ["completed", "forgotten", "unwatched", "closed", "timed out"])
def test_the_context_is_released(fleet: MakeFleet, how: str) -> None:
    f = fleet(silent)
    loop = Loop(f)
    context = Context()
    alive = weakref.ref(context)
    ticket = loop.submit([acquire(b"k", 1)], 1, 0.01 if how == "timed out" else LONG, context=context)
    del context
    loop.turn(0.0)
    if how == "completed":
        f.session(0).wait_commands(1)
        f.session(0).send(b"+OK\r\n")
    elif how == "forgotten":
        f.engine.cancel(ticket)
    elif how == "unwatched":
        f.engine.close_loop_fd()
    elif how == "closed":
        f.engine.close()
    if how in ("completed", "closed", "timed out"):
        loop.hear()
    del ticket
    gc.collect()
    assert alive() is None


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("cycle", [False, True])
def test_engine_that_is_dropped_takes_all_with_it(engine_class: type[Engine], cycle: bool) -> None:
    # The fixture around each test looks for threads and descriptors that are left.
    master = ScriptedMaster(silent)
    engine = engine_class(1, lambda: None)
    engine.attach(0, master.connect(), NATIVE)
    engine.fileno()
    context = Context()
    alive = weakref.ref(context)
    if cycle:
        context.engine = engine  # type: ignore[attr-defined]
    tickets = [engine.submit([acquire(b"k", 1)], 1, LONG, Wait.EARLY, 0.0, context) for _ in range(3)]
    engine.flush()
    master.session.wait_commands(3)
    del context, engine, tickets
    gc.collect()
    assert alive() is None
    eventually(master.session.ended.is_set, "the connection is closed")
    master.close()


class Coroutine:
    """Has a finalizer as that of a task's coroutine: it cancels the ticket, and sends a release."""

    def __init__(self, engine: Engine, errors: list[Exception | None]) -> None:
        self.engine, self.errors = engine, errors
        self.ticket = engine.submit([acquire(b"k", 1)], 1, LONG, Wait.EARLY, 0.0, self)

    def __del__(self) -> None:
        try:
            self.engine.cancel(self.ticket)
            self.engine.submit([release(b"k", 1, LONG)], 0, LONG, Wait.EARLY, 0.0, None)
            self.engine.flush()
        except Exception as error:
            self.errors.append(error)
        else:
            self.errors.append(None)


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_collection_finalizes_coroutines_after_the_engine(engine_class: type[Engine]) -> None:
    """Catches: the finalizer of a part of the engine closes what the finalizers of coroutines still use."""
    master = ScriptedMaster(silent)
    errors: list[Exception | None] = []
    gc.disable()  # the next collection finalizes all of them, in the order in which they were made
    try:
        engine = engine_class(1, lambda: None)
        engine.attach(0, master.connect(), NATIVE)
        engine.fileno()
        coroutines = [Coroutine(engine, errors) for _ in range(3)]
        engine.flush()
        del engine, coroutines
        gc.collect()
    finally:
        gc.enable()
    assert errors == [None] * 3
    eventually(master.session.ended.is_set, "the connection is closed")
    master.close()


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts references")
def test_arguments_are_released(fleet: MakeFleet) -> None:
    f = fleet(granting, silent)
    loop = Loop(f)
    key = b"counted" * 5
    before = sys.getrefcount(key)
    for _ in range(10):
        loop.submit([acquire(key, 0b01)], 1)
        loop.submit([acquire(key, 0b10)], 1, 0.001)
        f.engine.cancel(loop.submit([acquire(key, 0b10)], 1))
        loop.submit([acquire(key, 0b10)], 0)
    loop.until(lambda: len(loop.completed) == 20, "all are reported")
    f.session(1).wait_commands(30)
    f.session(1).send(b"+OK\r\n" * 30)
    loop.until(lambda: f.connection_state(1).pending == 0, "the late replies are taken")
    loop.completed.clear()
    gc.collect()
    assert sys.getrefcount(key) == before


# --- watching again ---


def test_fileno_stays_until_unwatch(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, attach=False)
    fd = f.engine.fileno()
    assert not os.get_inheritable(fd)
    loop = Loop(f)
    for master in range(2):
        f.attach(master)
        loop.submit([acquire(b"k", 1 << master)], 1)
        loop.hear()
        assert f.engine.fileno() == fd
    f.reattach(0)
    assert f.engine.fileno() == fd
    f.engine.close_loop_fd()
    with pytest.raises(OSError):  # noqa: PT011
        os.fstat(fd)


def test_unwatch_forgets_every_ticket(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    loop = Loop(f)
    loop.submit([acquire(b"open", 0b01)], 1, context="open")
    loop.submit([acquire(b"decided", 0b10)], 1, context="decided")
    f.engine.flush()
    f.until(lambda: f.connection_state(1).pending == 0, "one is decided")
    f.engine.close_loop_fd()
    assert f.engine.next_timeout() is None
    loop = Loop(f)
    loop.settle()
    f.session(0).wait_commands(1)
    f.session(0).send(b":5\r\n")
    loop.until(lambda: f.connection_state(0).pending == 0, "its late reply is taken")
    assert loop.completed == []
    loop.submit([acquire(b"next", 0b10)], 1)
    assert loop.votes().granted == 1


def test_watching_again_and_again(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(2)])
    for key in keys(20):
        loop = Loop(f)
        loop.submit([acquire(key, f.all, resend_for=LONG)], 2)
        assert loop.votes().values == (number_for(key, 0), number_for(key, 1))
        f.engine.close_loop_fd()
        f.engine.close_loop_fd()
        assert f.ask(acquire(key, f.all), 1).granted


def test_unwatch_without_watching_does_no_harm(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.engine.close_loop_fd()
    assert f.ask(acquire(b"k", 1), 1).granted == 1
    assert f.engine.next_timeout() is None


def test_what_was_decided_before_fileno_is_reported(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.engine.submit([acquire(b"k", 1)], 1, LONG, Wait.EARLY, 0.0, "context")
    f.engine.flush()
    f.until(lambda: f.connection_state(0).pending == 0, "it is decided")
    assert Loop(f).votes().granted == 1


def test_closed_engine_reports_faults(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    for number in range(4):
        loop.submit([acquire(b"%d" % number, f.all)], 1, context=number)
    loop.turn(0.0)
    f.engine.close()
    assert loop.readable()
    for [votes] in loop.hear(4):
        assert votes.values == (FAULT, FAULT)
    loop.submit([acquire(b"after", f.all)], 1)
    assert loop.votes().sent == 0
    loop.settle()
    f.engine.flush()
    assert f.engine.next_timeout() is None


def test_fleets_side_by_side_are_independent(engine_class: type[Engine]) -> None:
    with Fleet(engine_class, always(b":1\r\n")) as one, Fleet(engine_class, always(b":2\r\n")) as other:
        loops = Loop(one), Loop(other)
        for loop in loops:
            loop.submit([acquire(b"k", 1)], 1)
        assert [loop.votes().values for loop in loops] == [(1,), (2,)]


def test_sockets_of_all_kinds(fleet: MakeFleet) -> None:
    for pair in (socket.socketpair, tcp_pair):
        f = fleet(granting, granting, pair=pair)
        loop = Loop(f)
        loop.submit([acquire(b"k", f.all)], 2)
        assert loop.votes().granted == 2
        f.session(0).finish()
        loop.until(lambda f=f: f.connection_state(0).broken, "the end is noticed")  # type: ignore[misc]
        loop.settle()
