"""What a program or its system does on the way to a connection hangs, or raises: its master comes back."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

#: Seconds. An attempt is given up after ten times this.
TIMEOUT = 0.03


class Trouble:
    """At some calls of ``happen`` it hangs until the test ends, or raises ``error``.

    ``first``: how many calls are well before; ``left``: how many are not.
    """

    def __init__(self) -> None:
        self.first, self.left = 0, 1
        self.error: BaseException | None = None
        self.over = threading.Event()

    def happen(self) -> None:
        self.first -= 1
        if self.first < 0 < self.left:
            self.left -= 1
            if self.error is not None:
                raise self.error
            self.over.wait()


class Provider(redis.CredentialProvider):
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def get_credentials(self) -> tuple[str, str]:
        self.trouble.happen()
        return "default", ""


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    one = Trouble()
    yield one
    one.over.set()


@pytest.fixture
def servers(valkey: Masters, trouble: Trouble) -> Iterator[list[Any]]:
    """The first master has a credential provider of the program."""
    first = redis.Redis(port=valkey[0].port, credential_provider=Provider(trouble))
    yield [first, *valkey.urls[1:]]
    first.close()


def is_back(one: FastRedlock) -> bool:
    return one.health()[0].state == "connected"


@both_clients
def test_a_credential_provider_hangs_once(servers: list[Any], client: MakeClient) -> None:
    """Catches: a master that is being connected for the life of the process."""
    one = client(servers, connect_timeout=TIMEOUT)
    assert one.acquire("r", 60.0)
    eventually(lambda: is_back(one), "another attempt has connected the first master")
    assert [master.abandoned for master in one.health()] == [1, 0, 0, 0, 0]


@both_clients
@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt()], ids=repr)
def test_a_credential_provider_raises_what_is_no_exception(
    servers: list[Any], client: MakeClient, trouble: Trouble, error: BaseException
) -> None:
    trouble.error = error
    one = client(servers)
    one.connect()
    eventually(lambda: is_back(one), "another attempt has connected the first master")
    assert one.health()[0].abandoned == 0


@both_clients
def test_calls_that_hang_are_few(servers: list[Any], client: MakeClient, trouble: Trouble) -> None:
    """Catches: a thread more for each attempt, without end. Once they return, the master is connected."""
    trouble.left = 1000
    one = client(servers, connect_timeout=TIMEOUT)
    one.connect()
    eventually(lambda: one.health()[0].abandoned == 3, "three attempts were abandoned")
    eventually(lambda: "still hang" in one.health()[0].error, "no further call is made")
    assert sum(thread.name == "redlock-fast-dial" for thread in threading.enumerate()) == 3
    assert trouble.left == 997
    trouble.left = 0
    trouble.over.set()
    eventually(lambda: is_back(one), "the first master is connected")
    eventually(lambda: not any(t.name == "redlock-fast-dial" for t in threading.enumerate()), "none is left")


@both_clients
def test_the_resolver_of_names_hangs_once(
    valkey: Masters, client: MakeClient, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def hangs_once(host: Any, *args: Any, **options: Any) -> Any:
        if host == "localhost":
            trouble.happen()
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hangs_once)
    one = client(
        [valkey.urls[0].replace("127.0.0.1", "localhost"), *valkey.urls[1:]], connect_timeout=TIMEOUT
    )
    one.connect()
    eventually(lambda: is_back(one), "another attempt has connected the first master")
    assert one.health()[0].abandoned == 1


def test_a_record_is_written_although_another_masters_provider_hangs(
    servers: list[Any], valkey: Masters, client: MakeClient, trouble: Trouble
) -> None:
    """Records have connections of their own. Catches: one that hangs, and no other master gets its record."""
    trouble.first = 1
    one = client(servers, connect_timeout=TIMEOUT, check_masters="auto")
    one.connect()
    eventually(lambda: one.health()[0].abandoned == 1, "the connection for its record hangs")
    eventually(
        lambda: all(master.ask("EXISTS redlock-fast:masters") == ":1" for master in list(valkey)[1:]),
        "the other masters have their records",
    )


def test_too_few_are_left(valkey: Masters, client: MakeClient, trouble: Trouble) -> None:
    """The error says what hangs."""
    trouble.left = 1000
    server = redis.Redis(port=valkey[0].port, credential_provider=Provider(trouble))
    one = client([server], connect_timeout=TIMEOUT)
    one.connect(TIMEOUT)
    eventually(lambda: one.health()[0].abandoned > 0, "an attempt was abandoned")
    with pytest.raises(QuorumUnavailable, match="a credential provider"):
        one.lock("r").acquire(blocking=False)
    server.close()
