"""A child of fork gives up its copies, and the parent does not notice."""

from __future__ import annotations

import os
import signal
import threading

from support.fleet import LONG, SOON, Fleet, MakeFleet, acquire
from support.forking import exit_code, fork_child, fork_here, needs_fork
from support.scripted import always, granting, silent
from support.waiting import DEADLINE, eventually, start

from redlock_fast.engine.contract import FAULT, Engine, Wait

pytestmark = needs_fork


def test_child_abandons_and_the_parent_works_on(fleet: MakeFleet) -> None:
    f = fleet(always(b":1\r\n"), always(b":2\r\n"))
    f.ask(acquire(b"before", f.all), need=2)

    def action() -> None:
        f.engine.after_fork_in_child()
        assert not f.connection_state(0).attached
        assert f.connection_state(0).broken == ""

    assert exit_code(fork_child(action)) == 0
    f.engine.maintain()
    assert f.connection_state(0).attached
    assert f.connection_state(1).attached
    assert f.ask(acquire(b"after", f.all), need=2).values == (1, 2)
    assert [words[1] for words in f.session(0).commands] == [b"before", b"after"]


def test_child_while_a_thread_of_the_parent_waits(fleet: MakeFleet) -> None:
    # The lock and the lead may be held by a thread that the child does not have.
    f = fleet(silent, silent)
    for number in range(10):
        futures = [f.ask_in_background(acquire(b"%d" % n, f.all, resend_for=60), 2) for n in range(2)]

        def action() -> None:
            f.engine.after_fork_in_child()
            assert f.connection_state(0).pending == 0
            f.engine.maintain()
            f.engine.close()

        assert exit_code(fork_child(action)) == 0
        for master in range(2):
            f.session(master).wait_commands(2 * number + 2)
            f.session(master).send(b":1\r\n:2\r\n")
        values = sorted(future.result(SOON).values for future in futures)
        assert sorted(v for pair in values for v in pair) == [1, 1, 2, 2]


def test_child_keeps_no_copy_of_a_connection(fleet: MakeFleet) -> None:
    f = fleet(granting, granting)
    go_on, parent_closed = os.pipe()
    abandoned, tell = os.pipe()

    def action() -> None:
        f.engine.after_fork_in_child()
        os.close(parent_closed)
        os.write(tell, b".")
        os.read(go_on, 1)

    pid = fork_child(action)
    assert os.read(abandoned, 1) == b"."
    f.engine.close()
    try:
        for master in range(2):
            assert f.session(master).ended.wait(DEADLINE), "the child still holds the connection"
    finally:
        os.close(parent_closed)
        code = exit_code(pid)
        for fd in (go_on, abandoned, tell):
            os.close(fd)
    assert code == 0


def test_child_can_connect_again(fleet: MakeFleet, engine_class: type[Engine]) -> None:
    f = fleet(silent)
    waiting = f.ask_in_background(acquire(b"parent", 1), 1)

    def action() -> None:
        f.engine.after_fork_in_child()
        # The same engine object, and a new one, with masters of the child's own.
        f.masters[0].answer = always(b":3\r\n")
        f.attach(0)
        assert f.ask(acquire(b"child", 1), need=1).values == (3,)
        with Fleet(engine_class, always(b":4\r\n")) as own:
            assert own.ask(acquire(b"child", 1), need=1).values == (4,)

    assert exit_code(fork_child(action)) == 0
    f.session(0).send(b":9\r\n")
    assert waiting.result(SOON).values == (9,)
    assert len(f.session(0).commands) == 1


def test_kept_requests_are_not_replayed_by_the_child(fleet: MakeFleet) -> None:
    f = fleet(silent, attach=False)
    f.ask(acquire(b"parents", 1, resend_for=60), need=0)

    def action() -> None:
        f.engine.after_fork_in_child()
        f.masters[0].answer = granting
        f.attach(0)
        assert f.ask(acquire(b"child", 1), need=1).granted == 1
        assert [words[1] for words in f.session(0).commands] == [b"child"]

    assert exit_code(fork_child(action)) == 0
    session = f.attach(0)
    f.until(lambda: session.commands, "the parent replays it")
    assert session.commands[0][1] == b"parents"


def test_no_vote_for_the_parent_counts_in_a_child_that_its_signal_handler_forks(fleet: MakeFleet) -> None:
    """The request has its quorum and waits for every reply. Catches: the child has the parent's lock, too."""
    f = fleet(granting, granting, silent)
    pids: list[int] = []

    def handle(*_: object) -> None:
        pids.append(fork_here())
        if pids == [0]:
            f.engine.after_fork_in_child()

    def fork_when_two_have_granted() -> None:
        f.session(2).wait_commands(1)
        f.until(lambda: not (f.connection_state(0).pending or f.connection_state(1).pending), "two grants")
        signal.pthread_kill(main, signal.SIGUSR1)
        eventually(lambda: pids, "the handler forks")
        f.session(2).send(b"+OK\r\n")

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handle)
    code = 1
    try:
        forking = start(fork_when_two_have_granted)
        votes = f.ask(acquire(b"k", f.all), 2, LONG, Wait.ALL)
        if pids == [0]:
            assert votes.values == (FAULT,) * 3
            assert (votes.granted, votes.sent) == (0, 0)
            code = 0
    finally:
        if pids == [0]:
            os._exit(code)
        signal.signal(signal.SIGUSR1, before)
    forking.result(SOON)
    assert votes.values == (1, 1, 1)
    assert [exit_code(pid) for pid in pids] == [0]
