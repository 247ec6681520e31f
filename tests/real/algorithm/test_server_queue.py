"""A client that is closed while it waits: no other client has to wait for the places that it kept."""

from __future__ import annotations

import asyncio

import pytest
import redis
from support.event_loops import on_loops, until
from support.keys import TTL, occupy
from support.kinds import Make
from support.makers import MakeAio, MakeClient, Raw
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ClientClosed
from redlock_fast.embedded import Masters
from redlock_fast.locks import fair, rwlock

#: A lock that keeps a place while it waits, what it waits for, and where the place is.
KINDS: dict[str, tuple[Make, str, str]] = {
    "fair": (lambda client: client.lock("r", fair=True), "r", "{r}:q"),
    "writer": (lambda client: client.rwlock("r").write(), "{r}:w", "{r}:i"),
}
pytestmark = [
    pytest.mark.usefixtures("all_masters", "lasting_places"),
    pytest.mark.parametrize("wait", ["auto", "poll"]),
    pytest.mark.parametrize("kind", KINDS),
]


@pytest.fixture
def lasting_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """No place of a test expires while a client waits for it."""
    monkeypatch.setattr(fair, "ENTRY_TTL", TTL)
    monkeypatch.setattr(rwlock, "INTENT", TTL)


def everywhere(nodes: list[redis.Redis], place: str) -> bool:
    return all(node.zcard(place) for node in nodes)


def left(nodes: list[redis.Redis], taken: str) -> list[list[bytes]]:
    return [[key for key in node.scan_iter() if key != taken.encode()] for node in nodes]


def test_threads(masters: Masters, connected: MakeClient, raw: Raw, kind: str, wait: str) -> None:
    make, taken, place = KINDS[kind]
    nodes, c = raw(masters), connected(masters, wait=wait)
    occupy(nodes, taken)
    trying = [start(make(c).acquire) for _ in range(3)]
    eventually(lambda: everywhere(nodes, place), "they wait everywhere")
    c.close()
    assert left(nodes, taken) == [[]] * 5
    for one in trying:
        with pytest.raises(ClientClosed):
            one.result(DEADLINE)
    assert left(nodes, taken) == [[]] * 5, "no client took it again"


@on_loops
async def test_tasks(masters: Masters, aclient: MakeAio, raw: Raw, kind: str, wait: str) -> None:
    make, taken, place = KINDS[kind]
    nodes = raw(masters)
    occupy(nodes, taken)
    async with aclient(masters, wait=wait) as c:
        trying = [asyncio.create_task(make(c).acquire()) for _ in range(3)]
        await until(lambda: everywhere(nodes, place), "they wait everywhere")
    assert left(nodes, taken) == [[]] * 5
    ends = await asyncio.gather(*trying, return_exceptions=True)
    assert [type(end) for end in ends] == [ClientClosed] * 3
    assert left(nodes, taken) == [[]] * 5, "no client took it again"
