"""Which group has which resource: the same everywhere and for ever, or two could hold one lock."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
import redis
from support.inside import core_of

from redlock_fast import ClientClosed, ConfigError, ShardedRedlock
from redlock_fast.sharded.placement import hash_of, heaviest, pairs

RESOURCES = [f"orders:{number}" for number in range(4000)]

#: Three groups of three masters.
GROUPS = [[f"redis://10.0.{group}.{master}" for master in range(1, 4)] for group in range(3)]


def named(*names: str) -> ShardedRedlock:
    return ShardedRedlock({name: [f"redis://{name}.example"] for name in names})


def places(client: ShardedRedlock) -> list[str]:
    return [client.group_of(resource) for resource in RESOURCES]


def refused(call: Callable[[], object], *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


# --- always the same group -----------------------------------------------------------------------


def test_golden_values() -> None:
    """Pinned: a version that maps otherwise must not run beside the versions before it."""
    found = "".join(named("a", "b", "c").group_of(f"orders:{number}") for number in range(24))
    assert found == "acaaacaaaccbbcabbaaacccc"
    client = ShardedRedlock(
        [
            ["redis://10.0.0.1", "redis://10.0.0.2:7000", "redis://10.0.0.3"],
            ["rediss://user:secret@10.0.1.1/3", "unix:///run/a.sock"],
            ["redis://[::1]"],
        ]
    )
    names = ["10.0.0.1:6379,10.0.0.2:7000,10.0.0.3:6379", "/run/a.sock,10.0.1.1:6379", "::1:6379"]
    assert sorted(client.health()) == sorted(names)
    shown = repr(client)
    assert shown.startswith("<ShardedRedlock: ")
    assert f"{names[1]} (10.0.1.1:6379/3 connecting, unix:/run/a.sock/0 connecting)" in shown
    found = "".join(str(names.index(client.group_of(f"orders:{number}"))) for number in range(24))
    assert found == "121222201102211100222111"


def test_the_weight_as_documented() -> None:
    """BLAKE2b-64 of the resource, keyed with the BLAKE2b-512 of the group's name; the highest wins."""

    def weight(name: str, resource: bytes) -> bytes:
        return blake2b(resource, key=blake2b(name.encode()).digest(), digest_size=8).digest()

    client = named("a", "b", "ö")
    for resource in (b"orders:1", b"\xff\x00", b"x" * 1000, "ä".encode()):
        assert client.group_of(resource) == max("abö", key=lambda name: weight(name, resource))


@pytest.mark.parametrize("seed", ["0", "1"])
def test_same_in_every_process(seed: str) -> None:
    program = (
        "import json, sys; from redlock_fast import ShardedRedlock\n"
        "groups, resources = json.load(sys.stdin)\n"
        "client = ShardedRedlock(groups)\n"
        "print(json.dumps([client.group_of(resource) for resource in resources]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([GROUPS, RESOURCES]),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == places(ShardedRedlock(GROUPS))


def test_order_of_groups_and_masters_does_not_matter() -> None:
    expected = places(ShardedRedlock(GROUPS))
    shuffled = random.Random(1)
    for order in itertools.permutations(GROUPS):
        groups = [shuffled.sample(group, len(group)) for group in order]
        assert places(ShardedRedlock(groups)) == expected
    assert places(named("c", "a", "b")) == places(named("a", "b", "c"))


@pytest.mark.parametrize(
    "like",
    [
        lambda url: url + ":6379",
        lambda url: url + "/7",
        lambda url: url.replace("redis://", "rediss://user:secret@"),
        lambda url: url.replace("redis://", "valkey://"),
        redis.Redis.from_url,
    ],
)
def test_what_is_not_the_address_does_not_matter(like: Callable[[str], Any]) -> None:
    client = ShardedRedlock([[like(url) for url in group] for group in GROUPS])
    assert places(client) == places(ShardedRedlock(GROUPS))
    assert not any("secret" in name for name in client.health())
    assert "secret" not in repr(client)


def test_options_do_not_matter() -> None:
    client = ShardedRedlock(GROUPS, key_prefix="app:", ttl=3.0, node_timeout=1.0, decide="all")
    assert places(client) == places(ShardedRedlock(GROUPS))


def test_str_and_bytes_are_one_resource() -> None:
    client = named("a", "b", "c")
    assert places(client) == [client.group_of(resource.encode()) for resource in RESOURCES]
    assert client.group_of("straße") == client.group_of("straße".encode())


def test_a_bad_resource_has_no_group() -> None:
    """As a lock on it would be refused."""
    for resource in ("", b"", "x" * 70_000, "redlock-fast:masters", 1, "\ud800"):
        with pytest.raises(ConfigError, match="resource"):
            named("a", "b").group_of(resource)  # type: ignore[arg-type]


def test_masters_may_be_replaced_under_a_name() -> None:
    before = ShardedRedlock({"a": GROUPS[0], "b": GROUPS[1]})
    after = ShardedRedlock({"a": GROUPS[2], "b": [*GROUPS[1][1:], "redis://10.9.9.9"]})
    assert places(before) == places(after)


def test_names_can_take_over_from_addresses() -> None:
    """A list of groups becomes a dict without moving anything: by the names that health() gives."""
    client = ShardedRedlock(GROUPS)
    names = {client.group_of(resource) for resource in RESOURCES}
    assert names == set(client.health())
    by_name = {",".join(f"{url.removeprefix('redis://')}:6379" for url in group): group for group in GROUPS}
    assert places(ShardedRedlock(by_name)) == places(client)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "5"])
def test_the_time_to_connect(value: Any) -> None:
    """As of a client of one group: it would be a wait of 0 s, which says that there is no quorum."""
    with ShardedRedlock(GROUPS) as client:
        refused(lambda: client.connect(value), "timeout", "at least 0")


def test_lock_is_of_its_groups_client() -> None:
    with ShardedRedlock({"a": GROUPS[0], "b": GROUPS[1]}, key_prefix="app:") as client:
        for resource in RESOURCES[:50]:
            lock = client.lock(resource, 3.0, timeout=1.0)
            assert lock._core is core_of(client._clients[client.group_of(resource)])
            assert lock.key == b"app:" + resource.encode()
            assert lock.ttl == 3.0


# --- a fair share, and no more moves than needed ------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 3, 8])
def test_balance(groups: int) -> None:
    """Within six standard deviations of an equal share."""
    share = 1 / groups
    six_sigma = 6 * (len(RESOURCES) * share * (1 - share)) ** 0.5
    counts = Counter(places(named(*"abcdefgh"[:groups])))
    assert len(counts) == groups
    assert all(abs(count - len(RESOURCES) * share) < six_sigma for count in counts.values())


@pytest.mark.parametrize("groups", range(1, 9))
def test_a_new_group_takes_its_share_and_nothing_else_moves(groups: int) -> None:
    names = "abcdefghi"
    before, after = places(named(*names[:groups])), places(named(*names[: groups + 1]))
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {names[groups]}
    share = 1 / (groups + 1)
    six_sigma = 6 * (share * (1 - share) / len(RESOURCES)) ** 0.5
    assert abs(len(moved) / len(RESOURCES) - share) < six_sigma


def test_a_removed_groups_resources_spread_over_the_others() -> None:
    before, after = places(named(*"abcd")), places(named(*"abd"))
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {old for old, _ in moved} == {"c"}
    assert {new for _, new in moved} == set("abd")


# --- bad input, before any I/O --------------------------------------------------------------------


@pytest.mark.parametrize("groups", [[], (), {}])
def test_no_groups(groups: Any) -> None:
    refused(lambda: ShardedRedlock(groups), "groups", "at least one")


@pytest.mark.parametrize("groups", ["redis://h", b"redis://h", None, 5, {"redis://h"}, iter(GROUPS)])
def test_groups_that_are_no_list(groups: Any) -> None:
    refused(lambda: ShardedRedlock(groups), "groups", "list", type(groups).__name__)


def test_urls_instead_of_lists_of_urls() -> None:
    groups: Any = GROUPS[0]
    refused(lambda: ShardedRedlock(groups), "groups[0]", "list of URLs", "str")
    refused(lambda: ShardedRedlock({"a": GROUPS[0], "b": groups[0]}), "groups['b']", "list of URLs", "str")


def test_a_group_that_no_client_would_take() -> None:
    refused(lambda: ShardedRedlock([GROUPS[0], []]), "groups[1]", "masters", "not 0")
    message = refused(lambda: ShardedRedlock([["http://user:secret@h"]]), "groups[0]", "redis://host:port")
    assert "secret" not in message


@pytest.mark.parametrize(
    "groups",
    [
        [GROUPS[0], GROUPS[0]],
        [GROUPS[0], GROUPS[1], [*GROUPS[2], "rediss://10.0.0.2:6379/4"]],
        {"a": GROUPS[0], "b": [*GROUPS[1], GROUPS[0][2]]},
    ],
)
def test_one_server_in_two_groups(groups: Any) -> None:
    refused(lambda: ShardedRedlock(groups), "10.0.0.", "two groups")


@pytest.mark.parametrize("name", ["", b"a", 5, None, ("a",), "\udc80"])
def test_bad_names(name: Any) -> None:
    refused(lambda: ShardedRedlock({name: GROUPS[0]}), "groups", "name")


def test_bad_options() -> None:
    refused(lambda: ShardedRedlock(GROUPS, ttl=-1), "ttl")
    refused(lambda: ShardedRedlock(GROUPS, nothing=1), "nothing")


@pytest.mark.parametrize("resource", [None, 5, bytearray(b"x"), "\udc80", "", "x" * 70_000])
def test_bad_resources(resource: Any) -> None:
    client = named("a", "b")
    refused(lambda: client.lock(resource), "resource")
    refused(lambda: client.acquire(resource), "resource")
    refused(lambda: client.locked(resource), "resource")
    refused(lambda: client.acquire_many(["good", resource]), "resource")
    refused(lambda: client.synchronized(resource), "resource")


@pytest.mark.parametrize("resources", ["name", b"name", None, 5, {"name"}])
def test_batches_that_are_no_list(resources: Any) -> None:
    refused(lambda: named("a").acquire_many(resources), "resources", "list")


@pytest.mark.parametrize("twice", [["x", "y", "x"], ["x", "y", b"x"]])
def test_duplicates_in_a_batch(twice: list[str | bytes]) -> None:
    refused(lambda: named("a", "b", "c").acquire_many(twice), "x", "twice")


def test_bad_ttl_of_a_batch() -> None:
    refused(lambda: named("a", "b").acquire_many(["x", "y"], ttl=-1), "ttl")


def test_locks_of_another_client() -> None:
    client = named("a", "b")
    mine = client.lock("x")
    for method in (client.release_many, client.extend_many):
        for foreign in (named("a").lock("x"), None, "x"):
            refused(lambda method=method, lock=foreign: method([mine, lock]), "no lock of this client")
        refused(lambda method=method: method([mine, client.lock("y"), mine]), "locks", "twice")
        refused(lambda method=method: method(mine), "locks", "list")
    refused(lambda: client.extend_many([mine], ttl=-1), "ttl")


def test_empty_batches() -> None:
    client = named("a", "b")
    assert client.acquire_many([]) == []
    assert client.release_many([]) == []
    assert client.extend_many([]) == []


def test_closed() -> None:
    client = named("a", "b")
    client.close()
    client.close()
    for call in (client.connect, lambda: client.acquire("x"), lambda: client.acquire_many(["x"])):
        with pytest.raises(ClientClosed):
            call()


# --- a change of the groups ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [("ab", "abc"), ("abc", "ab"), ("abc", "abd"), ("ab", "cd"), ("a", "a")]
)
def test_every_resource_has_a_client_during_a_change(old: str, new: str) -> None:
    """A resource that stays needs its group alone; any other needs its old group and its new group."""
    hashes = [{name: hash_of(name) for name in names} for names in (old, new)]
    moves = Counter[tuple[str, str]]()
    for resource in RESOURCES:
        before, after = (heaviest(one, resource.encode()) for one in hashes)
        moves[before, after] += 1
    assert set(moves) == set(pairs(old, new)), "no client is missing, and none is idle"


def test_names_of_clients_during_a_change() -> None:
    client = ShardedRedlock(
        {"a": ["redis://a"], "c": ["redis://c"]},
        joint_with={"a": ["redis://a"], "b": ["redis://b"]},
    )
    assert sorted(client.health()) == ["a", "a -> c", "b -> a", "b -> c"]
    assert {client.group_of(resource) for resource in RESOURCES} == {"a", "c"}


def test_bad_maps_of_a_change() -> None:
    good: Any = {"a": ["redis://a"]}
    refused(lambda: ShardedRedlock(good, joint_with={}), "joint_with must have at least one group")
    refused(lambda: ShardedRedlock(good, joint_with="a"), "joint_with must be a list of lists")  # type: ignore[arg-type]
    twice: Any = {"a": ["redis://a"], "b": ["redis://a"]}
    refused(lambda: ShardedRedlock(good, joint_with=twice), "joint_with: a:6379/0 is in two groups")
    odd: Any = {"b": ["redis://b"], "a -> b": ["redis://c"]}
    refused(
        lambda: ShardedRedlock(odd, joint_with=good | {"a -> b": ["redis://c"]}), "is the name of a group"
    )


def test_resources_of_one_multilock_move_together() -> None:
    """Both belong to the new group c, but they come from different groups: one exchange cannot lock both."""
    old: Any = {"a": ["redis://a"], "b": ["redis://b"]}
    client = ShardedRedlock({**old, "c": ["redis://c"]}, joint_with=old)
    before = ShardedRedlock(old)
    by_group = {before.group_of(one): one for one in RESOURCES if client.group_of(one) == "c"}
    refused(lambda: client.multilock(list(by_group.values())), "one group of masters", "a -> c", "b -> c")
