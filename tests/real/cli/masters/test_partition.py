"""A change of masters during a partition with Sentinels: the command waits for the isolated master."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from support.proxy import Proxy
from support.sentinel import QUICK_REPLICATION, ScriptedSentinel, master_reply, promote, replicate
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable, cli
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

#: Seconds. Twice the TTL is shorter than the lag.
LAG = 4
TTL = 0.8


def masters_command(action: str, old: list[str], new: list[str]) -> int:
    phase = ["--phase", "1"] if action == "finish" else []
    return cli.main(["masters", action, *phase, "--from", ",".join(old), "--to", ",".join(new)])


def test_the_wait_outlasts_an_isolated_master(client: MakeClient) -> None:
    """{A, the master S, D} and {B, the operator, the promoted replica of S, C, E, F, G}.

    The old list is S, C, D; the new one E, F, G. A has the old list and reaches S and D, B has the new list.
    """
    limits = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", str(LAG)]
    settings: dict[str, Any] = {"max_ttl": TTL, "ttl": TTL, "check_masters": "auto"}
    with contextlib.ExitStack() as stack:
        three = stack.enter_context(Masters(3, options=[*QUICK_REPLICATION, *limits]))
        c, d, *others = stack.enter_context(Masters(5))
        replication, c_of_a, d_of_b = (
            stack.enter_context(Proxy(port)) for port in (three[0].port, c.port, d.port)
        )
        replicate([*three], replication.port)
        here = there = three[0].port
        of_a, of_b = (
            f"redis+sentinel://127.0.0.1:{stack.enter_context(ScriptedSentinel(answer)).port}/locks"
            for answer in (lambda _: master_reply("locks", here), lambda _: master_reply("locks", there))
        )
        old, new = [of_b, c.url, d_of_b.url], [one.url for one in others]
        first = client(old, **settings)
        first.connect()
        eventually(lambda: all(one.listed for one in first.health()), "the old list is in force")
        first.close()
        assert masters_command("start", old, new) == 0
        eventually(lambda: three[0].ask("WAIT 2 1000") == ":2", "the replicas have the record")
        replication.hold()
        for proxy in (d_of_b, c_of_a):
            proxy.refusing = True
            proxy.cut()
        promote(three[1], three[2])
        eventually(lambda: three[1].ask("SET x 1") == "+OK", "it takes writes", deadline=60.0)
        there = three[1].port
        # A process starts on A's side with the old list: phase 1 allows that.
        lock = client([of_a, c_of_a.url, d.url], **settings).lock("r", auto_extend=True)
        assert lock.acquire(timeout=DEADLINE)
        finished = start(lambda: masters_command("finish", old, new))
        thief = client(new, **settings)

        def over() -> bool:
            granted = None
            with contextlib.suppress(QuorumUnavailable, ConfigError):
                granted = thief.acquire("r", TTL, blocking=False)
            assert not (granted and lock.remaining()), "two holders"
            return granted is not None

        eventually(over, "B gets it in the end", deadline=60.0)
        assert finished.result(DEADLINE) == 0
