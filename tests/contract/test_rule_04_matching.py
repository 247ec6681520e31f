"""Rule 4: a reply goes to the request that it answers, however it arrives and however late."""

from __future__ import annotations

import pytest
from support.fleet import SOON, Fleet, MakeFleet, acquire
from support.scripted import always, granting, once_all_came, silent
from support.waiting import start

from redlock_fast.engine.contract import FAULT, NO_REPLY

#: Replies of every type, with the vote that each is.
REPLIES: list[tuple[bytes, int]] = [
    (b"+OK\r\n", 1),
    (b":1234\r\n", 1234),
    (b"$-1\r\n", 0),
    (b"_\r\n", 0),
    (b":0\r\n", 0),
    (b":-2\r\n", -2),
    (b"-OOM no\r\n", FAULT),
    (b"$5\r\n+OK\r\n\r\n", FAULT),
    (b"*2\r\n:1\r\n$2\r\n\r\n\r\n", FAULT),
    (b"%1\r\n+a\r\n_\r\n", FAULT),
    (b"#t\r\n", FAULT),
    (b":5\r\n", 5),
]
PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nfoo\r\n"
PUSH_EMPTY = b">2\r\n$10\r\ninvalidate\r\n*0\r\n"
ATTRIBUTE = b"|1\r\n+ttl\r\n:3600\r\n"


def ask_many(f: Fleet, count: int, tag: bytes = b"k") -> list[int]:
    """The first master's votes for that many requests in one exchange."""
    requests = [acquire(b"%b%d" % (tag, number), f.all) for number in range(count)]
    return [votes.values[0] for votes in f.exchange(requests, need=1)]


def stream_and_values() -> tuple[bytes, list[int]]:
    """All replies with pushes and attributes between them."""
    stream = b""
    for number, (reply, _) in enumerate(REPLIES):
        stream += (b"", PUSH, ATTRIBUTE, PUSH_EMPTY, ATTRIBUTE + PUSH)[number % 5] + reply
    return stream, [value for _, value in REPLIES]


def test_replies_in_two_pieces_at_every_place(fleet: MakeFleet) -> None:
    stream, values = stream_and_values()
    f = fleet(silent)
    for cut in range(1, len(stream)):
        f.reattach(0)  # a connection may bring so many pushes, and no more
        f.masters[0].answer = once_all_came(len(values), [stream[:cut], stream[cut:]])
        assert ask_many(f, len(values)) == values, f"cut at {cut}: {stream[:cut]!r}"
    assert f.connection_state(0).attached


def test_replies_byte_by_byte(fleet: MakeFleet) -> None:
    stream, values = stream_and_values()
    f = fleet(once_all_came(len(values), [bytes([byte]) for byte in stream]))
    assert ask_many(f, len(values)) == values


@pytest.mark.parametrize("reply", [reply for reply, _ in REPLIES])
def test_each_reply_alone_in_two_pieces_at_every_place(fleet: MakeFleet, reply: bytes) -> None:
    value = dict(REPLIES)[reply]
    f = fleet(silent)
    for cut in range(1, len(reply)):
        f.masters[0].answer = always([reply[:cut], reply[cut:]])
        votes = f.ask(acquire(b"k", 1), need=1)
        assert votes.values == (value,)
        assert votes.details == ({0: reply} if value == FAULT else {})


def test_many_replies_in_one_packet(fleet: MakeFleet) -> None:
    f = fleet(once_all_came(500, b"".join(b":%d\r\n" % (n + 1) for n in range(500))))
    assert ask_many(f, 500) == list(range(1, 501))


def test_two_replies_in_one_packet_for_two_threads(fleet: MakeFleet) -> None:
    f = fleet(silent)
    first = f.ask_in_background(acquire(b"a", 1), 1)
    second = f.ask_in_background(acquire(b"b", 1), 1)
    f.session(0).send(b":1\r\n$-1\r\n")
    assert (first.result(SOON).values, second.result(SOON).values) == ((1,), (0,))


def test_late_reply_is_dropped(fleet: MakeFleet) -> None:
    f = fleet(silent)
    assert f.ask(acquire(b"a", 1), need=1, timeout=0.02).values == (NO_REPLY,)
    future = f.ask_in_background(acquire(b"b", 1), 1)
    f.session(0).send([b":1\r\n", b":2\r\n"])
    assert future.result(SOON).values == (2,)
    assert f.connection_state(0).late_replies == 1


def test_late_and_own_reply_in_one_packet(fleet: MakeFleet) -> None:
    f = fleet(silent)
    for number in range(3):
        assert f.ask(acquire(b"%d" % number, 1), need=1, timeout=0.01).values == (NO_REPLY,)
    future = f.ask_in_background(acquire(b"own", 1), 1)
    f.session(0).send(b"+OK\r\n-ERR late\r\n_\r\n:42\r\n")
    assert future.result(SOON).values == (42,)
    assert f.connection_state(0).late_replies == 3


def test_late_replies_of_a_minority_are_dropped(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent)
    assert f.ask(acquire(b"a", f.all), need=2).values[2] == NO_REPLY
    future = f.ask_in_background(acquire(b"b", f.all, resend_for=30), 3)
    f.session(2).send(b"$-1\r\n:8\r\n")
    votes = future.result(SOON)
    assert votes.values[2] == 8
    assert votes.granted == 3
    assert f.connection_state(2).late_replies == 1


def test_half_a_reply_before_the_timeout_and_half_after_it(fleet: MakeFleet) -> None:
    f = fleet(silent)
    first = f.ask_in_background(acquire(b"a", 1), 1, timeout=0.2)
    f.session(0).send(b":12")
    assert first.result(SOON).values == (NO_REPLY,)
    future = f.ask_in_background(acquire(b"b", 1), 1)
    f.session(0).send(b"34\r\n:7\r\n")
    assert future.result(SOON).values == (7,)


def test_half_of_a_later_reply_with_the_end_of_an_earlier(fleet: MakeFleet) -> None:
    f = fleet(silent)
    first = f.ask_in_background(acquire(b"a", 1), 1)
    second = f.ask_in_background(acquire(b"b", 1), 1)
    f.session(0).send([b"+", b"OK\r\n$", b"-1\r\n"])
    assert first.result(SOON).granted == 1
    assert second.result(SOON).values == (0,)


def test_pushes_are_counted_and_are_no_replies(fleet: MakeFleet) -> None:
    f = fleet(always([PUSH + b":3\r\n"]), always(b":4\r\n" + PUSH_EMPTY + PUSH))
    assert f.ask(acquire(b"k", f.all), need=2).values == (3, 4)
    f.until(lambda: f.connection_state(1).pushes == 2, "both pushes are counted")
    assert f.connection_state(0).pushes == 1
    assert f.ask(acquire(b"k", f.all), need=2).values == (3, 4)


def test_pushes_to_an_idle_connection_are_welcome(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.session(0).send(PUSH[:7])
    f.until(f.session(0).consumed, "half a push is read")
    f.session(0).send(PUSH[7:] + PUSH_EMPTY)
    f.until(lambda: f.connection_state(0).pushes == 2, "pushes are counted")
    assert f.connection_state(0).attached
    assert f.ask(acquire(b"k", 1), need=1).granted == 1


def test_push_that_looks_like_a_grant_is_none(fleet: MakeFleet) -> None:
    f = fleet(silent)
    future = f.ask_in_background(acquire(b"k", 1), 1)
    f.session(0).send([b">1\r\n+OK\r\n", b">1\r\n:1\r\n", b"$-1\r\n"])
    assert future.result(SOON).values == (0,)
    assert f.connection_state(0).pushes == 2


def test_attribute_belongs_to_the_reply_behind_it(fleet: MakeFleet) -> None:
    f = fleet(always(ATTRIBUTE + b":3\r\n"))
    assert f.ask(acquire(b"k", 1), need=1).values == (3,)
    assert f.connection_state(0).pushes == 0
    f.masters[0].answer = always(ATTRIBUTE * 2 + b"$-1\r\n")
    assert f.ask(acquire(b"k", 1), need=1).values == (0,)


def test_attribute_before_an_unknown_reply(fleet: MakeFleet) -> None:
    f = fleet(always(ATTRIBUTE + b"$3\r\nfoo\r\n"))
    detail = f.ask(acquire(b"k", 1), need=1).details[0]
    assert isinstance(detail, bytes)
    assert detail.endswith(b"$3\r\nfoo\r\n")
    f.masters[0].answer = always(b":2\r\n")
    assert f.ask(acquire(b"k", 1), need=1).values == (2,)


def test_owed_counts_what_is_due(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.exchange([acquire(b"%d" % n, 1) for n in range(5)], need=0)
    assert f.connection_state(0).pending == 5
    f.session(0).wait_commands(5)
    f.session(0).send(b"+OK\r\n" * 3)
    f.until(lambda: f.connection_state(0).pending == 2, "three replies are taken")
    f.session(0).send(b"+OK\r\n" * 2)
    f.until(lambda: f.connection_state(0).pending == 0, "all replies are taken")


def test_round_trip_is_known_after_a_reply(fleet: MakeFleet) -> None:
    f = fleet(granting)
    assert f.connection_state(0).round_trip == 0.0
    f.ask(acquire(b"k", 1), need=1)
    assert 0.0 < f.connection_state(0).round_trip < SOON


def test_replies_of_one_master_do_not_wait_for_those_of_another(fleet: MakeFleet) -> None:
    # Half a reply stays behind on one connection while others go on.
    f = fleet(always(b":99"), granting, granting)
    for number in range(20):
        votes = f.ask(acquire(b"%d" % number, 0b110), need=2)
        assert votes.granted == 2
    future = start(lambda: f.ask(acquire(b"k", f.all), 3))
    f.session(0).wait_commands(1)
    for number in range(20):
        assert f.ask(acquire(b"x%d" % number, 0b110), need=2).granted == 2
    f.session(0).send(b"8\r\n")
    assert future.result(SOON).values[0] == 998
