"""Rule 10: what is submitted goes out with the next flush, and is told once, by on_ready."""

from __future__ import annotations

import array
import fcntl
import gc
import os
import socket
import sys
import termios
import weakref

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
    del_words,
    keys,
    number_for,
    numbering,
    release,
    releases,
    set_words,
)
from support.miniloop import Loop
from support.scripted import ScriptedMaster, Session, always, failing, granting, refusing, silent, tcp_pair
from support.waiting import DEADLINE, eventually

from redlock_fast._engine import FAULT, SILENT, Engine, Tally, Wait


class Somebody:
    """Whom to tell."""


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
            loop.submit([acquire(key, f.all, keep=LONG)], 2, whom=key)
            f.engine.flush()
            loop.ready()
    assert watch.seconds < SOON
    assert loop.told == []
    loop.settle()
    for master in f.masters:
        master.reading.set()
    # From here on only fileno drives it: the rest has to go out when there is room.
    loop.until(lambda: len(loop.told) == 200, "all are told")
    for key, [votes] in loop.told:
        assert votes.values == tuple(number_for(key, master) for master in range(2))
    loop.settle()


def test_submissions_beyond_the_bounds_are_faults_and_told(fleet: MakeFleet) -> None:
    f = fleet(granting, max_owed=4, reading=False)
    loop = Loop(f)
    for number in range(10):
        loop.submit([acquire(b"%d" % number, 1)], 1, whom=number)
    loop.until(lambda: len(loop.told) == 6, "those beyond are told")
    assert [whom for whom, _ in loop.told] == [4, 5, 6, 7, 8, 9]
    assert all(votes.values == (FAULT,) and not votes.sent for _, [votes] in loop.told)
    f.masters[0].reading.set()
    loop.until(lambda: len(loop.told) == 10, "the others too")
    assert {whom: votes.granted for whom, [votes] in loop.told[6:]} == dict.fromkeys(range(4), 1)


# --- being told ---


def test_each_is_told_once_and_as_its_own(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    loop = Loop(f)
    names = keys(1500)
    for start in range(0, 1500, 50):
        for key in names[start : start + 50]:
            loop.submit([acquire(key, f.all, keep=LONG)], 3, whom=key)
        loop.turn()
    loop.until(lambda: len(loop.told) >= 1500, "all are told")
    assert sorted(whom for whom, _ in loop.told) == names
    for key, [votes] in loop.told:
        assert votes.values == tuple(number_for(key, master) for master in range(3))
    loop.settle()
    assert f.engine.on_ready() == []
    assert len(loop.told) == 1500


def test_whom_may_be_the_same_for_many(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    whom = Somebody()
    tickets = [loop.submit([acquire(key, 1)], 1, whom=whom) for key in keys(5)]
    assert len(set(map(id, tickets))) == 5
    loop.hear(5)
    assert loop.told == []


def test_lists_and_batches_are_told_as_exchange_returns_them(fleet: MakeFleet) -> None:
    f = fleet(granting, refusing, failing)
    loop = Loop(f)
    loop.submit([acquire(b"a", f.all), acquire(b"b", f.all)], 2, wait=Wait.ALL)
    loop.submit(acquires([b"c", b"d"], f.all), 2, wait=Wait.ALL)
    answers, tally = loop.hear(2)
    assert [votes.values for votes in answers] == [(1, 0, FAULT)] * 2
    assert isinstance(tally, Tally)
    assert [votes.values for votes in tally.votes.values()] == [(1, 0, FAULT)] * 2


def test_only_on_ready_tells(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    loop.submit([acquire(b"k", 1)], 1)
    assert f.engine.flush() is None  # type: ignore[func-returns-value]
    f.ask(acquire(b"other", 1), 1)  # its reply is behind
    f.engine.tend()
    f.engine.drain(LONG)
    assert [whom for whom, _ in f.engine.on_ready()] == ["somebody"]
    assert f.engine.on_ready() == []


def test_told_in_the_order_of_decision(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    loop = Loop(f)
    for master in range(3):
        loop.submit([acquire(b"k", 1 << master)], 1, whom=master)
    f.engine.flush()
    for master in (1, 2, 0):
        f.session(master).wait_commands(1)
        f.session(master).send(b"+OK\r\n")
        f.until(lambda m=master: f.link(m).owed == 0, "it is decided")  # type: ignore[misc]
    loop.until(lambda: len(loop.told) == 3, "all are told")
    assert [whom for whom, _ in loop.told] == [1, 2, 0]


def test_decided_when_submitted_is_told_too(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, attach=False)
    loop = Loop(f)
    loop.submit([acquire(b"a", f.all)], 1, whom="a")
    assert loop.readable(), "there is something to tell"
    loop.submit(acquires([b"b", b"c"], f.all), 2, whom="b")
    answers, tally = loop.hear(2)
    assert answers[0].values == (FAULT, FAULT)
    assert [votes.sent for votes in tally.votes.values()] == [0, 0]
    loop.settle()
    assert f.engine.due() is None


def test_decided_before_and_after_in_one_go_keep_their_order(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, attach=False)
    f.attach(1)
    loop = Loop(f)
    loop.submit([acquire(b"a", 0b10)], 1, whom="later")
    loop.submit([acquire(b"b", 0b01)], 1, whom="at once")
    loop.until(lambda: len(loop.told) == 2, "both are told")
    assert [whom for whom, _ in loop.told] == ["at once", "later"]


@pytest.mark.parametrize("nothing", ["list", "batch"])
def test_nothing_is_told_as_nothing(fleet: MakeFleet, nothing: str) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([] if nothing == "list" else acquires([], 1), 1)
    [answer] = loop.hear()
    assert answer == [] if nothing == "list" else (answer.granted, answer.votes) == ([], {})
    loop.settle()
    assert loop.told == []


def test_need_0_has_no_ticket_and_is_never_told(fleet: MakeFleet) -> None:
    f = fleet(granting, silent)
    loop = Loop(f)
    assert loop.submit([acquire(b"a", f.all)], 0) is None
    assert loop.submit(acquires([b"b", b"c"], f.all), 0) is None
    assert f.engine.due() is None
    loop.turn()
    for master in range(2):
        assert f.session(master).wait_commands(3) == [set_words(key) for key in (b"a", b"b", b"c")]
    loop.until(lambda: f.link(0).owed == 0, "its replies are taken")
    f.session(1).close()
    loop.until(lambda: f.link(1).broken, "the other connection breaks")
    loop.settle()
    assert loop.told == []


@pytest.mark.parametrize(
    ("masters", "wait", "values"),
    [
        ((granting, granting, silent), Wait.EARLY, (1, 1, SILENT)),
        ((refusing, failing, silent), Wait.EARLY, (0, FAULT, SILENT)),
        ((granting, granting, silent), Wait.CERTAIN, (1, 1, SILENT)),
        ((refusing, refusing, silent), Wait.CERTAIN, (0, 0, SILENT)),
        ((granting, refusing, failing), Wait.ALL, (1, 0, FAULT)),
    ],
)
def test_decided_as_wait_says(
    fleet: MakeFleet, masters: tuple[object, ...], wait: Wait, values: tuple[int, ...]
) -> None:
    f = fleet(*masters)  # type: ignore[arg-type]
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all, keep=LONG)], 2, LONG, wait)
    assert loop.votes().values == values


@pytest.mark.parametrize(
    ("masters", "wait"),
    [((failing, failing, silent), Wait.CERTAIN), ((granting, granting, silent), Wait.ALL)],
)
def test_not_decided_before_wait_says(fleet: MakeFleet, masters: tuple[object, ...], wait: Wait) -> None:
    f = fleet(*masters)  # type: ignore[arg-type]
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all, keep=LONG)], 2, LONG, wait)
    loop.until(lambda: f.link(0).owed == f.link(1).owed == 0, "two have answered")
    assert loop.told == []
    f.session(2).send(b":9\r\n")
    assert loop.votes().values[2] == 9


def test_break_is_told_as_faults(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    for number in range(5):
        loop.submit([acquire(b"%d" % number, f.all)], 2, whom=number)
    loop.submit(acquires(keys(3), f.all), 2, whom=5)
    loop.turn()
    f.session(0).wait_commands(8)
    f.session(0).close()
    loop.until(lambda: len(loop.told) == 6, "all are told")
    assert [whom for whom, _ in loop.told] == list(range(6))
    assert all(votes.values[0] == FAULT for _, [votes] in loop.told[:5])
    assert f.breaks.acquire(timeout=DEADLINE), "on_break was called"
    assert f.link(0).broken
    loop.settle()


def test_kept_submissions_are_sent_again(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([release(b"a", 1, keep=LONG), acquire(b"b", 1)], 1)
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
    loop.submit([release(b"a", 1, keep=LONG)], 1)
    loop.submit(releases([b"b"], 1, LONG), 0)
    first = f.session(0)
    f.detach(0)
    [[votes]] = loop.hear()
    assert votes.values == (FAULT,)
    session = f.attach(0)
    loop.until(lambda: len(session.commands) >= 2, "they are sent")
    assert session.commands == [del_words(b"a"), del_words(b"b")]
    assert first.commands in ([], session.commands)


def test_detach_leaves_no_submission_without_its_undo(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    loop.submit([acquire(b"sent", 1)], 1)
    loop.turn(0.0)
    f.session(0).wait_commands(1)
    loop.submit([acquire(b"unsent", 1)], 1)
    f.detach(0)
    sent, *rest = f.session(0).commands
    assert sent == set_words(b"sent")
    assert rest in (
        [del_words(b"sent")],
        [set_words(b"unsent"), del_words(b"sent"), del_words(b"unsent")],
    )
    assert all(votes.values == (FAULT,) for [votes] in loop.hear(2))


# --- forgetting ---


def test_forgotten_is_never_told_and_its_reply_goes_to_nobody(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    forgotten = loop.submit([acquire(b"a", 1)], 1)
    loop.turn()
    f.session(0).wait_commands(1)
    f.engine.forget(forgotten)
    assert f.engine.due() is None
    loop.submit([acquire(b"b", 1, keep=LONG)], 1, whom="b")
    loop.turn()
    f.session(0).send(b":1\r\n:2\r\n")
    assert loop.votes().values == (2,)
    loop.settle()
    assert loop.told == []
    assert f.link(0).late == 1


def test_forgotten_keeps_its_place_on_the_wire(fleet: MakeFleet) -> None:
    f = fleet(granting, granting)
    loop = Loop(f)
    expected = []
    for key in keys(50):
        f.engine.forget(loop.submit([acquire(key, f.all)], 2))
        loop.submit([release(key, f.all, keep=LONG)], 0)
        expected += [set_words(key), del_words(key)]
    loop.turn()
    for master in range(2):
        assert f.session(master).wait_commands(100) == expected
    loop.until(lambda: f.link(0).owed == f.link(1).owed == 0, "all replies are taken")
    assert loop.told == []


def test_forgotten_after_the_decision_is_not_told(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    forgotten = loop.submit([acquire(b"a", 1)], 1, whom="a")
    batch = loop.submit(acquires([b"b", b"c"], 1), 1, whom="b")
    loop.submit([acquire(b"d", 1)], 1, whom="d")
    f.engine.flush()
    f.until(lambda: f.link(0).owed == 0, "all are decided")
    assert loop.readable()
    f.engine.forget(forgotten)
    f.engine.forget(batch)
    loop.until(lambda: loop.told, "the third is told")
    assert [whom for whom, _ in loop.told] == ["d"]
    loop.settle()


def test_all_forgotten_after_the_decision_leave_nothing_to_do(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    tickets = [loop.submit([acquire(key, 1)], 1) for key in keys(3)]
    f.engine.flush()
    f.until(lambda: f.link(0).owed == 0, "all are decided")
    for ticket in tickets:
        f.engine.forget(ticket)
    loop.settle()
    assert loop.told == []
    assert f.engine.due() is None


def test_forgetting_what_was_told_or_forgotten_does_no_harm(fleet: MakeFleet) -> None:
    f = fleet(granting)
    loop = Loop(f)
    told = loop.submit([acquire(b"a", 1)], 1)
    loop.hear()
    forgotten = loop.submit([acquire(b"b", 1)], 1)
    for _ in range(2):
        f.engine.forget(told)
        f.engine.forget(forgotten)
    loop.submit([acquire(b"c", 1)], 1)
    assert loop.votes().granted == 1
    f.engine.close()
    f.engine.forget(told)
    f.engine.forget(forgotten)


def test_kept_and_forgotten_is_sent_again(fleet: MakeFleet) -> None:
    f = fleet(silent)
    loop = Loop(f)
    ticket = loop.submit([release(b"a", 1, keep=LONG)], 1)
    loop.turn()
    f.session(0).wait_commands(1)
    f.engine.forget(ticket)
    f.session(0).close()
    loop.until(lambda: f.link(0).broken, "the connection breaks")
    session = f.reattach(0)
    loop.until(lambda: session.commands, "it is sent again")
    assert session.commands == [del_words(b"a")]
    assert loop.told == []


# --- letting go ---


@pytest.mark.parametrize("how", ["told", "forgotten", "unwatched", "closed", "timed out"])
def test_whom_is_let_go(fleet: MakeFleet, how: str) -> None:
    f = fleet(silent)
    loop = Loop(f)
    whom = Somebody()
    alive = weakref.ref(whom)
    ticket = loop.submit([acquire(b"k", 1)], 1, 0.01 if how == "timed out" else LONG, whom=whom)
    del whom
    loop.turn(0.0)
    if how == "told":
        f.session(0).wait_commands(1)
        f.session(0).send(b"+OK\r\n")
    elif how == "forgotten":
        f.engine.forget(ticket)
    elif how == "unwatched":
        f.engine.unwatch()
    elif how == "closed":
        f.engine.close()
    if how in ("told", "closed", "timed out"):
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
    whom = Somebody()
    alive = weakref.ref(whom)
    if cycle:
        whom.engine = engine  # type: ignore[attr-defined]
    tickets = [engine.submit([acquire(b"k", 1)], 1, LONG, Wait.EARLY, 0.0, whom) for _ in range(3)]
    engine.flush()
    master.session.wait_commands(3)
    del whom, engine, tickets
    gc.collect()
    assert alive() is None
    eventually(master.session.ended.is_set, "the connection is closed")
    master.close()


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts references")
def test_arguments_are_let_go(fleet: MakeFleet) -> None:
    f = fleet(granting, silent)
    loop = Loop(f)
    key = b"counted" * 5
    before = sys.getrefcount(key)
    for _ in range(10):
        loop.submit([acquire(key, 0b01)], 1)
        loop.submit([acquire(key, 0b10)], 1, 0.001)
        f.engine.forget(loop.submit([acquire(key, 0b10)], 1))
        loop.submit([acquire(key, 0b10)], 0)
    loop.until(lambda: len(loop.told) == 20, "all are told")
    f.session(1).wait_commands(30)
    f.session(1).send(b"+OK\r\n" * 30)
    loop.until(lambda: f.link(1).owed == 0, "the late replies are taken")
    loop.told.clear()
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
    f.engine.unwatch()
    with pytest.raises(OSError):  # noqa: PT011
        os.fstat(fd)


def test_unwatch_forgets_every_ticket(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)
    loop = Loop(f)
    loop.submit([acquire(b"open", 0b01)], 1, whom="open")
    loop.submit([acquire(b"decided", 0b10)], 1, whom="decided")
    f.engine.flush()
    f.until(lambda: f.link(1).owed == 0, "one is decided")
    f.engine.unwatch()
    assert f.engine.due() is None
    loop = Loop(f)
    loop.settle()
    f.session(0).wait_commands(1)
    f.session(0).send(b":5\r\n")
    loop.until(lambda: f.link(0).owed == 0, "its late reply is taken")
    assert loop.told == []
    loop.submit([acquire(b"next", 0b10)], 1)
    assert loop.votes().granted == 1


def test_watching_again_and_again(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(2)])
    for key in keys(20):
        loop = Loop(f)
        loop.submit([acquire(key, f.all, keep=LONG)], 2)
        assert loop.votes().values == (number_for(key, 0), number_for(key, 1))
        f.engine.unwatch()
        f.engine.unwatch()
        assert f.ask(acquire(key, f.all), 1).granted


def test_unwatch_without_watching_does_no_harm(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.engine.unwatch()
    assert f.ask(acquire(b"k", 1), 1).granted == 1
    assert f.engine.due() is None


def test_what_was_decided_before_fileno_is_told(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.engine.submit([acquire(b"k", 1)], 1, LONG, Wait.EARLY, 0.0, "somebody")
    f.engine.flush()
    f.until(lambda: f.link(0).owed == 0, "it is decided")
    assert Loop(f).votes().granted == 1


def test_closed_engine_tells_faults(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    loop = Loop(f)
    for number in range(4):
        loop.submit([acquire(b"%d" % number, f.all)], 1, whom=number)
    loop.turn(0.0)
    f.engine.close()
    assert loop.readable()
    for [votes] in loop.hear(4):
        assert votes.values == (FAULT, FAULT)
    loop.submit([acquire(b"after", f.all)], 1)
    assert loop.votes().sent == 0
    loop.settle()
    f.engine.flush()
    assert f.engine.due() is None


def test_fleets_side_by_side_are_strangers(engine_class: type[Engine]) -> None:
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
        loop.until(lambda f=f: f.link(0).broken, "the end is noticed")  # type: ignore[misc]
        loop.settle()
