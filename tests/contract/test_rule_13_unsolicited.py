"""Rule 13: pushes and attributes are bounded by what was asked for; with more the connection breaks."""

from __future__ import annotations

import pytest
from support.fleet import MakeFleet, acquire
from support.scripted import always, granting
from support.watching import WATCHING, busy, invalidate, watch

from redlock_fast.engine.contract import UNSOLICITED, UNSOLICITED_LEAST, UNSOLICITED_PER_BYTE

PUSH = invalidate(b"k")
NOISE = {"push": PUSH, "attribute": b"|1\r\n+k\r\n:1\r\n"}
#: So many of either are allowed.
MOST = UNSOLICITED // UNSOLICITED_LEAST
WHY = "protocol error: more than was asked for"


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_as_many_as_are_allowed(fleet: MakeFleet, noise: bytes) -> None:
    f = fleet(granting)
    f.session(0).send(noise * MOST)
    assert f.ask(acquire(b"k", 1), need=1).granted == 1
    assert f.connection_state(0).attached
    f.session(0).send(noise)
    f.until(lambda: f.connection_state(0).broken, "one more is too many")
    assert WHY in f.connection_state(0).broken


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_replies_between_them_allow_no_more(fleet: MakeFleet, noise: bytes) -> None:
    f = fleet(always(noise * (MOST // 4) + b"+OK\r\n"))
    granted = [f.ask(acquire(b"%d" % number, 1), need=1).granted for number in range(5)]
    assert granted == [1, 1, 1, 1, 0]
    f.until(lambda: f.connection_state(0).broken, "it is reported")
    assert WHY in f.connection_state(0).broken


def test_large_pushes_count_by_their_bytes(fleet: MakeFleet) -> None:
    f = fleet(granting)
    large = invalidate(b"x" * (UNSOLICITED // 2))
    f.session(0).send(large * 2)
    f.until(lambda: f.connection_state(0).broken, "their bytes are more")
    assert f.connection_state(0).pushes == 1
    assert WHY in f.connection_state(0).broken


def test_a_push_that_announces_too_much_is_not_waited_for(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.session(0).send(b">2\r\n$10\r\ninvalidate\r\n*%d\r\n" % (UNSOLICITED // 3))
    f.until(lambda: f.connection_state(0).broken, "there is no room for its items")
    assert WHY in f.connection_state(0).broken


def test_a_push_may_have_the_longest_name_that_is_watched(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    name = b"w" * (64 << 10)
    f.ask(watch(name, 1), need=1, timeout=0.01)
    f.until(lambda: not f.connection_state(0).pending, "it is watched")
    f.session(0).send(invalidate(name))
    f.until(lambda: f.connection_state(0).pushes == 1, "the push is read")
    assert f.connection_state(0).attached


def test_what_is_watched_may_be_pushed(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    f.ask(watch(b"w" * UNSOLICITED_LEAST, 1), need=1, timeout=0.01)
    f.until(lambda: not f.connection_state(0).pending, "it is watched")
    most = MOST + len(f.session(0).raw) * UNSOLICITED_PER_BYTE // UNSOLICITED_LEAST
    f.session(0).send(PUSH * most)
    f.until(lambda: f.connection_state(0).pushes == most, "all pushes are read")
    assert f.connection_state(0).attached
    f.session(0).send(PUSH)
    f.until(lambda: f.connection_state(0).broken, "one more is too many")


def test_the_next_connection_has_a_fresh_state(fleet: MakeFleet) -> None:
    f = fleet(granting)
    for _ in range(2):
        f.session(0).send(PUSH * MOST)
        assert f.ask(acquire(b"k", 1), need=1).granted == 1
        f.reattach(0)
    assert f.connection_state(0).attached
