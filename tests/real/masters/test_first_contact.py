"""What a client knows of a master at its first contact: that it was down, loading or promoted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.proxy import Proxy
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

LEASE = 30.0
#: A server reads so many commands of its log for some seconds, and answers after each 1024 of them.
COMMANDS, LOAD_DELAY = 30_000, 100


def granted(client: FastRedlock, name: str = "r") -> bool:
    try:
        return client.acquire(name, LEASE, blocking=False) is not None
    except QuorumUnavailable:
        return False


def state(client: FastRedlock, number: int) -> str:
    return client.health()[number].state


def guard(client: FastRedlock, number: int) -> float:
    return client.health()[number].guard


def old_enough(node: redis.Redis, seconds: int) -> None:
    eventually(
        lambda: int(str(node.info("server")["uptime_in_seconds"])) >= seconds,
        f"it is {seconds} s old",
        deadline=60.0,
    )


@pytest.mark.parametrize("mode", ["auto", "durable"])
def test_a_master_that_came_up_after_a_failed_attempt_was_restarted(
    masters: Masters, client: MakeClient, connected: MakeClient, mode: str
) -> None:
    """Three masters. A holds on a bare quorum; one of the two is down when B starts, and comes back empty."""
    urls = masters.urls[:3]
    holder, thief = connected(urls, max_ttl=LEASE), client(urls, max_ttl=LEASE, restart_guard=mode)
    masters[2].kill()
    eventually(lambda: state(holder, 2) == "down", "A has lost one master")
    lock = holder.acquire("r", LEASE)
    assert lock
    masters[1].kill()
    masters[2].restart()
    thief.connect()
    eventually(lambda: state(thief, 1) == "down", "B has tried in vain")
    eventually(lambda: state(thief, 2) == "connected", "B has a quorum")
    assert granted(thief, "other"), "which it may use"
    masters[1].restart()
    eventually(lambda: state(thief, 1) == "connected", "the master is back")
    assert not granted(thief)
    assert 0 < guard(thief, 1) <= LEASE
    assert lock.locked()


def test_a_master_that_was_only_cut_off_votes_at_once(
    masters: Masters, connected: MakeClient, client: MakeClient, raw: Raw
) -> None:
    """Its process is older than the failed attempt. Catches: a failed attempt alone counts as a restart."""
    old_enough(raw(masters)[0], 3)
    with Proxy(masters[0].port) as proxy:
        proxy.refusing = True
        one = client([proxy.url, *masters.urls[1:3]], max_ttl=LEASE)
        one.connect()
        eventually(lambda: state(one, 0) == "down", "it has tried in vain")
        proxy.refusing = False
        eventually(lambda: state(one, 0) == "connected", "it is there")
        assert guard(one, 0) == 0


def test_masters_that_are_called_fresh_vote_at_once(client: MakeClient) -> None:
    """A new cluster that its first client waits for."""
    with Masters(3) as masters:
        masters[0].kill()
        one = client(masters, max_ttl=LEASE, assume_fresh=True)
        one.connect()
        eventually(lambda: state(one, 0) == "down", "it has tried in vain")
        masters[0].restart()
        eventually(lambda: state(one, 0) == "connected", "it is there")
        assert guard(one, 0) == 0
        masters[0].restart()
        eventually(lambda: one.health()[0].connections == 2, "it is there again")
        assert guard(one, 0) > 0, "only the first contact is one with a new master"


def test_a_master_that_was_loading_was_restarted(client: MakeClient, raw: Raw) -> None:
    """Its process is older than the first attempt, but not much: it had just been started."""
    options = ["--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", str(LOAD_DELAY)]
    with Masters(1, server="redis", options=options) as masters:
        master = masters[0]
        (node,) = raw(masters)
        pipeline = node.pipeline(transaction=False)
        for _ in range(COMMANDS):
            pipeline.set("key", "x")
        pipeline.execute()
        master.kill()
        master.launch(master.port)

        def loading() -> bool:
            with contextlib.suppress(redis.ConnectionError):
                return bool(node.info("persistence")["loading"])
            return False

        eventually(loading, "it loads its data")
        one = client(masters, max_ttl=LEASE)
        one.connect(0.01)
        eventually(lambda: "loading" in one.health()[0].error.lower(), "it says so")
        eventually(lambda: state(one, 0) == "connected", "it is there", deadline=60.0)
        assert 0 < guard(one, 0) <= LEASE


@pytest.fixture
def pair(masters: Masters, raw: Raw) -> Masters:
    """The first of these masters was the replica of the fourth, and was promoted."""
    node = raw(masters)[0]
    assert node.replicaof("127.0.0.1", masters[3].port)
    eventually(lambda: node.info("replication")["master_link_status"] == "up", "it follows", deadline=60.0)
    assert node.replicaof("NO", "ONE")
    return masters


@pytest.mark.parametrize("mode", ["auto", "durable", "strict"])
def test_a_promoted_master_is_silent_once_for_all_clients(
    pair: Masters, connected: MakeClient, raw: Raw, mode: str
) -> None:
    """Also for a client that meets it for the first time; and not for each new process again."""
    for node in raw(pair)[:3]:
        old_enough(node, 3)
    options: dict[str, Any] = {"restart_guard": mode, "max_ttl": 1.5, "ttl": 1.0}
    first = connected(pair.urls[:3], **options)
    assert 0 < guard(first, 0) <= 1.5
    assert granted_within(first), "the other two are a quorum"
    eventually(lambda: not guard(first, 0), "its guard ends")
    assert guard(connected(pair.urls[:3], **options), 0) == 0
    other = connected(pair.urls[:3], **{**options, "max_ttl": LEASE}, key_prefix="other:")
    assert 0 < guard(other, 0) <= LEASE, "each service for itself"


def granted_within(client: FastRedlock) -> bool:
    lock = client.acquire("r", 1.0, timeout=5.0)
    return lock is not None and lock.release()


def test_a_user_without_the_key_of_the_marker_waits_each_time(
    pair: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Nothing shows when the master was promoted."""
    name, node = pair[0].url.removeprefix("redis://"), raw(pair)[0]
    keys = ["r", "redlock-fast:masters*"]
    node.acl_setuser("narrow", enabled=True, passwords=["+x"], keys=keys, commands=["+@all"])
    where = [f"redis://narrow:x@{name}", *pair.urls[1:3]]
    for _ in range(2):
        one = connected(where, max_ttl=LEASE)
        assert LEASE - 1 < guard(one, 0) <= LEASE
        one.close()
    node.acl_deluser("narrow")
