"""A release to a master that writes nothing for a while: the key goes when it can, not with its lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis
from support.event_loops import Plain
from support.keys import TTL, nothing_left, with_keys
from support.kinds import Make
from support.waiting import eventually

from redlock_fast.embedded import Masters
from redlock_fast.masters import connector as _connector

MakePlain = Callable[..., Plain]
Raw = Callable[[Masters], list[redis.Redis]]

LOCKS: dict[str, Make] = {
    "plain": lambda client: client.lock("r", TTL),
    "fair": lambda client: client.lock("r", TTL, fair=True),
    "writer": lambda client: client.rwlock("r", TTL).write(),
    "multilock": lambda client: client.multilock(["r", "s"], TTL),
}


@contextlib.contextmanager
def unwilling(node: redis.Redis) -> Iterator[None]:
    """It wants a replica for each write, and has none: NOREPLICAS."""
    assert node.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        assert node.config_set("min-replicas-to-write", 0)


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("kind", LOCKS)
def test_released_when_it_can(
    masters: Masters, plain: MakePlain, raw: Raw, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_connector, "IDLE_TICK", 0.1)  # so often the connector looks
    c, last = plain(masters).at_full_strength(), raw(masters)[-1]
    if last.info("server")["redis_version"].startswith("6."):
        pytest.skip("Redis 6.2 answers ERR where a command of a script fails")
    lock = LOCKS[kind](c.client)
    assert c.wait(lock.acquire())
    eventually(lambda: with_keys(masters) == [0, 1, 2, 3, 4], "all have it")
    with unwilling(last):
        assert c.wait(lock.release()) is True
        eventually(lambda: c.client.health()[-1].resent > 0, "it is asked again")
        assert with_keys(masters) == [4], "the others have released it"
    nothing_left(masters)
    assert [master.resent > 0 for master in c.client.health()] == [False] * 4 + [True]
