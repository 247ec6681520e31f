"""A multilock at the joint step: each key needs a quorum of each list, whichever key has fewer grants."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.clients import both_clients
from support.proxy import Pipe, Proxy
from support.waiting import eventually

from redlock_fast import FastRedlock, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]
MakeClient = Callable[..., FastRedlock]


class OnlyFirst(Proxy):
    """Once ``armed``, passes one more command on, and holds the rest: a segment is lost, and not sent again."""

    def __init__(self, upstream: int) -> None:
        self.armed = False
        self._passed = False
        super().__init__(upstream)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if not (self.armed and pipe.from_client):
            return super().arrived(pipe, data)
        if self._passed:
            return
        self._passed = True
        super().arrived(pipe, data[: second_command(data)])


def second_command(data: bytes) -> int:
    """Where the second command begins."""
    lines = data.split(b"\r\n", 1)
    count = int(lines[0][1:])
    at = len(lines[0]) + 2
    for _ in range(count):
        end = data.index(b"\r\n", at)
        at = end + 2 + int(data[at + 1 : end]) + 2
    return at


def test_each_key_needs_a_quorum_of_each_list(masters: Masters, connected: MakeClient) -> None:
    ttl = 3.0
    with contextlib.ExitStack() as stack:
        proxies = [Proxy(masters[0].port), OnlyFirst(masters[2].port), Proxy(masters[3].port)]
        for proxy in proxies:
            stack.enter_context(proxy)
        old = [proxies[0].url, masters.urls[1], proxies[1].url]
        new = [masters.urls[1], proxies[1].url, proxies[2].url]
        joint = connected(new, joint_with=old, node_timeout=0.5, ttl=ttl)
        other = connected([masters.urls[n] for n in (1, 2, 3)], node_timeout=0.5)
        made = joint.multilock(["a", "b"], ttl)
        lock = joint._result(made) if hasattr(joint, "_result") else made
        assert lock.acquire()
        for n in range(4):
            eventually(lambda: masters[n].ask("EXISTS a b") == ":2", "each master has both")
        time.sleep(ttl * 0.5)
        proxies[2].hold()
        proxies[1].armed = True
        proxies[0].delay = lambda: 0.05
        with contextlib.suppress(QuorumUnavailable, LockLost):
            lock.extend()

        def second() -> Any:
            with contextlib.suppress(QuorumUnavailable):
                return other.acquire("b", 10.0, blocking=False)

        end = time.monotonic() + ttl
        while lock.locked() and time.monotonic() < end:
            got = second()
            assert not (got and lock.locked()), f"two holders: the first for {lock.remaining():.2f} s more"
            time.sleep(0.01)
