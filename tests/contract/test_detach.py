"""Detaching: what has failed is undone, in order, and no caller waits for a master that does not read."""

from __future__ import annotations

from support.fleet import (
    LONG,
    NATIVE,
    PLAIN,
    SOON,
    TOKEN,
    MakeFleet,
    acquire,
    del_words,
    release,
    set_words,
)
from support.scripted import granting, refusing, silent, tcp_pair
from support.waiting import DEADLINE

from redlock_fast.engine.contract import FAULT, Quorums, Wait

#: Masters 0 to 2, and 2 to 4: master 2 is in both lists.
JOINT = Quorums(((0b00111, 2), (0b11100, 2)))


def test_detach_writes_the_undo_of_what_has_failed(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.exchange([acquire(b"a", 1), acquire(b"b", 1), acquire(b"c", 1)], need=1, timeout=0.0)
    session = f.session(0)
    session.wait_commands(3)
    session.send(b"+OK\r\n")
    f.until(lambda: f.connection_state(0).pending == 2, "the first is answered")
    f.detach(0)
    assert session.commands[3:] == [del_words(b"b"), del_words(b"c")]
    assert f.connection_state(0).broken == ""
    assert not f.connection_state(0).attached
    assert f.connection_state(0).pending == 0


def test_detach_undoes_in_the_dialect_of_the_connection(fleet: MakeFleet) -> None:
    f = fleet(silent, commands=PLAIN)
    f.exchange([acquire(b"a", 1), release(b"other", 1)], need=1, timeout=0.0)
    f.detach(0)
    session = f.session(0)
    assert [words[0] for words in session.commands] == [b"SET", b"EVALSHA", b"EVALSHA"]
    assert session.commands[2][3:] == (b"a", TOKEN)


def test_detach_is_a_fault_for_waiters(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    futures = [f.ask_in_background(acquire(b"%d" % n, f.all), 2) for n in range(3)]
    f.detach(1)
    for future in futures:
        votes = future.result(SOON)
        assert votes.values[1] == FAULT
        assert votes.details[1]


def test_detach_takes_back_no_vote_that_may_count(fleet: MakeFleet) -> None:
    """Of an acquire that was granted, or may be, nothing is undone: the master may execute it after the next
    connection has had its vote counted.
    """
    f = fleet(silent, granting, granting)
    assert f.ask(acquire(b"granted", f.all), 2).granted == 2
    undecided = f.ask_in_background(acquire(b"undecided", f.all), 3, wait=Wait.ALL)
    f.ask(acquire(b"not awaited", f.all), 0)
    f.session(0).wait_commands(3)
    f.detach(0)
    assert f.session(0).commands == [set_words(key) for key in (b"granted", b"undecided", b"not awaited")]
    assert undecided.result(SOON).granted == 2


def test_closing_takes_back_what_too_few_have_granted(fleet: MakeFleet) -> None:
    """Also from those that have answered: after close() no client would do it."""
    f = fleet(granting, granting, silent, silent, silent)
    under_way = f.ask_in_background(acquire(b"k", f.all), 3)
    f.until(
        lambda: [f.connection_state(n).pending for n in range(5)] == [0, 0, 1, 1, 1], "two have granted it"
    )
    f.engine.close()
    assert under_way.result(SOON).granted == 2
    for number in range(5):
        f.session(number).wait_commands(2)
        assert f.session(number).commands == [set_words(b"k"), del_words(b"k")]


def test_closing_leaves_what_a_quorum_granted(fleet: MakeFleet) -> None:
    """Also on a master whose reply is pending, and what needs no grant, a refill: another process may hold
    the lock by its token, and have the vote of that master.
    """
    f = fleet(granting, granting, silent)
    f.ask(acquire(b"refill", 0b100), 0)
    under_way = f.ask_in_background(acquire(b"k", f.all), 2, wait=Wait.ALL)
    f.until(lambda: [f.connection_state(n).pending for n in range(3)] == [0, 0, 2], "a quorum has granted it")
    f.session(2).wait_commands(2)
    f.engine.close()
    assert under_way.result(SOON).granted == 2
    assert f.session(2).ended.wait(DEADLINE)
    assert f.session(2).commands == [set_words(b"refill"), set_words(b"k")]
    assert [f.session(n).commands for n in (0, 1)] == [[set_words(b"k")]] * 2


def test_detach_undoes_what_has_the_quorum_of_one_list_only(fleet: MakeFleet) -> None:
    f = fleet(granting, silent, granting, refusing, refusing)
    assert not JOINT.granted(f.ask(acquire(b"k", f.all), JOINT).values)
    f.session(1).wait_commands(1)
    f.detach(1)
    assert f.session(1).commands == [set_words(b"k"), del_words(b"k")]


def test_detach_takes_back_no_vote_of_two_quorums(fleet: MakeFleet) -> None:
    f = fleet(granting, silent, granting, granting, silent)
    assert f.ask(acquire(b"granted", f.all), JOINT).granted == 3
    undecided = f.ask_in_background(acquire(b"undecided", 0b10111), JOINT, wait=Wait.ALL)
    for number in (1, 4):
        f.detach(number)
        assert f.session(number).commands == [set_words(b"granted"), set_words(b"undecided")]
    assert not JOINT.granted(undecided.result(SOON).values)


def test_closing_takes_back_what_one_list_only_has_granted(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent, silent, granting)
    under_way = f.ask_in_background(acquire(b"k", f.all), JOINT)
    answered = [0, 0, 1, 1, 0]
    f.until(lambda: [f.connection_state(n).pending for n in range(5)] == answered, "three have granted it")
    f.engine.close()
    assert under_way.result(SOON).granted == 3
    for number in range(5):
        f.session(number).wait_commands(2)
        assert f.session(number).commands == [set_words(b"k"), del_words(b"k")]


def test_closing_leaves_what_both_lists_have_granted(fleet: MakeFleet) -> None:
    f = fleet(granting, silent, granting, granting, silent)
    under_way = f.ask_in_background(acquire(b"k", f.all), JOINT, LONG, Wait.ALL)
    answered = [0, 1, 0, 0, 1]
    f.until(lambda: [f.connection_state(n).pending for n in range(5)] == answered, "three have granted it")
    f.engine.close()
    assert JOINT.granted(under_way.result(SOON).values)
    for number in range(5):
        assert f.session(number).ended.wait(DEADLINE)
        assert f.session(number).commands == [set_words(b"k")]


def test_detach_with_nothing_owed_writes_nothing(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.ask(acquire(b"k", 1), need=1)
    f.detach(0)
    assert f.engine.detach(0) is None
    assert f.session(0).commands == [set_words(b"k")]


def test_detach_keeps_what_must_arrive(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.ask(release(b"owed", 1, resend_for=30), need=0)
    f.session(0).wait_commands(1)
    f.detach(0)
    f.ask(release(b"after", 1, resend_for=30), need=0)
    session = f.attach(0)
    f.until(lambda: len(session.commands) >= 2, "both are sent")
    assert session.commands == [del_words(b"owed"), del_words(b"after")]


def test_detach_does_not_wait_for_a_master_that_does_not_read(fleet: MakeFleet) -> None:
    f = fleet(silent, buffers=4096, reading=False)
    keys = [b"%03d" % n * 100 for n in range(100)]
    f.exchange([acquire(key, 1) for key in keys], need=1, timeout=0.0)
    sock = f.engine.detach(0)
    assert not f.connection_state(0).attached
    f.masters[0].reading.set()
    session = f.session(0)
    if sock:
        with sock:
            assert session.ended.wait(DEADLINE)
    assert session.ended.wait(DEADLINE)
    arrived = [words[1] for words in session.commands]
    assert arrived[: len(keys)] == keys[: len(arrived)], "a part of them, in order"


def test_what_detach_leaves_is_read_to_the_end(fleet: MakeFleet) -> None:
    # The socket comes back half-closed: the master reads the releases although it still writes.
    f = fleet(silent, pair=tcp_pair)
    f.exchange([acquire(b"%d" % n, 1) for n in range(50)], need=1, timeout=0.0)
    f.session(0).wait_commands(50)
    f.session(0).send(b"$-1\r\n" * 50)
    f.detach(0)
    undone = list(f.session(0).commands[50:])
    assert undone == [del_words(b"%d" % n) for n in range(50 - len(undone), 50)]


def test_attach_again_after_detach_serves(fleet: MakeFleet) -> None:
    f = fleet(granting, commands=NATIVE)
    for number in range(5):
        assert f.ask(acquire(b"%d" % number, 1), need=1).granted == 1
        f.detach(0)
        assert f.ask(acquire(b"%d" % number, 1), need=1).values == (FAULT,)
        f.attach(0)
    assert not f.breaks.acquire(blocking=False), "detaching is not breaking"
