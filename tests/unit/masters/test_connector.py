"""The connector: what an attempt to connect and a look at all masters do, with scripted connections."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import DEADLINE, eventually, start

from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import FLUSHED, ConnectionState
from redlock_fast.masters import connector, dialler, electorate, link
from redlock_fast.masters.address import target
from redlock_fast.masters.client_state import ClientState
from redlock_fast.masters.connector import IDLE_TICK, Connector
from redlock_fast.masters.former_lists import FormerLists
from redlock_fast.masters.link import MAX_PAUSES
from redlock_fast.masters.master import Master
from redlock_fast.masters.probe import ConnectError, Flushed, Server
from redlock_fast.masters.restart_guard import Guard, stops_after
from redlock_fast.masters.roster import Roster
from redlock_fast.masters.settings import ConnectorSettings
from redlock_fast.wire.dialect import Capabilities

N = 3


class Engine:
    """Takes sockets; ``broken`` has the reason of each broken connection."""

    def __init__(self, masters: int, on_break: Callable[[], None]) -> None:
        self.on_break = on_break
        self.attached: dict[int, Any] = {}
        self.broken: dict[int, str] = {}
        self.lag = 0.0

    def grow(self, masters: int) -> None:
        self.masters = masters

    def attach(self, master: int, sock: Any, dialect: Any) -> None:
        self.attached[master] = sock

    def detach(self, master: int) -> Any:
        return self.attached.pop(master, None)

    def connection_state(self, master: int) -> ConnectionState:
        broken = self.broken.get(master, "")
        return ConnectionState(master in self.attached, broken, 0, self.lag, 0.0, 0, 0, 0, 0, 0)

    def maintain(self) -> None:
        pass

    def after_fork_in_child(self) -> None:
        self.broken.clear()


class Probed:
    """A new connection to ``server``."""

    dialect: Any = ()

    def __init__(self, server: Server) -> None:
        self.server = server
        self.distinct: set[tuple[int, int]] = set()
        self.ends: tuple[socket.socket, ...] = socket.socketpair()

    def take(self) -> socket.socket:
        self.ends, (taken, other) = (), self.ends
        other.close()
        return taken

    def close(self) -> None:
        for end in self.ends:
            end.close()


class Network:
    """What the next connection to each master leads to."""

    def __init__(self) -> None:
        self.servers: dict[str, Server | ConnectError] = {}
        self.same: list[bool | None] = []

    def connect(self, to: Any, *_: Any, **__: Any) -> Probed:
        found = self.servers.get(to.name, Server(run_id=to.name))
        if isinstance(found, ConnectError):
            raise found
        return Probed(found)

    def is_same_server(self, *_: Any) -> bool | None:
        return self.same.pop()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network()
    monkeypatch.setattr(dialler, "connect", network.connect)
    monkeypatch.setattr(dialler, "is_same_server", network.is_same_server)
    return network


@pytest.fixture
def settings() -> ConnectorSettings:
    return ConnectorSettings(Engine, 0.05, 0.1, 5.0, b"", Guard("auto", 60.0), "auto", False)  # type: ignore[arg-type]


@pytest.fixture
def make(network: Network) -> Iterator[Callable[[ConnectorSettings], Connector]]:
    made: list[Connector] = []

    def make(settings: ConnectorSettings) -> Connector:
        policy = Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(N), clock=lambda: 0.0)
        masters = [Master(target(f"redis://m{n}")) for n in range(N)]
        roster = Roster(masters, policy.voters, FormerLists(settings.guard.max_ttl))
        made.append(Connector(policy, settings, roster, ClientState(lambda: None)))
        return made[-1]

    yield make
    for one in made:
        one.connections.lingering.close()
        for sock in one.engine.attached.values():  # type: ignore[attr-defined]
            sock.close()


@pytest.fixture
def one(make: Callable[[ConnectorSettings], Connector], settings: ConnectorSettings) -> Connector:
    return make(settings)


@pytest.fixture
def no_attempts(one: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    """``maintain_all`` connects no master."""
    monkeypatch.setattr(one.dialler, "dial_in_background", lambda number: None)


def test_a_master_is_connected(one: Connector) -> None:
    changes: list[int] = []
    one.monitor.listen(lambda: changes.append(one.roster.connected().bit_count()))
    one.dialler.dial(1)
    assert [state.link.attached for state in one.roster.masters] == [False, True, False]
    assert list(one.engine.attached) == [1]  # type: ignore[attr-defined]
    assert (changes, one.roster.masters[1].link.connections, one.policy.voters.mask) == ([1], 1, 0b111)


@pytest.mark.parametrize(("error", "flushed"), [(ConnectError("refused"), False), (Flushed("flushed"), True)])
def test_an_attempt_that_fails(one: Connector, network: Network, error: ConnectError, flushed: bool) -> None:
    network.servers["m0:6379/0"] = error
    one.dialler.dial(0)
    one.dialler.dial(0)
    state = one.roster.masters[0]
    assert (state.link.attached, state.link.connecting, state.link.failures) == (False, False, 2)
    assert (state.tally.error, state.guard.flushed, one.electorate.misconfigured) == (str(error), flushed, "")


def test_a_guarded_master_casts_no_vote_until_its_guard_ends(one: Connector, network: Network) -> None:
    one.dialler.dial(0)
    one.connections.retire(0, "lost")
    network.servers["m0:6379/0"] = Server(run_id="restarted")
    one.dialler.dial(0)
    assert one.policy.voters.mask == 0b110
    assert one.electorate.end_guard(one.roster.masters[0], one.roster.masters[0].guard.until + 1) > 0.0
    assert one.policy.voters.mask == 0b111


def test_a_promoted_master_extends_nothing_while_its_former_one_may_grant(
    one: Connector, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind Sentinels the former master stops some seconds after its replicas are cut off.

    Catches: a lease that the promoted master extends, while the former one, where the key has ended, grants
    the lock to another client: two votes of one master.
    """
    one.dialler.dial(0)
    one.connections.retire(0, "lost")
    network.servers["m0:6379/0"] = Server(run_id="m0:6379/0", replid="promoted", min_replicas=1, max_lag=3.0)
    one.dialler.dial(0)
    master, lists = one.roster.masters[0], one.policy.voters.lists
    assert master.guard.until > time.monotonic() + 60.0
    assert lists.unlisted == 0b001
    past = time.monotonic() + stops_after(3.0) + 0.1
    monkeypatch.setattr(electorate, "time", SimpleNamespace(monotonic=lambda: past))
    assert one.electorate.end_guard(master, past) == master.guard.until
    assert (lists.unlisted, one.policy.voters.mask) == (0, 0b110), "it extends, and grants nothing yet"


def test_a_lost_master_is_at_no_moment_usable(one: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread asks while the connection is detached, after which it is not known to be broken."""
    one.dialler.dial(0)
    assert one.connections.is_usable(0)
    answers: list[Future[bool]] = []

    def detach(master: int) -> None:
        answers.append(start(partial(one.connections.is_usable, master)))
        wait(answers, 0.1)

    monkeypatch.setattr(one.engine, "detach", detach)
    one.connections.retire(0, "lost")
    assert not answers[0].result(DEADLINE)


def test_a_duplicate_has_no_vote(one: Connector, network: Network) -> None:
    network.servers = {f"m{n}:6379/0": Server(run_id="same") for n in range(N)}
    one.dialler.dial(0)
    network.same = [True]
    one.dialler.dial(1)
    assert "same server as m0:6379/0" in one.roster.masters[1].tally.error
    assert one.electorate.misconfigured == ""  # two distinct servers may still be a quorum
    network.same = [True]
    one.dialler.dial(2)
    assert "same server as m0:6379/0" in one.electorate.misconfigured
    assert one.roster.connected() == 0b001


def test_a_run_id_that_is_claimed_twice(one: Connector, network: Network) -> None:
    network.servers = {f"m{n}:6379/0": Server(run_id="same") for n in range(N)}
    one.dialler.dial(0)
    network.same = [False]
    one.dialler.dial(1)
    assert one.roster.connected().bit_count() == 2
    network.same = [None, False]  # distinct from the first; the second does not answer
    one.dialler.dial(2)
    assert [state.link.attached for state in one.roster.masters] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "url", "text"),
    [
        ({"wait": "push"}, "redis://m0", "wait='push' needs RESP3"),
        ({}, "redis+sentinel://m0/locks", "min-replicas-to-write"),
    ],
)
def test_masters_that_do_not_fit(
    make: Callable[[ConnectorSettings], Connector],
    settings: ConnectorSettings,
    network: Network,
    changes: dict[str, Any],
    url: str,
    text: str,
) -> None:
    one = make(settings._replace(**changes))
    one.monitor.client_state.ready = True
    one.roster.masters[0] = Master(target(url))
    one.dialler.dial(0)
    assert text in one.electorate.misconfigured
    assert not one.monitor.client_state.ready
    name = one.roster.masters[0].target.name
    network.servers[name] = Server(run_id="a", min_replicas=1, max_lag=10.0, can=Capabilities(push=True))
    one.dialler.dial(0)
    assert one.electorate.misconfigured == ""


def test_a_lag_of_0_seconds_means_that_a_master_never_stops(
    make: Callable[[ConnectorSettings], Connector], settings: ConnectorSettings, network: Network
) -> None:
    one = make(settings)
    one.roster.masters[0] = Master(target("redis+sentinel://m0/locks"))
    name = one.roster.masters[0].target.name
    network.servers[name] = Server(run_id="a", min_replicas=1, max_lag=0.0)
    one.dialler.dial(0)
    assert "min-replicas-max-lag >= 1" in one.electorate.misconfigured


def test_a_broken_or_silent_connection_is_closed(one: Connector, no_attempts: None) -> None:
    for master in range(N):
        one.dialler.dial(master)
    assert one.maintain_all() <= IDLE_TICK
    one.engine.broken[1] = FLUSHED  # type: ignore[attr-defined]
    one.maintain_all()
    assert [state.link.attached for state in one.roster.masters] == [True, False, True]
    assert (one.roster.masters[1].guard.flushed, one.roster.masters[1].tally.error) == (True, FLUSHED)
    one.engine.lag = 5.1  # type: ignore[attr-defined]
    one.maintain_all()
    assert one.roster.connected() == 0b101, "this process may have been stopped: it looks again"
    eventually(lambda: one.maintain_all() and not one.roster.connected(), "silent connections are closed")


def test_a_pause_of_this_process_is_no_silence(
    one: Connector, no_attempts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a machine on which each look is late does not hide a master that hangs."""
    for room in (connector, link):
        monkeypatch.setattr(room, "READ_WITHIN", 0.0)
    one.dialler.dial(0)
    one.engine.lag = 5.1  # type: ignore[attr-defined]
    for _ in range(MAX_PAUSES):
        assert one.roster.connected()
        one._run_by = 0.0
        one.maintain_all()
    assert one.roster.connected()
    one._run_by = 0.0
    one.maintain_all()
    assert not one.roster.connected()


def test_a_child_of_fork_has_another_connector(one: Connector, network: Network) -> None:
    one.dialler.dial(0)
    one.electorate.misconfigured = "wrong"
    one.monitor.client_state.after_fork_in_child()
    child = one.copy_after_fork()
    assert (one.monitor.ended(), child.monitor.ended()) == (True, False)
    assert (
        child.roster.connected(),
        child.roster.masters[0].guard.known,
        child.electorate.misconfigured,
    ) == (0, True, "wrong")
    assert child.engine is not one.engine
    child.policy.voters.mask = 0b110  # what the child has seen since
    network.servers["m2:6379/0"] = ConnectError("no")
    for master in (1, 2):  # by a thread that made the fork, or a copy of a greenlet: it must change nothing
        one.dialler.dial(master)
    assert not one.roster.masters[1].link.attached
    assert child.policy.voters.mask == 0b110
    for sock in child.engine.attached.values():  # type: ignore[attr-defined]
        sock.close()


def test_stopped_once(one: Connector) -> None:
    assert (one.stop(), one.stop()) == (True, False)
    one.start()
    assert not one.started


# --- a change of the masters --------------------------------------------------------------------------


def apply(one: Connector, lists: MasterLists) -> None:
    with one.monitor.mutex:
        one.electorate.apply(lists)


def test_a_master_leaves_when_nothing_is_left_to_send(
    one: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "LEAVE_AFTER", -60.0)
    for master in range(N):
        one.dialler.dial(master)
    lease = Lease(b"r", b"token", 0b100, 10.0, 10.0, 9.0)
    one.monitor.client_state.held.add(lease)
    apply(one, MasterLists(N, 0b011))
    assert one.policy.voters.asked() == 0b011
    one.maintain_all()
    assert one.roster.connected() == 0b111, "the lease may have its key there"
    one.monitor.client_state.held.remove(lease)
    one.maintain_all()
    assert (one.roster.connected(), one.roster.masters[2].gone) == (0b011, True)
    one.roster.masters[2].link.next_try = 0.0
    one.maintain_all()
    assert not one.roster.masters[2].link.connecting


def test_a_master_that_comes_back_is_no_first_contact(one: Connector) -> None:
    """It may have been restarted while it was in no list: then it has forgotten locks."""
    one.dialler.dial(2)
    before = one.roster.masters[2].server
    apply(one, MasterLists(N, 0b011))
    one.connections.retire(2, "it left")
    one.roster.masters[2].gone = True
    other, back = target("redis://m9"), target("redis://m2?socket_timeout=9")
    for lists, master in ([[back]], 2), ([[other, back]], 3):
        one.number(lists)
        state = one.roster.masters[master]
        assert (state.guard.known, state.server, state.link.attached) == (True, before, False)
        assert (state.gone, state.left_at, state.target) == (False, 0.0, back)
        state.gone = True


def test_no_connection_of_a_child_of_fork_votes_for_former_lists(one: Connector) -> None:
    former = one.policy.voters.lists
    apply(one, MasterLists(N, 0b011))
    one.monitor.client_state.after_fork_in_child()
    child = one.copy_after_fork()
    child.dialler.dial(0)
    assert former.unlisted == 0b001
    for sock in child.engine.attached.values():  # type: ignore[attr-defined]
        sock.close()


def test_a_child_of_fork_leaves_masters_of_a_change_under_way(one: Connector) -> None:
    one.number([[target("redis://m9")]])
    child = one.copy_after_fork()
    assert [state.left_at > 0 for state in child.roster.masters] == [False] * 3 + [True]
