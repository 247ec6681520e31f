"""Rule 12: a master that was flushed, or is no master any more, is connected again before its next vote."""

from __future__ import annotations

import pytest
from support.fleet import MakeFleet, acquire, del_words, release
from support.miniloop import Loop
from support.scripted import always, granting
from support.watching import EVERYTHING, WATCHING, watch

from redlock_fast.engine.contract import FAULT, FLUSHED, MAX_DETAIL, NO_REPLY, NOT_MASTER_ERRORS


def test_a_flush_ends_the_connection_though_nothing_is_watched(fleet: MakeFleet) -> None:
    """Catches: a master that is asked on as if it still had what it has granted."""
    f = fleet(granting)
    assert f.ask(acquire(b"k", 1), need=1).granted == 1
    f.session(0).send(EVERYTHING)
    assert f.until_broken(0) == FLUSHED
    assert f.ask(acquire(b"other", 1), need=1).values == (FAULT,)


@pytest.mark.parametrize("how", ["exchange", "flush"])
def test_a_flush_that_is_unread_when_the_connection_breaks(fleet: MakeFleet, how: str) -> None:
    """Catches: a failed send ends the connection, and its input is lost."""
    f = fleet(granting, granting)
    f.session(0).send(EVERYTHING)
    f.session(0).close()
    if how == "exchange":
        f.ask(acquire(b"k", f.all), need=1)
    else:
        Loop(f).submit([acquire(b"k", f.all)], need=1)
        f.engine.flush()
    assert f.until_broken(0) == FLUSHED


@pytest.mark.parametrize("code", sorted(NOT_MASTER_ERRORS))
def test_what_may_be_no_master_any_more_is_asked_nothing(fleet: MakeFleet, code: bytes) -> None:
    """Its next vote must not count before it was found out what it is; what is kept goes there then."""
    f = fleet(always(b"-%b with words\r\n" % code))
    votes = f.exchange([release(b"k", 1, resend_for=30), acquire(b"l", 1)], need=1)
    assert [one.values for one in votes] == [(FAULT,)] * 2
    assert f.until_broken(0).startswith(code.decode())
    f.masters[0].answer = granting
    assert f.reattach(0).wait_commands(1) == [del_words(b"k")]


def test_it_may_say_so_after_the_decision(fleet: MakeFleet) -> None:
    f = fleet(granting, lambda words: b"-READONLY no\r\n")
    f.session(1).hold()
    assert f.ask(acquire(b"k", f.all), need=1).granted == 1
    f.session(1).release()
    assert f.until_broken(1).startswith("READONLY")
    assert f.connection_state(0).attached


def test_it_may_say_so_at_length(fleet: MakeFleet) -> None:
    """Catches: an error of more bytes than are stored as the reason of a fault."""
    f = fleet(always(b"-LOADING %b\r\n" % (b"x" * MAX_DETAIL)))
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert f.until_broken(0).startswith("LOADING")


def test_a_reply_that_precedes_the_one_that_counts_says_nothing(fleet: MakeFleet) -> None:
    f = fleet(lambda words: b"-LOADING no\r\n" if words[0] == b"CLIENT" else b":-1\r\n", commands=WATCHING)
    assert f.ask(watch(b"k", 1), need=1, timeout=0.1).values == (NO_REPLY,)
    assert f.connection_state(0).attached
