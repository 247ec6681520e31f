"""The masters of a client: waiting for them, and what exit, fork and a dropped client do to them."""

from __future__ import annotations

import functools
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.inside import core_of
from support.moments import at_moment
from support.signalling import interrupt
from support.waiting import start

import redlock_fast.masters.masters
from redlock_fast import ClientClosed, ConfigError, FastRedlock
from redlock_fast.algorithm.lease import Lease
from redlock_fast.engine.contract import FAULT, NO_REPLY, NOT_ASKED, Batch, Votes
from redlock_fast.masters.client_state import clients_with_leases
from redlock_fast.masters.masters import GRACE, QUIET, Masters, release_held
from redlock_fast.wire.commands import Verb

N = 3
INTERRUPTED = threading.__file__, redlock_fast.masters.masters.__file__


def make(**options: Any) -> FastRedlock:
    return FastRedlock([f"redis://127.0.0.1:{port}" for port in range(1, N + 1)], engine="python", **options)


@pytest.fixture
def client() -> Iterator[FastRedlock]:
    with make() as client:
        yield client


def lease(client: FastRedlock, key: bytes = b"key") -> Lease:
    now = core_of(client).policy.clock()
    return Lease(key, b"token", 0b111, 10.0, now + 10.0, 9.9)


@pytest.mark.parametrize("held", [False, True])
def test_a_dropped_client_is_freed_by_reference_counting(held: bool) -> None:
    gc.disable()
    try:
        client = make()
        masters, state, mine = (
            weakref.ref(core_of(client).masters),
            core_of(client).client_state,
            lease(client),
        )
        if held:
            state.add_lease(mine)
        del client
        assert (masters() is not None) is held
        state.remove_lease(mine)
        assert masters() is None
    finally:
        gc.enable()


def test_a_quorum_is_waited_for_and_a_moment_for_the_rest(client: FastRedlock) -> None:
    connector = core_of(client).masters.connector
    (quorum, seconds), (rest, grace) = core_of(client).masters.quorum_conditions(2.0)
    assert (seconds, grace, core_of(client).masters.quorum_conditions(0.01)[1][1]) == (2.0, GRACE, 0.01)
    assert not quorum()
    connector.roster.masters[0].link.attached = connector.roster.masters[1].link.attached = True
    assert (quorum(), rest()) == (True, False)
    connector.roster.masters[2].link.failures = 1
    assert rest()
    assert core_of(client).masters.end_quorum_wait()
    assert core_of(client).client_state.ready
    for state in connector.roster.masters:
        state.link.attached = False


def test_a_wrong_configuration_ends_the_wait(client: FastRedlock) -> None:
    core_of(client).masters.connector.electorate.misconfigured = "masters: wrong"
    assert all(condition() for condition, _ in core_of(client).masters.quorum_conditions(1.0))
    with pytest.raises(ConfigError, match="wrong"):
        core_of(client).masters.end_quorum_wait()
    assert not core_of(client).client_state.ready
    with pytest.raises(ConfigError, match="wrong"):
        core_of(client).masters.check_open()


def test_waits_end_with_the_client() -> None:
    client = make()
    entry: Any = SimpleNamespace(slot=SimpleNamespace(wake=None), is_first=False)
    closing = threading.Timer(0.05, client.close)
    closing.start()
    begin = time.monotonic()
    with pytest.raises(ClientClosed):
        core_of(client).masters.pause(30.0)
    closing.join()
    with pytest.raises(ClientClosed):
        core_of(client).masters.reconnect(30.0, [0])
    with pytest.raises(ClientClosed):
        core_of(client).masters.wait_for_turn(entry, 30.0)
    assert time.monotonic() - begin < 20.0


def test_a_reconnect_that_has_happened_is_a_short_pause(
    client: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = core_of(client).masters.connector
    monkeypatch.setattr(connector.roster, "connected", lambda: 0b011)
    monkeypatch.setattr(connector.connections, "is_usable", lambda master: master == 1)
    assert core_of(client).masters.reconnect_condition(5.0, [0])[1] == 5.0
    assert connector.dialler.urgent_until > time.monotonic()
    assert core_of(client).masters.reconnect_condition(5.0, [0, 1])[1] < 0.1


def test_a_silent_master_is_awaited_on_a_new_connection(
    client: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: rounds without a pause, because a silent master is connected."""
    connector = core_of(client).masters.connector
    monkeypatch.setattr(connector.roster, "connected", lambda: 0b011)
    monkeypatch.setattr(connector.connections, "is_usable", lambda master: True)
    is_back, seconds = core_of(client).masters.reconnect_condition(5.0, [], [0, 1])
    assert seconds == 5.0
    assert not is_back()
    connector.roster.masters[1].link.connections += 1
    assert is_back()


def test_causes(client: FastRedlock) -> None:
    masters, states = core_of(client).masters, core_of(client).masters.connector.roster.masters
    details: dict[int, str | bytes] = {0: NOT_ASKED, 1: "not connected"}
    votes = Votes((FAULT, FAULT, NO_REPLY), 0b111, 0, 0, 2, details)
    assert masters.cause(1, votes) == "not connected: no answer yet", "the first attempt goes on"
    states[1].tally.error = "refused"
    assert [masters.cause(n, votes) for n in (1, 2)] == ["not connected: refused", "no reply in time"]
    assert masters.cause(0, votes) == NOT_ASKED
    states[0].guard.until = time.monotonic() + 60.0
    assert "may have forgotten locks" in masters.cause(0, votes)


def test_a_child_of_fork_has_another_connector_and_engine(client: FastRedlock) -> None:
    masters = core_of(client).masters
    connector, engine, state = masters.connector, masters.engine, masters.client_state
    masters.after_fork_in_child()
    assert masters.connector is not connector
    assert masters.engine is masters.connector.engine is not engine
    assert (masters.client_state, state.generation()) == (state, 1)
    assert connector.monitor.ended()


class Sent:
    """Remembers what an engine is given."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.verbs: list[int] = []
        self.keys: list[bytes] = []

    def exchange(self, requests: Batch, need: int, timeout: float) -> None:
        assert (need, timeout) == (0, 0.0)
        self.verbs.append(requests.verb)
        self.keys += requests.args[0]


@pytest.fixture
def only_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has no clients but those that the test makes."""
    monkeypatch.setattr("redlock_fast.masters.masters._all_masters", weakref.WeakSet())


@pytest.mark.usefixtures("only_clients")
@pytest.mark.parametrize("wanted", [True, False])
def test_leases_are_released_at_exit(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make(release_at_exit=wanted)
    sent = Sent(core_of(client).masters.engine)
    monkeypatch.setattr(core_of(client).masters, "engine", sent)
    core_of(client).client_state.add_lease(lease(client))
    release_held()
    assert sent.verbs == [Verb.RELEASE] * wanted
    assert core_of(client).client_state.closed is core_of(client).client_state.ending is wanted
    client.close()
    assert core_of(client).client_state not in clients_with_leases


@pytest.mark.usefixtures("only_clients")
def test_a_lock_may_say_whether_it_is_released_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against its client, and after its object is gone. Catches: a choice that ends with the lock object."""
    for default in (True, False):
        client = make(release_at_exit=default)
        sent = Sent(core_of(client).masters.engine)
        monkeypatch.setattr(core_of(client).masters, "engine", sent)
        for choice in (None, True, False):
            client.lock(str(choice), release_at_exit=choice)._on_granted(lease(client, b"%r" % choice))
        release_held()
        assert set(sent.keys) == ({b"True", b"None"} if default else {b"True"})
        client.close()


@pytest.fixture
def other_thread() -> Iterator[None]:
    """One that runs until the test has ended."""
    ended = threading.Event()
    thread = start(ended.wait)
    yield
    ended.set()
    thread.result()


@pytest.mark.usefixtures("only_clients", "other_thread")
@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_granted_during_the_end_is_released(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its client was closed for new acquires. Catches: a lease that is released twice, or never."""
    client = make(release_at_exit=True)
    sent = Sent(core_of(client).masters.engine)
    monkeypatch.setattr(core_of(client).masters, "engine", sent)
    granted = [client.lock("late", release_at_exit=wanted), client.lock("later", release_at_exit=wanted)]
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += QUIET * 0.9
        if granted:
            lock = granted.pop(0)
            lock._on_granted(lease(client, str(lock.resource).encode()))

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr(redlock_fast.masters.masters, "time", clock)
    core_of(client).client_state.add_lease(lease(client, b"early"))
    release_held()
    assert sent.keys == [b"early", *([b"late", b"later"] if wanted else [])]
    assert not core_of(client).client_state.held


@pytest.mark.usefixtures("only_clients", "other_thread")
@pytest.mark.parametrize("release", [True, False])
def test_a_client_that_holds_nothing_is_closed_while_threads_run(release: bool) -> None:
    """Catches: what such a thread is granted next; and a client that should keep what it holds."""
    client = make(release_at_exit=release)
    release_held()
    assert core_of(client).client_state.closed is release
    client.close()


def test_masters_of_all_clients_are_known_to_fork() -> None:
    from redlock_fast.masters.masters import _all_masters

    with make() as client:
        assert core_of(client).masters in _all_masters
        assert isinstance(core_of(client).masters, Masters)


def test_a_handler_that_raises_anywhere_in_a_wait_for_the_turn(client: FastRedlock) -> None:
    """The caller before leaves the queue without waiting."""
    queue, number = core_of(client).masters.policy.local_queue, 0
    while True:
        first, second = queue.enter(b"key"), queue.enter(b"key")
        wait = functools.partial(core_of(client).masters.wait_for_turn, second, 0.001)
        interrupted = at_moment(number, wait, interrupt, INTERRUPTED.__contains__)
        start(first.leave).result(5.0)
        second.leave()
        if not interrupted:
            break
        number += 1
    assert number > 3
