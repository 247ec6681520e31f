"""The hub of the pure engine: what the contract's tests cannot see from outside."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.fleet import LONG, Fleet, acquire
from support.moments import moments
from support.scripted import granting, silent
from support.signalling import interrupt

import redlock_fast.engine.pure
from redlock_fast.engine.pure import waiter as waiter_module
from redlock_fast.engine.pure.engine import PureEngine
from redlock_fast.engine.pure.waiter import Waiter

PURE = str(Path(redlock_fast.engine.pure.__file__).parent)


@pytest.fixture
def made() -> Iterator[list[Fleet]]:
    fleets: list[Fleet] = []
    yield fleets
    for one in fleets:
        one.close()


def kicked(engine: PureEngine) -> bool:
    """Whether the next poll would end at once."""
    pair = engine._hub.kick_pair
    assert pair is not None
    poller = select.poll()
    poller.register(pair[0], select.POLLIN)
    return bool(poller.poll(0))


def test_a_kick_ends_one_poll(made: list[Fleet]) -> None:
    """Catches: a byte that stays in the socket, so that each later poll returns at once: a leader spins."""
    f = Fleet(PureEngine, granting)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    hub = f.engine._hub
    polling = Waiter()  # as the watch poller, which wakes up by the same socket
    assert hub.kick_pair
    polling.kick = partial(hub._signal, hub.kick_pair[1])
    for wake in (lambda: hub.locked(hub.kick), polling.notify):
        wake()
        assert kicked(f.engine)
        f.engine.maintain()
        assert not kicked(f.engine)
        assert not hub.kicked


def test_a_child_of_fork_is_not_inside(made: list[Fleet]) -> None:
    """Catches: a fork while the main thread is inside, and a child whose engine refuses all requests."""
    f = Fleet(PureEngine, silent)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    hub = f.engine._hub
    hub.safe_points.call(f.engine.after_fork_in_child)
    before = hub.safe_points
    before._inside = True  # as another thread of the parent has left it
    f.engine.after_fork_in_child()
    assert not hub.interrupted()
    f.masters[0].answer = granting
    f.attach(0)
    assert f.ask(acquire(b"k", 1), 1).granted == 1


def test_a_child_of_fork_counts_no_votes_of_its_parent(made: list[Fleet]) -> None:
    """Catches: a copy of a greenlet that gets its parent's lease, or releases what its parent was granted."""
    f = Fleet(PureEngine, granting, granting, granting)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    hub, waiter = f.engine._hub, Waiter()
    f.engine._fill(waiter, [acquire(b"k", f.all)], 2, 0, LONG, 0.0)
    (request,) = waiter.requests
    hub.locked(hub.submit, waiter, waiter.last_reply)
    while not request.decided:  # the thread that waits has not seen it
        f.engine.maintain()
    assert request.votes().granted >= 2
    f.engine.after_fork_in_child()
    hub.wait(waiter)
    votes = request.votes()
    assert (votes.granted, votes.faulty, votes.sent) == (0, 3, 0)


def test_an_interrupted_exchange_leaves_no_output(made: list[Fleet]) -> None:
    """Catches: a release that waits in a buffer until another exchange begins."""
    f = Fleet(PureEngine, granting)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    hub = f.engine._hub

    def sent() -> None:
        assert not any(one.out or one.sending for one in hub.by_fd.values())
        if not hub.by_fd:
            f.reattach(0)

    count = moments(lambda: f.ask(acquire(b"1", 1), 1), interrupt, sent, lambda name: PURE in name)
    assert count > 50


def test_requests_that_outlive_the_engine(made: list[Fleet]) -> None:
    """Catches: coroutines that are freed together with their engine, after its sockets were closed."""
    f = Fleet(PureEngine, silent)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    ticket = f.engine.submit([acquire(b"k", 1)], 1, LONG, 0, 0.0, "context")
    for sock in f.engine._open:
        sock.close()
    f.engine._hub.torn = True
    f.engine.cancel(ticket)
    assert f.engine.submit([acquire(b"k", 1)], 0, LONG, 0, 0.0, None) is None
    f.engine.flush()


def test_no_waiter_is_left(made: list[Fleet]) -> None:
    f = Fleet(PureEngine, granting, granting)
    made.append(f)
    assert isinstance(f.engine, PureEngine)
    hub = f.engine._hub
    for _ in range(10):
        f.ask(acquire(b"k", f.all), 2)
        f.engine.drain(LONG)
    assert (hub.leader, hub.watch_poller, hub.output_pending) == (None, None, False)
    assert [*hub.waiting, *hub.subscribed, *hub.exclusive, *hub.tickets] == []


def test_a_poll_ends_at_any_moment_of_a_notification() -> None:
    """The thread that polls clears ``kick`` without the mutex."""
    waiter = Waiter()
    kicks: list[None] = []

    def notify() -> None:
        waiter.kick = partial(kicks.append, None)
        waiter.notify()

    def end_poll() -> None:
        waiter.kick = None

    files = waiter_module.__file__, contextlib.__file__
    count = moments(notify, end_poll, lambda: None, files.__contains__)
    assert count > 0
    assert len(kicks) >= count - 1
