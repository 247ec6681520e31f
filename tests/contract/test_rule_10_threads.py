"""Many threads on the same connections: each gets its own votes, and none waits for another's request."""

from __future__ import annotations

import zlib

import pytest
from support.fleet import SOON, Fleet, MakeFleet, Stopwatch, acquire
from support.scripted import Answer, Words, always, granting, silent
from support.waiting import DEADLINE, start

from redlock_fast.engine.contract import FAULT, NO_REPLY, Wait

ERROR = b"-OOM for you\r\n"


def vote_for(key: bytes, master: int) -> int:
    """The reply of this master for this key: a distinct number, a refusal or an error."""
    number = zlib.crc32(key + b"@%d" % master) % 1_000_000
    return FAULT if number % 11 == 0 else 0 if number % 7 == 0 else number


def by_key(master: int) -> Answer:
    def answer(words: Words) -> bytes:
        vote = vote_for(words[1], master)
        return ERROR if vote == FAULT else b":%d\r\n" % vote if vote else b"$-1\r\n"

    return answer


def coded(fleet: MakeFleet, masters: int) -> Fleet:
    return fleet(*[by_key(master) for master in range(masters)])


@pytest.mark.parametrize("wait", list(Wait))
def test_each_of_16_threads_gets_its_own_votes(fleet: MakeFleet, wait: Wait) -> None:
    f = coded(fleet, 5)

    def work(thread: int) -> None:
        for number in range(40):
            keys = [b"%d-%d-%d" % (thread, number, part) for part in range(1 + number % 3)]
            # Kept, so that no master is passed over because the machine was busy.
            answers = f.exchange([acquire(key, f.all, resend_for=60) for key in keys], 3, wait=wait)
            for key, votes in zip(keys, answers, strict=True):
                expected = tuple(vote_for(key, master) for master in range(5))
                for value, true in zip(votes.values, expected, strict=True):
                    assert value == true or (value == NO_REPLY and wait != Wait.ALL)
                assert all(detail == ERROR for detail in votes.details.values())

    for future in [start(lambda thread=n: work(thread)) for n in range(16)]:  # type: ignore[misc]
        future.result(2 * DEADLINE)


def test_votes_are_right_while_connections_come_and_go(fleet: MakeFleet) -> None:
    f = coded(fleet, 3)
    done = False

    def work(thread: int) -> int:
        number = 0
        while not done:
            number += 1
            key = b"%d-%d" % (thread, number)
            votes = f.ask(acquire(key, f.all), 2, wait=Wait.ALL)
            for master, value in enumerate(votes.values):
                assert value in (FAULT, NO_REPLY, vote_for(key, master))
                assert master == 1 or value != NO_REPLY
        return number

    futures = [start(lambda thread=n: work(thread)) for n in range(4)]  # type: ignore[misc]
    for number in range(60):
        if number % 2:
            f.lose(1)
        f.reattach(1)
    done = True
    assert all(future.result(DEADLINE) for future in futures)


def test_short_timeout_is_not_held_up_by_a_long_one(fleet: MakeFleet) -> None:
    f = fleet(silent)
    long = f.ask_in_background(acquire(b"long", 1), 1)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"short", 1), 1, timeout=0.05)
    assert 0.05 <= watch.seconds < SOON
    assert votes.values == (NO_REPLY,)
    f.session(0).send(b":1\r\n:2\r\n")
    assert long.result(SOON).values == (1,)


def test_long_timeout_is_not_cut_by_a_short_one(fleet: MakeFleet) -> None:
    f = fleet(silent)
    short = f.ask_in_background(acquire(b"short", 1), 1, timeout=0.3)
    long = f.ask_in_background(acquire(b"long", 1), 1)
    assert short.result(SOON).values == (NO_REPLY,)
    f.session(0).send(b":1\r\n:2\r\n")
    assert long.result(SOON).values == (2,)


def test_timeouts_of_all_lengths(fleet: MakeFleet) -> None:
    f = fleet(silent, granting)

    def work(thread: int) -> None:
        timeout = 0.02 + 0.03 * (thread * 5 % 8)
        with Stopwatch() as watch:
            votes = f.ask(acquire(b"%d" % thread, f.all), 2, timeout=timeout)
        assert timeout <= watch.seconds < SOON
        assert votes.values in ((NO_REPLY, 1), (NO_REPLY, NO_REPLY)), (
            "a busy machine may need more than 20 ms"
        )

    for future in [start(lambda thread=n: work(thread)) for n in range(8)]:  # type: ignore[misc]
        future.result(DEADLINE)


def test_replies_are_read_after_the_first_thread_has_left(fleet: MakeFleet) -> None:
    # The leader passes leadership on when its own requests are decided.
    f = fleet(silent)
    futures = [f.ask_in_background(acquire(b"%d" % number, 1), 1) for number in range(8)]
    for number, future in enumerate(futures):
        f.session(0).send(b":%d\r\n" % (number + 1))
        assert future.result(SOON).values == (number + 1,)


def test_replies_are_read_in_any_order_of_leaving(fleet: MakeFleet) -> None:
    f = fleet(*[silent] * 6)
    futures = [f.ask_in_background(acquire(b"k", 1 << master), 1) for master in range(6)]
    for master in (3, 0, 5, 1, 4, 2):
        f.session(master).send(b":%d\r\n" % (master + 1))
        assert futures[master].result(SOON).values[master] == master + 1


def test_newcomer_does_not_wait_for_a_slow_master(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, granting)
    slow = f.ask_in_background(acquire(b"slow", 0b001), 1)
    for number in range(20):
        with Stopwatch() as watch:
            votes = f.ask(acquire(b"%d" % number, 0b110), 2)
        assert votes.granted == 2
        assert watch.seconds < SOON
    f.session(0).send(b"+OK\r\n")
    assert slow.result(SOON).granted == 1


def test_newcomers_do_not_wait_for_a_slow_majority(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent, granting, granting)
    slow = [f.ask_in_background(acquire(b"slow%d" % n, f.all), 3) for n in range(3)]

    def work(thread: int) -> None:
        for number in range(20):
            assert f.ask(acquire(b"%d-%d" % (thread, number), 0b11000), 2).granted == 2

    for future in [start(lambda thread=n: work(thread)) for n in range(4)]:  # type: ignore[misc]
        future.result(SOON)
    for master in range(3):
        f.session(master).send(b"+OK\r\n" * 3)
    assert all(future.result(SOON).granted >= 3 for future in slow)


def test_connection_attached_while_a_thread_waits_is_served(fleet: MakeFleet) -> None:
    f = fleet(silent, always(b":4\r\n"), attach=False)
    f.attach(0)
    waiting = f.ask_in_background(acquire(b"slow", 0b01), 1)
    f.attach(1)
    assert f.ask(acquire(b"k", 0b10), 1).values[1] == 4
    f.session(0).send(b"+OK\r\n")
    assert waiting.result(SOON).granted == 1


def test_tending_beside_waiting_threads_disturbs_none(fleet: MakeFleet) -> None:
    f = coded(fleet, 3)

    def work(thread: int) -> None:
        for number in range(100):
            key = b"%d-%d" % (thread, number)
            votes = f.ask(acquire(key, f.all, resend_for=60), 3, wait=Wait.ALL)
            assert votes.values == tuple(vote_for(key, master) for master in range(3))

    futures = [start(lambda thread=n: work(thread)) for n in range(3)]  # type: ignore[misc]
    f.until(lambda: all(future.done() for future in futures), "all are done")
    for future in futures:
        future.result(0)
