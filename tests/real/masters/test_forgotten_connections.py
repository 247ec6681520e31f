"""Connections that a NAT, a firewall or a load balancer forgets after idle time; masters that are slow."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.keys import nothing_left
from support.proxy import Forgetting, Stranding
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.masters.connect import ProbedConnection

MakeClient = Callable[..., FastRedlock]

#: A connection is not given up because of its silence in a test. Seconds.
NEVER = 1000.0


@pytest.fixture
def proxies(valkey: Masters) -> Iterator[list[Forgetting]]:
    made = [Forgetting(master.port) for master in valkey]
    yield made
    for proxy in made:
        proxy.close()


def through(valkey: Masters, proxies: list[Any]) -> list[str]:
    """The URLs of the masters behind their proxies."""
    return [
        master.url.replace(f":{master.port}", f":{proxy.port}")
        for master, proxy in zip(valkey, proxies, strict=True)
    ]


@both_clients
@pytest.mark.parametrize("forgotten", [5, 3])
def test_the_first_lock_after_idle_time(
    valkey: Masters, proxies: list[Forgetting], connected: MakeClient, forgotten: int
) -> None:
    """Catches: a caller that waits for ``socket_timeout``."""
    one = connected(through(valkey, proxies), socket_timeout=NEVER)
    for proxy in proxies[:forgotten]:
        proxy.lose_all()
    assert one.lock("r", 60.0).acquire(timeout=60.0)
    eventually(
        lambda: [m.connections for m in one.health()] == [2] * forgotten + [1] * (5 - forgotten),
        "the rest is connected again, too",
    )


@both_clients
def test_an_attempt_of_its_own_has_masters_connected(
    valkey: Masters, proxies: list[Forgetting], connected: MakeClient
) -> None:
    """No caller waits: the first attempt fails, and a later one finds the new connections."""
    one = connected(through(valkey, proxies), socket_timeout=NEVER)
    for proxy in proxies:
        proxy.lose_all()

    def is_granted() -> bool:
        try:
            return one.lock("r", 60.0).acquire(blocking=False)
        except QuorumUnavailable:
            return False

    eventually(is_granted, "an attempt is granted")


@both_clients
def test_a_release_after_a_long_hold(
    valkey: Masters, proxies: list[Forgetting], connected: MakeClient
) -> None:
    one = connected(through(valkey, proxies), socket_timeout=NEVER)
    lock = one.lock("r", 60.0)
    assert lock.acquire()
    for proxy in proxies:
        proxy.lose_all()
    lock.release()
    nothing_left(valkey)


@both_clients
def test_an_extension_after_idle_time(
    valkey: Masters, proxies: list[Forgetting], connected: MakeClient
) -> None:
    one = connected(through(valkey, proxies), socket_timeout=NEVER)
    lock = one.lock("r", 60.0)
    assert lock.acquire()
    for proxy in proxies:
        proxy.lose_all()

    def is_extended() -> bool:
        try:
            return bool(lock.extend(60.0, confirm=True) > 0)
        except QuorumUnavailable:
            return False

    eventually(is_extended, "the extension is confirmed on new connections")
    assert lock.locked()


@both_clients
def test_masters_that_are_stopped_keep_their_connections(valkey: Masters, connected: MakeClient) -> None:
    """They are silent on a new connection, too. Catches: connections that are dropped again and again."""
    one = connected(valkey, connect_timeout=0.2, socket_timeout=NEVER)
    for n in range(3):
        valkey[n].pause()
    with pytest.raises(QuorumUnavailable):
        one.lock("r", 60.0).acquire(timeout=2.0)
    assert [master.connections for master in one.health()] == [1] * 5
    for n in range(3):
        valkey[n].resume()
    assert one.lock("r", 60.0).acquire(timeout=60.0)
    eventually(lambda: not any(master.pending for master in one.health()), "all replies have come")
    assert [master.connections for master in one.health()] == [1] * 5


@both_clients
def test_a_minority_that_is_silent_has_time(
    valkey: Masters, proxies: list[Forgetting], connected: MakeClient
) -> None:
    """Locks are granted without it. So it is given up after ``socket_timeout``, as before."""
    one = connected(through(valkey, proxies), socket_timeout=NEVER)
    for proxy in proxies[:2]:
        proxy.lose_all()
    for _ in range(20):
        with one.lock("r", 60.0):
            pass
    assert [master.connections for master in one.health()] == [1] * 5


@both_clients
def test_what_the_old_connections_deliver_late_takes_no_vote_back(
    valkey: Masters, connected: MakeClient
) -> None:
    """The old connections have an acquire of a failed attempt and its undo."""
    stranding = [Stranding(master.port) for master in valkey]
    one = connected(through(valkey, stranding), socket_timeout=NEVER)
    held = one.lock("held", 60.0)
    assert held.acquire()
    for proxy in stranding:
        proxy.strand()
    lock = one.lock("r", 60.0)
    assert lock.acquire(timeout=60.0)
    eventually(lambda: [m.connections for m in one.health()] == [2] * 5, "all are connected again")
    assert held.extend(60.0) > 0
    for proxy in stranding:
        proxy.deliver()
    nodes = [redis.Redis.from_url(url) for url in valkey.urls]
    one.connect()
    with one.lock("another", 60.0):  # the masters have executed what came before
        pass
    for name, token in (("held", held.token), ("r", lock.token)):
        assert sum(node.get(name) == token for node in nodes) >= 3
    assert lock.release()
    assert held.release()
    for proxy in stranding:
        proxy.close()
    for node in nodes:
        node.close()


def test_the_system_probes_idle_connections(valkey: Masters, connected: MakeClient) -> None:
    """More often than the shortest idle time after which a NAT forgets a connection."""
    urls = [master.url for master in valkey]
    found: list[tuple[int, ...]] = []
    attach = ProbedConnection.take

    def take(probed: Any) -> socket.socket:
        sock = attach(probed)
        found.append(
            (
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            )
        )
        return sock

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProbedConnection, "take", take)
        connected(urls)
    assert len(found) == len(urls)
    assert all(on and idle <= 60 and interval <= 15 and most <= 60_000 for on, idle, interval, most in found)
