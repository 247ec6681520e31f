"""A change of masters across a Sentinel partition: the wait between the phases, and the isolated master."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.proxy import Proxy
from support.sentinel import QUICK_REPLICATION, ScriptedSentinel, masters_reply
from support.waiting import eventually

from redlock_fast import ConfigError, FastRedlock, LockLost, QuorumUnavailable, TooManyExtensions
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
LAG = 10  # the default of Redis and Valkey
TTL = 3.0


def sentinel_url(port: int) -> str:
    return f"redis+sentinel://127.0.0.1:{port}/locks"


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "redlock_fast", *words], capture_output=True, text=True, timeout=120
    )
    print(words[:2], done.returncode, done.stdout, done.stderr)
    return done


def test_the_wait_outlasts_an_isolated_master(client: MakeClient) -> None:
    """{A, the master S, D} and {the promoted replica of S, C, E, F, G, the operator, B}.

    The old list is S, C, D; the new one E, F, G. A has the old list, and S and D.
    """
    options = [*QUICK_REPLICATION, "--min-replicas-to-write", "1", "--min-replicas-max-lag", str(LAG)]
    with contextlib.ExitStack() as stack:
        three = stack.enter_context(Masters(3, options=options))
        others = stack.enter_context(Masters(5))
        c, d, *new = others
        replication = stack.enter_context(Proxy(three[0].port))
        d_of_b = stack.enter_context(Proxy(d.port))  # the way of the operator's side to D
        c_of_a = stack.enter_context(Proxy(c.port))  # the way of A to C
        for replica in (1, 2):
            assert three[replica].ask(f"REPLICAOF 127.0.0.1 {replication.port}") == "+OK"
        eventually(lambda: three[0].ask("WAIT 2 100") == ":2", "both follow", deadline=60.0)
        there = three[0].port
        a_side = stack.enter_context(ScriptedSentinel(lambda words: masters_reply("locks", three[0].port)))
        b_side = stack.enter_context(ScriptedSentinel(lambda words: masters_reply("locks", there)))
        settings: dict[str, Any] = {"max_ttl": TTL, "ttl": TTL, "check_masters": "auto"}
        old = [sentinel_url(b_side.port), c.url, d_of_b.url]
        new_urls = [one.url for one in new]
        first = client(old, **settings)
        first.connect()
        eventually(lambda: all(one.listed for one in first.health()), "the old list is in force")
        first.close()
        lists = ["--from", ",".join(old), "--to", ",".join(new_urls)]
        start = cli("masters", "start", *lists)
        assert start.returncode == 0
        eventually(lambda: three[0].ask("WAIT 2 1000") == ":2", "the replicas have it")
        # the partition
        replication.hold()
        for proxy in (d_of_b, c_of_a):
            proxy.refusing = True
            proxy.cut()
        cut_at = time.monotonic()
        assert three[1].ask("REPLICAOF NO ONE") == "+OK"
        assert three[2].ask(f"REPLICAOF 127.0.0.1 {three[1].port}") == "+OK"
        eventually(lambda: three[1].ask("SET x 1") == "+OK", "it takes writes", deadline=60.0)
        there = three[1].port
        # A process starts on the other side, with the old list. Phase 1 allows that.
        holder = client([sentinel_url(a_side.port), c_of_a.url, d.url], **settings)
        lock = holder.lock("r", auto_extend=True)
        assert lock.acquire(timeout=5.0)
        print(f"A holds at {time.monotonic() - cut_at:.2f}")
        finished = threading.Thread(target=lambda: cli("masters", "finish", "--phase", "1", *lists))
        finished.start()
        thief = client(new_urls, **settings)
        got = None
        while lock.locked() and not got:
            with contextlib.suppress(QuorumUnavailable, ConfigError):
                got = thief.acquire("r", TTL, blocking=False)
            time.sleep(0.02)
        left = lock.remaining()
        print(f"at {time.monotonic() - cut_at:.2f}: B {'has' if got else 'has not'} it, A for {left:.2f} s more")
        finished.join()
        assert not (got and left), "two holders"
