"""Batches: many requests as columns, each decided by itself, reported in one tally."""

from __future__ import annotations

import pytest
from support.fleet import (
    ENOUGH,
    LONG,
    PLAIN,
    SOON,
    TOKEN,
    TTL,
    MakeFleet,
    Stopwatch,
    acquire,
    acquires,
    del_words,
    keys,
    number_for,
    numbering,
    release,
    releases,
    set_words,
)
from support.miniloop import Ask, both_ways
from support.scripted import Words, always, failing, granting, refusing, silent
from support.thorough import amount
from support.waiting import start

from redlock_fast.engine.contract import FAULT, NO_REPLY, Batch, Wait
from redlock_fast.wire.commands import Verb

# --- what is sent, what is reported ---


@both_ways
def test_all_granted_is_reported_by_counts_alone(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    tally = ask(f, acquires(keys(500), f.all, resend_for=LONG), 3, wait=Wait.ALL)
    assert tally.granted == [3] * 500
    assert tally.sent == [f.all] * 500
    assert tally.votes == {}


@both_ways
def test_each_goes_out_in_order_and_once(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, granting)
    names = keys(300)
    ask(f, acquires(names, f.all, resend_for=LONG), 2)
    for master in range(2):
        assert f.session(master).commands == [set_words(key) for key in names]


@both_ways
def test_requests_with_too_few_grants_are_reported_in_full(fleet: MakeFleet, ask: Ask) -> None:
    # Every third is refused by two of three masters.
    def third(words: Words) -> bytes:
        return b"$-1\r\n" if int(words[1]) % 3 == 0 else b"+OK\r\n"

    f = fleet(third, third, granting)
    tally = ask(f, acquires(keys(30), f.all, resend_for=LONG), 2, wait=Wait.ALL)
    assert set(tally.votes) == set(range(0, 30, 3))
    assert tally.granted == [1, 3, 3] * 10
    assert all(votes.values == (0, 0, 1) for votes in tally.votes.values())


@both_ways
def test_requests_with_a_failed_master_are_reported_in_full(fleet: MakeFleet, ask: Ask) -> None:
    def odd(words: Words) -> bytes:
        return b"-OOM\r\n" if int(words[1]) % 2 else b"+OK\r\n"

    f = fleet(odd, granting, granting)
    tally = ask(f, acquires(keys(10), f.all, resend_for=LONG), 2, wait=Wait.ALL)
    assert set(tally.votes) == {1, 3, 5, 7, 9}
    assert tally.granted == [3, 2] * 5
    for votes in tally.votes.values():
        assert votes.values == (FAULT, 1, 1)
        assert votes.details == {0: b"-OOM\r\n"}


@both_ways
def test_each_is_decided_by_itself(fleet: MakeFleet, ask: Ask) -> None:
    def by_key(words: Words) -> bytes:
        return {b"0": b"+OK\r\n", b"1": b"$-1\r\n", b"2": b"-OOM\r\n", b"3": b""}[words[1][-1:]]

    f = fleet(by_key, by_key)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(4), f.all, resend_for=LONG), 2, ENOUGH)
    assert ENOUGH <= watch.seconds < SOON
    assert tally.granted == [2, 0, 0, 0]
    assert 0 in tally.votes[1].values
    assert FAULT in tally.votes[2].values
    assert tally.votes[3].values == (NO_REPLY, NO_REPLY)


@pytest.mark.parametrize("wait", list(Wait))
@both_ways
def test_ends_when_the_last_is_decided(fleet: MakeFleet, ask: Ask, wait: Wait) -> None:
    f = fleet(granting, granting, silent if wait != Wait.ALL else granting)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(50), f.all, resend_for=LONG), 2, LONG, wait)
    assert watch.seconds < SOON
    assert min(tally.granted) >= 2


@both_ways
def test_masters_that_are_down_decide_at_once(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent, silent, silent, attach=False)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(20), f.all), 2)
    assert watch.seconds < SOON
    assert tally.granted == tally.sent == [0] * 20
    assert {votes.values for votes in tally.votes.values()} == {(FAULT,) * 3}


@pytest.mark.parametrize("need", [0, 1, 2])
def test_nothing_asked_is_nothing_answered(fleet: MakeFleet, need: int) -> None:
    f = fleet(silent, silent)
    for empty in (acquires([], f.all), acquires([], []), Batch(Verb.ACQUIRE, (b"k", TOKEN, TTL), 0, 3, [])):
        tally = f.tally(empty, need)
        assert (tally.granted, tally.sent, tally.votes) == ([], [], {})
    assert f.connection_state(0).pending == 0


def test_need_0_waits_for_no_reply_and_arrives(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent, attach=False)
    f.attach(0)
    f.attach(2)
    with Stopwatch() as watch:
        tally = f.tally(acquires(keys(100), 0b011), need=0)
    assert watch.seconds < SOON
    assert tally.granted == [0] * 100
    assert tally.sent == [0b001] * 100
    assert f.session(0).wait_commands(100) == [set_words(key) for key in keys(100)]
    assert f.session(2).commands == []


@both_ways
def test_noscript_in_a_batch(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(lambda words: b"-NOSCRIPT\r\n" if words[0] == b"EVALSHA" else b":7\r\n", commands=PLAIN)
    tally = ask(f, releases(keys(20), 1), 1)
    assert tally.granted == [1] * 20
    words = f.session(0).commands
    assert [(w[0], w[3]) for w in words if w[0] == b"EVAL"] == [(b"EVAL", key) for key in keys(20)]


def test_batch_beside_single_requests(fleet: MakeFleet) -> None:
    f = fleet(*[numbering(master) for master in range(3)])

    def work(thread: int) -> None:
        for number in range(20):
            names = [b"%d-%d-%d" % (thread, number, part) for part in range(30)]
            tally = f.tally(acquires(names, f.all, resend_for=LONG), 4, wait=Wait.ALL)  # 4: all votes kept
            for at, key in enumerate(names):
                assert tally.votes[at].values == tuple(number_for(key, master) for master in range(3))
            single = f.ask(acquire(names[0], f.all, resend_for=LONG), 3, wait=Wait.ALL)
            assert single.values == tuple(number_for(names[0], master) for master in range(3))

    for future in [start(lambda thread=n: work(thread)) for n in range(6)]:  # type: ignore[misc]
        future.result(2 * SOON)


# --- bounds, breaks, keeping ---


@pytest.mark.parametrize("buffers", [4096, 0])
@both_ways
def test_large_batch_through_small_buffers(fleet: MakeFleet, ask: Ask, buffers: int) -> None:
    # An engine that writes all before it reads would wait for masters that wait for it to read.
    def number(words: Words) -> bytes:
        return b":1000000%b\r\n" % words[1][:6]

    f = fleet(number, number, buffers=buffers)
    count = amount(2_500 if buffers else 5_000, 20_000, twice=8_000)
    names = keys(count, b"k" * 194)
    tally = ask(f, acquires(names, f.all, resend_for=LONG), 3, 2 * LONG, Wait.ALL)  # 3: all votes kept
    assert tally.granted == [2] * count
    for at, key in enumerate(names):
        assert tally.votes[at].values == (int(b"1000000" + key[:6]),) * 2


@both_ways
def test_large_batch_beside_one_that_does_not_read(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, granting, silent, buffers=4096, attach=False)
    f.masters[2].reading.clear()
    for master in range(3):
        f.attach(master)
    names = keys(2000, b"k" * 194)
    tally = ask(f, acquires(names, f.all, resend_for=LONG), 2)
    assert min(tally.granted) == 2
    assert tally.sent == [0b111] * 2000
    f.masters[2].reading.set()
    f.until(lambda: len(f.session(2).commands) == 2000, "the third gets them when it reads")
    assert [words[1] for words in f.session(2).commands] == names


@both_ways
def test_owed_replies_have_a_bound(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent, numbering(1), max_owed=4)
    f.masters[1].answer = granting
    tally = ask(f, acquires(keys(4), 0b01), 1, 0.05)
    assert tally.sent == [1] * 4
    assert f.connection_state(0).pending == 4
    tally = ask(f, acquires(keys(3), 0b11), 1)
    assert tally.sent == [0b10] * 3
    assert tally.granted == [1] * 3


def test_beyond_the_bounds_are_faults(fleet: MakeFleet) -> None:
    f = fleet(silent, max_owed=4)
    tally = f.tally(acquires(keys(6), 1), need=1, timeout=0.05)
    assert tally.sent == [1] * 4 + [0] * 2
    assert [tally.votes[n].values[0] for n in range(6)] == [NO_REPLY] * 4 + [FAULT] * 2
    f.session(0).send(b"+OK\r\n" * 4)
    f.until(lambda: f.connection_state(0).pending == 0, "all four are answered")
    f.masters[0].answer = always(b":9\r\n")
    assert f.ask(acquire(b"next", 1), 1).values == (9,)


@both_ways
def test_request_larger_than_the_buffer_is_a_fault_of_its_own(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, max_buffer=4096)
    tally = ask(f, acquires([b"a", b"k" * 8192, b"c"], 1), 1)
    assert tally.granted == [1, 0, 1]
    assert tally.sent == [1, 0, 1]
    assert [words[1] for words in f.session(0).commands] == [b"a", b"c"]


@both_ways
def test_break_in_the_middle_of_a_batch(fleet: MakeFleet, ask: Ask) -> None:
    came = 0

    def half(words: Words) -> bytes:
        nonlocal came
        came += 1
        return b"+OK\r\n" if came <= 10 else b"nonsense\r\n"

    f = fleet(half, granting)
    tally = ask(f, acquires(keys(20), f.all, resend_for=LONG), 2, wait=Wait.ALL)
    assert tally.granted == [2] * 10 + [1] * 10
    assert set(tally.votes) == set(range(10, 20))
    assert all(votes.values == (FAULT, 1) for votes in tally.votes.values())
    assert f.until_broken(0)


def test_kept_are_sent_again_after_a_break(fleet: MakeFleet) -> None:
    f = fleet(silent)
    names = keys(6)
    f.tally(releases(names, 1, [LONG, 0.0, LONG, 0.0, 0.0, LONG]), need=0)
    f.session(0).wait_commands(6)
    f.session(0).send(b":1\r\n")
    f.until(lambda: f.connection_state(0).pending == 5, "the first is answered, and done")
    f.lose(0)
    session = f.reattach(0)
    f.until(lambda: len(session.commands) >= 2, "the kept are sent again")
    assert session.commands == [del_words(names[2]), del_words(names[5])]
    assert f.connection_state(0).resent == 2
    session.send(b":1\r\n:1\r\n")
    f.until(lambda: f.connection_state(0).pending == 0, "their replies are dropped")
    f.masters[0].answer = always(b":4\r\n")
    assert f.ask(acquire(b"next", 1), 1).values == (4,)


@pytest.mark.parametrize("wait", list(Wait))
def test_sent_again_while_it_is_undecided_counts_once(fleet: MakeFleet, wait: Wait) -> None:
    # The master failed, and that was its vote: its reply on the next connection is dropped.
    for batch in (False, True):
        f = fleet(silent, silent, silent)
        if batch:
            asked = start(lambda f=f: f.tally(releases([b"k"], f.all, LONG), 2, LONG, wait).granted[0])  # type: ignore[misc]
        else:
            asked = start(lambda f=f: f.ask(release(b"k", f.all, LONG), 2, LONG, wait).granted)  # type: ignore[misc]
        for again in range(3):
            f.session(1).wait_commands(1)
            if again == 1:
                f.session(1).send(b":5\r\n")
                f.until(lambda f=f: f.connection_state(1).pending == 0, "the reply is read")  # type: ignore[misc]
                f.ask(release(b"k", 0b010, LONG), need=0)
            f.lose(1)
            f.reattach(1)
        assert not asked.done(), "one fault of three decides nothing"
        for master in (0, 2):
            f.session(master).send(b":1\r\n")
        assert asked.result(SOON) == 2
        f.close()


@both_ways
def test_kept_for_a_master_that_is_not_there_yet(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, silent, attach=False)
    f.attach(0)
    names = keys(3)
    tally = ask(f, releases(names, f.all, LONG), 1)
    assert tally.sent == [0b01] * 3
    session = f.attach(1)
    f.until(lambda: len(session.commands) >= 3, "the kept are sent")
    assert session.commands == [del_words(key) for key in names]


def test_detach_undoes_a_batch(fleet: MakeFleet) -> None:
    f = fleet(silent)
    names = keys(5)
    f.tally(acquires(names, 1), need=1, timeout=0.0)
    f.detach(0)
    assert f.session(0).commands == [w(key) for w in (set_words, del_words) for key in names]


@both_ways
def test_releases_stay_behind_their_acquires(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(silent, granting)
    names = keys(100)
    ask(f, acquires(names, f.all, resend_for=LONG), 1)
    ask(f, releases(names, f.all, resend_for=LONG), 1)
    expected = [w(key) for w in (set_words, del_words) for key in names]
    assert f.session(0).wait_commands(200) == expected


@both_ways
def test_faults_that_come_at_once_are_not_waited_for(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(failing, refusing)
    with Stopwatch() as watch:
        tally = ask(f, acquires(keys(20), f.all, resend_for=LONG), 2, LONG, Wait.ALL, LONG)
    assert watch.seconds < SOON
    assert {votes.values for votes in tally.votes.values()} == {(FAULT, 0)}


def test_release_is_asked_in_a_list_or_a_batch_alike(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.exchange([release(key, 1) for key in keys(3)], need=1)
    f.tally(releases(keys(3), 1), need=1)
    commands = f.session(0).commands
    assert commands[:3] == commands[3:] == [del_words(key) for key in keys(3)]
