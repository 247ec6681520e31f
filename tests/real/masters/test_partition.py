"""A partition with Sentinels that closes no connection: the isolated master notices it by the lag."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.proxy import Proxy
from support.sentinel import QUICK_REPLICATION, ScriptedSentinel, master_reply, promote, replicate
from support.thorough import crossed
from support.waiting import eventually

from redlock_fast import FastRedlock, LockLost, QuorumUnavailable, TooManyExtensions
from redlock_fast.embedded import Master, Masters

MakeClient = Callable[..., FastRedlock]

#: Seconds.
LAG = 2
TTL = 1.5


#: Mode of the guard, whether the replica has data, whether B has not met the master before.
CASES = [
    ("auto", True, False),
    ("auto", True, True),
    ("auto", False, False),
    ("marker", False, False),
    ("marker", False, True),
    ("strict", False, True),
]


@pytest.mark.parametrize(
    ("mode", "has_data", "newcomer", "server"),
    [(*case, server) for case, server in crossed(CASES, ["valkey", "redis"])],
)
def test_the_guard_outlasts_the_isolated_master(
    server: str, mode: str, has_data: bool, newcomer: bool, client: MakeClient, connected: MakeClient
) -> None:
    """{A, the master, a Sentinel} and {B, the replicas, Sentinels}: B gets nothing that A holds.

    The replica is promoted at once, and B meets it long before the master stops. ``has_data``: it has
    followed the master before. ``newcomer``: B has not met the master before.
    """
    settings: dict[str, Any] = {"max_ttl": TTL, "ttl": TTL}
    limits = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", str(LAG)]
    with contextlib.ExitStack() as stack:
        three = stack.enter_context(Masters(3, server=server, options=[*QUICK_REPLICATION, *limits]))
        replication, way_of_b = (stack.enter_context(Proxy(three[0].port)) for _ in range(2))
        replicate([*three] if has_data else [three[0], three[2]], replication.port)
        here, there = three[0].port, way_of_b.port
        a_side, b_side = (
            stack.enter_context(ScriptedSentinel(answer))
            for answer in (lambda _: master_reply("locks", here), lambda _: master_reply("locks", there))
        )
        of_a, of_b = (f"redis+sentinel://127.0.0.1:{one.port}/locks" for one in (a_side, b_side))
        holder = connected([of_a], **settings)
        if newcomer:  # "strict" would not trust a younger process
            eventually(lambda: uptime(three[1]) >= TTL + 2, "it is old enough")
        else:
            thief = connected([of_b], restart_guard=mode, **settings)
        replication.hold()
        way_of_b.refusing = True
        way_of_b.cut()
        promote(three[1], three[2])
        there = three[1].port
        if newcomer:
            thief = client([of_b], restart_guard=mode, **settings)
        lock = holder.lock("r")

        def over() -> bool:
            """A renews as long as it can; B tries all the time."""
            with contextlib.suppress(LockLost, QuorumUnavailable, TooManyExtensions):
                if lock.locked():
                    lock.extend()
                else:
                    lock.acquire(blocking=False)
            granted = None
            with contextlib.suppress(QuorumUnavailable):
                granted = thief.acquire("r", blocking=False)
            assert not (granted and lock.remaining()), "two holders"
            return granted is not None

        assert lock.acquire()
        eventually(over, "B gets it in the end", deadline=60.0)


def uptime(master: Master) -> int:
    with redis.Redis(unix_socket_path=master.socket_path, protocol=2) as node:
        return int(node.info("server")["uptime_in_seconds"])
