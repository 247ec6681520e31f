"""A Cluster as the only master: each name is decided by the primary of its slot, wherever that is."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients import Blocking, both_clients
from support.commands import Command
from support.inside import core_of
from support.python_process import PythonProcess
from support.waiting import eventually, start

from redlock_fast import ConfigError, Contended, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Cluster, Master
from redlock_fast.wire.slots import slot_of

MakeClient = Callable[..., Any]

#: Seconds. Guards of the tests are short, because ``max_ttl`` is.
MAX_TTL = 2.0
LONG = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Three primaries with a replica each, for all tests that leave it as it was."""
    with Cluster(server="valkey", password="") as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The shared Cluster, empty and complete again after the test."""
    yield running
    for node in running:
        node.resume()
        if node.pid is None:
            node.restart()
    running.wait_complete()
    for node in running.primaries():
        assert node.ask("FLUSHALL") == "+OK"


@pytest.fixture
def failing() -> Iterator[Cluster]:
    """One whose primaries the test kills: to a new client, those that are promoted give no vote for long."""
    with Cluster(server="valkey", password="") as cluster:
        yield cluster


def name_at(node: Master, cluster: Cluster, start: str = "n") -> str:
    """A name that ``node`` serves."""
    return next(name for name in (f"{start}{n}" for n in range(10_000)) if cluster.primary_of(name) is node)


def shard_of(client: Any, name: str) -> int:
    """The number of the shard that serves ``name``, as the client knows it."""
    topology = core_of(client).masters.connector.roster.masters[0].target.topology
    return int(topology.owners[slot_of(name.encode())]).bit_length() - 1


def other_than(node: Master, cluster: Cluster) -> Master:
    return next(one for one in cluster.primaries() if one is not node)


# --- what every kind of lock does -----------------------------------------------------------------


def usable(client: Any, lock: Any) -> Any:
    """``lock``, to be called without ``await``."""
    return Blocking(lock, client._loop) if isinstance(client, Blocking) else lock


KINDS: dict[str, Callable[[Any, str], Any]] = {
    "plain": lambda client, name: client.lock(name),
    "fenced": lambda client, name: client.lock(name, fencing=True),
    "fair": lambda client, name: client.lock(name, fair=True),
    "reader": lambda client, name: usable(client, client.rwlock(name).read()),
    "writer": lambda client, name: usable(client, client.rwlock(name).write()),
    "slot": lambda client, name: client.semaphore(name, 1),
    "several": lambda client, name: client.multilock([f"{{{name}}}-1", f"{{{name}}}-2"]),
}
AGAINST = {"reader": "writer", "writer": "reader"}


@both_clients
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_on_each_shard(cluster: Cluster, connected: MakeClient, kind: str) -> None:
    first, second = connected(cluster, ttl=LONG), connected(cluster, ttl=LONG)
    for node in cluster.primaries():
        name = name_at(node, cluster, kind)
        for holder, other in ((first, second), (second, first)):
            lock = KINDS[kind](holder, name)
            assert lock.acquire()
            assert node.ask("DBSIZE") != ":0"
            assert not KINDS[AGAINST.get(kind, kind)](other, name).acquire(blocking=False)
            assert lock.extend(LONG + 1) > LONG - 5
            assert lock.release()
    assert first.stats().unavailable == second.stats().unavailable == 0


@both_clients
def test_a_release_wakes_a_waiting_caller(cluster: Cluster, connected: MakeClient) -> None:
    first, second = connected(cluster, ttl=LONG), connected(cluster, ttl=LONG)
    held = first.lock("awaited")
    assert held.acquire()
    waiting = start(lambda: second.lock("awaited").acquire(timeout=LONG))
    eventually(lambda: cluster.primary_of("awaited").ask("CLIENT LIST") and not waiting.done(), "it waits")
    began = time.monotonic()
    assert held.release()
    assert waiting.result(LONG)
    assert time.monotonic() - began < LONG / 2, "it did not wait for the end of the lease"


@both_clients
def test_a_batch_goes_to_all_shards(cluster: Cluster, connected: MakeClient) -> None:
    client = connected(cluster, ttl=LONG)
    names = [f"batch{n}" for n in range(300)]
    taken = connected(cluster, ttl=LONG).acquire_many(names[:10])
    assert all(taken)
    locks = client.acquire_many(names)
    assert locks[:10] == [None] * 10
    assert all(locks[10:])
    assert [int(node.ask("DBSIZE")[1:]) > 50 for node in cluster.primaries()] == [True] * 3
    assert all(client.extend_many(locks[10:], LONG + 1))
    assert all(client.release_many(locks[10:]))


def test_a_kind_of_several_keys_needs_one_slot(cluster: Cluster, client: MakeClient) -> None:
    """Raised before any I/O: the client has no connection."""
    one = client(["redis+cluster://127.0.0.1:1"])
    with pytest.raises(ConfigError, match=r"one hash tag"):
        one.multilock(["a", "b"])
    for options in ({"fencing": True}, {"fair": True}):
        with pytest.raises(ConfigError, match="without braces"):
            one.lock("a{b}", **options)
    assert one.multilock(["{a}-1", "{a}-2"])


# --- failover -------------------------------------------------------------------------------------


@both_clients
def test_a_failover_gives_no_second_holder(failing: Cluster, connected: MakeClient) -> None:
    """The promoted primary has no vote for a while; then it grants the name, and the key of a holder that
    is gone has ended by its ttl.
    """
    client = connected(failing, ttl=MAX_TTL, max_ttl=MAX_TTL)
    held = client.lock("orphan")
    assert held.acquire()
    end = time.monotonic() + MAX_TTL
    old = failing.primary_of("orphan")
    promoted = failing.fail_over(old)
    number = shard_of(client, "orphan")
    eventually(lambda: client.health()[number].connections == 2, "the promoted primary is found")
    rival = connected(failing, ttl=MAX_TTL, max_ttl=MAX_TTL)
    if client.health()[number].guard > 1.0:
        with pytest.raises(QuorumUnavailable) as refused:
            client.lock("orphan").acquire(blocking=False)
        assert refused.value.reason == "guarded"
        assert refused.value.retry_after > 0
        with pytest.raises(QuorumUnavailable):
            rival.lock("orphan").acquire(blocking=False)
    others = [name_at(node, failing) for node in failing.primaries() if node is not promoted]
    for name in others:
        with client.lock(name):
            pass
    assert rival.lock("orphan").acquire(timeout=LONG)
    assert time.monotonic() > end, "not before the lease of the first holder has ended"


@both_clients
def test_a_dead_shard_hurts_only_its_names(client: MakeClient) -> None:
    with Cluster(3, 0, server="valkey", password="") as cluster:
        one = client(cluster, connect_timeout=2.0)
        names = [name_at(node, cluster) for node in cluster.primaries()]
        for name in names:
            with one.lock(name):
                pass
        cluster.primary_of(names[1]).kill()
        for _ in range(3):
            for name in (names[0], names[2]):
                with one.lock(name):
                    pass
        with pytest.raises(QuorumUnavailable) as error:
            one.lock(names[1]).acquire(timeout=0.5)
        assert len(error.value.causes) == 1, error.value
        new = client(cluster, connect_timeout=2.0)
        with new.lock(names[0]):
            pass


# --- slots that move ------------------------------------------------------------------------------


@both_clients
@pytest.mark.parametrize("kind", KINDS)
def test_a_held_lock_moves_with_its_slot(cluster: Cluster, connected: MakeClient, kind: str) -> None:
    client, other = connected(cluster, ttl=LONG), connected(cluster, ttl=LONG)
    name = f"moving-{kind}"
    lock = KINDS[kind](client, name)
    assert lock.acquire()
    source = cluster.primary_of(name)
    target = other_than(source, cluster)
    cluster.migrate(slot_of(name.encode()), target)
    try:
        assert not KINDS[AGAINST.get(kind, kind)](other, name).acquire(blocking=False)
        assert lock.extend(LONG + 1) > LONG - 5
        assert target.ask("DBSIZE") != ":0"
        assert lock.release()
        again = KINDS[AGAINST.get(kind, kind)](other, name)
        assert again.acquire(blocking=False)
        assert again.release()
    finally:
        cluster.migrate(slot_of(name.encode()), source)


@both_clients
def test_locks_of_a_slot_that_is_on_its_way(cluster: Cluster, connected: MakeClient) -> None:
    """A key that is there is served there; a new one is asked of the next primary (ASK)."""
    client = connected(cluster, ttl=LONG)
    held, new = client.lock("{moving}held"), client.lock("{moving}new")
    several = client.multilock(["{moving}-1", "{moving}-2"])
    assert held.acquire()
    source = cluster.primary_of("{moving}")
    target = other_than(source, cluster)
    with cluster.migrating(slot_of(b"moving"), target):
        assert held.extend(LONG + 1)
        assert new.acquire(blocking=False)
        assert target.ask("DBSIZE") != ":0"
        assert new.extend(LONG + 1)
        assert not client.lock("{moving}new").acquire(blocking=False)
        with pytest.raises(QuorumUnavailable, match="TRYAGAIN"):  # as the Cluster has it for several keys
            several.acquire(blocking=False)
        assert all(client.release_many(client.acquire_many(["{moving}a", "{moving}b"])))
    try:
        assert held.release()
        assert new.release()
        assert several.acquire(blocking=False)
        assert several.release()
    finally:
        cluster.migrate(slot_of(b"moving"), source)


@both_clients
def test_a_storm_of_moves(cluster: Cluster, connected: MakeClient) -> None:
    """A slot that goes to and fro under callers: every call is answered, and no two hold one name."""
    clients = [connected(cluster, ttl=LONG) for _ in range(2)]
    stop, inside, rounds = threading.Event(), [], []

    def contend(client: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(QuorumUnavailable), client.lock("stormy", timeout=LONG):
                inside.append(client)
                assert inside == [client]
                inside.clear()
                rounds.append(client)

    callers = [start(lambda client=client: contend(client)) for client in clients]
    first, *others = cluster.primaries()
    home = cluster.primary_of("stormy")
    for target in [*others, first] * 4:
        if cluster.primary_of("stormy") is not target:
            cluster.migrate(slot_of(b"stormy"), target)
        count = len(rounds)
        eventually(lambda count=count: len(rounds) > count + 5, "locks are granted there")
    stop.set()
    for caller in callers:
        caller.result(LONG)
    if cluster.primary_of("stormy") is not home:
        cluster.migrate(slot_of(b"stormy"), home)


@both_clients
def test_the_guard_of_a_shard_goes_with_a_slot(failing: Cluster, connected: MakeClient) -> None:
    """The promoted primary lacks the lock, and its slot moves to a primary that nobody suspects."""
    client = connected(failing, ttl=LONG, max_ttl=LONG)
    home = failing.primary_of("lost")
    replica = next(node for node in failing if replicates(node, home))
    replica._call("CONFIG", "SET", "masterauth", "wrong")
    home._call("CLIENT", "KILL", "TYPE", "replica")
    held = client.lock("lost")
    assert held.acquire()
    failing.fail_over(home)
    slot = slot_of(b"lost")
    failing.migrate(slot, other_than(failing.primary_of("lost"), failing))
    assert failing.primary_of("lost").ask("EXISTS lost") == ":0"
    eventually(lambda: not [one for one in client.health() if one.state != "connected"], "it is found")
    with pytest.raises(QuorumUnavailable) as error:
        client.lock("lost").acquire(blocking=False)
    assert error.value.reason == "guarded"
    assert client.acquire_many([name_at(failing.primary_of("lost"), failing)]) != [None]
    with pytest.raises(QuorumUnavailable):
        client.acquire_many(["lost"])


# --- a new primary, replicas, users ---------------------------------------------------------------


def test_a_client_follows_a_shard_that_is_new(connected: MakeClient) -> None:
    with Cluster(2, 1, server="valkey", password="") as cluster:
        client = connected(cluster, max_ttl=MAX_TTL, ttl=MAX_TTL)
        with client.lock("before"):
            pass
        extra = next(node for node in cluster if node not in cluster.primaries())
        assert extra.ask("CLUSTER RESET HARD") == "+OK"
        slot, others = slot_of(b"new"), cluster.primaries()

        def knows(one: Any, other: Any) -> bool:
            return other._call("CLUSTER", "MYID") in one._call("CLUSTER", "NODES")

        def met() -> bool:
            """On a busy machine a handshake may take longer than the nodes wait for it."""
            for one in others:
                if not (knows(one, extra) and knows(extra, one)):
                    extra.ask(f"CLUSTER MEET 127.0.0.1 {one.port} {one._bus}")
                    return False
            return True

        eventually(met, "it knows the primaries, and they know it")
        cluster.migrate(slot, extra)
        lock = client.lock("new")
        assert lock.acquire(timeout=LONG)
        assert extra.ask("DBSIZE") != ":0"
        assert lock.release()
        assert len(client.health()) == 3


@both_clients
def test_replicas_confirm_a_grant(failing: Cluster, connected: MakeClient) -> None:
    client = connected([f"{failing.url}?replicas=1"], ttl=LONG)
    lock = client.lock("confirmed")
    assert lock.acquire(timeout=LONG)
    assert lock.extend(LONG)
    assert lock.release()
    replica = next(node for node in failing if replicates(node, failing.primary_of("confirmed")))
    replica.kill()
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        client.lock("confirmed").acquire(blocking=False)


def replicates(node: Master, primary: Master) -> bool:
    text = node._call("INFO", "replication").decode()
    return "role:slave" in text and f"master_port:{primary.port}" in text


def test_a_user_with_a_password(client: MakeClient) -> None:
    acl = (Path(__file__).parents[3] / "deploy/valkey/users.acl").read_text()
    allowed = re.search(r"-@all(.*?)\n\n", acl, re.DOTALL)
    assert allowed is not None
    more = "+cluster|slots +cluster|info +asking"
    assert f"For a Cluster add {more}" in acl
    users = f"--user locks on >pass/word ~shop:* ~{{shop:* -@all {allowed[1]} {more}".split()
    with Cluster(2, 0, server="valkey", password="secret", options=users) as cluster:
        places = cluster.url.rpartition("@")[2]
        one = client([f"valkey+cluster://locks:pass%2Fword@{places}"], key_prefix="shop:")
        for name in ("a", "b", "c", "d"):
            with one.lock(name, fencing=True), one.rwlock(name).read():
                pass
        wrong = client([f"redis+cluster://locks:wrong@{places}"], connect_timeout=1.0)
        with pytest.raises(QuorumUnavailable, match="WRONGPASS"):
            wrong.lock("a").acquire(timeout=0.5)


def test_tls(tls_server: str, authority: Any, client: MakeClient) -> None:
    options = (*authority.server_options(), "--tls-cluster", "yes", "--tls-replication", "yes")
    with Cluster(2, 0, server=tls_server, password="", options=options) as cluster:
        places = cluster.url.rpartition("/")[2]
        one = client([f"rediss+cluster://{places}?ssl_ca_certs={authority.path('ca.crt')}"])
        for name in ("a", "b", "c", "d"):
            with one.lock(name):
                pass
        assert {master.state for master in one.health()} == {"connected"}


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+cluster://", "address of a node"),
        ("redis+cluster://a:1,", "an address is empty"),
        ("redis+cluster://a:0", "port"),
        ("redis+cluster://a:1/3", "one database, 0"),
        ("redis+cluster://a:1?db=3", "a Cluster has one, 0"),
        ("redis+cluster://a:1#f", "address of a node"),
        ("redis+cluster://u:p/w@a:1", "address of a node|port|one database"),
        ("redis+cluster://a:1?replicas=x", "replicas"),
    ],
)
def test_a_url_that_is_wrong(client: MakeClient, url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        client([url])
    assert "p/w" not in str(error.value)


@pytest.mark.parametrize(
    ("masters", "options", "why"),
    [
        (["redis+cluster://a:1", "redis://b"], {}, "only master"),
        (["redis+cluster://a:1", "redis+cluster://b:1"], {}, "only master"),
        (["redis+cluster://a:1"], {"joint_with": ["redis://b"]}, "only master"),
        (["redis+cluster://a:1"], {"restart_guard": "marker"}, "different slots"),
        (["redis+cluster://a:1"], {"check_masters": "strict"}, "check_masters"),
    ],
)
def test_settings_that_do_not_go_together(
    client: MakeClient, masters: list[str], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        client(masters, **options)


def test_a_cluster_is_never_replaced(client: MakeClient) -> None:
    one = client(["redis+cluster://127.0.0.1:1"])
    with pytest.raises(ConfigError, match="only master"):
        one.reconfigure(["redis+cluster://127.0.0.1:2"])


def test_the_environment_names_it(
    cluster: Cluster, engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", cluster.url)
    with FastRedlock.from_env(engine=engine_name) as one, one.lock("from-environment"):
        assert cluster.primary_of("from-environment").ask("EXISTS from-environment") == ":1"


# --- questions ------------------------------------------------------------------------------------


@both_clients
def test_who_holds_what(cluster: Cluster, connected: MakeClient) -> None:
    client = connected(cluster, ttl=LONG, key_prefix="app:")
    names = {f"held{n}" for n in range(20)}
    locks = [client.lock(name) for name in sorted(names)]
    assert all(lock.acquire() for lock in locks)
    assert {one.name for one in client.holders("held")} == names
    assert all(one.held for one in client.holders("held"))
    [found] = client.inspect("held7")
    assert found.held
    assert found.masters == 1
    assert client.locked("held7")
    assert len(client.break_lock("held7")) == 1
    assert not client.locked("held7")
    assert client.inspect("held7") == []
    with pytest.raises(Contended, match="already held, after"):
        client.lock("held8").acquire(blocking=True, timeout=0.2) or client.lock(
            "held8", timeout=0
        ).__enter__()


@both_clients
def test_a_shard_that_does_not_answer_is_no_empty_list(client: MakeClient) -> None:
    with Cluster(3, 0, server="valkey", password="") as cluster:
        one = client(cluster, connect_timeout=2.0)
        names = [name_at(node, cluster) for node in cluster.primaries()]
        for name in names:
            with one.lock(name):
                pass
        cluster.primary_of(names[1]).kill()
        with pytest.raises(QuorumUnavailable):
            one.holders(timeout=1.0)
        with pytest.raises(QuorumUnavailable):
            one.inspect(names[1], timeout=1.0)
        assert one.inspect(names[0], timeout=5.0) == []


# --- many processes -------------------------------------------------------------------------------

CONTENDER = """
import os, sys, time
from redlock_fast import FastRedlock
url, witness, engine, seconds = sys.argv[1:]
file = os.open(witness, os.O_RDWR)
with FastRedlock([url], engine=engine, ttl=30.0, node_timeout=5.0, connect_timeout=20.0) as client:
    end, rounds = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        for name in range(4):
            with client.lock(f"contended{name}", timeout=60.0):
                assert os.pread(file, 1, name) == b"-", "two holders"
                os.pwrite(file, b"X", name)
                os.pwrite(file, b"-", name)
                rounds += 1
print(rounds)
"""


def test_eight_processes(cluster: Cluster, engine_name: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    witness.write_bytes(b"-" * 4)
    script = tmp_path / "contender.py"
    script.write_text(CONTENDER)
    words = [sys.executable, str(script), cluster.url, str(witness), engine_name, "2"]
    contenders = [PythonProcess(words, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    counts = [int(one.communicate(timeout=120.0)[0]) for one in contenders]
    assert all(one.returncode == 0 for one in contenders)
    assert min(counts) > 0


# --- commands -------------------------------------------------------------------------------------


def test_commands_on_a_cluster(cluster: Cluster, connected: MakeClient, engine_name: str) -> None:
    command = Command(cluster, engine_name)

    def said(*words: str) -> Any:
        return json.loads(command.run(*words)[1])

    held = connected(cluster, ttl=LONG)
    names = [name_at(node, cluster, "command") for node in cluster.primaries()]
    assert all(held.lock(name).acquire() for name in names)
    for words in (["locks", "--json"], ["top", "--json", "--once"]):
        found = said(*words)
        assert {one["lock"] for one in found["locks"]} >= set(names)
        assert all(one["quorum"] for one in found["locks"])
        assert found["complete"]
    for name in names:
        assert said("break", "--yes", "--json", name)["broken"]
        assert not held.locked(name)
    status = said("status", "--json")
    assert status["usable"]
    assert len(status["masters"]) == 3
    bench = said("bench", "--json", "--seconds", "0.3")
    assert bench["one"]["failed"] == bench["tasks"]["failed"] == 0
    code, _, complaint = command.run("masters", "status")
    assert code == 64
    assert "has no list of masters" in complaint


@pytest.mark.parametrize(
    "words", [["locks"], ["top", "--json", "--once"], ["break", "--yes", "n"], ["status"]], ids=" ".join
)
def test_commands_without_a_node_fail(engine_name: str, words: list[str]) -> None:
    command = Command(None, engine_name)
    code, shown, complaint = command.run(*words, REDLOCK_FAST_MASTERS="redis+cluster://127.0.0.1:1")
    assert code == 69, (shown, complaint)
    assert "no node of the Cluster answers" in shown + complaint
    assert "Traceback" not in complaint
