"""Rule 8: a master that has stopped answering is spared, as long as others make up the number."""

from __future__ import annotations

import pytest
from support.fleet import LONG, SOON, Fleet, MakeFleet, acquire, del_words, release, set_words
from support.scripted import granting, silent

from redlock_fast.engine.contract import FAULT, LAG_AFTER, NO_REPLY, Quorums


def lagging(fleet: MakeFleet, masters: int, *those: int) -> Fleet:
    """A fleet in which the masters of ``those`` lag: each owes a reply to b"first"."""
    f = fleet(*[silent if master in those else granting for master in range(masters)], lag_after=LAG_AFTER)
    f.ask(acquire(b"first", f.all), need=masters - len(those))
    for master in those:
        f.until_lagging(master)
    return f


def test_lagging_master_is_sent_nothing_new(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    votes = f.ask(acquire(b"second", f.all), need=2)
    assert (votes.sent, votes.granted, votes.values[2]) == (0b011, 2, FAULT)
    assert isinstance(votes.details[2], str)
    assert f.connection_state(2).attached
    assert not f.connection_state(2).broken
    # What is kept goes to it all the same, and shows that nothing came before it.
    votes = f.ask(release(b"first", f.all, resend_for=30), need=2)
    assert votes.sent == 0b111
    assert f.session(2).wait_commands(2) == [set_words(b"first"), del_words(b"first")]


def test_lagging_is_known_with_its_time(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    before = f.connection_state(2).lag
    assert f.connection_state(0).lag == f.connection_state(1).lag == 0.0
    f.until(lambda: f.connection_state(2).lag > before, "the lag grows")


def test_how_long_a_reply_may_take_is_the_owners_to_say(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, lag_after=LONG)
    assert f.ask(acquire(b"k", f.all), need=2, timeout=4 * LAG_AFTER).values == (NO_REPLY, 1)
    f.engine.maintain()
    assert f.connection_state(0).lag == 0.0
    assert f.ask(acquire(b"next", f.all), need=1).sent == 0b11


def test_patience_without_end_is_a_number_too(fleet: MakeFleet) -> None:
    f = fleet(granting, lag_after=1e12)
    assert f.ask(acquire(b"k", f.all), need=1).granted == 1
    assert 0.0 < f.connection_state(0).round_trip < LONG


def test_reply_ends_the_lag(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    f.session(2).send(b":5\r\n")
    f.until(lambda: f.connection_state(2).lag == 0.0, "the master is back")
    f.masters[2].answer = granting
    votes = f.ask(acquire(b"again", f.all), need=3)
    assert votes.granted == 3
    assert votes.sent == 0b111
    assert f.session(2).commands == [set_words(b"first"), set_words(b"again")]


@pytest.mark.parametrize("noise", [b">1\r\n+x\r\n", b"|1\r\n+a\r\n:1\r\n"], ids=["push", "attribute"])
def test_noise_is_no_answer(fleet: MakeFleet, noise: bytes) -> None:
    # Or a master that says something all the time, but never what it owes, would be asked for ever.
    f = fleet(granting, granting, silent, lag_after=LAG_AFTER)
    f.ask(acquire(b"first", f.all), need=2)

    def lags_under_noise() -> bool:
        f.session(2).send(noise)
        return f.connection_state(2).lag > 0

    f.until(lags_under_noise, "the master lags all the same")
    before = f.connection_state(2).lag
    f.until(lambda: lags_under_noise() and f.connection_state(2).lag > before, "and goes on")
    assert f.ask(acquire(b"second", f.all), need=2).sent == 0b011
    f.session(2).send(b":5\r\n")
    f.until(lambda: f.connection_state(2).lag == 0.0, "now it has answered")


def test_pieces_of_a_reply_are_no_answer(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent, lag_after=LAG_AFTER)
    f.ask(acquire(b"first", f.all), need=2)
    f.session(2).send(b"$4000\r\n")

    def lags_while_it_dribbles() -> bool:
        f.session(2).send(b"x")
        return f.connection_state(2).lag > 0.2

    f.until(lags_while_it_dribbles, "the master lags")


def test_master_that_answers_while_it_lags_has_a_vote(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    future = f.ask_in_background(release(b"first", 0b100, resend_for=30), 1)
    f.session(2).send([b":5\r\n", b":6\r\n"])
    assert future.result(SOON).values[2] == 6


def test_too_few_healthy_ones_and_the_lagging_are_asked_too(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 1, 2)
    future = f.ask_in_background(acquire(b"second", f.all), 2)
    f.session(1).send(b":1\r\n:7\r\n")
    votes = future.result(SOON)
    assert votes.granted == 2
    assert votes.values[1] == 7
    assert votes.sent & 0b011 == 0b011


def test_all_needed_and_the_lagging_are_asked_too(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    votes = f.ask(acquire(b"second", f.all), need=3, timeout=0.05)
    assert votes.sent == 0b111
    assert votes.values[2] == NO_REPLY


def test_only_the_masters_that_are_asked_are_healthy_ones_to_count(fleet: MakeFleet) -> None:
    # Two healthy masters remain, but only one of them is asked.
    f = lagging(fleet, 3, 2)
    votes = f.ask(acquire(b"second", 0b110), need=2, timeout=0.05)
    assert votes.sent == 0b110
    assert f.session(2).wait_commands(2)[1] == set_words(b"second")


@pytest.mark.parametrize(("late", "sent"), [((1, 3), 0b110101), ((0, 1), 0b111111), ((3, 4), 0b111111)])
def test_each_list_keeps_its_quorum_of_healthy_masters(
    fleet: MakeFleet, late: tuple[int, ...], sent: int
) -> None:
    """Of all six masters four are healthy, but a list may have one healthy master only."""
    f = lagging(fleet, 6, *late)
    joint = Quorums(((0b000111, 2), (0b011100, 2)))
    assert f.ask(acquire(b"second", f.all), joint, timeout=0.05).sent == sent


def test_masters_that_are_gone_are_no_healthy_ones_to_count(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    f.lose(0)
    votes = f.ask(acquire(b"second", f.all), need=2, timeout=0.05)
    assert votes.sent == 0b110
    assert f.session(2).wait_commands(2)[1] == set_words(b"second")


def test_silence_with_nothing_owed_is_no_lag(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent, lag_after=LAG_AFTER)
    f.ask(acquire(b"k", 0b011), need=2)
    slow = f.ask(acquire(b"k", 0b100), need=1, timeout=0.15)
    assert slow.values[2] == NO_REPLY
    f.until_lagging(2)
    f.engine.maintain()
    assert f.connection_state(0).lag == f.connection_state(1).lag == 0.0


def test_reconnecting_ends_the_lag(fleet: MakeFleet) -> None:
    f = lagging(fleet, 3, 2)
    f.lose(2)
    f.masters[2].answer = granting
    f.reattach(2)
    assert f.connection_state(2).lag == 0.0
    assert f.ask(acquire(b"k", f.all), need=3).granted == 3


def test_lag_is_noticed_while_threads_wait(fleet: MakeFleet) -> None:
    # No thread calls tend(): exchanges alone must notice.
    f = fleet(granting, granting, silent, lag_after=LAG_AFTER)
    f.ask(acquire(b"first", f.all), need=2)
    number, sent = 0, f.all
    while sent == f.all and number < 100_000:
        number += 1
        sent = f.ask(acquire(b"%d" % number, f.all), need=2).sent
    assert sent == 0b011
    assert len(f.session(2).commands) <= number


def test_majority_goes_on_at_full_speed_beside_a_lagging_master(fleet: MakeFleet) -> None:
    f = lagging(fleet, 5, 4)
    owed = f.connection_state(4).pending
    for number in range(300):
        assert f.ask(acquire(b"%d" % number, f.all), need=3).granted >= 3
    assert f.connection_state(4).pending == owed
