"""Write locks, multilocks and fenced locks that many clients want: one is woken, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from support.event_loops import until
from support.keys import calls, forget_calls
from support.makers import MakeAio, MakeClient, Raw
from support.waiting import DEADLINE, eventually, start

from redlock_fast.algorithm import attempts
from redlock_fast.embedded import Masters

TTL = 60.0
CLIENTS, GRANTS = 10, 8
pytestmark = pytest.mark.usefixtures("all_masters")

KINDS: dict[str, Callable[[Any], Any]] = {
    "write": lambda client: client.rwlock("r", TTL).write(),
    "multilock": lambda client: client.multilock(["r", "s"], TTL),
    "fenced": lambda client: client.lock("r", TTL, fencing=True),
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return KINDS[request.param]


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "REFUSED_ROUNDS", 1)


def in_line(node: redis.Redis) -> int:
    """How many callers wait for the turn, with the one that has it."""
    return sum(node.zcard(key) for key in node.keys("{r}:t:*q"))


def no_lock_left(nodes: list[redis.Redis]) -> bool:
    return all(not [key for key in node.keys("*") if not key.endswith(b":f")] for node in nodes)


@pytest.mark.usefixtures("few_are_many")
def test_a_grant_costs_few_commands_however_many_wait(
    masters: Masters, connected: MakeClient, raw: Raw, make: Callable[[Any], Any]
) -> None:
    """Catches: each release wakes all clients, and each of them asks all masters."""
    nodes, inside, wrong = raw(masters), [0], []
    clients = [connected(masters) for _ in range(CLIENTS)]
    forget_calls(nodes)

    def take(client: Any) -> None:
        for _ in range(GRANTS):
            with make(client):
                inside[0] += 1
                if inside[0] != 1:
                    wrong.append("two holders")
                inside[0] -= 1

    for caller in [start(partial(take, client)) for client in clients]:
        caller.result(6 * DEADLINE)
    assert not wrong
    scripts = sum(calls(nodes, "evalsha")) / (len(nodes) * CLIENTS * GRANTS)
    assert scripts < 2.5 * CLIENTS, "of a herd each caller asks, gives back, and watches"
    eventually(lambda: no_lock_left(nodes), "only counters are left")


@pytest.mark.usefixtures("few_are_many")
def test_what_a_cancelled_caller_had_goes_to_the_next_one(
    masters: Masters, aclient: MakeAio, raw: Raw, make: Callable[[Any], Any]
) -> None:
    nodes = raw(masters)

    async def main() -> None:
        async with aclient(masters) as holder, aclient(masters) as first, aclient(masters) as second:
            async with make(holder):
                has_turn = asyncio.create_task(make(first).acquire())
                await until(lambda: any(node.keys("{r}:t:*") for node in nodes), "it has the turn")
                next_one = make(second)
                waits = asyncio.create_task(next_one.acquire())
                await until(lambda: all(in_line(node) for node in nodes), "another caller waits for it")
                has_turn.cancel()
                await asyncio.wait([has_turn])
                assert has_turn.cancelled()
            assert await asyncio.wait_for(waits, DEADLINE)
            await next_one.release()

    asyncio.run(main())
    eventually(lambda: no_lock_left(nodes), "only counters are left")


@pytest.mark.usefixtures("few_are_many")
def test_a_client_that_closes_gives_its_turn_back(
    masters: Masters, connected: MakeClient, raw: Raw, make: Callable[[Any], Any]
) -> None:
    nodes, holder, other = raw(masters), connected(masters), connected(masters)
    with make(holder):
        trying = start(make(other).acquire)
        eventually(lambda: all(node.keys("{r}:t:*") for node in nodes), "it has the turn")
        other.close()
        assert trying.exception(DEADLINE) is not None
        eventually(lambda: not any(node.keys("{r}:t:*") for node in nodes), "the turn is free")
    eventually(lambda: no_lock_left(nodes), "only counters are left")
