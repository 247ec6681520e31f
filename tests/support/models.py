"""Real masters for a state machine: one is dead, and the replies of another get lost."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import redis
from support.inside import core_of
from support.proxy import Proxy
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

#: Seconds that a majority without replies is waited for.
HASTY = 0.1
PATIENT = 10.0


def failed(error: QuorumUnavailable, expected: object) -> None:
    """Too few masters answered: as expected, or because one lags, on a machine that is busy."""
    assert expected or "lagging" in str(error)


class UnreliableDay:
    """Four masters behind proxies and a fifth that is dead; two clients of them."""

    def __init__(self, masters: Masters, engine: str) -> None:
        self.names = map("model:{}".format, itertools.count())
        self.nodes = [redis.Redis(unix_socket_path=one.socket_path, socket_timeout=20) for one in masters[:4]]
        self.proxies = [Proxy(one.port) for one in masters[:4]]
        self.dead = Proxy(1)
        self.dead.refusing = True
        urls = [*(proxy.url for proxy in self.proxies), self.dead.url]
        options: dict[str, Any] = {"engine": engine, "node_timeout": PATIENT, "connect_timeout": DEADLINE}
        self.clients = [FastRedlock(urls, ttl=60.0, **options) for _ in range(2)]
        for client in self.clients:
            assert client.connect()
        self.heal()
        self.lost = 0

    @contextlib.contextmanager
    def losing(self, deaf: tuple[int, ...]) -> Iterator[None]:
        """Replies of these masters are lost in this block, and then their connections."""
        for number in deaf:
            self.proxies[number].deaf = True
        for client in self.clients:
            # A quorum of all five needs three of these four.
            core_of(client).policy.node_timeout = HASTY if len(deaf) > 1 else PATIENT
        try:
            yield
        finally:
            if deaf:
                self._replace(deaf)

    def _replace(self, deaf: tuple[int, ...]) -> None:
        self.lost += 1
        before = self._connections()
        for number in deaf:
            self.proxies[number].cut()

        def replaced() -> bool:
            pairs = zip(self._connections(), before, strict=True)
            return all(now[number] > then[number] for now, then in pairs for number in deaf)

        eventually(replaced, "every client has connections of its own again")
        self.heal()

    def _connections(self) -> list[list[int]]:
        return [[one.connections for one in client.health()] for client in self.clients]

    def heal(self) -> None:
        """All four are connected, and have executed everything."""
        eventually(self._healthy, "all masters that live are connected, and owe nothing")

    def _healthy(self) -> bool:
        health = [one for client in self.clients for one in client.health()[:4]]
        return all(one.state == "connected" and not one.pending for one in health)

    def keys(self, name: str) -> list[set[bytes]]:
        """What each master has of this resource."""
        return [set(node.scan_iter(match=f"{{{name}}}:*", count=1000)) for node in self.nodes]

    def close(self) -> None:
        for closing in (*self.clients, *self.proxies, self.dead, *self.nodes):
            closing.close()
