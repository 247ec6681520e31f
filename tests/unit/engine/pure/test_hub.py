"""The hub of the pure engine: what the contract's tests cannot see from outside."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fleet import LONG, SOON, Fleet, acquire
from support.moments import moments
from support.scripted import granting, silent
from support.signalling import interrupt
from support.waiting import eventually

import redlock_fast.engine.pure
from redlock_fast.engine.contract import FAULT, Wait
from redlock_fast.engine.pure.engine import INSIDE, PureEngine
from redlock_fast.engine.pure.hub import Hub
from redlock_fast.engine.pure.waiter import Waiter

PURE = str(Path(redlock_fast.engine.pure.__file__).parent)


@pytest.fixture
def made() -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def make(*answers: Any) -> Fleet:
        fleets.append(Fleet(PureEngine, *answers))
        return fleets[-1]

    yield make
    for one in fleets:
        one.close()


def hub_of(f: Fleet) -> Hub:
    assert isinstance(f.engine, PureEngine)
    return f.engine._hub


def readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def test_a_signal_ends_one_poll(made: Callable[..., Fleet]) -> None:
    """Catches: a byte that stays in the socket, so that each later poll returns at once: the thread spins."""
    hub = hub_of(made(granting))
    assert hub.pipe is not None
    fd = hub.pipe.fd
    hub.pipe.signal()
    eventually(lambda: not readable(fd), "the I/O thread has taken it")


def test_a_child_of_fork_counts_no_votes_of_its_parent(made: Callable[..., Fleet]) -> None:
    """Catches: a copy of a greenlet that gets its parent's lease, or releases what its parent was granted."""
    f = made(granting, granting, granting)
    hub, waiter = hub_of(f), Waiter()
    assert isinstance(f.engine, PureEngine)
    f.engine._fill(waiter, [acquire(b"k", f.all)], 3, Wait.ALL, LONG, 0.0)
    (request,) = waiter.requests
    hub.put(f.engine.after_fork_in_child)  # while it waits; and its word of the decision is lost
    waiter.woken.acquire(False)
    hub.exchange(waiter)
    votes = request.votes()
    assert (votes.granted, votes.faulty, votes.sent) == (0, 3, 0)


def test_an_interrupted_exchange_leaves_nothing(made: Callable[..., Fleet]) -> None:
    """Catches: requests that the hub keeps until their time ends, though no thread waits for them."""
    f = made(silent)
    hub = hub_of(f)
    with pytest.raises(KeyboardInterrupt):
        Interrupting.exchange(f)
    f.engine.flush()
    assert hub.waiting == {}
    f.masters[0].answer = granting


class Interrupting:
    """An exchange that a handler interrupts while it sleeps."""

    @staticmethod
    def exchange(f: Fleet) -> None:
        hub = hub_of(f)

        def wait(signal: threading.Lock, generation: int) -> bool:
            f.session(0).wait_commands(1)
            del hub.wait  # type: ignore[attr-defined]  # the one of the class again
            interrupt()
            return True

        hub.wait = wait  # type: ignore[method-assign]
        f.ask(acquire(b"k", 1), 1)


def test_no_waiter_is_left(made: Callable[..., Fleet]) -> None:
    f = made(granting, granting)
    hub = hub_of(f)
    for _ in range(10):
        f.ask(acquire(b"k", f.all), 2)
        assert f.engine.drain(LONG)
    assert (hub.waiting, hub.drains, hub.taken) == ({}, [], [])
    assert moments(lambda: f.ask(acquire(b"1", f.all), 1), interrupt, f.engine.flush, lambda n: PURE in n) > 0
    f.engine.drain(LONG)
    assert (hub.waiting, hub.drains, hub.taken) == ({}, [], [])


def test_requests_that_outlive_the_engine(made: Callable[..., Fleet]) -> None:
    """Catches: coroutines that are freed together with their engine, and wait for its thread."""
    f = made(silent)
    hub = hub_of(f)
    ticket = f.engine.submit([acquire(b"k", 1)], 1, LONG, 0, 0.0, "context")
    hub.free()
    f.engine.cancel(ticket)
    assert f.engine.submit([acquire(b"k", 1)], 0, LONG, 0, 0.0, None) is None
    f.engine.flush()
    assert f.ask(acquire(b"k", 1), 1).values == (FAULT,)


def test_a_finalizer_in_the_engines_thread_does_not_wait_for_it(made: Callable[..., Fleet]) -> None:
    """The garbage collector may run it there. Catches: a thread that waits for itself."""
    f = made(granting)
    hub, done = hub_of(f), threading.Event()
    refused: list[Any] = []

    def finalize() -> None:
        refused.append(f.ask(acquire(b"at once", 1), 1))
        refused.append(f.ask(acquire(b"must arrive", 1, resend_for=LONG), 1))
        f.engine.flush()
        f.engine.maintain()
        f.engine.close_loop_fd()
        assert f.engine.drain(LONG) is False
        assert f.engine.detach(0) is None
        done.set()

    hub.put(finalize)
    assert done.wait(SOON)
    assert [votes.details for votes in refused] == [{0: INSIDE}, {0: INSIDE}]
    assert f.session(0).wait_commands(1)[0][1] == b"must arrive"
    eventually(lambda: not f.connection_state(0).attached, "the master is detached afterwards")


def test_a_thread_that_ends_leaves_no_job(made: Callable[..., Fleet]) -> None:
    """Before the first connection each job has a thread of its own, which ends with it.

    Catches: a job that comes while the thread ends, and that none does.
    """
    f = Fleet(PureEngine, granting, attach=False)
    hub = hub_of(f)
    for number in range(300):
        assert hub.call(lambda n=number: n) == number
    eventually(lambda: not hub._serving.locked(), "the last thread has ended")
