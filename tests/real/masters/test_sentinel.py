"""Masters that Sentinels look after: found by each connect, failed over, and what Sentinels may reply."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.inside import core_of
from support.scripted import Words
from support.sentinel import QUICK_REPLICATION, ScriptedSentinel, Sentinel, master_reply
from support.waiting import eventually

from redlock_fast import ConfigError, FastRedlock, LockLost, QuorumUnavailable, TooManyExtensions
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

TTL = 30.0
#: What a master behind Sentinels has to have.
CAUTIOUS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "3")


@pytest.fixture(params=["valkey", "redis"])
def pair(request: pytest.FixtureRequest) -> Iterator[Masters]:
    """A master and its replica; ``valkey`` and ``redis`` both have a Sentinel in the same binary."""
    try:
        fleet = Masters(2, server=request.param, options=[*QUICK_REPLICATION, *CAUTIOUS])
    except ConfigError as missing:
        pytest.skip(str(missing))
    with fleet:
        assert fleet[1].ask(f"REPLICAOF 127.0.0.1 {fleet[0].port}") == "+OK"
        eventually(lambda: fleet[0].ask("WAIT 1 100") == ":1", "it replicates")
        yield fleet


@pytest.fixture
def sentinel(pair: Masters, tmp_path: Path) -> Iterator[Sentinel]:
    with Sentinel(pair.binary, tmp_path, "locks", pair[0]) as running:
        eventually(lambda: running.knows_replicas() == 1, "the Sentinel has found the replica")
        yield running


def comes_back(pair: Masters) -> None:
    """The old master, as a replica: without one the new one takes no writes."""
    pair[0].restart()
    assert pair[0].ask(f"REPLICAOF 127.0.0.1 {pair[1].port}") == "+OK"


def master_state(client: Any) -> Any:
    """What is known of the master that a Sentinel looks after: the first."""
    return client.health()[0]


def test_a_failover_is_a_restart(
    valkey: Masters, pair: Masters, sentinel: Sentinel, connected: MakeClient
) -> None:
    """Locks go on over the others; the promoted replica is found, kept out for max_ttl, and then votes."""
    where = [sentinel.url("/0"), *valkey.urls[:2]]
    client = connected(where, max_ttl=1.0, ttl=1.0)
    name, before = f"locks@127.0.0.1:{sentinel.port}/0", master_state(client).run_id
    assert master_state(client).name == name

    def voted() -> bool:
        lock = client.lock("before")
        assert lock.acquire()
        found = pair[0].ask("EXISTS before") == ":1"
        lock.release()
        return found

    eventually(voted, "its master has the lock, too")
    pair[0].kill()
    eventually(lambda: sentinel.master() == pair[1].port, "the Sentinel promotes the replica")
    eventually(lambda: master_state(client).connections == 2, "it is found")
    assert master_state(client).run_id not in ("", before)
    assert master_state(client).guard > 0
    with client.lock("during"):
        if master_state(client).guard > 0:
            assert pair[1].ask("EXISTS during") == ":0", "it is not asked"
    comes_back(pair)

    eventually(lambda: not master_state(client).guard, "the guard ends")

    def asked_again() -> bool:
        with client.lock("after"), contextlib.suppress(ConnectionError):  # Sentinels end connections
            return pair[1].ask("EXISTS after") == ":1"
        return False

    eventually(asked_again, "it votes again")


def test_a_marker_notices_a_failover(pair: Masters, sentinel: Sentinel, connected: MakeClient) -> None:
    """Also a client that never saw the old master: the marker that was copied is another process's."""
    client = connected([sentinel.url()], restart_guard="marker", assume_fresh=True, max_ttl=TTL)
    assert client.acquire("r", 20)
    eventually(lambda: pair[0].ask("WAIT 1 1000") == ":1", "the replica has it")
    pair[0].kill()
    eventually(lambda: sentinel.master() == pair[1].port, "the Sentinel promotes the replica")
    comes_back(pair)
    new_client = connected([sentinel.url()], restart_guard="marker", max_ttl=TTL)
    with pytest.raises(QuorumUnavailable):
        new_client.acquire("other", 20, blocking=False)


@pytest.mark.parametrize("guard", ["auto", "durable", "strict", "marker"])
def test_a_replica_that_is_promoted_before_it_has_data(
    tmp_path: Path, connected: MakeClient, guard: str
) -> None:
    """It does not show that it was a replica; its Sentinels say to a new process that they promoted one."""
    with Masters(3, options=[*QUICK_REPLICATION, *CAUTIOUS]) as fleet:
        old, empty, other = fleet
        # The old master takes writes while a replica follows it. The Sentinel does not choose that one.
        assert other.ask("CONFIG SET replica-priority 0") == "+OK"
        assert other.ask(f"REPLICAOF 127.0.0.1 {old.port}") == "+OK"
        eventually(lambda: old.ask("WAIT 1 100") == ":1", "it replicates")
        assert old.ask("CONFIG SET repl-diskless-sync-delay 3600") == "+OK"
        assert empty.ask(f"REPLICAOF 127.0.0.1 {old.port}") == "+OK"
        with Sentinel(fleet.binary, tmp_path, "locks", old) as sentinel:
            eventually(lambda: sentinel.knows_replicas() == 2, "the Sentinel has found the replicas")
            options: dict[str, Any] = {"restart_guard": guard, "max_ttl": TTL}
            lock = connected([sentinel.url()], assume_fresh=guard in ("strict", "marker"), **options).acquire(
                "r", 20
            )
            assert lock
            old.kill()
            eventually(lambda: sentinel.master() == empty.port, "the Sentinel promotes it", deadline=60.0)
            eventually(lambda: empty.ask("SET writable 1") == "+OK", "it takes writes", deadline=60.0)
            with contextlib.suppress(QuorumUnavailable):
                granted = connected([sentinel.url()], **options).acquire("r", 20, blocking=False)
                assert not (granted and lock.remaining()), "two holders"


def test_a_sentinel_of_many_services(valkey: Masters, tmp_path: Path, connected: MakeClient) -> None:
    """Catches: to ask for all services, which is a longer reply than a client reads."""
    with Sentinel(valkey.binary, tmp_path, "locks", valkey[0], others=300) as sentinel:
        assert connected([sentinel.url()], allow_split=True).acquire("r")


# --- what Sentinels may say ---------------------------------------------------------------------------


def saying(reply: bytes | None) -> Callable[[Words], bytes | None]:
    return lambda words: reply


def url(*ports: int, rest: str = "/locks", login: str = "") -> str:
    return f"redis+sentinel://{login}{','.join(f'127.0.0.1:{port}' for port in ports)}{rest}"


def refusal(client: FastRedlock) -> str:
    """Why its only master cannot be used."""
    client.connect(0.01)
    eventually(lambda: master_state(client).state == "down", "connecting has failed")
    with pytest.raises(QuorumUnavailable) as caught:
        client.lock("r").acquire(blocking=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"-ERR No such master with that name\r\n", "No such master with that name"),
        (master_reply("locks", 1, "master,s_down"), "is down"),
        (master_reply("locks", 1, "slave"), "is down"),
        (b"-ERR unknown command 'SENTINEL'\r\n", "unknown command"),
        (b"-NOAUTH Authentication required.\r\n", "NOAUTH|Authentication"),
        (b"$-1\r\n", ""),
        (b":7\r\n", ""),
        (b"*0\r\n", ""),
        (b"*2\r\n$4\r\nname\r\n$5\r\nlocks\r\n", ""),
        (b"*2147483647\r\n", ""),
        (b"junk\r\n", ""),
        (None, ""),
    ],
)
def test_what_is_no_master_is_a_vote(client: MakeClient, reply: bytes | None, expected: str) -> None:
    with ScriptedSentinel(saying(reply)) as scripted:
        text = refusal(client([url(scripted.port)], connect_timeout=2.0))
    assert f"no Sentinel has a master for 'locks': 127.0.0.1:{scripted.port}: " in text
    assert not expected or any(word in text for word in expected.split("|"))
    assert len(text) < 1000


def test_a_dead_sentinel_is_a_vote(valkey: Masters, client: MakeClient) -> None:
    with ScriptedSentinel(saying(None)) as scripted:
        dead = scripted.port
    one = client([url(dead), *valkey.urls[:2]])
    with one.lock("r"):
        pass
    assert "127.0.0.1" in master_state(one).error


def test_the_next_sentinel_is_asked(valkey: Masters, connected: MakeClient) -> None:
    """One is down, one has no such master, one refuses; the last one answers."""
    with contextlib.ExitStack() as stack:
        replies = [None, b"*0\r\n", b"-ERR no\r\n", master_reply("locks", valkey[0].port)]
        asked = [stack.enter_context(ScriptedSentinel(saying(reply))) for reply in replies]
        one = connected([url(*(sentinel.port for sentinel in asked))], allow_split=True)
        with one.lock("r"):
            assert valkey[0].ask("EXISTS r") == ":1"


def test_a_stale_sentinel_is_not_believed(pair: Masters, connected: MakeClient, client: MakeClient) -> None:
    """It names a replica, which says so itself; the next time another Sentinel is asked first."""
    stale, fresh = master_reply("locks", pair[1].port), master_reply("locks", pair[0].port)
    with ScriptedSentinel(saying(stale)) as behind, ScriptedSentinel(saying(fresh)) as right:
        assert "not a master" in refusal(client([url(behind.port)]))
        # Without the guard, because that master was promoted in an earlier test.
        assert connected([url(behind.port, right.port)], restart_guard="off").acquire("r")
    assert pair[0].ask("EXISTS r") == ":1"


def test_masters_and_sentinels_have_separate_logins(client: MakeClient) -> None:
    """The login in front is the master's; the Sentinels have their own, and TLS of the master's kind."""
    options = ("--requirepass", "for-master")
    with Masters(1, options=options) as masters:
        reply = master_reply("locks", masters[0].port)
        with ScriptedSentinel(saying(reply)) as scripted:
            rest = "/locks?sentinel_username=me&sentinel_password=for-sentinel"
            one = client([url(scripted.port, rest=rest, login=":for-master@")], allow_split=True)
            with one.lock("r"):
                pass
    heard = [words for words in scripted.heard if words[0] == b"AUTH"]
    assert heard == [(b"AUTH", b"me", b"for-sentinel")]


def test_one_service_is_one_master(valkey: Masters, client: MakeClient) -> None:
    """Not twice by the same Sentinels; and not by the master's own address besides."""
    with pytest.raises(ConfigError, match="one server"):
        client([url(1, 2), url(2, 1)])
    with ScriptedSentinel(saying(master_reply("locks", valkey[0].port))) as scripted:
        one = client([url(scripted.port), valkey[0].url], connect_timeout=2.0, allow_split=True)
        with contextlib.suppress(ConfigError):
            one.connect(0.01)
        eventually(lambda: core_of(one).masters.connector.electorate.misconfigured, "it is found out")
        with pytest.raises(ConfigError, match="the same server"):
            one.acquire("r")


# --- partitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("forbidden", [False, True])
def test_a_master_that_writes_alone_is_no_master(
    valkey: Masters, client: MakeClient, raw: Callable[[Masters], list[redis.Redis]], forbidden: bool
) -> None:
    """With its replicas on the other side of a partition it would grant what the promoted one grants, too."""
    node, login = raw(valkey)[0], ""
    if forbidden:
        login = "blind:x@"
        node.acl_setuser("blind", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
    try:
        with ScriptedSentinel(saying(master_reply("locks", valkey[0].port))) as scripted:
            where = [url(scripted.port, login=login), *valkey.urls[1:3]]
            one = client(where)
            with contextlib.suppress(ConfigError):
                one.connect(0.01)
            eventually(lambda: core_of(one).masters.connector.electorate.misconfigured, "it is found out")
            with pytest.raises(ConfigError, match="min-replicas-to-write"):
                one.acquire("r")
            assert client(where, allow_split=True).acquire("r")
    finally:
        node.acl_deluser("blind")


@pytest.fixture
def three() -> Iterator[Masters]:
    """A master and two replicas."""
    with Masters(3, options=[*QUICK_REPLICATION, *CAUTIOUS]) as fleet:
        for replica in (1, 2):
            assert fleet[replica].ask(f"REPLICAOF 127.0.0.1 {fleet[0].port}") == "+OK"
        eventually(lambda: fleet[0].ask("WAIT 2 100") == ":2", "both follow", deadline=60.0)
        yield fleet


@pytest.mark.parametrize("mode", ["auto", "marker"])
def test_one_clean_partition(three: Masters, connected: MakeClient, mode: str) -> None:
    """{A, the master, a Sentinel} and {B, the replicas, Sentinels}: B gets nothing that A holds."""
    options: dict[str, Any] = {"restart_guard": mode, "max_ttl": 5.0, "ttl": 5.0}
    there = three[0].port
    here = master_reply("locks", three[0].port)
    with (
        ScriptedSentinel(lambda words: here) as a_side,
        ScriptedSentinel(lambda words: master_reply("locks", there)) as b_side,
    ):
        holder = connected([url(a_side.port)], assume_fresh=mode == "marker", **options)
        thief = connected([url(b_side.port)], **options)
        lock = holder.acquire("r")
        assert lock
        assert three[1].ask("REPLICAOF NO ONE") == "+OK"
        assert three[2].ask(f"REPLICAOF 127.0.0.1 {three[1].port}") == "+OK"
        # As if the partition had been before the lock. Until it has a replica, it takes no writes.
        eventually(lambda: three[1].ask("DEL r").startswith(":"), "it has forgotten", deadline=60.0)
        there = three[1].port
        eventually(
            lambda: master_state(thief).connections > 1, "the Sentinels are asked again", deadline=60.0
        )

        def over() -> bool:
            """A renews as long as it can; B tries all the time."""
            with contextlib.suppress(LockLost, QuorumUnavailable, TooManyExtensions):
                lock.extend()
            try:
                granted = thief.acquire("r", blocking=False)
            except QuorumUnavailable:
                granted = None
            assert not (granted and lock.remaining()), "two holders"
            return granted is not None

        eventually(over, "B gets it in the end", deadline=60.0)
