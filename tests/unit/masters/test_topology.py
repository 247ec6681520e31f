"""Which shard is which: from what nodes reply to CLUSTER SLOTS, however that changes."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast.masters import topology as module
from redlock_fast.masters.probe import ConnectError
from redlock_fast.masters.topology import Primary, Topology, parse_cluster_url, primaries_of
from redlock_fast.wire.slots import SLOTS, slot_of

Node = tuple[int, str]


def entry(first: int, last: int, *nodes: Node) -> list[Any]:
    """A range of slots, and the port and the id of each node, the primary first."""
    return [first, last, *([b"h", port, name.encode(), []] for port, name in nodes)]


class Cluster:
    """What its nodes say. ``says``: by port, the epoch and the ranges; a port that is missing is down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
        self.says: dict[int, tuple[int, list[Any]]] = {}
        self.asked: list[int] = []
        self.topology = Topology(tuple(("h", port) for port in ports), lambda *_, **__: None, None)
        monkeypatch.setattr(self.topology, "_ask", self._ask)

    def _ask(self, where: tuple[str, int], timeout: float) -> tuple[int, list[Primary]]:
        self.asked.append(where[1])
        if where[1] not in self.says:
            raise ConnectionError("it is down")
        epoch, ranges = self.says[where[1]]
        return epoch, primaries_of(ranges, "h")

    def read(self, epoch: int, *ranges: list[Any]) -> list[tuple[str, int] | None]:
        """Every node says this. Returns where the primary of each shard is."""
        self.says = {node[1]: (epoch, list(ranges)) for one in ranges for node in one[2:]}
        self.topology.read(1.0)
        return [shard.where for shard in self.topology.shards]


HALVES = entry(0, 8191, (1, "a"), (3, "x")), entry(8192, SLOTS - 1, (2, "b"), (4, "y"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch, 1)


def test_each_primary_is_a_shard(cluster: Cluster) -> None:
    assert cluster.read(1, *HALVES) == [("h", 1), ("h", 2)]
    assert cluster.topology.owners == [1] * 8192 + [2] * 8192


def test_a_promoted_replica_has_the_number_of_its_shard(cluster: Cluster) -> None:
    cluster.read(1, *HALVES)
    assert cluster.read(2, HALVES[0], entry(8192, SLOTS - 1, (4, "y"))) == [("h", 1), ("h", 4)]
    assert cluster.read(3, HALVES[0], entry(8192, SLOTS - 1, (2, "b"), (4, "y"))) == [("h", 1), ("h", 2)]


def test_other_primaries_get_numbers_of_their_own(cluster: Cluster) -> None:
    cluster.read(1, *HALVES)
    more = entry(0, 99, (5, "c")), entry(100, 8191, (1, "a")), HALVES[1]
    assert cluster.read(2, *more) == [("h", 1), ("h", 2), ("h", 5)]
    assert cluster.topology.owners[:101] == [4] * 100 + [1]
    assert cluster.read(3, *HALVES) == [("h", 1), ("h", 2), None], "a shard without slots keeps its number"
    with pytest.raises(ConnectError, match="no slot"):
        cluster.topology.primary(2, 1.0)


def test_too_many_primaries(cluster: Cluster) -> None:
    ranges = [entry(n, n, (n + 1, f"id{n}")) for n in range(64)]
    with pytest.raises(ConnectError, match="more than 63"):
        cluster.read(1, *ranges)


def test_a_node_that_is_behind_is_not_believed(cluster: Cluster) -> None:
    cluster.read(5, *HALVES)
    for stale in (1, 2, 3):
        cluster.says[stale] = (4, [entry(0, SLOTS - 1, (9, "z"))])
    for _ in range(4):
        cluster.topology.read(1.0)
        assert cluster.topology.shards[0].where == ("h", 1)
    del cluster.says[4]
    cluster.topology.read(1.0)
    assert ("h", 9) in [shard.where for shard in cluster.topology.shards], "if no other node is left"


def test_no_node_answers(cluster: Cluster) -> None:
    with pytest.raises(ConnectError, match=r"no node of the Cluster answers: it is down \(h:1\)"):
        cluster.topology.read(1.0)


def test_an_answer_that_is_fresh_is_not_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.read(1, *HALVES)
    asked = len(cluster.asked)
    monkeypatch.setattr(module, "FRESH", 1000.0)
    assert cluster.topology.primary(1, 1.0) == ("h", 2)
    assert len(cluster.asked) == asked
    cluster.topology.doubt()
    cluster.topology.primary(1, 1.0)
    assert len(cluster.asked) > asked


def test_a_slot_that_has_moved(cluster: Cluster) -> None:
    doubts: list[bool] = []
    cluster.topology.on_stale = lambda: doubts.append(cluster.topology.stale)
    cluster.read(1, *HALVES)
    assert cluster.topology.moved(7, ("h", 2)) == 1
    assert cluster.topology.owners[7] == 0b10
    assert cluster.topology.moved(8, ("h", 9)) is None, "not known yet"
    assert doubts == [True], "once until it is read again"


def test_keys_of_the_library_at_each_shard(cluster: Cluster) -> None:
    cluster.read(1, *HALVES)
    for number in (0, 1):
        for prefix in (b"", b"app:", b"{app}:"):
            own = cluster.topology.own_prefix(number, prefix)
            assert cluster.topology.owned(number, slot_of(own + b"redlock-fast:marker"))
        assert not cluster.topology.homeless(number)
    cluster.read(2, entry(0, SLOTS - 1, (1, "a")))
    assert [cluster.topology.homeless(number) for number in (0, 1)] == [False, True]


@pytest.mark.parametrize(
    "reply",
    [
        None,
        7,
        [[1]],
        [[1, 2, []]],
        [[1, 2, [b"h"]]],
        [[b"a", 2, [b"h", 1, b"id"]]],
        [[1, 2, [b"h", b"p", b"i"]]],
    ],
)
def test_what_a_node_may_reply(reply: Any) -> None:
    with pytest.raises(ConnectError, match="unexpected reply"):
        primaries_of(reply, "h")


def test_a_node_without_a_host_is_the_one_that_was_asked() -> None:
    for unnamed in (b"", None):
        [one] = primaries_of([[0, 9, [unnamed, 5, b"id"]]], "asked")
        assert one.where == ("asked", 5)
        assert one.slots == list(range(10))


def test_slots_that_no_cluster_has() -> None:
    [one] = primaries_of([[-5, 1 << 40, [b"h", 5, b"id"]]], "h")
    assert one.slots == list(range(SLOTS))


def test_the_parts_of_a_url() -> None:
    url = "rediss+cluster://me:p%40w@a:7000,b,[::1]:7002?ssl_ca_certs=x"
    nodes, plain = parse_cluster_url(url)
    assert nodes == (("a", 7000), ("b", 6379), ("::1", 7002))
    assert plain == "rediss://me:p%40w@localhost/0?ssl_ca_certs=x"


def test_a_slot_that_leaves_a_promoted_primary_grants_nothing(cluster: Cluster) -> None:
    """Its keys may be lost; and the failover and the move may be seen at once."""
    topology = cluster.topology
    topology.silence = 1000.0
    cluster.read(1, *HALVES)
    cluster.read(
        2,
        HALVES[0],
        entry(8192, 9000, (4, "y")),
        entry(9001, 9001, (1, "a")),
        entry(9002, SLOTS - 1, (4, "y")),
    )
    assert not topology.grants(9001)
    assert topology.grants(0)
    assert topology.grants(8192), "there the guard of the shard itself decides"
    assert topology.moved(8192, ("h", 1)) == 0
    assert not topology.grants(8192)
    topology.suspects[9001] = 0.001
    assert topology.grants(9001), "until the guard has ended"
    assert 9001 not in topology.suspects


def test_a_slot_that_leaves_another_primary_goes_on(cluster: Cluster) -> None:
    cluster.topology.silence = 1000.0
    cluster.read(1, *HALVES)
    cluster.topology.moved(7, ("h", 2))
    assert cluster.topology.grants(7)
