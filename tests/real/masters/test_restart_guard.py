"""The restart guard on real servers that really forget: killed without a file, flushed, or with an AOF."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from support.event_loops import Plain
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.proxy import Proxy, Reconnecting
from support.waiting import DEADLINE, answered, eventually

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
MakePlain = Callable[..., Plain]
Raw = Callable[[Masters], list[redis.Redis]]

TTL = 30.0
AOF = ["--appendonly", "yes", "--appendfsync", "always"]


@pytest.fixture(scope="module")
def with_aof() -> Iterator[Masters]:
    with Masters(3, options=AOF) as masters:
        yield masters


@pytest.fixture
def durable(with_aof: Masters) -> Masters:
    """Three masters that forget nothing over a restart; empty."""
    for master in with_aof:
        assert master.ask("FLUSHALL").startswith("+OK")
    return with_aof


def restart(masters: Masters, *numbers: int) -> None:
    for number in numbers:
        masters[number].kill()
        masters[number].restart()


def back(c: FastRedlock, *numbers: int, connections: int = 2) -> None:
    def there() -> bool:
        health = c.health()
        return all(health[n].connections == connections and health[n].state == "connected" for n in numbers)

    eventually(there, "it is connected again")


def guarded(c: FastRedlock) -> list[bool]:
    return [master.guard > 0 for master in c.health()]


def granted(acquire: Callable[[], object]) -> bool:
    """Whether ``acquire`` grants; False also where the masters leave no quorum."""
    try:
        return acquire() is not None
    except QuorumUnavailable:
        return False


def first(c: FastRedlock) -> object:
    return c.acquire_many(["r"], TTL)[0]


# --- auto --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "strict", "off"])
def test_a_quorum_that_forgot_grants_nothing(valkey: Masters, connected: MakeClient, mode: str) -> None:
    """The document's crash scenario: with the guard off, the very same steps give two holders."""
    options = {"restart_guard": mode if mode == "off" else "auto", "max_ttl": TTL}
    holder, thief = connected(valkey, **options), connected(valkey, **options)
    lock = holder.acquire("r", TTL)
    assert lock
    restart(valkey, 0, 1, 2)
    if mode == "strict":
        thief = connected(valkey, restart_guard="strict", max_ttl=3600.0)  # it never saw the others
    else:
        back(thief, 0, 1, 2)
    if mode == "off":
        assert thief.acquire("r", TTL, blocking=False), "the test can see what the guard is for"
        assert lock.locked()
        return
    expected = [True] * (5 if mode == "strict" else 3) + [False] * (0 if mode == "strict" else 2)
    assert guarded(thief) == expected
    with pytest.raises(QuorumUnavailable, match="may have forgotten locks: no vote for"):
        thief.acquire("r", TTL, blocking=False)
    with pytest.raises(QuorumUnavailable):
        thief.acquire_many(["r", "other"], TTL)
    with pytest.raises(QuorumUnavailable):
        thief.locked("r")
    assert lock.locked()


def test_a_minority_that_forgot_is_passed_over(
    masters: Masters, plain: MakePlain, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """Locks are granted by the others; the guarded are sent nothing; when it ends they vote again."""
    c = plain(masters, restart_guard="auto", max_ttl=3.0, ttl=2.0).at_full_strength()
    nodes = raw(masters)
    restart(masters, 3, 4)
    eventually(lambda: [m.connections for m in c.client.health()][3:] == [2, 2], "they are back")
    # Logged by the thread that connected it, once it has released the mutex of the masters.
    eventually(lambda: "master-guarded" in caplog.text, "it is logged")
    for number in range(10):
        lock = c.acquire(f"during:{number}", 2.0)
        assert lock
        if sum(master.guard > 0 for master in c.client.health()) == 2:
            assert nodes[3].exists(lock.resource) == nodes[4].exists(lock.resource) == 0
        c.wait(lock.release())
    eventually(lambda: not any(m.guard for m in c.client.health()), "the guard ends")

    def everywhere() -> bool:
        lock = c.acquire("after", 2.0)
        found = [node.exists("after") for node in nodes]
        c.wait(lock.release())
        return found == [1] * 5

    eventually(everywhere, "they are asked again")


def test_a_connection_that_breaks_is_no_restart(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    c = connected(valkey)
    for node in raw(valkey):
        node.client_kill_filter(_type="normal", skipme=True)
    back(c, *range(5))
    assert guarded(c) == [False] * 5
    assert c.acquire("r", TTL)


def test_a_master_with_an_aof_for_every_write_has_forgotten_nothing(
    durable: Masters, connected: MakeClient
) -> None:
    holder = connected(durable, restart_guard="durable")
    assert {master.persistence for master in holder.health()} == {"aof always"}
    thief = connected(durable, restart_guard="durable")
    lock = holder.acquire("r", TTL)
    assert lock
    restart(durable, 0, 1, 2)
    back(thief, 0, 1, 2)
    back(holder, 0, 1, 2)
    assert guarded(thief) == [False] * 3
    assert thief.acquire("r", TTL, blocking=False) is None
    lock.extend(TTL)
    assert lock.release()
    assert thief.acquire("r", TTL, blocking=False)


@needs_fork
def test_a_child_of_fork_knows_what_its_parent_saw(valkey: Masters, connected: MakeClient) -> None:
    c = connected(valkey, max_ttl=TTL)
    restart(valkey, 0, 1, 2)
    back(c, 0, 1, 2)

    def child() -> None:
        assert c.connect()
        eventually(lambda: all(m.state == "connected" for m in c.health()), "the child connects")
        assert guarded(c) == [True, True, True, False, False]
        with pytest.raises(QuorumUnavailable):
            c.acquire("r", TTL, blocking=False)

    assert exit_code(fork_child(child)) == 0


# --- marker --------------------------------------------------------------------------------------------


def test_a_cluster_without_markers_is_silent_for_the_longest_lease(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    c = plain(masters, restart_guard="marker", max_ttl=1.5, ttl=1.0)
    began = time.monotonic()
    lock = c.acquire("r", 1.0, timeout=20.0)
    assert lock
    assert time.monotonic() - began >= 1.5
    nodes = raw(masters)
    eventually(lambda: all(node.get("redlock-fast:marker") for node in nodes), "all have a marker")
    c.wait(lock.release())
    second = plain(masters, restart_guard="marker", max_ttl=1.5, ttl=1.0)
    other = answered(lambda: second.acquire("r", 1.0, blocking=False))
    assert other, "the marker is there for all clients"


def test_a_new_cluster_may_be_called_fresh(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters, restart_guard="marker", assume_fresh=True, max_ttl=TTL)
    lock = c.acquire("r", TTL, blocking=False)
    assert lock
    c.wait(lock.extend(TTL))
    assert c.wait(lock.release())
    assert all(c.acquire_many([f"many:{n}" for n in range(50)], TTL))


@pytest.mark.parametrize("trouble", ["flushed", "restarted"])
def test_masters_that_forgot_refuse_all_clients(
    masters: Masters, connected: MakeClient, client: MakeClient, trouble: str
) -> None:
    """Also clients that were connected all the time (flushed), and those that connect for the first time."""
    options: dict[str, Any] = {"restart_guard": "marker", "max_ttl": TTL}
    holder = connected(masters, assume_fresh=True, **options)
    lock = holder.acquire("r", TTL)
    assert lock
    old = connected(masters, **options)
    assert old.acquire("other", TTL)
    if trouble == "restarted":
        restart(masters, 0, 1, 2)
        back(holder, 0, 1, 2)  # the holder assumed fresh masters only at the first connection
        back(old, 0, 1, 2)
    else:
        for number in range(3):
            assert masters[number].ask("FLUSHALL").startswith("+OK")
    for thief in (old, client(masters, **options)):
        assert not granted(partial(thief.acquire, "r", TTL, blocking=False))
        assert not granted(partial(first, thief))
        with pytest.raises(QuorumUnavailable, match=r"may have forgotten|keys were flushed"):
            thief.acquire("free", TTL, blocking=False)
    assert lock.locked()


def test_a_restart_behind_a_proxy_that_connects_again(masters: Masters, connected: MakeClient) -> None:
    """No connection of a client ends. Catches: a process that is only compared when a client connects."""
    options: dict[str, Any] = {"restart_guard": "marker", "max_ttl": TTL}
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(Reconnecting(master.port)).url for master in masters]
        holder, thief = connected(urls, assume_fresh=True, **options), connected(urls, **options)
        lock = holder.acquire("r", TTL)
        assert lock
        assert thief.acquire("other", TTL)
        restart(masters, 0, 1, 2)
        assert [master.connections for master in thief.health()] == [1] * 5
        assert not granted(partial(thief.acquire, "r", TTL, blocking=False))
        assert lock.locked()


def test_a_marker_that_survived_with_the_data_is_another_process(
    durable: Masters, connected: MakeClient
) -> None:
    """The disk may be an older one."""
    options: dict[str, Any] = {"restart_guard": "marker", "max_ttl": TTL}
    c = connected(durable, assume_fresh=True, **options)
    lock = c.acquire("r", TTL)
    assert lock
    restart(durable, 0, 1, 2)
    with pytest.raises(QuorumUnavailable, match="may have forgotten"):
        connected(durable, **options).acquire("free", TTL, blocking=False)
    assert lock.release()


def test_a_client_that_may_not_see_the_run_id_uses_the_marker(
    valkey: Masters, client: MakeClient, raw: Raw
) -> None:
    for node in raw(valkey):
        node.acl_setuser(
            "limited",
            enabled=True,
            nopass=True,
            keys=["*"],
            commands=["+@all", "-info", "-config", "-role"],
        )
    try:
        urls = [url.replace("redis://", "redis://limited:x@") for url in valkey.urls]
        c = client(urls, restart_guard="marker", assume_fresh=True, max_ttl=TTL)
        lock = c.acquire("r", TTL, blocking=False)
        assert lock
        assert {master.run_id + master.persistence + master.eviction for master in c.health()} == {""}
        for number in range(3):
            assert valkey[number].ask("FLUSHALL").startswith("+OK")
        with pytest.raises(QuorumUnavailable):
            client(urls, restart_guard="marker", max_ttl=TTL).acquire("r", TTL, blocking=False)
    finally:
        for node in raw(valkey):
            node.acl_deluser("limited")


# --- error texts and log ---------------------------------------------------------------------------------


def test_one_server_has_one_vote(valkey: Masters, client: MakeClient) -> None:
    """Behind three names it would be a quorum; and not only until another master is connected."""
    with Proxy(valkey[0].port) as twin, Proxy(valkey[1].port) as other:
        other.refusing = True
        c = client([valkey.urls[0], twin.url, valkey.urls[0].replace("127.0.0.1", "localhost"), other.url])

        def refused() -> bool:
            try:
                c.lock("r", TTL).acquire(blocking=False)
            except ConfigError:
                return True
            except QuorumUnavailable:  # not all names have been tried yet
                pass
            return False

        eventually(refused, "all names have been tried")
        other.refusing = False
        eventually(lambda: c.health()[3].connections == 1, "the other master is there")
        for _ in range(3):
            with pytest.raises(ConfigError, match="same server"):
                c.acquire("r", TTL, blocking=False)


@pytest.mark.parametrize("database", [0, 1])
def test_a_duplicate_costs_one_vote_where_the_others_are_a_quorum(
    masters: Masters, client: MakeClient, database: int
) -> None:
    """Under another name, and as another database."""
    c = client([*masters.urls[:2], f"{masters.urls[0].replace('127.0.0.1', 'localhost')}/{database}"])
    c.connect()
    eventually(lambda: any("same server" in m.error for m in c.health()), "it is found out")
    lock = c.acquire("r", TTL)
    assert lock
    assert sum(m.state == "connected" for m in c.health()) == 2
    masters[1].kill()
    with pytest.raises(QuorumUnavailable):
        c.acquire("other", TTL, blocking=False)


def test_warnings_name_the_masters_that_could_forget(
    valkey: Masters, connected: MakeClient, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "redlock_fast")
    evicting = raw(valkey)[1]
    evicting.config_set("maxmemory", "1gb")
    evicting.config_set("maxmemory-policy", "allkeys-lru")
    try:
        c = connected(valkey, restart_guard="off")
        assert [master.eviction for master in c.health()] == [
            "noeviction", "allkeys-lru", "noeviction", "noeviction", "noeviction",
        ]  # fmt: skip
        assert {master.persistence for master in c.health()} == {"no aof"}

        def warned(words: str) -> int:
            text = [r.getMessage() for r in caplog.records if "master-may-forget" in r.getMessage()]
            return sum(words in line for line in text)

        eventually(lambda: warned("a restart loses locks (no aof)") == 4, "those that a restart makes forget")
        eventually(lambda: warned("allkeys-lru may evict locks") == 1, "and the one that evicts")
    finally:
        evicting.config_set("maxmemory-policy", "noeviction")
        evicting.config_set("maxmemory", "0")


@pytest.mark.parametrize(("mode", "warned"), [("auto", True), ("off", False)])
def test_a_master_that_does_not_show_its_identity(
    valkey: Masters,
    connected: MakeClient,
    raw: Raw,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    warned: bool,
) -> None:
    """Its reconnects count as restarts, for better safe than sorry: that must not be a surprise."""
    caplog.set_level(logging.INFO, "redlock_fast")
    name, user = valkey[0].url.removeprefix("redis://"), f"anonymous-{mode}"
    raw(valkey)[0].acl_setuser(
        user, enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-info"]
    )
    c = connected([f"redis://{user}:secret@{name}", *valkey.urls[1:]], restart_guard=mode)
    assert [bool(master.run_id) for master in c.health()] == [False, True, True, True, True]
    eventually(lambda: connections_of(valkey, caplog) == 5, "and logged it")

    def found() -> list[bool]:
        lines = [r.getMessage() for r in caplog.records if "master-anonymous" in r.getMessage()]
        return [name in line for line in lines]

    eventually(lambda: found() == [True] * warned, "it is warned of once")


def test_a_promoted_replica_may_have_missed_what_its_master_promised(
    connected: MakeClient, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    options = ["--repl-diskless-sync-delay", "0"]
    with Masters(3, options=options) as masters, caplog.at_level(logging.INFO, "redlock_fast"):
        nodes = raw(masters)
        promote(masters, nodes)

        def old() -> bool:
            return all(node.info("server")["uptime_in_seconds"] >= 5 for node in nodes)

        eventually(old, "none is silent for its uptime")
        connected(masters, restart_guard="strict", max_ttl=3.0, ttl=1.0)

        def connection_events() -> list[str]:
            return [r.getMessage() for r in caplog.records if "master-guarded" in r.getMessage()]

        eventually(lambda: connections_of(masters, caplog) == 3 and connection_events(), "and logged it")
        assert [str(masters[1].port) in line for line in connection_events()] == [True]


def connections_of(masters: Masters, caplog: pytest.LogCaptureFixture) -> int:
    """How often clients have connected to these masters; clients of other tests connect to others."""
    return sum(caplog.text.count(f"master-connected: master 127.0.0.1:{one.port}/") for one in masters)


def promote(masters: Masters, nodes: list[redis.Redis]) -> None:
    """The second was the first's replica for a moment."""
    assert nodes[1].replicaof("127.0.0.1", masters[0].port)
    eventually(lambda: nodes[1].info("replication")["master_link_status"] == "up", "it follows")
    assert nodes[1].replicaof("NO", "ONE")


def test_a_guard_that_was_restarted_is_not_ended(valkey: Masters, connected: MakeClient) -> None:
    """Catches: the connector, which saw that a guard had ended, takes away that of the next restart."""
    connector = core_of(connected(valkey.urls)).masters.connector
    master_state = connector.roster.masters[0]
    now, me = time.monotonic(), threading.get_ident()

    class Mutex(contextlib.AbstractContextManager[None]):
        """Before the connector has it, the master is admitted once more."""

        def __enter__(self) -> None:
            mutex.acquire()
            if threading.get_ident() == me:
                master_state.guard.until = now + 60.0
                connector.electorate.update()

        def __exit__(self, *_: object) -> None:
            mutex.release()

    mutex = connector.monitor.mutex

    master_state.guard.until = now
    connector.monitor.mutex = Mutex()  # type: ignore[assignment]
    connector.electorate.end_guard(master_state, now)
    assert master_state.guard.until == now + 60.0
    assert not connector.policy.voters.mask & 1


def test_a_flush_is_not_forgotten_when_another_thread_detaches(
    valkey: Masters, connected: MakeClient
) -> None:
    """Catches: another thread detaches the master before the connector has seen why its connection broke."""
    connector = core_of(connected(valkey.urls)).masters.connector
    master_state, looked, away = connector.roster.masters[0], connector.maintain_all, threading.Event()

    def look_away() -> float:
        away.set()
        return 0.01

    connector.maintain_all = look_away  # type: ignore[method-assign]
    connector.monitor.wake()
    assert away.wait(DEADLINE)
    assert valkey[0].ask("FLUSHALL").startswith("+OK")

    def broken() -> bool:
        connector.engine.maintain()
        return bool(connector.engine.connection_state(0).broken)

    eventually(broken, "the flush is reported")
    connector.connections.give_up(0, "another reason")
    assert master_state.guard.flushed
    connector.maintain_all = looked  # type: ignore[method-assign]
