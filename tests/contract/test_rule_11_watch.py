"""Rule 11: a vote stays open until a push comes, or its time is over; and which thread decides it."""

from __future__ import annotations

import pytest
from support.fleet import ENOUGH, LONG, SOON, MakeFleet, Stopwatch
from support.miniloop import Loop
from support.scripted import Answer, always, silent
from support.waiting import eventually, start
from support.watching import (
    EVERYTHING,
    FOR_EVER,
    FREE,
    WATCHING,
    busy,
    expiring,
    free,
    free_with,
    get,
    invalidate,
    watch,
    watch_all,
)

from redlock_fast.engine.contract import FAULT, FLUSHED, NO_REPLY, Batch, Quorums, Request, Wait
from redlock_fast.wire.commands import WATCH_KEY, Command, command

waits = pytest.mark.parametrize("wait", list(Wait))


# --- replies ---


def test_nothing_there_grants(fleet: MakeFleet) -> None:
    f = fleet(free, free, busy, commands=WATCHING)
    votes = f.ask(watch(b"k", f.all), need=2)
    assert votes.values[:2] == (1, 1)
    assert f.session(0).wait_commands(2) == [(b"CLIENT", b"CACHING", b"YES"), (b"PTTL", b"k")]


@waits
def test_an_open_vote_is_silent_until_the_timeout(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(free, busy, expiring(60_000), commands=WATCHING)
    with Stopwatch() as watched:
        votes = f.ask(watch(b"k", f.all), need=2, timeout=ENOUGH, wait=wait)
    assert votes.values == (1, NO_REPLY, NO_REPLY)
    assert watched.seconds >= ENOUGH


@waits
@pytest.mark.parametrize("reply", [b"+OK\r\n", b"$-1\r\n", b"_\r\n", b":-3\r\n", b"-ERR\r\n", b"$1\r\n1\r\n"])
def test_any_other_reply_is_a_fault(fleet: MakeFleet, wait: Wait, reply: bytes) -> None:
    def answer(words: tuple[bytes, ...]) -> bytes:
        return reply if words[0] == b"PTTL" else b"+OK\r\n"

    f = fleet(answer, busy, answer, commands=WATCHING)
    votes = f.ask(watch(b"k", f.all), need=2, wait=wait)
    assert (votes.values[0], votes.values[2]) == (FAULT, FAULT)
    assert votes.details[0] == reply


@pytest.mark.parametrize("number", [2**63 - 1, 2**62, 10**15])
def test_an_expiry_far_away(fleet: MakeFleet, number: int) -> None:
    f = fleet(expiring(number), commands=WATCHING)
    assert f.ask(watch(b"k", 1), need=1, timeout=0.05).values == (NO_REPLY,)


@pytest.mark.parametrize("caching", [b"-ERR no tracking\r\n", b"$3\r\nfoo\r\n", b"*1\r\n:1\r\n", b"_\r\n"])
def test_replies_before_the_one_that_counts_are_dropped(fleet: MakeFleet, caching: bytes) -> None:
    f = fleet(lambda words: b":-2\r\n" if words[0] == b"PTTL" else caching, commands=WATCHING)
    assert f.ask(watch(b"k", 1), need=1).values == (1,)
    assert (
        f.connection_state(0).late_replies,
        f.connection_state(0).pending,
        f.connection_state(0).broken,
    ) == (
        0,
        0,
        "",
    )


def test_replies_to_skip_are_owed(fleet: MakeFleet) -> None:
    f = fleet(silent, commands=WATCHING, max_owed=3)
    future = f.ask_in_background(watch(b"k", 1), need=1)
    assert f.connection_state(0).pending == 2
    votes = f.ask(watch(b"other", 1), need=1)
    assert votes.details == {0: "too many replies owed"}
    f.session(0).wait_commands(2)
    f.session(0).send(b"+OK\r\n")
    f.until(lambda: f.connection_state(0).pending == 1, "one is there")
    f.session(0).send(b":-2\r\n")
    assert future.result(SOON).values == (1,)
    assert f.connection_state(0).pending == 0


def test_the_fallback_skips_for_itself(fleet: MakeFleet) -> None:
    fallback = Command((*command(b"PING").parts * 2, *command(b"EVAL", 0).parts), leading_replies=2)
    dialect = (command(b"EVALSHA", 0, fallback=fallback),)
    replies = {b"PING": b"+PONG\r\n", b"EVAL": b":7\r\n", b"EVALSHA": b"-NOSCRIPT none\r\n"}
    f = fleet(lambda words: replies[words[0]], commands=dialect)
    assert f.ask(Request(0, (b"k",), 1), need=1).values == (7,)
    assert f.connection_state(0).pending == 0


def test_a_kept_request_with_replies_to_skip_is_sent_again_once(fleet: MakeFleet) -> None:
    f = fleet(silent, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", 1, resend_for=60.0), need=1)
    f.session(0).wait_commands(2)
    f.session(0).close()
    assert future.result(SOON).values == (FAULT,)
    f.until_broken(0)
    again = f.reattach(0)
    assert again.wait_commands(2)[1] == (b"PTTL", b"k")
    assert (f.connection_state(0).resent, f.connection_state(0).pending) == (1, 2)
    again.send(b"+OK\r\n:-1\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "both came")


def test_a_command_that_watches_needs_something_to_watch(fleet: MakeFleet) -> None:
    f = fleet(silent, commands=(command(b"PTTL", b"k")._replace(watch=WATCH_KEY),))
    assert f.ask(Request(0, (), 1), need=1).details == {0: "no such command"}


# --- pushes ---


@waits
def test_pushes_grant(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(busy, busy, busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=2, wait=wait)
    f.session(0).send(invalidate(b"x", b"k") + invalidate(b"k"))  # counts once
    f.until(lambda: f.connection_state(0).pushes == 2, "the first pushes are there")
    assert not future.done()
    f.session(2).send(invalidate(b"k"))
    assert future.result(SOON).values == (1, NO_REPLY, 1)


def test_a_watch_ends_without_replies_that_are_not_awaited(fleet: MakeFleet) -> None:
    """Rule 2. Catches: a master that is slow to undo a round delays the end of the watch that follows."""

    f = fleet(silent, free_with(0), free_with(1), commands=WATCHING)
    undo = get(b"k", f.all)
    undo.awaited = False
    votes, seen = f.exchange([undo, watch(b"k", f.all)], need=2)
    assert (votes.sent, votes.values) == (f.all, (NO_REPLY,) * 3)
    assert seen.values == (NO_REPLY, 1, 1)


def test_a_push_may_come_before_the_reply(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=2)
    f.session(0).send(invalidate(b"k") + b"+OK\r\n:-1\r\n")
    f.session(1).send(b"+OK\r\n" + invalidate(b"k"))
    assert future.result(SOON).values == (1, 1)
    f.session(1).send(b":-1\r\n" + invalidate(b"k"))
    f.until(lambda: f.connection_state(1).pending == 0, "the late reply is there")
    assert (f.connection_state(1).late_replies, f.connection_state(0).broken) == (1, "")


def test_a_master_grants_once(fleet: MakeFleet) -> None:
    """By its reply and by a push, in either order."""
    f = fleet(free, silent, busy, busy, busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=3)
    f.session(0).wait_commands(2)
    f.until(lambda: f.connection_state(0).pending == 0, "the reply is there")
    f.session(0).send(invalidate(b"k"))
    f.session(1).send(invalidate(b"k") + b"+OK\r\n:-2\r\n")
    f.until(lambda: (f.connection_state(0).pushes, f.connection_state(1).pending) == (1, 0), "all is there")
    assert not future.done()
    f.session(2).send(invalidate(b"k"))
    assert future.result(SOON).values == (1, 1, 1, NO_REPLY, NO_REPLY)


def test_null_is_everything(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    asked = [watch(b"k", 1), watch_all(b"p", 1), watch(b"", 1)]
    future = start(lambda: f.exchange(asked, need=1))
    f.session(0).wait_commands(6)
    f.session(0).send(EVERYTHING)
    assert [votes.values for votes in future.result(SOON)] == [(1,)] * 3


OTHERS = [
    invalidate(), invalidate(b"K"), invalidate(b"kk"), invalidate(b""), invalidate(b"a", b"b"),
    b">1\r\n$10\r\ninvalidate\r\n", b">3\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n_\r\n",
    b">2\r\n$10\r\ninvalidatE\r\n*1\r\n$1\r\nk\r\n", b">2\r\n$9\r\nnvalidate\r\n*1\r\n$1\r\nk\r\n",
    b">2\r\n$10\r\ninvalidate\r\n$1\r\nk\r\n", b">2\r\n$10\r\ninvalidate\r\n*1\r\n*1\r\n$1\r\nk\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n+k\r\n", b">2\r\n$10\r\ninvalidate\r\n:1\r\n", b">0\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nk\r\n$1\r\nk\r\n", b">2\r\n_\r\n_\r\n", b">2\r\n$-1\r\n_\r\n",
]  # fmt: skip
FLUSHES = [
    EVERYTHING, b">2\r\n$10\r\ninvalidate\r\n*-1\r\n", b">2\r\n$10\r\ninvalidate\r\n$-1\r\n",
]  # fmt: skip
FOR_K = [
    invalidate(b"k"), invalidate(b"", b"k"), invalidate(b"x" * 2000, b"k"), *FLUSHES,
    b">2\r\n$10\r\ninvalidate\r\n*3\r\n:1\r\n*1\r\n$1\r\nz\r\n$1\r\nk\r\n",
    b">2\r\n|1\r\n+a\r\n+b\r\n$10\r\ninvalidate\r\n|1\r\n+a\r\n:1\r\n*1\r\n|1\r\n+a\r\n+b\r\n$1\r\nk\r\n",
]  # fmt: skip


def test_other_pushes_grant_nothing(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", 1), need=1)
    f.session(0).send(b"".join(OTHERS))
    f.until(lambda: f.connection_state(0).pushes == len(OTHERS), "all pushes are there")
    assert not future.done()
    f.session(0).send(invalidate(b"k"))
    assert future.result(SOON).values == (1,)


@pytest.mark.parametrize("push", FOR_K)
def test_forms_of_a_push(fleet: MakeFleet, push: bytes) -> None:
    f = fleet(busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", 1), need=1)
    f.session(0).send(push)
    assert future.result(SOON).values == (1,)
    if push in FLUSHES:
        assert f.until_broken(0) == FLUSHED, "its earlier replies count for nothing"
    else:
        assert f.connection_state(0).broken == ""


@pytest.mark.parametrize("push", FOR_K[:1] + FOR_K[-2:])
def test_a_push_in_pieces(fleet: MakeFleet, push: bytes) -> None:
    # Behind a reply of another request, cut at every place.
    f = fleet(busy, commands=WATCHING)
    for cut in range(1, len(push)):
        future = f.ask_in_background(watch(b"k", 1), need=1)
        f.session(0).wait_commands(2 * cut)
        f.session(0).send([push[:cut], push[cut:]])
        assert future.result(SOON).values == (1,)
    assert f.connection_state(0).pushes == len(push) - 1


def test_a_push_byte_by_byte(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"key", 1), need=1)
    f.session(0).send([bytes([byte]) for byte in invalidate(b"other", b"key")])
    assert future.result(SOON).values == (1,)


def test_long_keys_and_many(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    for key in (b"p" * 100 + b"x" * 65536, b"\r\n$1\r\nk\r\n", b""):
        future = f.ask_in_background(watch(key, 1), need=1)
        f.session(0).send(invalidate(key))
        assert future.result(SOON).values == (1,)
    future = f.ask_in_background(watch(b"k", 1), need=1)
    f.session(0).send(invalidate(*[b"%d" % number for number in range(5000)], b"k"))
    assert future.result(SOON).values == (1,)


def test_prefixes(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    asked = [watch_all(prefix, 1) for prefix in (b"", b"lock:", b"lock:a", b"lock:ab")] + [watch(b"lock:", 1)]
    future = start(lambda: f.exchange(asked, need=1, timeout=LONG))
    f.session(0).wait_commands(10)
    f.session(0).send(invalidate(b"lock:a"))
    f.until(lambda: f.connection_state(0).pushes == 1, "the push is there")
    assert not future.done()
    f.session(0).send(EVERYTHING)
    assert len(future.result(SOON)) == 5


def test_a_push_counts_for_its_own_master(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", 0b011), need=1)
    f.session(2).send(invalidate(b"k"))
    f.until(lambda: f.connection_state(2).pushes == 1, "the push is there")
    assert not future.done()
    f.session(1).send(invalidate(b"k"))
    assert future.result(SOON).values == (NO_REPLY, 1, FAULT)


def test_without_a_waiter(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    f.ask(watch(b"k", 1), need=0)
    f.session(0).wait_commands(2)
    f.session(0).send(invalidate(b"k"))
    f.until(
        lambda: f.connection_state(0).pushes == 1 and not f.connection_state(0).pending, "all of it is there"
    )


# --- faults ---


@waits
def test_a_break_is_a_fault(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(busy, busy, busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=2, wait=wait)
    f.lose(0)
    assert not future.done()
    f.session(1).close()
    votes = future.result(SOON)
    assert votes.values == (FAULT, FAULT, NO_REPLY)
    assert votes.details[0] == f.connection_state(0).broken


def test_a_detached_master_is_a_fault(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=2)
    f.session(0).wait_commands(2)
    f.until(lambda: not f.connection_state(0).pending, "the reply is there")
    f.detach(0)
    assert future.result(SOON).details == {0: "connection closed by the client"}


def test_attach_ends_all_that_watch(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, busy, commands=WATCHING)
    futures = [f.ask_in_background(watch(b"%d" % number, 0b011), need=2) for number in range(3)]
    f.lose(1)
    f.reattach(2)  # whichever it is
    assert [future.result(SOON).granted for future in futures] == [0, 0, 0]
    f.reattach(1)
    future = f.ask_in_background(watch(b"k", 0b011), need=2)
    for master in range(2):
        f.session(master).send(invalidate(b"k"))
    assert future.result(SOON).values[:2] == (1, 1)


def test_close_ends_it(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    futures = [f.ask_in_background(watch(b"%d" % number, f.all), need=1) for number in range(3)]
    f.engine.close()
    for future in futures:
        assert future.result(SOON).values == (FAULT, FAULT)


def test_an_open_vote_is_no_reply_owed(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING, lag_after=0.0)
    future = f.ask_in_background(watch(b"k", f.all), need=2)
    f.until(
        lambda: not any(f.connection_state(master).pending for master in range(2)), "the replies are there"
    )
    assert f.engine.drain(LONG)
    for _ in range(20):
        f.engine.maintain()
        assert [f.connection_state(master).lag for master in range(2)] == [0.0, 0.0]
    assert not future.done()
    f.engine.close()
    future.result(SOON)


# --- time ---


@pytest.mark.parametrize(
    ("answers", "need", "seconds"),
    [
        ([expiring(100), expiring(60_000), expiring(60_000)], 1, 0.101),
        ([expiring(60_000), expiring(100), expiring(200)], 2, 0.201),
        ([free, expiring(60_000), expiring(100)], 2, 0.101),
        ([busy, expiring(0), expiring(150)], 2, 0.151),
        ([always(b"-ERR\r\n"), expiring(0), expiring(150)], 2, 0.151),
    ],
)
@waits
def test_time_is_hastened(
    fleet: MakeFleet, answers: list[Answer], need: int, seconds: float, wait: Wait
) -> None:
    f = fleet(*answers, commands=WATCHING)
    with Stopwatch() as watched:
        votes = f.ask(watch(b"k", f.all), need=need, wait=wait)
    assert votes.granted < need
    assert seconds <= watched.seconds < SOON


#: Masters 0 to 2, and 2 to 4: master 2 is in both lists. Master 5 is in none.
JOINT = Quorums(((0b00111, 2), (0b11100, 2)))


@waits
@pytest.mark.parametrize(
    ("masters", "seconds"),
    [
        ([FREE, 200, 100, 60_000, 300, 50], 0.3),  # the second list has its quorum last
        ([400, 60_000, FREE, 100, 200, 50], 0.4),  # the first list
        ([FREE, FREE, 60_000, 100, 200, FREE], 0.2),
        ([50, 50, 50, FOR_EVER, FOR_EVER, 50], 0.6),  # never: at the timeout
    ],
)
def test_time_is_up_when_each_list_has_its_quorum(
    fleet: MakeFleet, masters: list[int], seconds: float, wait: Wait
) -> None:
    f = fleet(*[expiring(milliseconds) for milliseconds in masters], commands=WATCHING)
    with Stopwatch() as watched:
        votes = f.ask(watch(b"k", f.all), JOINT, 0.6, wait)
    assert not JOINT.granted(votes.values)
    assert seconds <= watched.seconds < SOON


@waits
def test_pushes_to_each_list_grant(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(*[busy] * 6, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), JOINT, wait=wait)
    for master in (0, 1, 4, 5):
        f.session(master).send(invalidate(b"k"))
        f.until(lambda at=master: f.connection_state(at).pushes == 1, "the push is there")
    assert not future.done()
    f.session(3).send(invalidate(b"k"))
    assert future.result(SOON).values == (1, 1, NO_REPLY, 1, 1, 1)


@waits
def test_faults_of_one_list_end_a_subscription(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(*[busy] * 6, commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), JOINT, wait=wait)
    for master in (5, 0, 3):
        f.lose(master)
    assert not future.done()
    f.session(4).close()
    assert future.result(SOON).values == (FAULT, NO_REPLY, NO_REPLY, FAULT, FAULT, FAULT)


def test_an_expiry_of_a_master_that_failed_does_not_count(fleet: MakeFleet) -> None:
    f = fleet(expiring(300), expiring(60_000), expiring(60_000), commands=WATCHING)
    future = f.ask_in_background(watch(b"k", f.all), need=1, timeout=1.5)
    f.until(
        lambda: not any(f.connection_state(master).pending for master in range(3)), "the replies are there"
    )
    f.session(0).close()
    with Stopwatch() as watched:
        votes = future.result(SOON)
    assert votes.values == (FAULT, NO_REPLY, NO_REPLY) or watched.seconds < 0.3  # the machine was that busy


def test_stall_is_irrelevant(fleet: MakeFleet) -> None:
    f = fleet(busy, commands=WATCHING)
    with Stopwatch() as watched:
        [votes] = f.engine.exchange([watch(b"k", 1)], 1, 0.3, Wait.EARLY, 0.01)
    assert votes.values == (NO_REPLY,)
    assert watched.seconds >= 0.3


# --- with others ---


def test_each_is_decided_by_its_own_rule(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    asked = [get(b"g", f.all), watch(b"a", f.all), get(b"h", f.all), watch(b"b", 0b01)]
    future = start(lambda: f.engine.exchange(asked, 2, LONG, Wait.EARLY, SOON))
    for master in range(2):
        f.session(master).wait_commands(4)
        f.session(master).send(invalidate(b"a"))
    votes = future.result(SOON)
    assert [one.values for one in votes[:3]] == [(1, 1)] * 3
    assert votes[3].values[1] == FAULT


def test_a_push_long_after_the_others_are_decided(fleet: MakeFleet) -> None:
    """Catches: a thread that goes on watching after leadership was passed to it, and does not lead."""
    f = fleet(busy, commands=WATCHING)
    future = start(lambda: f.engine.exchange([get(b"g", 1), watch(b"a", 1)], 1, LONG, Wait.EARLY, SOON))
    f.session(0).wait_commands(3)
    f.until(lambda: not f.connection_state(0).pending, "the replies are there")
    f.session(0).send(invalidate(b"a"))
    assert [one.granted for one in future.result(SOON)] == [1, 1]


def test_others_that_stall_beside_one_that_watches(fleet: MakeFleet) -> None:
    f = fleet(lambda words: b"" if words[0] == b"GET" else busy(words), commands=WATCHING)
    with Stopwatch() as watched:
        votes = f.engine.exchange([watch(b"k", 1), get(b"g", 1)], 1, 0.3, Wait.EARLY, 0.01)
    assert [one.values for one in votes] == [(NO_REPLY,), (NO_REPLY,)]
    assert watched.seconds >= 0.3


def test_a_batch(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    names = [b"%d" % number for number in range(300)]
    future = start(lambda: f.tally(Batch(0, (names,), len(names), f.all), need=2))
    for master in range(2):
        f.session(master).wait_commands(600)
        f.session(master).send(b"".join(map(invalidate, names)))
    assert future.result(SOON).granted == [2] * 300


def test_nothing_is_left(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, commands=WATCHING)
    loop = Loop(f)
    for number in range(50):
        tickets = [loop.submit([watch(b"%d" % key, f.all)], need=2) for key in range(100)]
        for ticket in tickets[::2]:
            f.engine.cancel(ticket)
        f.engine.flush()
        for master in range(2):
            f.session(master).wait_commands(200 * (number + 1))
            f.session(master).send(invalidate(*[b"%d" % key for key in range(100)]))
        loop.hear(50)
    assert f.engine.next_timeout() is None
    vigils = getattr(getattr(f.engine, "_hub", None), "subscriptions", ())
    eventually(lambda: not len(vigils), "none is listed")
