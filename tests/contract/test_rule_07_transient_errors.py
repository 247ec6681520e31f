"""Rule 7, of masters that cannot do it now: what is kept is sent again until they can, one at a time."""

from __future__ import annotations

import time

import pytest
from support.fleet import NATIVE, PLAIN, SOON, TOKEN, Fleet, MakeFleet, acquire, del_words, release, set_words
from support.scripted import Words, always, granting
from support.waiting import eventually

from redlock_fast.engine.contract import FAULT, NOT_MASTER_ERRORS, RETRY_AFTER, TRANSIENT_ERRORS, Request
from redlock_fast.wire.commands import Script, Verb, command

BUSY = b"-BUSY Redis is busy running a script.\r\n"
busy = always(BUSY)
#: As Redis 6.2 reports an error inside a script.
WRAPPED = b"-ERR Error running script (call to f_c686f316aaf1eb01d5a4de1b): @user_script:1: @user_script: 1: "
MARK = b"the next request"


def maintain(f: Fleet, seconds: float = 3 * RETRY_AFTER) -> float:
    """So long, as the connector does. Returns how long it was."""
    start = time.monotonic()
    eventually(lambda: f.engine.maintain() or time.monotonic() > start + seconds, "time passes")
    assert f.engine.drain(SOON)
    return time.monotonic() - start


def done(f: Fleet, key: bytes = MARK) -> list[Words]:
    """What the master was asked, the last of it on behalf of ``key`` and done at once."""
    f.masters[0].answer = granting
    assert f.ask(acquire(key, 1), need=1).granted == 1
    return f.session(0).commands


@pytest.mark.parametrize("code", sorted(TRANSIENT_ERRORS - NOT_MASTER_ERRORS))
@pytest.mark.parametrize(("before", "more"), [(b"", b" with words"), (WRAPPED, b"")], ids=["", "wrapped"])
def test_sent_again_until_it_is_done(fleet: MakeFleet, before: bytes, code: bytes, more: bytes) -> None:
    f = fleet(always(b"%b-%b%b\r\n" % (before, code, more)))
    votes = f.ask(release(b"k", 1, resend_for=30), need=1)
    assert votes.values == (FAULT,), "the vote is what it is"
    session = f.session(0)
    f.until(lambda: len(session.commands) >= 3, "it is sent again and again")
    f.masters[0].answer = granting
    before = len(session.commands)
    f.until(lambda: len(session.commands) > before and not f.connection_state(0).pending, "and done")
    maintain(f)
    count = len(session.commands)
    maintain(f)
    assert session.commands == [del_words(b"k")] * count
    assert (f.connection_state(0).resent, f.connection_state(0).resend_dropped) == (count - 1, 0)


def test_no_caller_waits_for_its_answer(fleet: MakeFleet) -> None:
    f = fleet(busy)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    f.until(lambda: len(f.session(0).commands) >= 2, "it is sent again")


def test_its_answer_came_after_the_decision(fleet: MakeFleet) -> None:
    f = fleet(granting, busy)
    f.session(1).hold()
    assert f.ask(release(b"k", f.all, resend_for=30), need=1).granted == 1
    f.session(1).release()
    f.until(lambda: len(f.session(1).commands) >= 2, "it is sent again")
    assert len(f.session(0).commands) == 1, "to that master only"


@pytest.mark.parametrize(
    "reply",
    [
        *(b"-NOPERM no", b"-NOSCRIPT", b"-ERR BUSY", b"-BUSYKEY x", b"-B", b"-", b"- BUSY", b"+BUSY"),
        *(WRAPPED, WRAPPED + b"BUSY", WRAPPED + b"-", WRAPPED + b"-NOPERM no: -BUSY", b"-ERR other: -BUSY x"),
    ],
)
def test_what_it_will_never_do_is_not_sent_again(fleet: MakeFleet, reply: bytes) -> None:
    f = fleet(always(reply + b"\r\n"))
    f.ask(release(b"k", 1, resend_for=30), need=1)
    maintain(f)
    assert done(f) == [del_words(b"k"), set_words(MARK)]


def test_what_need_not_arrive_is_not_sent_again(fleet: MakeFleet) -> None:
    f = fleet(busy)
    f.ask(acquire(b"k", 1), need=1)
    f.ask(release(b"k", 1), need=1)
    maintain(f)
    assert len(done(f)) == 3


def test_what_has_an_undo_is_not_sent_again(fleet: MakeFleet) -> None:
    """The undo may have been done before it."""
    f = fleet(busy)
    assert NATIVE[Verb.RW_ROLLBACK].rollback_verb is not None
    names = (b"w", b"r", b"i", TOKEN, TOKEN, b"500")
    f.ask(Request(Verb.RW_ROLLBACK, names, 1, resend_for=30), need=1)
    maintain(f)
    assert len(done(f)) == 2


def test_one_at_a_time_and_the_others_when_it_is_done(fleet: MakeFleet) -> None:
    f = fleet(busy)
    session = f.session(0)
    for key in (b"a", b"b", b"c"):
        f.ask(release(key, 1, resend_for=30), need=1)
    before = len(session.commands)
    took = maintain(f)
    again = len(session.commands) - before
    assert 1 <= again <= 1 + took / RETRY_AFTER
    f.masters[0].answer = granting
    f.until(lambda: len(session.commands) == before + again + 3, "all three are sent")
    maintain(f)
    assert sorted(session.commands[-3:]) == [del_words(b"a"), del_words(b"b"), del_words(b"c")]
    assert len(done(f)) == before + again + 4


def test_the_others_follow_whatever_else_is_done(fleet: MakeFleet) -> None:
    f = fleet(busy)
    for key in (b"a", b"b", b"c"):
        f.ask(release(key, 1, resend_for=30), need=1)
    f.masters[0].answer = granting
    assert f.ask(release(b"d", 1, resend_for=30), need=1).granted == 1
    waiting = {del_words(b"a"), del_words(b"b"), del_words(b"c")}
    eventually(lambda: waiting <= {*f.session(0).commands[3:]}, "all three are sent again")


def test_no_longer_than_asked(fleet: MakeFleet) -> None:
    f = fleet(busy)
    f.ask(release(b"k", 1, resend_for=2.5 * RETRY_AFTER), need=1)
    maintain(f, 4 * RETRY_AFTER)
    count = len(f.session(0).commands)
    assert count <= 1 + 3
    maintain(f)
    assert len(done(f)) == count + 1


def test_on_the_next_connection_if_there_is_one(fleet: MakeFleet) -> None:
    f = fleet(busy)
    for key in (b"a", b"b"):
        f.ask(release(key, 1, resend_for=30), need=1)
    f.lose(0)
    f.masters[0].answer = granting
    assert sorted(f.reattach(0).wait_commands(2)) == [del_words(b"a"), del_words(b"b")]


def test_their_number_has_a_bound(fleet: MakeFleet) -> None:
    f = fleet(busy, max_resend=3)
    for number in range(5):
        f.ask(release(b"%d" % number, 1, resend_for=30), need=1)
    assert f.connection_state(0).resend_dropped == 2
    f.masters[0].answer = granting
    kept = [del_words(b"%d" % n) for n in range(3)]
    f.until(lambda: sorted(f.session(0).commands[-3:]) == kept, "those that were kept are sent")


def test_what_is_kept_no_longer_makes_room(fleet: MakeFleet) -> None:
    f = fleet(busy, max_resend=2)
    for number in range(2):
        f.ask(release(b"short%d" % number, 1, resend_for=0.05), need=1)
    time.sleep(0.1)
    for number in range(2):
        f.ask(release(b"long%d" % number, 1, resend_for=60), need=1)
    assert f.connection_state(0).resend_dropped == 0


def test_a_script_that_was_sent_as_text(fleet: MakeFleet) -> None:
    f = fleet(lambda words: b"-NOSCRIPT\r\n" if words[0] == b"EVALSHA" else BUSY, commands=PLAIN)
    f.ask(release(b"k", 1, resend_for=30), need=1)
    session = f.session(0)
    f.until(lambda: len(session.commands) >= 4, "all of it is sent again")
    assert [words[0] for words in session.commands[:4]] == [b"EVALSHA", b"EVAL"] * 2


def test_a_script_with_a_rollback_that_was_sent_as_text(fleet: MakeFleet) -> None:
    """Catches: a fallback, which names no rollback_verb, and so is sent again after its rollback."""
    commands = (Script(b"return 1").template(0, rollback_verb=1), command(b"DEL", 0))
    f = fleet(lambda words: b"-NOSCRIPT\r\n" if words[0] == b"EVALSHA" else BUSY, commands=commands)
    f.ask(Request(0, (b"k",), 1, 30.0), need=1)
    maintain(f)
    assert [words[0] for words in f.session(0).commands] == [b"EVALSHA", b"EVAL"]
