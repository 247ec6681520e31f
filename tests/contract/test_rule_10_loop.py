"""Rule 10: what is submitted goes out with the next flush, and is reported once, by on_ready."""

from __future__ import annotations

import array
import fcntl
import termios

import pytest
from support.fleet import (
    LONG,
    PLAIN,
    SOON,
    MakeFleet,
    Stopwatch,
    acquire,
    acquires,
    del_words,
    keys,
    number_for,
    numbering,
    release,
    releases,
    set_words,
)
from support.miniloop import Loop
from support.scripted import Session, failing, granting, refusing, silent
from support.waiting import DEADLINE, eventually

from redlock_fast.engine.contract import FAULT, NO_REPLY, BatchVotes, Wait


def arrived(session: Session) -> int:
    """How many bytes lie at a master that does not read."""
    count = array.array("i", [0])
    fcntl.ioctl(session.sock, termios.FIONREAD, count)
    return count[0]


# --- going out ---


@pytest.mark.parametrize("need", [0, 1])
@pytest.mark.parametrize("how", ["flush", "on_ready", "exchange"])
def test_goes_out_with_the_next_of_these_and_not_before(fleet: MakeFleet, how: str, need: int) -> None:
    f = fleet(silent, granting, attach=False)
    f.masters[0].reading.clear()
    for master in range(2):
        f.attach(master)
    loop = Loop(f)
    loop.submit([acquire(b"a", 0b01)], need)
    loop.submit(acquires([b"b", b"c"], 0b01), need)
    assert arrived(f.session(0)) == 0
    if how == "exchange":
        f.ask(acquire(b"other", 0b10), 1)
    elif how == "flush":
        f.engine.flush()
    else:
        loop.ready()
    assert arrived(f.session(0)) > 0
    f.masters[0].reading.set()
    assert f.session(0).wait_commands(3) == [set_words(key) for key in (b"a", b"b", b"c")]


def test_a_fallback_goes_out_with_the_call_that_read_the_error(fleet: MakeFleet) -> None:
    # No other call may be needed: the loop waits for the descriptor, and the master for the command.
    f = fleet(lambda words: b"-NOSCRIPT\r\n" if words[0] == b"EVALSHA" else b"", commands=PLAIN)
    loop = Loop(f)
    loop.submit([release(b"k", 1)], 1)
    f.engine.flush()
    commands = f.session(0).commands
    eventually(lambda: commands and (loop.readable() or len(commands) > 1), "the error is there, or was read")
    f.engine.on_ready()
    assert [words[0] for words in f.session(0).wait_commands(2)] == [b"EVALSHA", b"EVAL"]


def test_order_of_submissions_and_exchanges_is_that_on_the_wire(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    for number in range(0, 60, 3):
        loop.submit([acquire(b"%d" % number, 1)], number % 2)
        loop.submit(acquires([b"%d" % (number + 1)], 1), 1)
        f.ask(acquire(b"%d" % (number + 2), 1), 1)
    assert [words[1] for words in f.session(0).wait_commands(60)] == [b"%d" % n for n in range(60)]
    assert len(loop.hear(30)) == 30


def test_submit_never_waits_for_masters_that_do_not_read(fleet: MakeFleet) -> None:
    f = fleet(numbering(0), numbering(1), buffers=4096, reading=False)
    loop = Loop(f)
    names = [b"%03d" % number * 2000 for number in range(200)]
    with Stopwatch() as watch:
        for key in names:
            loop.submit([acquire(key, f.all, resend_for=LONG)], 2, context=key)
            f.engine.flush()
            loop.ready()
    assert watch.seconds < SOON
    assert loop.completed == []
    loop.settle()
    for master in f.masters:
        master.reading.set()
    # From here on only fileno drives it: the rest has to go out when there is room.
    loop.until(lambda: len(loop.completed) == 200, "all are reported")
    for key, [votes] in loop.completed:
        assert votes.values == tuple(number_for(key, master) for master in range(2))
    loop.settle()


def test_submissions_beyond_the_bounds_are_faults_and_reported(fleet: MakeFleet) -> None:
    f = fleet(granting, max_owed=4, reading=False)
    loop = Loop(f)
    for number in range(10):
        loop.submit([acquire(b"%d" % number, 1)], 1, context=number)
    loop.until(lambda: len(loop.completed) == 6, "those beyond are reported")
    assert [context for context, _ in loop.completed] == [4, 5, 6, 7, 8, 9]
    assert all(votes.values == (FAULT,) and not votes.sent for _, [votes] in loop.completed)
    f.masters[0].reading.set()
    loop.until(lambda: len(loop.completed) == 10, "the others too")
    assert {context: votes.granted for context, [votes] in loop.completed[6:]} == dict.fromkeys(range(4), 1)


# --- reports ---


def test_each_is_reported_once_and_as_its_own(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    loop = Loop(f)
    names = keys(1500)
    for start in range(0, 1500, 50):
        for key in names[start : start + 50]:
            loop.submit([acquire(key, f.all, resend_for=LONG)], 3, context=key)
        loop.turn()
    loop.until(lambda: len(loop.completed) >= 1500, "all are reported")
    assert sorted(context for context, _ in loop.completed) == names
    for key, [votes] in loop.completed:
        assert votes.values == tuple(number_for(key, master) for master in range(3))
    loop.settle()
    assert f.engine.on_ready() == []
    assert len(loop.completed) == 1500


def test_context_may_be_the_same_for_many(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    context = object()
    tickets = [loop.submit([acquire(key, 1)], 1, context=context) for key in keys(5)]
    assert len(set(map(id, tickets))) == 5
    loop.hear(5)
    assert loop.completed == []


def test_lists_and_batches_are_reported_as_exchange_returns_them(fleet: MakeFleet) -> None:
    f = fleet(granting, refusing, failing)
    loop = Loop(f)
    loop.submit([acquire(b"a", f.all), acquire(b"b", f.all)], 2, wait=Wait.ALL)
    loop.submit(acquires([b"c", b"d"], f.all), 2, wait=Wait.ALL)
    answers, tally = loop.hear(2)
    assert [votes.values for votes in answers] == [(1, 0, FAULT)] * 2
    assert isinstance(tally, BatchVotes)
    assert [votes.values for votes in tally.votes.values()] == [(1, 0, FAULT)] * 2


def test_only_on_ready_reports(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    loop.submit([acquire(b"k", 1)], 1)
    assert f.engine.flush() is None  # type: ignore[func-returns-value]
    f.ask(acquire(b"other", 1), 1)  # its reply is behind
    f.engine.maintain()
    f.engine.drain(LONG)
    assert [context for context, _ in f.engine.on_ready()] == ["context"]
    assert f.engine.on_ready() == []


def test_reported_in_the_order_of_decision(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    loop = Loop(f)
    for master in range(3):
        loop.submit([acquire(b"k", 1 << master)], 1, context=master)
    f.engine.flush()
    for master in (1, 2, 0):
        f.session(master).wait_commands(1)
        f.session(master).send(b"+OK\r\n")
        f.until(lambda m=master: f.connection_state(m).pending == 0, "it is decided")  # type: ignore[misc]
    loop.until(lambda: len(loop.completed) == 3, "all are reported")
    assert [context for context, _ in loop.completed] == [1, 2, 0]


def test_decided_when_submitted_is_reported_too(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, attach=False)
    loop = Loop(f)
    loop.submit([acquire(b"a", f.all)], 1, context="a")
    assert loop.readable(), "there is something to tell"
    loop.submit(acquires([b"b", b"c"], f.all), 2, context="b")
    answers, tally = loop.hear(2)
    assert answers[0].values == (FAULT, FAULT)
    assert [votes.sent for votes in tally.votes.values()] == [0, 0]
    loop.settle()
    assert f.engine.next_timeout() is None


def test_decided_before_and_after_in_one_go_keep_their_order(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, attach=False)
    f.attach(1)
    loop = Loop(f)
    loop.submit([acquire(b"a", 0b10)], 1, context="later")
    loop.submit([acquire(b"b", 0b01)], 1, context="at once")
    loop.until(lambda: len(loop.completed) == 2, "both are reported")
    assert [context for context, _ in loop.completed] == ["at once", "later"]


@pytest.mark.parametrize("nothing", ["list", "batch"])
def test_nothing_is_reported_as_nothing(fleet: MakeFleet, nothing: str) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([] if nothing == "list" else acquires([], 1), 1)
    [answer] = loop.hear()
    assert answer == [] if nothing == "list" else (answer.granted, answer.votes) == ([], {})
    loop.settle()
    assert loop.completed == []


def test_need_0_has_no_ticket_and_is_never_reported(fleet: MakeFleet) -> None:
    f = fleet(granting, silent)
    loop = Loop(f)
    assert loop.submit([acquire(b"a", f.all)], 0) is None
    assert loop.submit(acquires([b"b", b"c"], f.all), 0) is None
    assert f.engine.next_timeout() is None
    loop.turn()
    for master in range(2):
        assert f.session(master).wait_commands(3) == [set_words(key) for key in (b"a", b"b", b"c")]
    loop.until(lambda: f.connection_state(0).pending == 0, "its replies are taken")
    f.session(1).close()
    loop.until(lambda: f.connection_state(1).broken, "the other connection breaks")
    loop.settle()
    assert loop.completed == []


@pytest.mark.parametrize(
    ("masters", "wait", "values"),
    [
        ((granting, granting, silent), Wait.EARLY, (1, 1, NO_REPLY)),
        ((refusing, failing, silent), Wait.EARLY, (0, FAULT, NO_REPLY)),
        ((granting, granting, silent), Wait.CERTAIN, (1, 1, NO_REPLY)),
        ((refusing, refusing, silent), Wait.CERTAIN, (0, 0, NO_REPLY)),
        ((granting, refusing, failing), Wait.ALL, (1, 0, FAULT)),
    ],
)
def test_decided_as_wait_says(
    fleet: MakeFleet, masters: tuple[object, ...], wait: Wait, values: tuple[int, ...]
) -> None:
    f = fleet(*masters)  # type: ignore[arg-type]
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all, resend_for=LONG)], 2, LONG, wait)
    assert loop.votes().values == values


@pytest.mark.parametrize(
    ("masters", "wait"),
    [((failing, failing, silent), Wait.CERTAIN), ((granting, granting, silent), Wait.ALL)],
)
def test_not_decided_before_wait_says(fleet: MakeFleet, masters: tuple[object, ...], wait: Wait) -> None:
    f = fleet(*masters)  # type: ignore[arg-type]
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all, resend_for=LONG)], 2, LONG, wait)
    f.engine.flush()
    loop.until(
        lambda: f.connection_state(0).pending == f.connection_state(1).pending == 0, "two have answered"
    )
    assert loop.completed == []
    f.session(2).send(b":9\r\n")
    assert loop.votes().values[2] == 9


def test_break_is_reported_as_faults(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    for number in range(5):
        loop.submit([acquire(b"%d" % number, f.all)], 2, context=number)
    loop.submit(acquires(keys(3), f.all), 2, context=5)
    loop.turn()
    f.session(0).wait_commands(8)
    f.session(0).close()
    loop.until(lambda: len(loop.completed) == 6, "all are reported")
    assert [context for context, _ in loop.completed] == list(range(6))
    assert all(votes.values[0] == FAULT for _, [votes] in loop.completed[:5])
    assert f.breaks.acquire(timeout=DEADLINE), "on_break was called"
    assert f.connection_state(0).broken
    loop.settle()


def test_kept_submissions_are_sent_again(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([release(b"a", 1, resend_for=LONG), acquire(b"b", 1)], 1)
    loop.submit(releases([b"c", b"d"], 1, [LONG, 0.0]), 0)
    loop.turn()
    f.session(0).wait_commands(4)
    f.session(0).close()
    [answers] = loop.hear()
    assert [votes.values for votes in answers] == [(FAULT,)] * 2
    session = f.reattach(0)
    loop.until(lambda: len(session.commands) >= 2, "the kept are sent again")
    assert session.commands == [del_words(b"a"), del_words(b"c")]


def test_kept_submissions_that_were_not_sent_yet_are_kept(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([release(b"a", 1, resend_for=LONG)], 1)
    loop.submit(releases([b"b"], 1, LONG), 0)
    first = f.session(0)
    f.detach(0)
    [[votes]] = loop.hear()
    assert votes.values == (FAULT,)
    session = f.attach(0)
    loop.until(lambda: len(session.commands) >= 2, "they are sent")
    assert session.commands == [del_words(b"a"), del_words(b"b")]
    assert first.commands in ([], session.commands)


def test_detach_undoes_what_is_forgotten(fleet: MakeFleet) -> None:
    """And not what a task still waits for."""
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([acquire(b"awaited", 1)], 1)
    f.engine.cancel(loop.submit([acquire(b"forgotten", 1)], 1))
    loop.turn(0.0)
    f.session(0).wait_commands(2)
    f.detach(0)
    assert f.session(0).commands == [set_words(b"awaited"), set_words(b"forgotten"), del_words(b"forgotten")]
    assert all(votes.values == (FAULT,) for [votes] in loop.hear(1))
