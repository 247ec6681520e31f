"""A flush whose report lies unread in the socket when the connection breaks: it was reported, and must count."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.proxy import Proxy
from support.waiting import eventually

from redlock_fast import AsyncFastRedlock, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

TTL = 30.0


def granted(thief: Any) -> bool:
    with contextlib.suppress(QuorumUnavailable):
        return thief.acquire("r", TTL, blocking=False) is not None
    return False


@pytest.mark.parametrize("attempt", range(5))
def test_a_flush_before_a_reset_silences(masters: Masters, connected: MakeClient, attempt: int) -> None:
    """The report of the flush and a reset (of a balancer, a firewall) reach a client that is idle."""
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(master.port)) for master in masters]
        holder = connected(masters.urls[:3])
        thief = connected([proxy.url for proxy in proxies[:3]])
        lock = holder.acquire("r", TTL)
        assert lock
        assert all(master.witness for master in thief.health())
        for number in (0, 1):
            assert masters[number].ask("FLUSHALL") == "+OK"
        time.sleep(0.02)  # the reports arrive at the thief's sockets
        for proxy in proxies[:2]:
            proxy.cut()
        got = granted(thief)
        time.sleep(0.1)
        got = got or granted(thief)
        assert not (got and lock.locked()), "two holders"


@pytest.mark.parametrize("attempt", range(5))
def test_a_flush_before_a_kill_silences_a_loop(
    masters: Masters, engine_name: str, connected: MakeClient, attempt: int
) -> None:
    """A loop that is blocked: FLUSHALL, CLIENT KILL (as a phase of a change does), then two tasks begin."""
    holder = connected(masters.urls[:3])
    lock = holder.acquire("r", TTL)
    assert lock

    async def main() -> bool:
        thief = AsyncFastRedlock(masters.urls[:3], engine=engine_name, node_timeout=5.0, connect_timeout=20.0)
        async with thief:
            await thief.connect()
            while not all(master.state == "connected" for master in thief.health()):
                await asyncio.sleep(0.01)
            async with thief.lock("warm"):
                pass
            await asyncio.sleep(0.05)
            for number in (0, 1):
                assert masters[number].ask("FLUSHALL") == "+OK"
                assert masters[number].ask("CLIENT KILL TYPE normal").startswith(":")
            time.sleep(0.02)  # the loop is blocked

            async def one(name: str) -> bool:
                with contextlib.suppress(QuorumUnavailable):
                    return await thief.acquire(name, TTL, blocking=False) is not None
                return False

            got = await asyncio.gather(*(one(f"x{n}") for n in range(4)))
            await asyncio.sleep(0.3)
            return await one("r")

    got = asyncio.run(main())
    assert not (got and lock.locked()), "two holders"
