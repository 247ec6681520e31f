"""Attaching, tending, draining, closing."""

from __future__ import annotations

import socket

import pytest
from support.fleet import LONG, NATIVE, SOON, Fleet, MakeFleet, Stopwatch, acquire, release
from support.scripted import Pair, granting, silent, tcp_pair
from support.waiting import DEADLINE, start

from redlock_fast.engine.contract import FAULT, LAG_AFTER, Engine, Wait


def test_new_link_is_blank(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False)
    link = f.connection_state(0)
    assert link == (False, "", 0, 0.0, 0.0, 0, 0, 0, 0, 0)
    f.attach(0)
    assert f.connection_state(0) == (True, "", 0, 0.0, 0.0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("timeout", [None, 0.0, 0.25])
@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_any_connected_socket_will_do(fleet: MakeFleet, pair: Pair, timeout: float | None) -> None:
    f = fleet(granting, pair=pair, attach=False)
    sock = f.masters[0].connect()
    sock.settimeout(timeout)
    f.engine.attach(0, sock, NATIVE)
    for number in range(10):
        assert f.ask(acquire(b"%d" % number, 1), need=1).granted == 1


@pytest.mark.parametrize("broken", [False, True])
def test_second_connection_beside_the_first_is_refused(fleet: MakeFleet, broken: bool) -> None:
    f = fleet(granting)
    if broken:
        f.lose(0)
    client, server = socket.socketpair()
    with client, server, pytest.raises(ValueError, match="detach"):
        f.engine.attach(0, client, NATIVE)
    assert f.ask(acquire(b"k", 1), need=1).granted == (0 if broken else 1)
    f.reattach(0)
    assert f.ask(acquire(b"k", 1), need=1).granted == 1


def test_engine_owns_its_sockets(engine_class: type[Engine]) -> None:
    # No reference of ours keeps the connection open, and none is needed to keep it open.
    with Fleet(engine_class, granting) as f:
        assert f.ask(acquire(b"k", 1), need=1).granted == 1
        f.detach(0)
        assert f.session(0).ended.is_set()


def test_tend_notices_the_end_of_an_idle_connection(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, pair=tcp_pair)
    f.ask(acquire(b"k", f.all), need=2)
    f.session(1).finish()
    assert f.until_broken(1)
    assert f.breaks.acquire(timeout=DEADLINE)
    assert f.connection_state(0).attached
    f.session(0).reset()
    assert f.until_broken(0)


def test_tend_sends_what_is_left(fleet: MakeFleet) -> None:
    f = fleet(silent, buffers=4096, reading=False)
    f.exchange([acquire(b"%04d" % n * 50, 1) for n in range(500)], need=0)
    f.masters[0].reading.set()
    f.until(lambda: len(f.session(0).commands) == 500, "everything arrives")
    assert f.connection_state(0).pending == 500


def test_tend_never_waits(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, attach=False)
    f.engine.maintain()
    f.attach(0)
    f.ask(acquire(b"k", f.all), need=0)
    with Stopwatch() as watch:
        for _ in range(100):
            f.engine.maintain()
    assert watch.seconds < SOON


def test_drain_of_the_idle_is_done(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, attach=False)
    assert f.engine.drain(0.0)
    f.attach(1)
    f.ask(acquire(b"k", 0b10), need=1)
    assert f.engine.drain(LONG)


def test_drain_waits_for_late_replies(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    for number in range(20):
        f.ask(acquire(b"%d" % number, f.all, resend_for=LONG), need=0)
        drained = start(lambda: f.engine.drain(LONG))
        for master in range(2):
            f.session(master).wait_commands(number + 1)
            f.session(master).send(b":1\r\n")
        assert drained.result(SOON)
        assert f.connection_state(0).pending == f.connection_state(1).pending == 0


def test_drain_has_read_all_replies(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting)
    for number in range(50):
        f.exchange([acquire(b"%d-%d" % (number, part), f.all, resend_for=LONG) for part in range(5)], need=0)
        assert f.engine.drain(LONG)
        for master in range(3):
            assert f.connection_state(master).pending == 0


def test_drain_gives_up_at_its_timeout(fleet: MakeFleet) -> None:
    f = fleet(silent)
    f.ask(acquire(b"k", 1), need=0)
    with Stopwatch() as watch:
        assert not f.engine.drain(LAG_AFTER / 10)
    assert watch.seconds < SOON


def test_drain_does_not_wait_for_the_lagging(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, lag_after=LAG_AFTER)
    f.ask(acquire(b"k", f.all), need=1)
    with Stopwatch() as watch:
        assert f.engine.drain(LONG)
    assert watch.seconds < SOON
    assert f.connection_state(0).pending == 1
    assert f.connection_state(1).pending == 0


@pytest.mark.parametrize("wait", list(Wait))
def test_close_is_a_fault_for_waiters(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(silent, silent, silent)
    futures = [f.ask_in_background(acquire(b"%d" % n, f.all), 2, wait=wait) for n in range(6)]
    draining = start(lambda: f.engine.drain(LONG))
    f.engine.close()
    for future in futures:
        votes = future.result(SOON)
        assert votes.faulty == 3 if wait == Wait.ALL else votes.faulty >= 2
    draining.result(SOON)
    for master in range(3):
        assert f.session(master).ended.wait(DEADLINE)
        assert not f.connection_state(master).attached
        assert f.connection_state(master).pending == 0


def test_close_keeps_the_votes_that_came(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    future = f.ask_in_background(acquire(b"k", f.all), 3, wait=Wait.ALL)
    f.session(1).send(b":5\r\n")
    f.until(lambda: f.connection_state(1).pending == 0, "the reply is read")
    f.engine.close()
    assert future.result(SOON).values == (FAULT, 5, FAULT)


def test_close_lets_go_of_sockets_that_can_still_be_read(fleet: MakeFleet) -> None:
    """Catches: a reply that comes behind the end, to a socket that is closed, which resets the connection."""
    f = fleet(silent, silent)
    remains: list[socket.socket] = []
    f.engine.close(remains.append)
    assert len(remains) == 2
    for master, sock in enumerate(remains):
        with sock:
            assert f.session(master).ended.wait(DEADLINE), "it is half-closed"
            f.session(master).send(b"+OK\r\n")
            sock.settimeout(DEADLINE)
            assert sock.recv(5) == b"+OK\r\n", "and open until its owner closes it"
    f.engine.close(remains.append)
    assert len(remains) == 2


def test_closed_engine_answers_with_faults(fleet: MakeFleet) -> None:
    f = fleet(granting, granting)
    f.engine.close()
    f.engine.close()
    assert f.ask(acquire(b"k", f.all), need=1).values == (FAULT, FAULT)
    assert f.ask(release(b"k", f.all, resend_for=30), need=1).sent == 0
    f.engine.maintain()
    assert f.engine.drain(LONG)
    f.engine.detach(0)
    assert not f.breaks.acquire(blocking=False), "closing is not breaking"


def test_engine_that_was_never_attached_closes(engine_class: type[Engine]) -> None:
    engine = engine_class(3, lambda: None)
    engine.close()


def test_two_engines_are_independent(engine_class: type[Engine]) -> None:
    with Fleet(engine_class, silent) as one, Fleet(engine_class, silent) as other:
        first = one.ask_in_background(acquire(b"k", 1), 1)
        second = other.ask_in_background(acquire(b"k", 1), 1)
        other.session(0).send(b":2\r\n")
        assert second.result(SOON).values == (2,)
        other.engine.close()
        one.session(0).send(b":1\r\n")
        assert first.result(SOON).values == (1,)


def test_sockets_are_left_in_no_other_hands(fleet: MakeFleet) -> None:
    f = fleet(granting, attach=False)
    client, server = socket.socketpair()
    with server:
        f.engine.attach(0, client, NATIVE)
        del client
        f.ask(acquire(b"k", 1), need=1, timeout=0.0)
        server.settimeout(DEADLINE)
        assert server.recv(100).startswith(b"*6\r\n$3\r\nSET\r\n")
        f.engine.close()
        assert server.recv(100).startswith(b"*3\r\n$7\r\nDELIFEQ\r\n"), "the failed request is rolled back"
        assert server.recv(100) == b"", "and the connection is at its end"
