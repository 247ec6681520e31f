"""Masters of a managed service: commands that are refused, credentials that change while locks are held.

No service is used here: a real server refuses, by the rules of a user, what a service refuses by its
documents. docs/deployments.md says what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.credentials import CredentialProvider, StreamingCredentialProvider
from support.clients import both_clients
from support.makers import MakeClient, Raw
from support.waiting import DEADLINE, eventually, start

from redlock_fast.embedded import Masters

#: What a user of the service may not execute, by its documents.
REFUSED = {
    "ElastiCache": "-config",
    "Memorystore": "-config -role",
    "Redis Cloud": "-select -role -client|tracking -client|caching -config|get",
    "Upstash": "-config -info -role -client",
}
#: Seconds: longer than a test takes.
TTL, MAX_TTL = 60.0, 600.0

Limit = Callable[[str, str], None]


@pytest.fixture
def limit(valkey: Masters, raw: Raw) -> Iterator[Limit]:
    """``limit(password, rules)``: the user "app" of all masters has this password, and these rules."""
    nodes = raw(valkey)

    def make(password: str, rules: str) -> None:
        for node in nodes:
            command = [
                "ACL",
                "SETUSER",
                "app",
                "reset",
                "on",
                f">{password}",
                "~*",
                "&*",
                "+@all",
                *rules.split(),
            ]
            node.execute_command(*command)  # type: ignore[no-untyped-call]

    yield make
    for node in nodes:
        node.acl_deluser("app")


def urls(masters: Masters) -> list[str]:
    return [f"redis://app:first@127.0.0.1:{master.port}" for master in masters]


def works(client: Any) -> None:
    """Each kind of lock is acquired, extended, waited for and released."""
    for make in (
        lambda: client.lock("plain", TTL),
        lambda: client.lock("fenced", TTL, fencing=True),
        lambda: client.lock("fair", TTL, fair=True),
        lambda: client.lock("renewed", TTL, auto_extend=True),
        lambda: client.rwlock("both", TTL).write(),
        lambda: client.semaphore("permits", 1, TTL),
        lambda: client.multilock(["a", "b"], TTL),
    ):
        lock, other = make(), make()
        assert lock.acquire()
        assert lock.extend() > 0
        waiting = start(lambda other=other: other.acquire(timeout=DEADLINE))
        assert not waiting.done()
        assert lock.release()
        assert waiting.result(DEADLINE)
        assert other.release()


@both_clients
@pytest.mark.parametrize("service", REFUSED)
def test_a_service_that_refuses_commands(
    valkey: Masters, connected: MakeClient, limit: Limit, service: str
) -> None:
    """Catches: a client that cannot connect where a command of its probe is refused."""
    limit("first", REFUSED[service])
    client = connected(urls(valkey))
    works(client)
    for health in client.health():
        assert health.faults == 0, health
        assert health.persistence == "", "no service says whether it keeps locks"
        assert (health.eviction, bool(health.run_id)) == (
            ("", False) if service == "Upstash" else ("noeviction", True)
        )
        assert health.push == health.witness == (service in ("ElastiCache", "Memorystore"))


def test_a_service_that_may_evict_locks(
    valkey: Masters, raw: Raw, connected: MakeClient, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: an eviction policy that is asked of CONFIG, which the services refuse."""
    caplog.set_level(logging.INFO, "redlock_fast")
    limit("first", REFUSED["ElastiCache"])
    node = raw(valkey)[0]
    node.config_set("maxmemory", "1gb")
    node.config_set("maxmemory-policy", "volatile-lru")  # the default of ElastiCache
    try:
        connected(urls(valkey))
        warned = "maxmemory-policy volatile-lru may evict locks"
        eventually(lambda: caplog.text.count(warned) == 1, "the operator is warned")
    finally:
        node.config_set("maxmemory-policy", "noeviction")
        node.config_set("maxmemory", "0")


class Token(CredentialProvider):
    """The token of the hour, as of IAM."""

    def __init__(self) -> None:
        self.token = "first"

    def get_credentials(self) -> tuple[str, str]:
        return "app", self.token


class Streaming(Token, StreamingCredentialProvider):
    """As redis-entraid's: it fetches tokens in the background, and tells redis-py's pools of them."""

    def on_next(self, callback: Callable[[Any], None]) -> None:
        pass

    def on_error(self, callback: Callable[[Exception], None]) -> None:
        pass

    def is_streaming(self) -> bool:
        return True


@pytest.fixture
def of_provider(valkey: Masters) -> Iterator[Callable[[CredentialProvider], list[redis.Redis]]]:
    """The masters, as clients of redis-py with a credential provider."""
    made: list[redis.Redis] = []

    def make(provider: CredentialProvider) -> list[redis.Redis]:
        made.extend(redis.Redis(port=master.port, credential_provider=provider) for master in valkey)
        return made

    yield make
    for one in made:
        one.close()


def connections(client: Any, number: int) -> None:
    eventually(
        lambda: [one.connections for one in client.health()] == [number] * 5, "all are connected again"
    )


@both_clients
@pytest.mark.parametrize("provider", [Token, Streaming])
def test_a_token_ends_while_locks_are_held(
    valkey: Masters,
    connected: MakeClient,
    limit: Limit,
    of_provider: Callable[[CredentialProvider], list[redis.Redis]],
    provider: type[Token],
) -> None:
    """The service closes all connections at one moment, as ElastiCache does after 12 hours.

    Catches: a token that is asked for once; a lock that ends with its connections; a guard that takes the new
    connections for restarted masters.
    """
    limit("first", "-config")
    tokens = provider()
    client = connected(of_provider(tokens), max_ttl=MAX_TTL)
    plain, fenced = client.lock("plain", TTL), client.lock("fenced", TTL, auto_extend=True, fencing=True)
    assert plain.acquire()
    assert fenced.acquire()
    tokens.token = "second"
    limit("second", "-config")
    for master in valkey:
        assert master.ask("CLIENT KILL USER app").startswith(":")
    connections(client, 2)
    assert [one.guard for one in client.health()] == [0.0] * 5
    assert plain.extend(confirm=True) > 0
    assert fenced.extend(confirm=True) > 0
    assert client.acquire("plain", blocking=False) is None
    assert client.acquire("another", TTL) is not None
    assert plain.release()
    assert fenced.release()
    assert client.stats().lost == 0


@pytest.mark.parametrize("guard", ["auto", "marker"])
def test_a_token_ends_where_masters_do_not_say_who_they_are(
    valkey: Masters,
    connected: MakeClient,
    limit: Limit,
    of_provider: Callable[[CredentialProvider], list[redis.Redis]],
    guard: str,
) -> None:
    """Without INFO a new connection is a restart for "auto"; "marker" asks the masters themselves.

    What is held is kept in both cases.
    """
    limit("first", REFUSED["Upstash"])
    tokens = Token()
    client = connected(of_provider(tokens), max_ttl=MAX_TTL, restart_guard=guard, assume_fresh=True)
    lock = client.lock("r", TTL)
    assert lock.acquire()
    tokens.token = "second"
    limit("second", REFUSED["Upstash"])
    for master in valkey:
        assert master.ask("CLIENT KILL USER app").startswith(":")
    connections(client, 2)
    assert [one.guard > 0 for one in client.health()] == [guard == "auto"] * 5
    assert lock.release()


def test_a_password_is_rotated(valkey: Masters, connected: MakeClient, limit: Limit) -> None:
    """The steps of docs/deployments.md, with clients of the old URLs and of the new ones at the same time.

    Catches: a lock that is lost, or two passwords that do not exclude each other, in one of the steps.
    """
    limit("first", "")
    old = connected(urls(valkey))
    lock = old.lock("r", TTL)
    assert lock.acquire()
    for master in valkey:
        assert master.ask("ACL SETUSER app >second") == "+OK"
    new = connected([url.replace("first", "second") for url in urls(valkey)])
    assert new.acquire("r", blocking=False) is None
    for master in valkey:
        assert master.ask("ACL SETUSER app <first") == "+OK"
    assert lock.extend(confirm=True) > 0
    assert lock.release()
    for master in valkey:
        assert master.ask("CLIENT KILL USER app").startswith(":")
    eventually(lambda: {one.state for one in old.health()} == {"refused"}, "the old password is refused")
    connections(new, 2)
    assert new.acquire("r", TTL) is not None


def test_a_service_that_closes_idle_connections(
    valkey: Masters, raw: Raw, connected: MakeClient, limit: Limit
) -> None:
    """The client connects again without a caller, and its next lock is granted by all masters.

    Catches: a closed connection that is found by the next lock only.
    """
    limit("first", "-config")
    client = connected(urls(valkey))
    lock = client.lock("r", TTL)
    assert lock.acquire()
    nodes = raw(valkey)
    for node in nodes:
        node.config_set("timeout", 1)
    try:
        eventually(
            lambda: all(one.connections > 1 and one.state == "connected" for one in client.health()),
            "the connections were closed, and made again",
        )
        assert lock.release()
        with client.lock("r", TTL):
            pass
        assert [one.guard for one in client.health()] == [0.0] * 5
    finally:
        for node in nodes:
            node.config_set("timeout", 0)
