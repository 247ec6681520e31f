"""Whether two connections lead to one server, by a random key."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Votes
from redlock_fast.masters.identity import is_same_server
from redlock_fast.wire.commands import Verb

MASTER = 1
DENIED, READ_ONLY = b"-NOPERM no\r\n", b"-READONLY no\r\n"


def votes(vote: int, detail: bytes = b"") -> Votes:
    details: dict[int, str | bytes] = {MASTER: detail} if vote == FAULT else {}
    return Votes((NO_REPLY, vote), 0b10, int(vote > 0), int(FAULT < vote <= 0), int(vote == FAULT), details)


class Servers:
    """The server of ``MASTER`` as an engine, and that of the new connection: the same, or another one."""

    def __init__(self, same: bool, write: Votes, look: Votes | None = None) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.others: dict[bytes, bytes] = self.keys if same else {}
        self.votes = {Verb.REFILL: write, Verb.EXISTS: look}

    def exchange(self, requests: list[Request], need: int, timeout: float) -> list[Votes | None]:
        (request,) = requests
        assert (request.masters, need) == (1 << MASTER, 1)
        if request.verb == Verb.REFILL and self.votes[Verb.REFILL].granted:  # type: ignore[union-attr]
            self.keys[request.args[0]] = request.args[1]
        return [self.votes[Verb(request.verb)]]

    def get(self, key: bytes, database: str) -> bytes | None:
        assert database == "7"
        return self.others.get(key)

    def put(self, key: bytes, value: bytes, ttl: int, database: str) -> None:
        assert database == "7"
        assert key.startswith(b"prefix:redlock-fast:")
        self.others[key] = value


def same(servers: Any) -> bool | None:
    return is_same_server(servers, servers, MASTER, "7", b"prefix:", 0.1)


@pytest.mark.parametrize("one", [True, False])
def test_the_key_is_seen_on_the_same_server_only(one: bool) -> None:
    assert same(Servers(one, votes(1))) is one


def test_a_master_that_refuses_writes_is_asked_for_the_key() -> None:
    assert same(Servers(False, votes(FAULT, READ_ONLY), votes(0))) is False
    assert same(Servers(True, votes(FAULT, READ_ONLY), votes(1))) is None


@pytest.mark.parametrize("write", [votes(NO_REPLY), votes(FAULT, DENIED), votes(0)])
def test_any_other_reply_proves_nothing(write: Votes) -> None:
    assert same(Servers(False, write)) is None
