"""More masters while the engine runs: requests under way keep their votes, and every caller goes on."""

from __future__ import annotations

import threading

import pytest
from support.fleet import (
    LONG,
    SOON,
    MakeFleet,
    acquire,
    acquires,
    del_words,
    keys,
    numbering,
    numbers_are_right,
    release,
    set_words,
)
from support.forking import exit_code, fork_child, needs_fork
from support.miniloop import Loop
from support.scripted import Pair, always, granting, silent, tcp_pair
from support.tls import Tls
from support.waiting import start
from support.watching import WATCHING, busy, invalidate, watch

from redlock_fast.engine.contract import FAULT, MAX_MASTERS, NO_REPLY, Quorums, Wait


def test_new_masters_are_asked_once_they_are_attached(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting)
    f.grow(always(b":7\r\n"), silent)
    assert f.connection_state(4).attached is False
    votes = f.ask(acquire(b"before", f.all), 3)
    assert votes.values[3:] == (FAULT, FAULT)
    assert votes.details == {3: "not connected", 4: "not connected"}
    f.attach(3)
    assert f.ask(acquire(b"after", f.all), 4).values == (1, 1, 1, 7, FAULT)
    joint = Quorums(((0b00111, 2), (0b11100, 2)))
    assert joint.granted(f.ask(acquire(b"both", f.all), joint).values)
    f.reattach(3)
    f.attach(4)
    assert f.ask(acquire(b"again", 0b01000), 1).values == (FAULT, FAULT, FAULT, 7, FAULT)


def test_numbers_that_do_not_fit_change_nothing(fleet: MakeFleet) -> None:
    """After an interrupted change of masters, the engine may have more than the next change needs."""
    f = fleet(granting, granting)
    with pytest.raises(ValueError, match="masters"):
        f.engine.grow(MAX_MASTERS + 1)
    for masters in (0, 1, -1, 2):
        f.engine.grow(masters)
    assert f.ask(acquire(b"k", 0b1111), 2).values == (1, 1)
    with pytest.raises(IndexError):
        f.connection_state(2)
    f.engine.grow(MAX_MASTERS)
    assert not f.connection_state(MAX_MASTERS - 1).attached


def test_requests_under_way_keep_their_number_of_votes(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    loop = Loop(f)
    loop.submit([acquire(b"loop", 0b111)], 3)
    loop.submit(acquires(keys(2), 0b111), 3)
    f.engine.flush()
    waiting = start(lambda: f.engine.exchange([acquire(b"thread", 0b111)], 3, LONG))
    for master in range(3):
        f.session(master).wait_commands(4)
    f.grow(granting, granting)
    for master in (3, 4):
        f.attach(master)
    assert f.ask(acquire(b"new", 0b11000), 2).values == (FAULT, FAULT, FAULT, 1, 1)
    for master in range(3):
        f.session(master).send(b":1\r\n:2\r\n:3\r\n:4\r\n")
    assert waiting.result(SOON)[0].values == (4, 4, 4)
    for engine_says in (f.engine.on_ready, f.engine.on_ready):  # another thread may have led
        loop.completed += engine_says()
    assert [len(answer[0].values) for _, answer in loop.completed if isinstance(answer, list)] == [3]


def test_a_subscription_goes_on_and_ends_when_a_new_master_is_attached(fleet: MakeFleet) -> None:
    f = fleet(busy, busy, busy, commands=WATCHING)
    watching = start(lambda: f.engine.exchange([watch(b"k", 0b111)], 2, LONG))
    for master in range(3):
        f.session(master).wait_commands(2)
    f.grow(busy)
    f.session(1).send(invalidate(b"k"))
    f.until(lambda: f.connection_state(1).pushes == 1, "the push is there")
    assert not watching.done()
    f.attach(3)
    assert watching.result(SOON)[0].values == (NO_REPLY, 1, NO_REPLY)
    again = f.ask_in_background(watch(b"k", f.all), 2)
    for master in (1, 3):
        f.session(master).send(invalidate(b"k"))
    assert again.result(SOON).values == (NO_REPLY, 1, NO_REPLY, 1)


def test_what_must_arrive_arrives_after_it(fleet: MakeFleet) -> None:
    f = fleet(granting, silent, granting)
    f.ask(acquire(b"k", f.all), 2)
    f.session(1).wait_commands(1)
    f.lose(1)
    f.ask(release(b"k", 0b111, resend_for=60), 2)
    f.grow(granting)
    f.attach(3)
    f.masters[1].answer = granting
    assert f.reattach(1).wait_commands(1) == [del_words(b"k")]
    f.engine.close()
    assert f.session(3).commands == []


def test_detach_and_close_roll_back_requests_of_before(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    f.ask(acquire(b"failed", 0b11), 2, timeout=0.0)
    under_way = start(lambda: f.engine.exchange([acquire(b"k", 0b11)], 2, LONG))
    f.session(0).wait_commands(2)
    f.grow(granting)
    f.attach(2)
    f.detach(0)
    assert f.session(0).commands == [set_words(b"failed"), set_words(b"k"), del_words(b"failed")]
    f.engine.close()
    assert under_way.result(SOON)[0].values == (FAULT, NO_REPLY)
    assert f.session(1).wait_commands(4)[2:] == [del_words(b"failed"), del_words(b"k")]


@pytest.mark.parametrize("wait", [Wait.EARLY, Wait.ALL])
def test_threads_exchange_while_it_grows(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(*[numbering(master) for master in range(3)])
    ending = threading.Event()

    def exchange(thread: int) -> None:
        number, size = 0, 3
        while not ending.is_set() or number < 20:
            number += 1
            key = b"%d-%d" % (thread, number)
            masters = (1 << MAX_MASTERS) - 1 if number % 2 else 0b111
            [votes] = f.engine.exchange([acquire(key, masters)], 2, LONG, wait)
            assert votes.granted >= 2
            assert size <= len(votes.values)
            size = len(votes.values)
            if wait == Wait.ALL:
                numbers_are_right(key, votes, ~0b111)

    threads = [start(lambda n=n: exchange(n)) for n in range(12)]  # so many that the helper thread leads
    for master in range(3, 9):
        f.grow(numbering(master))
        f.attach(master)
    ending.set()
    for thread in threads:
        thread.result(SOON)
    assert f.ask(acquire(b"last", f.all), 9).granted == 9


def test_an_event_loop_goes_on_while_it_grows(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting)
    loop = Loop(f)
    for master in range(3, 7):
        loop.submit([acquire(b"%d" % master, f.all)], 2)
        f.grow(granting)
        loop.submit([acquire(b"more", 0b111)], 2)
        f.attach(master)
        loop.submit([acquire(b"own", 1 << master)], 1)  # only the descriptor says that it came
        f.engine.flush()
        sizes = [len(votes[0].values) for votes in reported(loop, 3)]
        assert sorted(sizes) == [master, master + 1, master + 1]
    loop.settle()


def reported(loop: Loop, count: int) -> list[list[object]]:
    """So many answers, of any number of masters."""
    engine = loop.fleet.engine
    answers: list[list[object]] = []
    while len(answers) < count:
        assert loop.readable(SOON)
        answers += [answer for _, answer in engine.on_ready()]
    return answers


@needs_fork
def test_a_child_of_fork_has_as_many_masters(fleet: MakeFleet) -> None:
    f = fleet(granting, granting)
    f.grow(granting, granting)
    f.attach(3)

    def action() -> None:
        f.engine.after_fork_in_child()
        f.masters[3].answer = always(b":3\r\n")
        f.attach(3)
        f.grow(always(b":4\r\n"))
        f.attach(4)
        assert f.ask(acquire(b"child", f.all), 2).values == (FAULT, FAULT, FAULT, 3, 4)

    assert exit_code(fork_child(action)) == 0
    assert f.ask(acquire(b"parent", f.all), 3).values == (1, 1, FAULT, 1)


def test_with_tls(fleet: MakeFleet) -> None:
    tls: Pair = Tls().over(tcp_pair)
    f = fleet(granting, granting, silent, pair=tls)
    waiting = start(lambda: f.engine.exchange([acquire(b"k", 0b111)], 3, LONG))
    f.session(2).wait_commands(1)
    f.grow(granting, granting)
    for master in (3, 4):
        f.attach(master)
    assert f.ask(acquire(b"new", 0b11011), 4).values == (1, 1, FAULT, 1, 1)
    f.session(2).send(b"+OK\r\n")
    assert waiting.result(SOON)[0].values == (1, 1, 1)
    f.detach(4)
    assert f.ask(acquire(b"newer", 0b11011), 3).granted == 3
