"""Rule 1: what each reply counts as. A master's failure is a vote, never an exception."""

from __future__ import annotations

import pytest
from support.fleet import ENOUGH, LONG, SOON, MakeFleet, Stopwatch, acquire
from support.scripted import always, failing, granting, refusing, silent

from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Wait
from redlock_fast.wire.commands import Verb

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("number", [1, 2, 9, 10, 4096, 2**31, 2**32, 10**18, INT64_MAX])
def test_positive_integer_grants_with_its_number(fleet: MakeFleet, number: int) -> None:
    f = fleet(always(b":%d\r\n" % number))
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.values == (number,)
    assert (votes.granted, votes.refused, votes.faulty, votes.sent) == (1, 0, 0, 1)


def test_ok_grants(fleet: MakeFleet) -> None:
    f = fleet(granting)
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.values[0] > 0
    assert votes.granted == 1


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (b"$-1\r\n", 0),
        (b"_\r\n", 0),
        (b":0\r\n", 0),
        (b":-1\r\n", -1),
        (b":-2\r\n", -2),
        (b":-987\r\n", -987),
    ],
)
def test_refusals(fleet: MakeFleet, reply: bytes, value: int) -> None:
    f = fleet(always(reply))
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.values == (value,)
    assert (votes.granted, votes.refused, votes.faulty) == (0, 1, 0)


@pytest.mark.parametrize(
    "reply",
    [
        b"-ERR unknown command\r\n",
        b"-NOREPLICAS Not enough good replicas to write.\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
        b"-\r\n",
        b"!9\r\nERR first\r\n",
        b"+QUEUED\r\n",
        b"+\r\n",
        b"+O\r\n",
        b"+OKAY\r\n",
        b"+OK \r\n",
        b"+ok\r\n",
        b"+1\r\n",
        b"$3\r\nfoo\r\n",
        b"$2\r\nOK\r\n",
        b"$1\r\n1\r\n",
        b"$0\r\n\r\n",
        b"$7\r\n\r\n+OK\r\n\r\n",
        b"=6\r\ntxt:OK\r\n",
        b"*0\r\n",
        b"*1\r\n+OK\r\n",
        b"*2\r\n:1\r\n*1\r\n:1\r\n",
        b"%1\r\n+OK\r\n:1\r\n",
        b"~1\r\n:1\r\n",
        b"#t\r\n",
        b"#f\r\n",
        b",1\r\n",
        b",inf\r\n",
        b"(1\r\n",
    ],
)
def test_any_other_reply_is_a_fault_with_the_reply_as_the_reason(fleet: MakeFleet, reply: bytes) -> None:
    f = fleet(always(reply))
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.values == (FAULT,)
    assert (votes.granted, votes.refused, votes.faulty, votes.sent) == (0, 0, 1, 1)
    assert votes.details == {0: reply}
    assert f.connection_state(0).attached, "a well-formed reply keeps the connection"
    f.masters[0].answer = always(b":3\r\n")
    assert f.ask(acquire(b"k", f.all), need=1).values == (3,)


def test_null_array_never_grants(fleet: MakeFleet) -> None:
    f = fleet(always(b"*-1\r\n"))
    assert f.ask(acquire(b"k", f.all), need=1).granted == 0


@pytest.mark.parametrize("reply", [b":9223372036854775808\r\n", b":9999999999999999999\r\n"])
def test_integer_beyond_64_bits_does_not_wrap_around(fleet: MakeFleet, reply: bytes) -> None:
    f = fleet(always(reply))
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.values[0] in (FAULT, int(reply[1:]))


@pytest.mark.parametrize("number", [NO_REPLY, FAULT, NO_REPLY + 2])
def test_integers_that_look_like_our_marks_do_not_grant_and_do_decide(fleet: MakeFleet, number: int) -> None:
    f = fleet(always(b":%d\r\n" % number), granting)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), need=2)
    assert watch.seconds < SOON
    assert votes.values[0] != NO_REPLY
    assert votes.refused + votes.faulty == 1
    assert votes.values[0] == (number if number > FAULT else FAULT), "both engines say the same"


def test_long_reply_is_a_fault(fleet: MakeFleet) -> None:
    reply = b"$3900\r\n" + b"x\r\n" * 1300 + b"\r\n"
    f = fleet(always(reply))
    assert f.ask(acquire(b"k", f.all), need=1).details == {0: f"unexpected reply of {len(reply)} bytes"}
    assert f.connection_state(0).attached


def test_votes_stand_at_the_place_of_their_master(fleet: MakeFleet) -> None:
    f = fleet(always(b":10\r\n"), refusing, failing, silent, always(b":50\r\n"))
    votes = f.ask(acquire(b"k", f.all), need=2, timeout=ENOUGH, wait=Wait.ALL)
    assert votes.values == (10, 0, FAULT, NO_REPLY, 50)
    assert (votes.granted, votes.refused, votes.faulty) == (2, 1, 1)
    assert votes.details == {2: b"-OOM command not allowed\r\n"}
    assert votes.sent == 0b11111


def test_masters_that_are_not_asked_see_nothing_and_count_as_faults(fleet: MakeFleet) -> None:
    f = fleet(*[always(b":%d\r\n" % (n + 1)) for n in range(4)])
    votes = f.ask(acquire(b"some", 0b1010), need=2)
    assert votes.values == (FAULT, 2, FAULT, 4)
    assert votes.sent == 0b1010
    assert all(isinstance(votes.details[n], str) for n in (0, 2))
    f.ask(acquire(b"all", f.all), need=4)
    for n, keys in enumerate([[b"all"], [b"some", b"all"], [b"all"], [b"some", b"all"]]):
        assert [words[1] for words in f.session(n).wait_commands(len(keys))] == keys


def test_masters_without_a_connection_are_faults(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting, attach=False)
    f.attach(1)
    votes = f.ask(acquire(b"k", f.all), need=1)
    assert votes.sent == 0b010
    assert votes.granted == 1
    assert (votes.values[0], votes.values[2]) == (FAULT, FAULT)
    assert all(isinstance(votes.details[n], str) for n in (0, 2))


def test_without_connections_it_is_decided_at_once(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent, attach=False)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), need=2)
    assert watch.seconds < SOON
    assert votes.values == (FAULT,) * 3
    assert votes.sent == 0


def test_nothing_asked_is_nothing_answered(fleet: MakeFleet) -> None:
    f = fleet(silent)
    assert f.engine.exchange([], 1, LONG) == []


def test_63_masters_each_at_its_place(fleet: MakeFleet) -> None:
    f = fleet(*[always(b":%d\r\n" % (n + 1)) for n in range(63)])
    votes = f.ask(acquire(b"k", f.all), need=32, wait=Wait.ALL)
    assert votes.values == tuple(range(1, 64))
    assert votes.sent == 2**63 - 1
    assert votes.granted == 63
    only_last = f.ask(acquire(b"k", 1 << 62), need=1)
    assert only_last.values[62] == 63
    assert only_last.sent == 1 << 62
    assert only_last.faulty == 62


def test_details_of_one_exchange_do_not_show_up_in_the_next(fleet: MakeFleet) -> None:
    f = fleet(failing)
    assert f.ask(acquire(b"k", f.all), need=1).details
    f.masters[0].answer = granting
    assert f.ask(Request(Verb.EXISTS, (b"k",), f.all), need=1).details == {}
