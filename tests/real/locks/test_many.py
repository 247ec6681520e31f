"""Batches: what callers get for each resource, and what is on the masters then.

Each test runs with the client for threads and with that for asyncio.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.keys import OTHER_CLIENT, TTL, calls, forget_calls, names, nothing_left, occupy, sizes, values
from support.makers import MakeClient, MakePlain, Raw
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ClientClosed, ConfigError, FastRedlock, LockAlreadyHeld, Retry
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")


def until_sizes(masters: Masters, size: int) -> None:
    """Grants are sent to all masters and awaited from some."""
    eventually(lambda: sizes(masters) == [size] * len(masters), f"each master has {size} keys")


# --- what comes back ----------------------------------------------------------------------------


def test_life_of_a_batch(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c, nodes = plain(masters).at_full_strength(), raw(masters)
    resources: list[str | bytes] = ["orders:42", b"\r\n\x00\xff", "gr\u00fc\u00dfe", "x" * 65_536, b"1"]
    locks = c.acquire_many(resources, ttl=TTL / 2)
    assert [lock.resource for lock in locks] == resources
    assert all(lock.locked() for lock in locks)
    assert len({lock.token for lock in locks}) == 5
    until_sizes(masters, 5)
    for lock in locks:
        assert values(nodes, lock.resource) == [lock.token] * 5
        assert 0 < lock.remaining() <= lock.validity < TTL / 2
        assert nodes[0].pttl(lock.resource) <= 1000 * TTL / 2
        lock.check()
    assert c.extend_many(locks, ttl=TTL) == [True] * 5
    eventually(lambda: all(n.pttl(r) > 600 * TTL for n in nodes for r in resources), "all are extended")
    assert all(TTL / 2 < lock.remaining() <= lock.validity < TTL for lock in locks)
    assert c.release_many(locks) == [True] * 5
    assert not any(lock.locked() for lock in locks)
    assert {lock.token for lock in locks} == {None}
    nothing_left(masters)
    assert c.release_many(locks) == [False] * 5
    assert c.extend_many(locks) == [False] * 5
    stats = c.client.stats()
    assert (stats.acquired, stats.extended, stats.released, stats.faults) == (5, 5, 5, 0)


def test_held_and_free(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """Each by itself: what others have on a majority is None, and what they have on less is ours."""
    c, nodes = plain(masters).at_full_strength(), raw(masters)
    occupy(nodes, "all")
    occupy(nodes[1:4], "majority")
    occupy(nodes[3:], "minority")
    resources = ["first", "all", "minority", "majority", "last"]
    locks = c.acquire_many(resources)
    assert [lock and lock.resource for lock in locks] == ["first", None, "minority", None, "last"]
    eventually(lambda: values(nodes, "majority") == [None, *[OTHER_CLIENT] * 3, None], "ours is taken back")
    assert values(nodes, "minority") == [locks[2].token] * 3 + [OTHER_CLIENT] * 2
    assert c.release_many([lock for lock in locks if lock]) == [True] * 3
    eventually(lambda: sizes(masters) == [1, 2, 2, 3, 2], "only what others have is left")
    assert values(nodes, "all") == [OTHER_CLIENT] * 5
    assert values(nodes, "minority") == [None] * 3 + [OTHER_CLIENT] * 2
    assert (c.client.stats().acquired, c.client.stats().contended) == (3, 2)


def test_even_number_of_masters(valkey: Masters, plain: MakePlain, raw: Raw) -> None:
    """Half of the masters is no majority, on either side."""
    c, nodes = plain(valkey.urls[:4]).at_full_strength(), raw(valkey)
    occupy(nodes[:2], "tie")
    occupy(nodes[:1], "three")
    locks = c.acquire_many(["tie", "three"])
    assert locks[0] is None
    assert locks[1].locked()
    assert c.release_many(locks[1:]) == [True]
    eventually(lambda: sizes(valkey) == [2, 1, 0, 0, 0], "only what others have is left")


def test_one_attempt_is_one_set_for_each_resource_and_master(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    """Granted or not, sent once; and one release for each that was."""
    c, nodes = plain(masters, retry=Retry(0.0, 0.0)).at_full_strength(), raw(masters)
    occupy(nodes, *names(200)[::2])
    forget_calls(nodes)
    locks = c.acquire_many(names(200))
    assert [lock is None for lock in locks] == [True, False] * 100
    eventually(lambda: min(calls(nodes, "set")) >= 200, "all masters were asked")
    assert c.release_many(locks[1::2]) == [True] * 100
    until_sizes(masters, 100)
    releases = ("delifeq", "delex", "evalsha")
    eventually(lambda: calls(nodes, *releases) == [200] * 5, "what was refused is undone, too")
    assert calls(nodes, "set") == [200] * 5


def test_empty(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey)
    assert c.acquire_many([]) == c.release_many([]) == c.extend_many([]) == []
    assert {master.connections for master in c.client.health()} == {0}, "nothing to ask the masters for"


@pytest.mark.parametrize("count", [1, 2])
def test_first_call_of_a_client(masters: Masters, plain: MakePlain, count: int) -> None:
    """It waits for a quorum of connections by itself."""
    c = plain(masters)
    locks = c.acquire_many(names(count))
    assert all(locks)
    assert c.release_many(locks) == [True] * count
    nothing_left(masters)


def test_locks_of_a_batch_are_locks(valkey: Masters, plain: MakePlain) -> None:
    """And any locks of the client may be put into one."""
    c = plain(valkey, key_prefix="prefix:").at_full_strength()
    batch = c.acquire_many(("a", "b", b"c"), ttl=20)  # any sequence
    with pytest.raises(LockAlreadyHeld):
        c.wait(batch[0].acquire())
    assert c.wait(batch[0].extend(TTL)) > 20
    assert c.wait(batch[0].release()) is True
    assert c.wait(batch[0].acquire()) is True
    single = c.acquire("d", TTL)
    unused = c.client.lock("e")
    mixed = [unused, single, *batch]
    assert c.locked(b"c") is True
    assert c.extend_many(mixed, ttl=TTL) == [False, True, True, True, True]
    assert c.release_many(mixed) == [False, True, True, True, True]
    nothing_left(valkey)


def test_default_ttl(valkey: Masters, plain: MakePlain, raw: Raw) -> None:
    c = plain(valkey, ttl=20).at_full_strength()
    locks = c.acquire_many(["default"])
    assert locks[0].ttl == 20
    node = raw(valkey)[0]
    eventually(lambda: 1_000 < node.pttl("default") <= 20_000, "as long as the client says")
    assert c.extend_many(c.acquire_many(["longer"], ttl=30), ttl=TTL) == [True]
    eventually(lambda: node.pttl("longer") > 30_000, "it is extended")


# --- bad input, before any I/O ------------------------------------------------------------------


@pytest.mark.parametrize(
    "resources",
    [
        ["a", "b", "a"],
        ["gr\u00fc\u00dfe", "gr\u00fc\u00dfe".encode()],
        [b"a", "b", "a"],
        ["a", ""],
        ["a", 7],
        ["a", None],
        ["a", "x" * 65_537],
        ["a", "\ud800"],
        "one string",
        b"bytes",
        7,
        None,
    ],
    ids=repr,
)
def test_bad_resources(valkey: Masters, plain: MakePlain, resources: Any) -> None:
    c = plain(valkey)
    with pytest.raises(ConfigError, match="resource"):
        c.acquire_many(resources)
    assert {master.connections for master in c.client.health()} == {0}
    assert not any(sizes(valkey))


@pytest.mark.parametrize("ttl", [0, -1, 0.001, 61, float("nan"), float("inf"), "10", True])
def test_bad_ttl(valkey: Masters, plain: MakePlain, ttl: Any) -> None:
    c = plain(valkey)
    with pytest.raises(ConfigError, match="ttl"):
        c.acquire_many(["a"], ttl=ttl)
    with pytest.raises(ConfigError, match="ttl"):
        c.extend_many([c.client.lock("a")], ttl=ttl)
    assert {master.connections for master in c.client.health()} == {0}


def test_locks_that_are_not_this_clients(
    masters: Masters,
    plain: MakePlain,
    client: MakeClient,
    connected: MakeClient,
    aclient: Callable[..., Any],
    raw: Raw,
) -> None:
    """Nothing happens to those of the list that are, either."""
    c, nodes = plain(masters, max_ttl=TTL * 3).at_full_strength(), raw(masters)
    mine = c.acquire("mine", TTL)
    theirs = connected(masters).acquire("theirs", TTL)
    until_sizes(masters, 2)
    forget_calls(nodes)
    unlike = aclient(masters) if isinstance(c.client, FastRedlock) else client(masters)
    for foreign in (theirs, unlike.lock("unlike"), "mine", 7, object()):
        for method in (c.release_many, c.extend_many):
            for locks in ([mine, foreign], [foreign], foreign):
                with pytest.raises(ConfigError, match="lock"):
                    method(locks)
    for method in (c.release_many, c.extend_many):
        with pytest.raises(ConfigError, match="lock"):
            method([mine, c.client.lock("other"), mine])
    commands = ("set", "get", "del", "delifeq", "delex", "pexpire", "eval", "evalsha")
    assert calls(nodes, *commands) == [0] * 5
    assert mine.locked()
    assert c.release_many([mine]) == [True]
    assert theirs
    assert theirs.release() is True


def test_closed_client(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey)
    locks = c.acquire_many(["a", "b"])
    c.close()
    with pytest.raises(ClientClosed):
        c.acquire_many(["c"])
    with pytest.raises(ClientClosed):
        c.extend_many(locks)
    assert c.release_many(locks) == [False, False]


# --- many at a time -----------------------------------------------------------------------------


def test_batches_of_threads_exclude_each_other(valkey: Masters, connected: MakeClient) -> None:
    """Eight threads, two clients, overlapping resources. Catches: a vote that goes to another batch's
    request, or to another one of the same batch.
    """
    shared = names(24, "shared")
    holders: dict[str, int] = {}
    clients = [connected(valkey), connected(valkey)]

    def work(number: int) -> tuple[int, int]:
        c, chance = clients[number % 2], random.Random(number)
        granted = held = 0
        for turn in range(30):
            wanted = [*chance.sample(shared, 8), *names(8, f"own:{number}:{turn}")]
            locks = c.acquire_many(wanted, TTL)
            assert all(locks[8:]), "no other client wants them"
            mine = [lock for lock in locks if lock]
            for lock in mine:
                assert holders.setdefault(str(lock.resource), number) == number, "two holders"
            granted += len(mine)
            held += len(locks) - len(mine)
            for lock in mine:
                assert holders.pop(str(lock.resource)) == number
            assert c.release_many(mine) == [True] * len(mine)
        return granted, held

    workers = [start(lambda number=number: work(number)) for number in range(8)]
    counts = [worker.result(3 * DEADLINE) for worker in workers]
    assert sum(held for _, held in counts), "they never met: nothing was tested"
    assert sum(c.stats().acquired for c in clients) == sum(granted for granted, _ in counts)
    assert sum(c.stats().contended for c in clients) == sum(held for _, held in counts)
    assert sum(c.stats().expired for c in clients) == 0
    nothing_left(valkey)


def test_batches_beside_single_locks(valkey: Masters, connected: MakeClient) -> None:
    """On the same connections, of the same resources."""
    c, stop, counter = connected(valkey, retry=Retry(0.0005, 0.005)), threading.Event(), [0]

    def single() -> int:
        done = 0
        while not stop.is_set():
            with c.lock("both", TTL):
                before = counter[0]
                done += 1
                counter[0] = before + 1
        return done

    singles = [start(single) for _ in range(3)]
    done = 0
    try:
        for _ in range(200):
            locks = c.acquire_many(["both", *names(20)], TTL)
            assert all(locks[1:])
            if locks[0]:
                before = counter[0]
                done += 1
                counter[0] = before + 1
            assert all(c.release_many([lock for lock in locks if lock]))
    finally:
        stop.set()
    done += sum(one.result(DEADLINE) for one in singles)
    assert counter[0] == done
    nothing_left(valkey)
