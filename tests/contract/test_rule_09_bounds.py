"""Rule 9: every buffer and queue has a bound, and a full one is a fault, not a stall."""

from __future__ import annotations

import contextlib
import socket
import sys

import pytest
from support.engine_trace import unread
from support.fleet import LONG, NATIVE, SOON, MakeFleet, acquire, release, set_words
from support.scripted import Words, always, granting, silent
from support.waiting import eventually
from support.watching import WATCHING, busy, watch

from redlock_fast.engine.contract import FAULT, MAX_DETAIL, NO_REPLY, UNSOLICITED_PER_BYTE, Engine, Wait
from redlock_fast.wire.resp import MAX_PUSH, MAX_REPLY


def test_owed_replies_have_a_bound(fleet: MakeFleet) -> None:
    f = fleet(silent, max_owed=4)
    answers = f.exchange([acquire(b"%d" % n, 1) for n in range(6)], need=0)
    assert [votes.values[0] for votes in answers] == [NO_REPLY] * 4 + [FAULT] * 2
    assert [votes.sent for votes in answers] == [1] * 4 + [0] * 2
    assert f.connection_state(0).pending == 4
    f.session(0).wait_commands(4)
    f.session(0).send(b":1\r\n" * 4)
    f.until(lambda: f.connection_state(0).pending == 0, "all four are answered")
    f.masters[0].answer = always(b":9\r\n")
    assert f.ask(acquire(b"next", 1), need=1).values == (9,)
    assert [words[1] for words in f.session(0).commands] == [b"0", b"1", b"2", b"3", b"next"]


def test_ring_of_owed_replies_goes_round(fleet: MakeFleet) -> None:
    def number(words: Words) -> bytes:
        return b":%b\r\n" % words[1]

    f = fleet(number, max_owed=5)
    for n in range(1, 40, 3):
        answers = f.exchange([acquire(b"%d" % (n + i), 1) for i in range(3)], need=1)
        assert [votes.values[0] for votes in answers] == [n, n + 1, n + 2]


def test_kept_requests_stay_within_the_bound_of_the_owed(fleet: MakeFleet) -> None:
    f = fleet(silent, max_owed=4)
    f.exchange([release(b"%d" % n, 1, resend_for=30) for n in range(10)], need=0)
    assert f.connection_state(0).pending <= 4


def test_bound_of_one_master_is_not_the_bound_of_another(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, granting, max_owed=2)
    f.exchange([acquire(b"%d" % n, 0b001) for n in range(2)], need=0)
    for number in range(20):
        votes = f.ask(acquire(b"%d" % number, f.all), need=2)
        assert votes.granted == 2
        assert votes.values[0] == FAULT
        assert votes.sent == 0b110


def test_out_buffer_has_a_bound(fleet: MakeFleet) -> None:
    f = fleet(silent, buffers=4096, reading=False, max_buffer=64 << 10)
    keys = [b"%d" % n * 5000 for n in range(10, 100)]
    sent = []
    for key in keys:
        votes = f.ask(acquire(key, 1), need=0)
        assert votes.values[0] == (NO_REPLY if votes.sent else FAULT)
        sent += [key] if votes.sent else []
    assert 3 <= len(sent) <= 30, "64 kB hold 6 of them; the socket and a buffer on its way some more"
    f.masters[0].reading.set()
    f.until(lambda: len(f.session(0).commands) >= len(sent), "all that was sent arrives")
    assert [words[1] for words in f.session(0).commands] == sent
    assert f.connection_state(0).attached


def test_out_buffer_has_a_bound_within_one_exchange(fleet: MakeFleet) -> None:
    f = fleet(silent, buffers=4096, reading=False, max_buffer=64 << 10)
    keys = [b"%d" % n * 5000 for n in range(10, 100)]
    answers = f.exchange([acquire(key, 1) for key in keys], need=0)
    sent = [key for key, votes in zip(keys, answers, strict=True) if votes.sent]
    assert 3 <= len(sent) <= 30
    assert [votes.values[0] for votes in answers] == [NO_REPLY if votes.sent else FAULT for votes in answers]
    f.masters[0].reading.set()
    f.until(lambda: len(f.session(0).commands) >= len(sent), "all that was sent arrives")
    assert [words[1] for words in f.session(0).commands] == sent


def test_request_larger_than_the_bound_is_a_fault(fleet: MakeFleet) -> None:
    f = fleet(always(b":3\r\n"), max_buffer=4096)
    votes = f.ask(acquire(b"k" * 8192, 1), need=1)
    assert (votes.values, votes.sent) == ((FAULT,), 0)
    assert f.ask(acquire(b"small", 1), need=1).values == (3,)
    assert f.session(0).commands == [set_words(b"small")]


def test_reply_may_be_as_long_as_the_bound(fleet: MakeFleet) -> None:
    body = b"x" * (MAX_REPLY - len(b"$1234\r\n\r\n"))
    reply = b"$%d\r\n%b\r\n" % (len(body), body)
    f = fleet(always(reply))
    assert f.ask(acquire(b"k", 1), need=1).details == {0: f"unexpected reply of {len(reply)} bytes"}
    f.masters[0].answer = always(b":2\r\n")
    assert f.ask(acquire(b"k", 1), need=1).values == (2,)


@pytest.mark.parametrize("more", [0, 1])
def test_of_a_long_reply_only_the_size_is_kept(fleet: MakeFleet, more: int) -> None:
    # There may be one for every request that is under way.
    reply = b"-ERR %b\r\n" % (b"x" * (MAX_DETAIL - 7 + more))
    f = fleet(always(reply))
    details = f.ask(acquire(b"k", 1), need=1).details
    assert details == {0: f"unexpected reply of {MAX_DETAIL + 1} bytes" if more else reply}


def test_reply_longer_than_the_bound_breaks_the_connection(fleet: MakeFleet) -> None:
    f = fleet(always(b"$%d\r\n" % (MAX_REPLY - 8)))
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert f.until_broken(0)


@pytest.mark.parametrize("more", [0, 1])
def test_a_push_may_be_longer(fleet: MakeFleet, more: int) -> None:
    f = fleet(busy, commands=WATCHING)
    f.ask(watch(b"w" * (MAX_PUSH // UNSOLICITED_PER_BYTE), 1), need=1, timeout=0.01)
    f.until(lambda: not f.connection_state(0).pending, "so much may be pushed")
    size = MAX_PUSH - len(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$123456\r\n\r\n") + more
    f.session(0).send(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (size, b"x" * size))
    f.until(lambda: f.connection_state(0).broken if more else f.connection_state(0).pushes, "it is read")
    assert f.connection_state(0).attached == (not more)


ITEMS = b"_\r\n" * 300
UNFINISHED = {
    "array": b"*1300\r\n" + b":1\r\n" * 900,
    "map": b"%600\r\n" + b"+k\r\n:1\r\n" * 400,
    "nested maps": b"%1\r\n+k\r\n" * 7 + b"*1000\r\n" + ITEMS,
    "attribute": b"|600\r\n" + b"+k\r\n:1\r\n" * 400,
    "attributes inside": b"*1000\r\n" + b"|1\r\n+k\r\n_\r\n_\r\n" * 200,
    "string": b"$4000\r\n" + b"x" * 3999,
    "line": b"+" + b"x" * 4000,
    "push": b">2\r\n$10\r\ninvalidate\r\n*5000\r\n" + b"$2\r\nab\r\n" * 900,
}


@pytest.mark.skipif(sys.platform != "linux", reason="asks a socket what is unread")
@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED)
def test_a_reply_that_drips_is_not_looked_at_again_and_again(engine_class: type[Engine], data: bytes) -> None:
    engine = engine_class(1, lambda: None, lag_after=1e6)
    client, server = socket.socketpair()
    with server, contextlib.closing(engine):
        engine.attach(0, client, NATIVE)
        engine.exchange([acquire(b"k", 1)], 0, LONG)
        server.setblocking(False)
        for byte in data:
            server.send(bytes((byte,)))
            engine.maintain()
        eventually(lambda: engine.maintain() or not unread(server), "all of it is read")
        assert 0 < engine.connection_state(0).scanned <= 2 * len(data)
        assert engine.connection_state(0).attached
        assert engine.connection_state(0).pending == 1


def test_what_drips_and_ends_is_taken(fleet: MakeFleet) -> None:
    f = fleet(silent)
    future = f.ask_in_background(acquire(b"k", 1), need=1)
    for byte in b"|1\r\n+a\r\n%1\r\n+b\r\n*2\r\n:1\r\n$1\r\nx\r\n" + b">1\r\n+x\r\n" + b":77\r\n":
        f.session(0).send(bytes((byte,)))
    assert future.result(SOON).values == (77,)
    assert f.connection_state(0).pushes == 1


@pytest.mark.parametrize("begun", [b"+O\rK", b":1\rx", b"$1\rx", b"*1\r\n+\r-"])
def test_a_line_end_that_is_none_breaks_at_once(fleet: MakeFleet, begun: bytes) -> None:
    f = fleet(always(begun))
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert "protocol error" in f.until_broken(0)


def test_nested_too_deep_breaks_the_connection(fleet: MakeFleet) -> None:
    f = fleet(always(b"*1\r\n" * 8 + b":1\r\n"))
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert f.connection_state(0).attached, "eight levels are allowed"
    f.masters[0].answer = always(b"*1\r\n" * 9 + b":1\r\n")
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert f.until_broken(0)


def test_large_batch_through_small_buffers_does_not_stall(fleet: MakeFleet) -> None:
    # An engine that writes all before it reads would wait for masters that wait for it to read.
    def number(words: Words) -> bytes:
        return b":1000000%b\r\n" % words[1][:6]

    f = fleet(number, number, number, buffers=4096)
    keys = [b"%06d" % n + b"k" * 194 for n in range(5000)]
    answers = f.exchange([acquire(key, f.all) for key in keys], need=2, wait=Wait.ALL)
    for key, votes in zip(keys, answers, strict=True):
        assert votes.values == (int(b"1000000" + key[:6]),) * 3


def test_one_that_does_not_read_does_not_stall_the_others(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent, buffers=4096, attach=False)
    f.masters[2].reading.clear()
    for master in range(3):
        f.attach(master)
    keys = [b"%04d" % n + b"k" * 196 for n in range(1000)]
    for votes in f.exchange([acquire(key, f.all) for key in keys], need=2):
        assert votes.granted == 2
    f.masters[2].reading.set()
    f.until(lambda: len(f.session(2).commands) == 1000, "the third gets them when it reads")
    assert [words[1] for words in f.session(2).commands] == keys
