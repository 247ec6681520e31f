"""How long an isolated master goes on, and the guard of the promoted one. A partition closes no connection."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.proxy import Proxy
from support.sentinel import QUICK_REPLICATION, ScriptedSentinel, masters_reply
from support.waiting import eventually

from redlock_fast import FastRedlock, LockLost, QuorumUnavailable, TooManyExtensions
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
LAG = 2
TTL = 3.0


def url(port: int) -> str:
    return f"redis+sentinel://127.0.0.1:{port}/locks"


@pytest.mark.parametrize("server", ["valkey", "redis"])
@pytest.mark.parametrize("attempt", range(4))
def test_a_partition_that_closes_no_connection(server: str, attempt: int, connected: MakeClient) -> None:
    options = [*QUICK_REPLICATION, "--min-replicas-to-write", "1", "--min-replicas-max-lag", str(LAG)]
    with contextlib.ExitStack() as stack:
        three = stack.enter_context(Masters(3, server=server, options=options))
        to_master = stack.enter_context(Proxy(three[0].port))  # the replication
        thiefs = stack.enter_context(Proxy(three[0].port))  # the thief's way to the first master
        for replica in (1, 2):
            assert three[replica].ask(f"REPLICAOF 127.0.0.1 {to_master.port}") == "+OK"
        eventually(lambda: three[0].ask("WAIT 2 100") == ":2", "both follow", deadline=60.0)
        time.sleep(1.0 + 0.25 * attempt)
        there = thiefs.port
        a_side = stack.enter_context(ScriptedSentinel(lambda words: masters_reply("locks", three[0].port)))
        b_side = stack.enter_context(ScriptedSentinel(lambda words: masters_reply("locks", there)))
        settings: dict[str, Any] = {"max_ttl": TTL, "ttl": TTL}
        holder = connected([url(a_side.port)], **settings)
        thief = connected([url(b_side.port)], **settings)
        lock = holder.lock("r")
        # the partition
        to_master.hold()
        thiefs.refusing = True
        thiefs.cut()
        cut_at = time.monotonic()
        # the Sentinels of the other side promote a replica at once (SENTINEL FAILOVER, or a short down-after)
        assert three[1].ask("REPLICAOF NO ONE") == "+OK"
        assert three[2].ask(f"REPLICAOF 127.0.0.1 {three[1].port}") == "+OK"
        eventually(lambda: three[1].ask("SET x 1") == "+OK", "it takes writes", deadline=60.0)
        there = three[1].port
        eventually(lambda: thief.health()[0].guard > 0, "the thief has met it", deadline=60.0)
        met = time.monotonic() - cut_at
        last = 0.0
        held = False
        while True:
            try:
                if not held:
                    held = lock.acquire(blocking=False)
                else:
                    lock.extend()
                last = time.monotonic() - cut_at
            except (LockLost, QuorumUnavailable, TooManyExtensions):
                pass
            got = None
            with contextlib.suppress(QuorumUnavailable):
                got = thief.acquire("r", TTL, blocking=False)
            if got:
                left = lock.remaining()
                now = time.monotonic() - cut_at
                print(f"met {met:.2f}, last extension {last:.2f}, thief granted {now:.2f}, left {left:.2f}")
                assert not left, f"two holders for {left:.2f} s"
                return
            time.sleep(0.01)
            assert time.monotonic() - cut_at < 30
