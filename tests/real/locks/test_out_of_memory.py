"""Masters without free memory (``maxmemory`` is reached): what is held there is kept, and given back.

A server then refuses each command that may need memory, SET and ZADD among them, but no command that deletes
or changes an expiry. No lock is acquired there, and none may be lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.clocks import Jumping
from support.inside import core_of
from support.keys import TTL, nothing_left, with_key
from support.kinds import values, waiting_writers
from support.makers import MakeClient, MakePlain, Raw
from support.renewing import THIRD
from support.waiting import eventually

from redlock_fast import QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.locks.rwlock import Writer

pytestmark = pytest.mark.usefixtures("all_masters")

#: Every kind of lock that ends with its release.
KINDS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda c: c.lock("r"),
    "fenced": lambda c: c.lock("r", fencing=True),
    "fair": lambda c: c.lock("r", fair=True),
    "reader": lambda c: c.rwlock("r").read(),
    "writer": lambda c: c.rwlock("r").write(),
    "slot": lambda c: c.semaphore("r", 2),
    "multilock": lambda c: c.multilock(["r", "s"]),
}


@contextlib.contextmanager
def full(nodes: list[redis.Redis]) -> Iterator[None]:
    """No memory is free on these masters."""
    try:
        for node in nodes:
            node.config_set("maxmemory", 1)
        yield
    finally:
        for node in nodes:
            node.config_set("maxmemory", 0)


def free(masters: Masters) -> bool:
    """Whether no lock is left: a counter of fencing tokens and the empty set of a reader are none."""
    return not any(with_key(masters, key) for key in ("r", "s", "{r}:w", "{r}:r", "{r}:i", "{r}:0", "{r}:1"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_lock_is_extended_and_released(
    masters: Masters, plain: MakePlain, raw: Raw, kind: str
) -> None:
    """Catches: an extension or a release by a command that needs memory."""
    c = plain(masters, ttl=TTL / 2).at_full_strength()
    lock = KINDS[kind](c.client)
    assert c.wait(lock.acquire())
    with full(raw(masters)):
        with pytest.raises(QuorumUnavailable, match="OOM"):
            c.wait(c.client.lock("other").acquire())
        assert c.wait(lock.extend(TTL)) > TTL / 2
        assert c.wait(lock.extend(TTL, confirm=True)) > TTL / 2
        assert c.wait(lock.release()) is True
        eventually(lambda: free(masters), "it is released")


def test_a_writer_becomes_a_reader(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """Catches: a downgrade that is refused, so that the lock ends with the lease of the writer."""
    c = plain(masters, ttl=TTL / 2).at_full_strength()
    lock = c.client.rwlock("r").write()
    assert c.wait(lock.acquire())
    with full(raw(masters)):
        assert c.wait(lock.downgrade()) > 0
        assert c.wait(lock.extend(TTL)) > TTL / 2
        assert len(with_key(masters, "{r}:r")) >= 3
        assert not with_key(masters, "{r}:w")
        assert c.wait(lock.release()) is True
        eventually(lambda: free(masters), "it is released")


def test_a_round_of_a_writer_is_taken_back(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Its vote goes, and its place stays. Catches: a place that is refused, so that the vote stays."""
    c = connected(masters)
    writer, everywhere = Writer(b"r", b"60000"), core_of(c).policy.voters.lists.all
    round_of = writer.acquire_request(b"token", b"60000", everywhere)
    assert values(c, round_of) == [(1,) * 5]
    nodes = raw(masters)
    with full(nodes):
        assert values(c, *writer.rollback_requests(b"token", everywhere, 1.0)) == [(1,) * 5]
    assert not with_key(masters, "{r}:w")
    assert waiting_writers(nodes, "r") == [1] * 5


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_renewal_holds_it(
    masters: Masters, connected: MakeClient, raw: Raw, clock: Jumping, kind: str
) -> None:
    """Until there is memory again."""
    c = connected(masters, ttl=TTL, clock=clock)
    rw = c.rwlock("r", auto_extend=True)
    with rw.read() if kind == "reader" else rw.write() as lock, full(raw(masters)):
        for count in (1, 2, 3):
            clock.jump(THIRD)
            eventually(lambda: lock._lease.extensions >= count, "it is extended")  # noqa: B023
    nothing_left(masters)
