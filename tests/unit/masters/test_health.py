"""The health of a master, from its state and its connection."""

from __future__ import annotations

import pytest

from redlock_fast.engine.contract import ConnectionState
from redlock_fast.masters.address import target
from redlock_fast.masters.health import health_of
from redlock_fast.masters.link import Link
from redlock_fast.masters.master import Master
from redlock_fast.masters.probe import Server
from redlock_fast.masters.restart_guard import MasterGuard


def connection(attached: bool = False, broken: str = "", lag: float = 0.0) -> ConnectionState:
    return ConnectionState(attached, broken, 0, lag, 0.0, 0, 0, 0, 0, 0)


def test_refused() -> None:
    """A master that refuses this user is not down: it is up, and its operator must act."""
    master = Master(target("redis://host:1/2"))
    master.on_failure("WRONGPASS invalid username-password pair", access_refused=True)
    health = health_of(master, connection(), ("masters",))
    assert (health.state, health.error) == ("refused", "WRONGPASS invalid username-password pair")
    master.on_failure("Connection refused")
    assert health_of(master, connection(), ("masters",)).state == "down"


@pytest.mark.parametrize(
    ("attached", "failures", "link", "state"),
    [
        (False, 0, connection(), "connecting"),
        (False, 2, connection(), "down"),
        (True, 0, connection(attached=True), "connected"),
        (True, 0, connection(attached=True, lag=0.2), "lagging"),
        (True, 0, connection(), "connecting"),  # the engine has it no more, and the connector will see it
    ],
)
def test_state(attached: bool, failures: int, link: ConnectionState, state: str) -> None:
    master = Master(target("redis://host:1/2"), Link(attached=attached, failures=failures))
    assert health_of(master, link, ("masters",)).state == state


def test_what_is_known_of_the_server() -> None:
    master = Master(
        target("redis://user:secret@host:1/2"), guard=MasterGuard(Server(kind="valkey", run_id="a"))
    )
    master.tally.causes["OOM"] += 2
    master.tally.skipped["lagging"] += 1
    master.tally.error = "before"
    health = health_of(master, connection(), ("masters",))
    assert (health.name, health.server, health.run_id, health.release_path) == ("host:1/2", "valkey", "a", "")
    assert (health.faults, health.causes, health.skipped) == (2, {"OOM": 2}, {"lagging": 1})
    assert health.error == "before"
    master.link.connections = 1
    health = health_of(master, connection(broken="reset"), ("masters",))
    assert (health.release_path, health.error) == ("EVALSHA", "reset")
