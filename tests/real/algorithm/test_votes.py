"""A vote that counts is never taken back, and never shortened: whatever old connections deliver, and when.

PROTOCOLS: "A vote counts only while nothing that we sent, and that may still be executed, can take it back or
shorten it." Here the first of three masters is behind a proxy. The client gets no reply from it any more,
gives the connection up and makes another. What it wrote to the first one arrives last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.keys import paused
from support.makers import MakeClient, Raw
from support.proxy import Stranding
from support.waiting import eventually

from redlock_fast import FastRedlock, LockLost
from redlock_fast.embedded import Masters

#: Seconds of silence until a connection is given up. A busy machine seldom holds up a master for so long.
SOON = 1.0
NAME = "votes"

#: By name: a new lock of that kind on NAME.
KINDS: dict[str, Callable[..., Any]] = {
    "plain": lambda client, ttl: client.lock(NAME, ttl),
    "fenced": lambda client, ttl: client.lock(NAME, ttl, fencing=True),
    "reader": lambda client, ttl: client.rwlock(NAME, ttl).read(),
    "writer": lambda client, ttl: client.rwlock(NAME, ttl).write(),
    "slot": lambda client, ttl: client.semaphore(NAME, 1, ttl=ttl),
    "fair": lambda client, ttl: client.lock(NAME, ttl, fair=True),
    "multilock": lambda client, ttl: client.multilock([NAME, "votes too"], ttl),
    "reentrant": lambda client, ttl: client.rlock(NAME, ttl),
}
#: A kind that a lock of this kind excludes, where that is not its own.
AGAINST = {"reader": "writer"}


@pytest.fixture
def proxy(masters: Masters) -> Iterator[Stranding]:
    with Stranding(masters[0].port) as proxy:
        yield proxy


def gives_up(client: FastRedlock, proxy: Stranding, before: int) -> None:
    """The client has made another connection to the first master."""
    eventually(
        lambda: client.health()[0].connections > before and client.health()[0].state == "connected",
        "it gives up the old connection and makes a new one",
        deadline=60.0,
    )


def delivered(proxy: Stranding) -> None:
    proxy.deliver()
    eventually(proxy.over, "the master executes what the old connection delivers", deadline=60.0)


def lasts(node: redis.Redis, kind: str) -> int:
    """Milliseconds that the first master keeps the lock; negative: it has none."""
    if kind == "reader":
        ends = node.zrange(f"{{{NAME}}}:r", -1, -1, withscores=True)
        seconds, micro = node.time()
        return int(ends[0][1] - seconds * 1000 - micro // 1000) if ends else -2
    key = {"writer": f"{{{NAME}}}:w", "slot": f"{{{NAME}}}:0"}.get(kind, NAME)
    return int(node.pttl(key))


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_old_connection_delivers_takes_no_vote_back(
    kind: str, masters: Masters, proxy: Stranding, connected: MakeClient, raw: Raw
) -> None:
    """Catches: a release behind an acquire that was granted, written when the connection is given up. The
    next connection has the vote counted; then the release runs, and another client gets the lock.
    """
    nodes = raw(masters)
    urls = [proxy.url, *masters.urls[1:3]]
    a = connected(urls, socket_timeout=SOON)
    lock = KINDS[kind](a, 60.0)
    before = a.health()[0].connections
    proxy.strand(requests=False)
    assert lock.acquire()
    eventually(lambda: lasts(nodes[0], kind) > 0, "the first master executes it, though no reply comes")
    proxy.strand()
    gives_up(a, proxy, before)
    with paused(masters, 2):
        lock.extend()  # confirmed by the first two
    delivered(proxy)
    lock.check()
    assert lasts(nodes[0], kind) > 0, "the first master was counted, and has lost the lock"
    b = connected([masters.urls[n] for n in range(3)])
    other = KINDS[AGAINST.get(kind, kind)](b, 60.0)
    eventually(lambda: nodes[2].dbsize() > 0, "the third master answers again")
    nodes[2].delete(*nodes[2].keys("*"))  # as if what it has had ended: it was not asked to extend in time
    assert not other.acquire(blocking=False), "two holders"
    lock.check()
    assert lock.release()


def test_closing_takes_back_no_vote_of_a_lock_that_was_detached(
    masters: Masters, proxy: Stranding, connected: MakeClient, raw: Raw
) -> None:
    """Catches: a release behind an acquire that was granted, written when the client is closed. Another
    process took the lock over, and has the vote counted; then the release runs.
    """
    nodes = raw(masters)
    a, b = connected([proxy.url, *masters.urls[1:3]]), connected(masters.urls[:3])
    lock = a.lock(NAME, 60.0)
    proxy.strand(requests=False)
    assert lock.acquire()
    eventually(lambda: lasts(nodes[0], "plain") > 0, "the first master executes it, though no reply comes")
    proxy.strand()
    taken = b.lock(NAME, 60.0, token=lock.detach())
    a.close()
    with paused(masters, 2):
        taken.extend()  # confirmed by the first two
    delivered(proxy)
    assert lasts(nodes[0], "plain") > 0, "the first master was counted, and has lost the lock"
    assert taken.release()


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_shorter_extension_shortens_nothing(
    kind: str, masters: Masters, proxy: Stranding, connected: MakeClient, raw: Raw
) -> None:
    """Catches: an extension that sets the end that it was asked for, executed after a longer one."""
    nodes = raw(masters)
    a = connected([proxy.url, *masters.urls[1:3]], socket_timeout=SOON, ttl=20.0)
    lock = KINDS[kind](a, 20.0)
    assert lock.acquire()
    eventually(lambda: lasts(nodes[0], kind) > 0, "the first master has it")
    before = a.health()[0].connections
    proxy.strand()
    lock.extend(40.0)  # confirmed by the other two
    gives_up(a, proxy, before)
    with paused(masters, 2):
        lock.extend(60.0)  # confirmed by the first two
    then, left = time.monotonic(), lasts(nodes[0], kind)
    assert left > 40_000
    delivered(proxy)
    now_left = lasts(nodes[0], kind)
    gone = (time.monotonic() - then) * 1000
    assert now_left >= left - gone - 1000, "the end of the lock came nearer"
    lock.check()
    assert lock.release()


def test_an_inner_level_shortens_no_outer_one(
    masters: Masters, proxy: Stranding, connected: MakeClient, raw: Raw
) -> None:
    """A reentrant lock that is renewed, entered again for less. Catches: the same, by our own renewal."""
    nodes = raw(masters)
    a = connected([proxy.url, *masters.urls[1:3]], socket_timeout=SOON)
    lock = a.rlock(NAME, 60.0)
    assert lock.acquire(ttl=10.0)
    eventually(lambda: lasts(nodes[0], "plain") > 0, "the first master has it")
    before = a.health()[0].connections
    proxy.strand()
    assert lock.acquire(ttl=30.0)
    gives_up(a, proxy, before)
    with paused(masters, 2):
        lock.extend(60.0)
    delivered(proxy)
    assert lasts(nodes[0], "plain") > 40_000
    lock.check()
    assert lock.release()
    assert lock.release()


@pytest.mark.parametrize("kind", ["plain", "slot", "multilock", "writer"])
def test_a_held_lock_is_extended_where_memory_is_full(
    kind: str, masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Catches: an extension by a command that needs memory. SET is refused then, PEXPIRE is not."""
    nodes = raw(masters)
    a = connected(masters, ttl=20.0)
    lock = KINDS[kind](a, 20.0)
    assert lock.acquire()
    try:
        for node in nodes:
            node.config_set("maxmemory", 1)
        lock.extend(60.0)
        assert lock.remaining() > 20.0
    finally:
        for node in nodes:
            node.config_set("maxmemory", 0)
    assert lock.release()


@pytest.mark.parametrize("kind", ["plain", "multilock"])
def test_confirm_asks_the_masters(kind: str, masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Less is asked for than is left. Catches: a lock that counts as held though its keys are deleted."""
    a = connected(masters)
    lock = KINDS[kind](a, 60.0)
    assert lock.acquire()
    assert lock.extend(5.0) > 30.0, "as it was confirmed"
    assert lock.extend(5.0, confirm=True) > 30.0
    for node in raw(masters):
        node.delete(NAME)
    assert lock.extend(5.0) > 30.0, "no master is asked"
    with pytest.raises(LockLost):
        lock.extend(5.0, confirm=True)
