"""A wrong list of masters is seen at connect: records on real masters, for both clients."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.proxy import Proxy
from support.thorough import amount
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.masters.marks import MARK_KEY, decode_mark
from redlock_fast.masters.membership import KEY, PHASE_1, decode, encode, members, record_key

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


@pytest.fixture
def checked(client: MakeClient) -> MakeClient:
    """As ``client``, with ``check_masters``."""

    def make(masters: Any, **options: Any) -> FastRedlock:
        return client(masters, **{"check_masters": "auto", **options})

    return make


@pytest.fixture
def fleet() -> Iterator[Masters]:
    """Three masters without a disk, which may restart."""
    with Masters(3) as masters:
        yield masters


def in_force(one: FastRedlock) -> bool:
    return all(master.listed for master in one.health())


def no_vote(one: FastRedlock) -> list[str]:
    return [master.no_vote for master in one.health()]


def names(urls: list[str]) -> str:
    return ", ".join(sorted(f"{url.removeprefix('redis://')}/0" for url in urls))


@both_clients
def test_three_to_five_without_a_change(
    masters: Masters, checked: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the records both clients would get the lock."""
    one, other = checked(masters.urls[:3]), checked(masters)
    with one.lock("orders"):
        assert in_force(one)
        with caplog.at_level(logging.WARNING), pytest.raises(ConfigError) as wrong:
            other.lock("orders").acquire(blocking=False)
        with pytest.raises(ConfigError):
            other.connect()
    assert f"it expects the masters {names(masters.urls[:3])} (epoch 1); give this client" in str(wrong.value)
    eventually(lambda: all(no_vote(other)), "no master votes for the wrong list")
    assert {master.listed for master in other.health()} == {False}
    eventually(lambda: "master-unlisted" in [getattr(r, "event", "") for r in caplog.records], "it is logged")
    assert one.lock("orders").acquire()


def test_the_error_is_the_one_of_the_documents(masters: Masters, checked: MakeClient) -> None:
    """docs/changing-masters.md has the text, with its own addresses."""
    urls = masters.urls[:3]
    assert checked(urls).connect()
    with pytest.raises(ConfigError) as wrong:
        checked(masters).connect()
    text = str(wrong.value)
    for number, name in enumerate(sorted(f"{url.removeprefix('redis://')}/0" for url in urls), 1):
        text = text.replace(name, f"10.0.0.{number}:6379/0")
    first = re.match(r"masters: (10\.0\.0\.[123]):", text)  # of its own list
    assert first, text
    page = " ".join((Path(__file__).parents[3] / "docs" / "changing-masters.md").read_text().split())
    assert f"ConfigError: {text}".replace(first[1], "10.0.0.1", 1) in page


@both_clients
def test_one_of_three_is_replaced_without_a_change(masters: Masters, checked: MakeClient) -> None:
    urls = masters.urls
    one, other = checked(urls[:3]), checked([*urls[:2], urls[3]])
    assert one.connect()
    with other.lock("orders"):
        # First it may be read again: the other client may have written to it since.
        why = "it is not in the list that the other masters have: the masters"
        eventually(lambda: why in other.health()[2].no_vote, "the new master has no vote, for that reason")
        assert no_vote(other)[:2] == ["", ""]
        assert not one.lock("orders").acquire(blocking=False)
    masters[0].pause()
    with pytest.raises(QuorumUnavailable, match="it is not in the list that the other masters have"):
        other.lock("orders", timeout=0.5).acquire()
    masters[0].resume()


@both_clients
def test_a_client_connects_while_another_one_writes_the_first_records(
    masters: Masters, checked: MakeClient
) -> None:
    """Four masters were read before the records were written, and one afterwards: none lost its record."""
    with Proxy(masters[4].port) as proxy:
        proxy.hold()
        late = checked([*masters.urls[:4], proxy.url])
        acquired = start(partial(late.lock("orders").acquire, blocking=False))
        eventually(lambda: sum(m.state == "connected" for m in late.health()) == 4, "four are connected")
        first = checked(masters)
        assert first.connect()
        eventually(lambda: in_force(first), "the records are written")
        proxy.deliver()
        assert acquired.result()


def test_what_is_another_fleet(masters: Masters, checked: MakeClient) -> None:
    urls = masters.urls
    assert checked(urls[:3]).connect()
    for same in ({"key_prefix": "team:"}, {"check_masters": "off"}):
        assert checked(urls, **same).lock("orders").acquire()
    assert checked([f"{url}/1" for url in urls]).lock("orders").acquire()
    with pytest.raises(ConfigError, match="it expects max_ttl=60, and this client has max_ttl=30"):
        checked(urls[:3], max_ttl=30.0).connect()


def attempt(one: FastRedlock, name: str, together: threading.Barrier) -> bool:
    together.wait()
    try:
        return one.lock(name).acquire(blocking=False)
    except (ConfigError, QuorumUnavailable):
        return False
    finally:
        one.close()


def test_two_lists_start_at_one_time(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    """However they meet, at most one list gets locks; it is always one of them."""
    nodes = raw(masters)
    for lists in ((masters.urls[:3], masters.urls), (masters.urls[:3], masters.urls[2:])) * 3:
        together = threading.Barrier(4)

        attempts = [partial(attempt, checked(lists[n % 2]), f"lock {n}", together) for n in range(4)]
        results = list(map(start, attempts))
        granted = {n % 2 for n, result in enumerate(results) if result.result()}
        assert len(granted) == 1
        records = [decode(data) for node in nodes if (data := node.get(KEY))]
        expected = {tuple(address for _, address in one.new) for one in records if one.in_force}
        assert len(expected) == 1
        for node in nodes:
            node.flushall()


def test_two_lists_with_a_common_master_that_takes_no_record(checked: MakeClient) -> None:
    """The first of two common masters is full. The record on the other one keeps the lists apart."""
    with Masters(8) as fleet:
        urls = fleet.urls
        full = redis.Redis.from_url(urls[0])
        full.config_set("maxmemory", 1)
        one, other = checked([*urls[:5]]), checked([*urls[:2], *urls[5:]])
        assert one.lock("orders").acquire()
        with pytest.raises(ConfigError, match="it is not in the list that the other masters have"):
            other.lock("orders").acquire()
        full.config_set("maxmemory", 0)
        full.close()


def test_the_first_start_with_a_dead_master(fleet: Masters, checked: MakeClient) -> None:
    fleet[2].kill()
    one, strict = checked(fleet), checked(fleet, check_masters="strict", connect_timeout=0.5)
    with one.lock("orders"):
        assert not in_force(one)

    def why() -> str:
        with pytest.raises(QuorumUnavailable) as refused:
            strict.lock("orders").acquire(blocking=False)
        return str(refused.value)

    eventually(lambda: "not in force, so all 3 masters must be reached once" in why(), "two are reached")
    with pytest.raises(ConfigError, match="it expects the masters"):
        checked(fleet.urls[:1]).connect()
    fleet[2].restart()
    eventually(lambda: in_force(one) and in_force(strict), "the list is in force")
    assert strict.lock("orders").acquire()
    fleet[2].kill()
    late = checked(fleet, check_masters="strict")
    assert late.lock("invoices").acquire()


def test_a_master_that_restarts_empty(fleet: Masters, checked: MakeClient, raw: Raw) -> None:
    one = checked(fleet)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    ids = [decode(node.get(KEY)).id for node in raw(fleet)]
    fleet[1].kill()
    fleet[1].restart()
    eventually(lambda: one.health()[1].connections == 2 and in_force(one), "it has its record again")
    assert one.health()[1].guard > 0
    fleet_again = raw(fleet)
    assert decode(fleet_again[1].get(KEY)).id == ids[1]
    assert fleet_again[1].ttl(KEY) == -1
    for master in fleet:
        master.kill()
    for master in fleet:
        master.restart()
    eventually(lambda: [m.connections for m in one.health()] == [2, 3, 2], "all are connected again")
    eventually(lambda: in_force(one), "they have their records again")
    assert checked(fleet).lock("orders").acquire()


def test_a_master_that_claims_a_later_epoch(checked: MakeClient) -> None:
    """The others get their records back after a restart: a quorum has the same record."""
    with Masters(5) as fleet:
        one = checked(fleet)
        one.connect()
        eventually(lambda: in_force(one), "the list is in force")
        hostile = redis.Redis.from_url(fleet.urls[0])
        eventually(lambda: decode(hostile.get(KEY)).in_force, "its record is written")
        hostile.set(KEY, encode(decode(hostile.get(KEY))._replace(epoch=10**6)))
        hostile.client_kill_filter(_type="normal")
        hostile.close()
        eventually(lambda: one.health()[0].connections > 1 and in_force(one), "it is connected again")
        for master in 1, 2:
            fleet[master].kill()
            fleet[master].restart()
            eventually(lambda: one.health()[master].connections > 1 and in_force(one), "it is written back")  # noqa: B023


def test_a_flush(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    one = checked(masters)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    nodes = raw(masters)
    nodes[0].flushall()
    eventually(lambda: nodes[0].exists(KEY), "the record is written again")
    for node in nodes:
        node.flushall()
    eventually(lambda: all(node.exists(KEY) for node in nodes), "all records are written again")
    assert checked(masters).lock("orders").acquire()


DAMAGED = [b"x", b"[" * 50_000, b"x" * 100_000, b'{"version": 2}']


@pytest.mark.parametrize("data", DAMAGED, ids=["garbage", "deep", "huge", "later"])
def test_a_record_that_cannot_be_read(masters: Masters, checked: MakeClient, raw: Raw, data: bytes) -> None:
    nodes = raw(masters)
    one = checked(masters)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    for node in nodes[:2]:
        node.set(KEY, data)
    assert checked(masters).lock("orders").acquire()
    nodes[2].delete(KEY)
    nodes[2].lpush(KEY, "a list")
    if len(data) < 100_000:  # a reply of that size breaks the connection
        with pytest.raises(ConfigError, match=r"is damaged: delete the key|later version"):
            checked(masters).connect(DEADLINE)


def test_a_connected_master_without_a_vote_is_not_of_a_quorum(
    valkey: Masters, checked: MakeClient, raw: Raw
) -> None:
    """Four of five masters are connected, and two of them have a vote."""
    nodes = raw(valkey)
    one = checked(valkey)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    eventually(lambda: all(decode(node.get(KEY)).in_force for node in nodes), "all records are written")
    for node in nodes[:2]:
        node.set(KEY, DAMAGED[0])
    valkey[2].pause()
    try:
        other = checked(valkey)
        other.connect(0.01)
        eventually(lambda: sum(h.state == "connected" for h in other.health()) == 4, "four are connected")
        assert sum(bool(health.no_vote) for health in other.health()) == 2
        assert not other.connect(0.01)
    finally:
        valkey[2].resume()


def test_a_hostile_minority(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    one = checked(masters)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    eventually(lambda: all(decode(node.get(KEY)).in_force for node in nodes), "all records are written")
    record = decode(nodes[0].get(KEY))
    before = [node.get(KEY) for node in nodes[2:]]
    for node in nodes[:2]:
        node.set(KEY, encode(record._replace(epoch=99, new=record.new[:1])))
    other = checked(masters)
    assert other.lock("orders").acquire()
    eventually(lambda: [bool(why) for why in no_vote(other)] == [True] * 2 + [False] * 3, "two have no vote")
    assert [node.get(KEY) for node in nodes[2:]] == before
    eventually(lambda: other.health()[0].causes == {"another list": 1}, "it is counted")


def test_a_hostile_master_takes_the_id_of_another_one(
    masters: Masters, checked: MakeClient, raw: Raw
) -> None:
    """Both others vote: the lock needs the two. One of them has a record that is not in force yet."""
    nodes, urls = raw(masters)[:3], masters.urls[:3]
    one = checked(urls)
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    eventually(lambda: all(decode(node.get(KEY)).in_force for node in nodes), "all records are written")
    record, own = (decode(node.get(KEY)) for node in nodes[:2])
    addresses = record.addresses
    addresses[record.id], addresses[own.id] = addresses[own.id], addresses[record.id]
    nodes[2].set(KEY, encode(decode(nodes[2].get(KEY))._replace(in_force=False)))
    for marked in (True, False):
        claim = record._replace(new=members(addresses), in_force=marked)
        nodes[1].set(KEY, encode(claim))
        for listed in (urls, urls[::-1]):
            other = checked(listed)
            assert other.lock(f"{marked} {listed}").acquire()
            eventually(lambda: no_vote(other)[1].endswith("is a copy of that master"), "it has no vote")  # noqa: B023
            assert [bool(why) for why in no_vote(other)] == [False, True, False]
            other.close()


def user(node: redis.Redis, *permissions: str) -> None:
    node.execute_command("ACL", "SETUSER", "service", "on", ">secret", "~lock:*", "+@all", *permissions)


def test_users_with_few_permissions(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    urls = [url.replace("redis://", "redis://service:secret@") for url in masters.urls]
    nodes = raw(masters)
    try:
        for node in nodes:
            user(node)
        one = checked(urls)
        assert one.lock("lock:1").acquire()
        assert {master.listed for master in one.health()} == {None}
        assert not any(node.exists(KEY) for node in nodes)
        with pytest.raises(
            ConfigError, match="may not read its record of masters, and check_masters='strict'"
        ):
            checked(urls, check_masters="strict").connect()
        for node in nodes:
            user(node, f"~{KEY.decode()}", "-eval")
        assert checked(urls).lock("lock:3").acquire()
        assert checked(masters.urls[:3]).lock("lock:4").acquire()
        with pytest.raises(ConfigError, match="it expects the masters"):
            checked(urls).connect()
    finally:
        for node in nodes:
            node.execute_command("ACL", "DELUSER", "service")


def test_other_names_and_protocols(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    one = checked([f"{url}?protocol=2" for url in masters.urls[:3]], key_prefix="team:")
    assert one.lock("orders").acquire()
    eventually(lambda: in_force(one), "the list is in force")
    (key,) = raw(masters)[0].keys("*redlock-fast:masters")
    assert key == record_key(b"team:")
    for urls in (
        [url.replace("127.0.0.1", "localhost") for url in masters.urls[:3]],
        masters.unix_urls[:3],
        masters.urls[2::-1],
    ):
        other = checked(urls, key_prefix="team:")
        assert other.connect()
        eventually(lambda: in_force(other), "it is the same list")  # noqa: B023


def test_a_promoted_replica_has_the_record_of_its_master(
    masters: Masters, checked: MakeClient, raw: Raw
) -> None:
    """As after a failover by Sentinels: the address is another one, the id is the same."""
    nodes = raw(masters)
    one = checked(masters.urls[:3])
    one.connect()
    eventually(lambda: in_force(one), "the list is in force")
    nodes[4].replicaof("127.0.0.1", masters[0].url.rpartition(":")[2])
    eventually(lambda: nodes[4].get(KEY), "the record is copied")
    nodes[4].replicaof("NO", "ONE")
    other = checked([masters.urls[4], *masters.urls[1:3]])
    assert other.lock("orders").acquire()
    eventually(lambda: in_force(other), "its list is the same")
    both = checked([masters.urls[4], *masters.urls[:2]])
    both.connect()
    eventually(lambda: sum(map(bool, no_vote(both))) == 1, "of a master and its copy one votes")


@both_clients
def test_a_client_leaves_a_mark_of_its_step(masters: Masters, checked: MakeClient, raw: Raw) -> None:
    """For the operator of a change: on each master, with the epoch of the record, until close()."""
    urls, nodes = masters.urls[:3], raw(masters)[:3]

    def marks(*expected: tuple[int, str]) -> bool:
        found = [[decode_mark(node.get(key) or b"") for key in node.keys(MARK_KEY + b"*")] for node in nodes]  # type: ignore[union-attr]
        return all([(mark.epoch, mark.step) for mark in one if mark] == [*expected] for one in found)

    one = checked(urls)
    assert one.connect()
    eventually(lambda: marks((1, "new")), "a mark on each master")
    for node in nodes:
        data = node.get(KEY)
        assert isinstance(data, bytes)
        old = decode(data)
        change = old._replace(
            epoch=2, steps=PHASE_1, old=old.new, new=(*old.new, ("d" * 32, "10.0.0.1:6379"))
        )
        node.set(KEY, encode(change))
        node.client_kill_filter(_type="normal")
    eventually(lambda: marks((2, "old")), "the client has compared its list again")
    one.close()
    eventually(lambda: marks(), "no mark is left")


def test_two_clients_meet_new_masters_by_different_names(engine_name: str) -> None:
    """The documents call these one list. Catches: a master that was read before the other client wrote to it
    counts as one of another list, and is read again only after 15 s: a ConfigError of a right list.
    """
    options: Any = {"engine": engine_name, "check_masters": "auto", **PATIENT}
    for _ in range(amount(3, 10, twice=10)):
        with Masters(3) as fleet, ThreadPoolExecutor() as pool:
            other = [url.replace("127.0.0.1", "localhost") for url in fleet.urls]
            with FastRedlock(fleet.urls, **options) as one, FastRedlock(other, **options) as two:
                locks = [client.lock("r", timeout=DEADLINE) for client in (one, two)]

                def once(lock: Any) -> bool:
                    with lock:
                        return bool(lock.locked())

                assert list(pool.map(once, locks)) == [True, True]
