"""Rules 5 and 6: what breaks a connection, and what becomes of the replies that it owes."""

from __future__ import annotations

import socket

import pytest
from support.fleet import SOON, Fleet, MakeFleet, acquire, set_words
from support.scripted import Pair, Reply, always, granting, silent, tcp_pair
from support.waiting import DEADLINE

from redlock_fast.engine.contract import FAULT, Wait

NONSENSE: list[bytes] = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x00",
    b"\r\n",
    b"OK\r\n",
    b":\r\n",
    b":1x\r\n",
    b":1 \r\n",
    b": 1\r\n",
    b":--1\r\n",
    b":99999999999999999999999\r\n",
    b"$x\r\n",
    b"$-2\r\n",
    b"$-1x\r\n",
    b"$3\r\nfooXY",
    b"$3\r\nfoo\rX",
    b"$2000000\r\n",
    b"$9999999999999999999\r\n",
    b"*-2\r\n",
    b"*1\r\nX",
    b"*2000000\r\n",
    b"*1\r\n" * 20 + b":1\r\n",
    b"_x\r\n",
    b"#x\r\n",
    b"#\r\n",
    b"+O\nK\r\n",
    b"+O\rK\r\n",
    b"%-1\r\n",
    b">-1\r\n",
    b">1\r\nX",
    b"|1\r\nX",
    b"$?\r\n",
    b"*?\r\n",
    b".\r\n",
    b"+" + b"x" * 70_000,
    b"$" + b"0" * 70_000,
    b"*" + b"0" * 30,
    b"*1\r\n#tru",
]


@pytest.mark.parametrize("reply", NONSENSE, ids=lambda reply: repr(reply[:30]))
def test_nonsense_breaks_the_connection(fleet: MakeFleet, reply: bytes) -> None:
    f = fleet(always(reply), granting, granting)
    votes = f.ask(acquire(b"k", f.all), need=3)
    assert votes.values[0] == FAULT
    assert votes.details[0]
    assert f.until_broken(0)
    assert f.breaks.acquire(timeout=DEADLINE), "on_break was called"
    assert f.connection_state(1).attached
    assert f.connection_state(2).attached
    votes = f.ask(acquire(b"k", f.all), need=2)
    assert votes.granted == 2
    assert votes.sent == 0b110


def test_connection_that_broke_is_not_used_again(fleet: MakeFleet) -> None:
    f = fleet(always(b"nonsense\r\n"))
    f.ask(acquire(b"k", f.all), need=1)
    f.until_broken(0)
    session = f.session(0)
    session.send(b":1\r\n")
    votes = f.ask(acquire(b"next", f.all), need=1)
    assert (votes.values, votes.sent) == ((FAULT,), 0)
    f.detach(0)
    assert session.ended.wait(DEADLINE), "and closed by detach at the latest"
    assert session.commands == [set_words(b"k")]


@pytest.mark.parametrize(
    "extra", [b":1\r\n", b"+OK\r\n", b"$-1\r\n", b"_\r\n", b"-ERR\r\n", b"$3\r\nfoo\r\n", b"*0\r\n"]
)
def test_reply_without_a_request_breaks_an_idle_connection(fleet: MakeFleet, extra: bytes) -> None:
    f = fleet(silent)
    f.session(0).send(extra)
    assert f.until_broken(0)
    assert f.breaks.acquire(timeout=DEADLINE)


def test_one_reply_too_many_breaks_the_connection(fleet: MakeFleet) -> None:
    f = fleet(always(b":1\r\n:1\r\n"))
    assert f.ask(acquire(b"k", 1), need=1).values == (1,)
    assert f.until_broken(0)


def test_one_reply_too_many_does_not_leave_the_next_request_waiting(fleet: MakeFleet) -> None:
    for _ in range(20):
        f = fleet(always(b":1\r\n"))
        f.ask(acquire(b"first", 1), need=1)
        f.masters[0].answer = silent
        f.session(0).send(b":666\r\n")
        # It is there before the next request goes out. An engine that looks before it sends breaks
        # the connection; an engine that sends first cannot distinguish it from a quick reply.
        votes = f.ask(acquire(b"second", 1), need=1)
        assert votes.values[0] in (FAULT, 666)
        f.close()


@pytest.mark.parametrize("begun", [b"", b"+", b"+O", b"+OK", b"+OK\r", b"$3\r\nfo", b"*2\r\n:1\r\n", b":1"])
@pytest.mark.parametrize("how", ["close", "reset", "finish"])
def test_end_of_the_connection_in_a_reply(fleet: MakeFleet, begun: bytes, how: str) -> None:
    f = fleet(silent, silent, pair=tcp_pair)
    future = f.ask_in_background(acquire(b"k", f.all), 2)
    f.session(0).send(begun)
    getattr(f.session(0), how)()
    votes = future.result(SOON)
    assert votes.values[0] == FAULT
    assert isinstance(votes.details[0], str)
    assert f.until_broken(0)
    assert f.breaks.acquire(timeout=DEADLINE)
    assert f.connection_state(0).pending == 0
    assert f.connection_state(1).attached


@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_reply_right_before_the_end_of_the_connection_counts(fleet: MakeFleet, pair: Pair) -> None:
    f = fleet(silent, pair=pair)
    future = f.ask_in_background(acquire(b"k", 1), 1)
    f.session(0).send(b":5\r\n")
    f.session(0).finish()
    assert future.result(SOON).values == (5,)
    assert f.until_broken(0)


def test_reply_right_before_nonsense_counts(fleet: MakeFleet) -> None:
    f = fleet(silent)
    first = f.ask_in_background(acquire(b"a", 1), 1)
    second = f.ask_in_background(acquire(b"b", 1), 1)
    f.session(0).send(b":5\r\nnonsense\r\n")
    assert first.result(SOON).values == (5,)
    assert second.result(SOON).values == (FAULT,)


def test_a_break_is_a_fault_for_all_that_wait(fleet: MakeFleet) -> None:
    f = fleet(silent)
    futures = [f.ask_in_background(acquire(b"%d" % number, 1), 1) for number in range(6)]
    f.session(0).close()
    for future in futures:
        assert future.result(SOON).values == (FAULT,)
    assert f.connection_state(0).pending == 0


def test_a_break_decides_what_can_no_longer_be_granted(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    future = f.ask_in_background(acquire(b"k", f.all), 2)
    f.session(0).close()
    f.session(2).close()
    votes = future.result(SOON)
    assert votes.faulty == 2
    assert votes.sent == 0b111


def test_a_break_of_a_minority_is_survived(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    future = f.ask_in_background(acquire(b"k", f.all), 2)
    f.session(1).close()
    f.session(0).send(b":1\r\n")
    f.session(2).send(b":3\r\n")
    votes = future.result(SOON)
    assert (votes.values[0], votes.values[2]) == (1, 3)


def test_pieces_of_the_old_connection_are_not_continued_on_the_next(fleet: MakeFleet) -> None:
    f = fleet(silent)
    future = f.ask_in_background(acquire(b"a", 1), 1)
    f.session(0).send(b"$20\r\nhalf")
    f.session(0).close()
    assert future.result(SOON).values == (FAULT,)
    f.until_broken(0)
    session = f.reattach(0)
    assert f.connection_state(0).attached
    assert f.connection_state(0).broken == ""
    future = f.ask_in_background(acquire(b"b", 1), 1)
    session.send(b":77\r\n")
    assert future.result(SOON).values == (77,)
    assert session.commands == [set_words(b"b")]


def test_replies_that_the_old_connection_owed_are_not_awaited_on_the_next(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.exchange([acquire(b"%d" % n, 1) for n in range(7)], need=0)
    f.session(0).wait_commands(7)
    f.lose(0)
    f.reattach(0)
    assert f.connection_state(0).pending == 0
    f.masters[0].answer = always(b":8\r\n")
    assert f.ask(acquire(b"k", 1), need=1).values == (8,)


def test_break_can_be_seen_when_on_break_is_called(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    future = f.ask_in_background(acquire(b"k", f.all), 1)
    f.session(1).close()
    f.until(lambda: f.breaks.acquire(blocking=False), "on_break is called")
    assert f.connection_state(1).broken
    assert not f.connection_state(1).attached
    assert not f.breaks.acquire(blocking=False), "once per break"
    f.session(0).send(b"+OK\r\n")
    assert future.result(SOON).granted == 1


def test_writing_to_a_dead_connection_is_a_fault(fleet: MakeFleet) -> None:
    def dead(f: Fleet) -> bool:
        return f.ask(acquire(b"k" * 1000, f.all), need=1).values[0] == FAULT

    f = fleet(granting, granting, pair=tcp_pair)
    f.session(0).reset()
    f.until(lambda: dead(f), "the master is a fault")
    assert f.ask(acquire(b"k", f.all), need=1).values[1] == 1


def test_breaks_of_all_masters_are_faults_of_all(fleet: MakeFleet) -> None:
    replies: list[Reply] = [b"-", b"nonsense", b"$5\r\nfoo"]
    f = fleet(*[always(reply) for reply in replies])
    future = f.ask_in_background(acquire(b"k", f.all), 3, wait=Wait.ALL)
    for master in range(3):
        f.session(master).finish() if master != 1 else None
    assert future.result(SOON).values == (FAULT,) * 3
    for master in range(3):
        assert f.until_broken(master)
