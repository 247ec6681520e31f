"""Rule 7: what is kept arrives, on the next connection if need be; what is not kept is sent once."""

from __future__ import annotations

import socket
import time

import pytest
from support.fleet import PLAIN, SOON, TOKEN, MakeFleet, acquire, del_words, release, set_words
from support.scripted import Pair, granting, silent, tcp_pair

from redlock_fast.engine.contract import FAULT
from redlock_fast.wire.dialect import Capabilities, dialect

MARK = b"the next request"


def test_kept_for_a_master_that_is_not_there_yet(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False)
    votes = f.ask(release(b"k", 1, resend_for=30), need=1)
    assert (votes.values, votes.sent) == ((FAULT,), 0)
    session = f.attach(0)
    f.until(lambda: session.commands, "the release is sent")
    assert session.commands == [del_words(b"k")]
    assert f.connection_state(0).resent == 1
    assert f.connection_state(0).pending == 1
    session.send(b":1\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "its reply is taken")
    assert f.connection_state(0).attached


def test_kept_goes_out_before_new_requests_and_its_reply_is_dropped(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False)
    for key in (b"a", b"b"):
        f.ask(release(key, 1, resend_for=30), need=1)
    session = f.attach(0)
    future = f.ask_in_background(acquire(MARK, 1), 1)
    assert session.wait_commands(3) == [del_words(b"a"), del_words(b"b"), set_words(MARK)]
    session.send(b":1\r\n:0\r\n:33\r\n")
    assert future.result(SOON).values == (33,)


@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_kept_and_owed_when_the_connection_broke(fleet: MakeFleet, pair: Pair) -> None:
    f = fleet(silent, pair=pair)
    future = f.ask_in_background(release(b"k", 1, resend_for=30), 1)
    f.session(0).reset() if pair is tcp_pair else f.session(0).close()
    assert future.result(SOON).values == (FAULT,)
    f.until_broken(0)
    session = f.reattach(0)
    f.until(lambda: session.commands, "the release is sent again")
    assert session.commands == [del_words(b"k")]
    assert f.connection_state(0).resent == 1


def test_kept_over_two_broken_connections(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    for _ in range(3):
        f.session(0).wait_commands(1)
        assert f.session(0).commands == [del_words(b"k")]
        f.lose(0)
        session = f.reattach(0)
        f.until(lambda s=session: s.commands, "it is sent again")  # type: ignore[misc]
    assert f.connection_state(0).resent == 3


def test_kept_and_answered_is_done(fleet: MakeFleet) -> None:
    f = fleet(granting)
    assert f.ask(release(b"k", 1, resend_for=30), need=1).granted == 1
    f.lose(0)
    session = f.reattach(0)
    assert f.ask(acquire(MARK, 1), need=1).granted == 1
    assert session.commands == [set_words(MARK)]
    assert f.connection_state(0).resent == 0


def test_kept_and_answered_late_is_done(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    f.session(0).wait_commands(1)
    f.session(0).send(b":0\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "the late reply is taken")
    f.lose(0)
    f.masters[0].answer = granting
    session = f.reattach(0)
    f.ask(acquire(MARK, 1), need=1)
    assert session.commands == [set_words(MARK)]


def test_kept_no_longer_than_asked(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False)
    f.ask(release(b"short", 1, resend_for=0.05), need=0)
    f.ask(release(b"long", 1, resend_for=60), need=0)
    time.sleep(0.1)
    session = f.attach(0)
    f.until(lambda: session.commands, "what is kept is sent")
    assert session.commands == [del_words(b"long")]
    assert f.connection_state(0).resent == 1


def test_owed_and_kept_no_longer_than_asked(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.ask(release(b"short", 1, resend_for=0.05), need=0)
    f.session(0).wait_commands(1)
    time.sleep(0.1)
    f.lose(0)
    f.masters[0].answer = granting
    session = f.reattach(0)
    f.ask(acquire(MARK, 1), need=1)
    assert session.commands == [set_words(MARK)]


def test_acquires_are_never_sent_again(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.exchange([acquire(b"a", 1), release(b"a", 1, resend_for=30), acquire(b"b", 1)], need=0)
    f.session(0).wait_commands(3)
    f.lose(0)
    f.ask(acquire(b"c", 1), need=1)
    session = f.reattach(0)
    future = f.ask_in_background(acquire(MARK, 1), 1)
    session.wait_commands(2)
    assert session.commands == [del_words(b"a"), set_words(MARK)]
    session.send(b":0\r\n:1\r\n")
    assert future.result(SOON).values == (1,)


def test_acquires_to_a_connection_that_dies_unread_are_not_sent_again(fleet: MakeFleet) -> None:
    # They never left the out-buffer, but the caller has the votes of requests that may have been sent.
    f = fleet(silent, buffers=4096, reading=False)
    f.exchange([acquire(b"%d" % n * 500, 1) for n in range(100)], need=0)
    f.lose(0)
    f.masters[0].answer = granting
    session = f.reattach(0)
    f.ask(acquire(MARK, 1), need=1)
    assert session.commands == [set_words(MARK)]


def test_kept_in_the_dialect_of_the_next_connection(fleet: MakeFleet) -> None:
    # A master may come back as another version, which does not know the old one's commands.
    f = fleet(silent, commands=PLAIN)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    assert f.session(0).wait_commands(1)[0][0] == b"EVALSHA"
    f.lose(0)
    session = f.reattach(0, dialect(Capabilities(delex=True)))
    f.until(lambda: session.commands, "it is sent again")
    assert session.commands == [(b"DELEX", b"k", b"IFEQ", TOKEN)]


def test_kept_and_noscript_on_the_next_connection(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False, commands=PLAIN)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    f.masters[0].answer = lambda words: b"-NOSCRIPT\r\n" if words[0] == b"EVALSHA" else b":1\r\n"
    session = f.attach(0)
    f.until(lambda: len(session.commands) == 2, "the script itself is sent")
    assert [words[0] for words in session.commands] == [b"EVALSHA", b"EVAL"]


def test_queue_of_the_kept_has_a_bound(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False, max_resend=3)
    for number in range(5):
        assert f.ask(release(b"%d" % number, 1, resend_for=30), need=1).values == (FAULT,)
    assert f.connection_state(0).resend_dropped == 2
    session = f.attach(0)
    f.until(lambda: len(session.commands) >= 3, "the kept are sent")
    f.masters[0].answer = granting
    f.ask(release(MARK, 1), need=0)
    keys = [words[1] for words in session.wait_commands(4)]
    assert keys[3:] == [MARK]
    assert keys[:3] == sorted(keys[:3])
    assert f.connection_state(0).resent == 3


def test_what_is_kept_no_longer_makes_room(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False, max_resend=3)
    for number in range(3):
        f.ask(release(b"short%d" % number, 1, resend_for=0.05), need=0)
    time.sleep(0.1)
    for number in range(3):
        f.ask(release(b"long%d" % number, 1, resend_for=60), need=0)
    assert f.connection_state(0).resend_dropped == 0
    session = f.attach(0)
    f.until(lambda: len(session.commands) >= 3, "the kept are sent")
    assert [words[1] for words in session.commands] == [b"long0", b"long1", b"long2"]


def test_queue_of_the_kept_has_a_bound_when_a_connection_breaks(fleet: MakeFleet) -> None:
    f = fleet(silent, max_resend=3)
    f.exchange([release(b"%d" % n, 1, resend_for=30) for n in range(5)], need=0)
    f.session(0).wait_commands(5)
    f.lose(0)
    session = f.reattach(0)
    f.until(lambda: len(session.commands) >= 3, "the kept are sent")
    f.ask(acquire(MARK, 1), need=0)
    assert session.wait_commands(4)[3] == set_words(MARK)
    assert (f.connection_state(0).resent, f.connection_state(0).resend_dropped) == (3, 2)


def test_kept_only_for_the_master_that_missed_it(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting, attach=False)
    f.attach(0)
    f.attach(2)
    votes = f.ask(release(b"k", f.all, resend_for=30), need=2)
    assert votes.granted == 2
    assert votes.sent == 0b101
    session = f.attach(1)
    f.until(lambda: session.commands, "the release is sent")
    f.ask(acquire(MARK, f.all), need=3)
    assert [f.session(n).commands for n in range(3)] == [[del_words(b"k"), set_words(MARK)]] * 3


def test_kept_goes_out_while_a_thread_waits_for_another_master(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, attach=False)
    f.attach(0)
    waiting = f.ask_in_background(acquire(b"slow", 0b01), 1)
    f.ask(release(b"k", 0b10, resend_for=30), need=0)
    assert f.attach(1).wait_commands(1) == [del_words(b"k")]
    f.session(0).send(b"+OK\r\n")
    assert waiting.result(SOON).granted == 1
