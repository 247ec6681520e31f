"""Who holds which lock, as the masters report it, and how a program breaks a lock: through both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.clients import both_clients
from support.event_loops import on_loops
from support.kinds import AGAINST, KINDS
from support.makers import MakeAio, MakeClient, MakePlain, Raw
from support.waiting import PATIENT, eventually

from redlock_fast import (
    ClientClosed,
    ConfigError,
    FastRedlock,
    Holder,
    LockLost,
    QuorumUnavailable,
    ShardedRedlock,
)
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

TTL = 60.0


def seen(holders: list[Holder]) -> list[tuple[str | bytes, str, str, bool | None, int]]:
    return [(one.name, one.kind, one.owner, one.held, one.masters) for one in holders]


@both_clients
def test_a_plain_lock(masters: Masters, connected: MakeClient) -> None:
    client = connected(masters, key_prefix="app:", decide="all", owner="web-1")
    assert client.inspect("r") == []
    assert client.holders() == []
    lock = client.lock("r", TTL)
    assert lock.acquire()
    (holder,) = client.inspect("r")
    assert seen([holder]) == [("r", "plain", "web-1", True, 5)]
    assert TTL - 20 < lock.remaining() <= holder.remaining <= TTL
    assert len(holder.ttls) == 5
    assert holder.token == lock.token
    token = repr(lock.token)
    assert token not in repr(holder)
    assert seen(client.holders("r")) == seen(client.holders(b"")) == seen([holder])
    assert client.holders("other") == []
    assert [one.name for one in connected(masters).holders()] == ["app:r"], "without a prefix"
    assert connected(masters, key_prefix="other:").holders() == []
    assert lock.release()
    assert client.inspect("r") == []


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds(masters: Masters, plain: MakePlain, kind: str) -> None:
    """Catches: a list in which a reader, a writer or a slot is missing, so that a name looks free."""
    c = plain(masters, ttl=TTL, key_prefix="app:", decide="all", owner="me").at_full_strength()
    lock = KINDS[kind](c.client, "x:1")
    assert c.wait(lock.acquire())
    expected = [("x:1", kind, "me", True, 5)]
    for prefix in ("", "x", "x:1"):
        assert seen(c.wait(c.client.holders(prefix))) == expected
    assert c.wait(c.client.holders("1")) == []
    assert seen(c.wait(c.client.inspect("x:1"))) == expected
    assert seen(c.wait(c.client.break_lock("x:1"))) == expected
    assert c.wait(c.client.inspect("x:1")) == []
    assert c.wait(KINDS[AGAINST[kind]](c.client, "x:1").acquire(blocking=False))
    with pytest.raises(LockLost):
        c.wait(lock.extend())


def test_callers_that_wait_are_inspected_and_are_no_holders(masters: Masters, connected: MakeClient) -> None:
    client = connected(masters, ttl=TTL, decide="all", owner="me")
    holder, waiting = client.lock("r", fair=True), client.lock("r", fair=True, timeout=0.05)
    assert holder.acquire()
    for node in range(5):
        masters[node].ask("ZADD {r}:e 99999999999999 waits")
    assert [one.kind for one in client.inspect("r")] == ["plain", "waiting"]
    assert [one.kind for one in client.holders()] == ["plain"]
    assert not waiting.acquire()


def test_tokens_without_a_quorum(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Catches: a vote that was left behind, shown as a holder; the rest of a lease from the wrong master."""
    for place, node in enumerate(raw(masters)):
        node.set("r", "one" if place < 3 else "two", px=(place + 1) * 100_000)
        node.set(b"\xff", "text", px=500_000)
    client = connected(masters)
    assert seen(client.inspect("r")) == [("r", "plain", "", True, 3), ("r", "plain", "", False, 2)]
    most, few = client.inspect("r")
    assert 80 < most.remaining < 100, "then two masters of five have it"
    assert 480 < few.remaining < 500, "then none has it"
    assert seen(client.holders(b"\xff")) == [(b"\xff", "plain", "", True, 5)]
    for master in list(masters)[1:3]:
        master.kill()
    left = client.inspect("r")
    assert [(one.token, one.held) for one in left] == [(b"one", None), (b"two", None)]
    assert left[0].ttls[1:] == (None,) * 4


@both_clients
def test_a_holder_finds_that_its_lock_was_broken(masters: Masters, connected: MakeClient) -> None:
    client, operator = connected(masters, ttl=TTL), connected(masters)
    lock = client.lock("r")
    assert lock.acquire()
    broken = operator.break_lock("r")
    assert [one.token for one in broken] == [lock.token]
    assert lock.locked(), "it gets no notice"
    with pytest.raises(LockLost):
        lock.extend()
    assert operator.break_lock("r") == []
    assert operator.lock("r").acquire(blocking=False)


@pytest.mark.parametrize("call", ["holders", "inspect", "break_lock"])
@both_clients
def test_without_a_quorum_nothing_is_said(masters: Masters, connected: MakeClient, call: str) -> None:
    """Catches: an empty list from a minority, which reads as: nobody holds it."""
    client = connected(masters, connect_timeout=1.0)
    for master in list(masters)[:3]:
        master.kill()
    with pytest.raises(QuorumUnavailable) as error:
        getattr(client, call)("r")
    assert len(error.value.causes) == 3
    client.close()
    with pytest.raises(ClientClosed):
        getattr(client, call)("r")


def test_a_user_without_permission_to_list(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    rules = "on", "nopass", "~*", "+@all", "-scan"
    for node in raw(masters):
        node.execute_command("ACL", "SETUSER", "service", *rules)
    try:
        urls = [f"unix://service:any@{master.socket_path}" for master in masters]
        client = connected(urls, check_masters="off")
        assert client.acquire("r")
        assert len(client.inspect("r")) == 1
        with pytest.raises(QuorumUnavailable, match=r"NOPERM.*needs the user of an operator"):
            client.holders()
    finally:
        for node in raw(masters):
            node.execute_command("ACL", "DELUSER", "service")


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda c: c.holders(limit=0), "limit must be an integer"),
    (lambda c: c.holders("r", limit=2), r"more than limit=2 locks"),
    (lambda c: c.holders(5), "prefix must be str or bytes"),
    (lambda c: c.inspect(""), "resource must have 1 to"),
    (lambda c: c.inspect("r", timeout=0), "timeout must be more than 0"),
    (lambda c: c.break_lock("{x}:w"), "a key that this library uses itself"),
]


@both_clients
@pytest.mark.parametrize(("call", "complaint"), BAD)
def test_bad_arguments(
    masters: Masters, connected: MakeClient, raw: Raw, call: Callable[[Any], Any], complaint: str
) -> None:
    for node in raw(masters):
        for number in range(3):
            node.set(f"r{number}", "token", px=60_000)
    with pytest.raises(ConfigError, match=complaint):
        call(connected(masters))


@on_loops
async def test_in_a_cancelled_task(masters: Masters, aclient: MakeAio) -> None:
    async with aclient(masters) as client:
        assert await client.acquire("r")
        task = asyncio.create_task(client.inspect("r"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await client.inspect("r")) == 1


def test_two_lists_of_masters(masters: Masters, connected: MakeClient) -> None:
    """A lock that one list has keeps others out. Catches: positions of masters taken for their numbers."""
    urls = masters.urls
    client = connected(urls[:3], joint_with=urls[3:], check_masters="off", decide="all", owner="me")
    lock = client.lock("r", TTL)
    assert lock.acquire()
    assert seen(client.inspect("r")) == [("r", "plain", "me", True, 5)]
    for number in (1, 2):
        masters[number].ask("DEL r")
    (holder,) = client.inspect("r")
    assert (holder.held, holder.masters) == (True, 3), "a quorum of the second list has it"
    client.reconfigure(urls[3:])
    assert seen(client.inspect("r")) == [("r", "plain", "me", True, 2)]
    assert len(client.break_lock("r")) == 1
    assert [master.ask("EXISTS r") for master in masters] == [":1", ":0", ":0", ":0", ":0"]


def test_groups(valkey: Masters, engine_name: str) -> None:
    groups = {"one": valkey.urls[:2], "two": valkey.urls[2:4]}
    with ShardedRedlock(groups, engine=engine_name, decide="all", **PATIENT) as client:
        names = [f"r{number}" for number in range(8)]
        assert all(client.acquire(name, TTL) for name in names)
        assert len({client.group_of(name) for name in names}) == 2
        eventually(lambda: all(one.masters == 2 for one in client.holders()), "every master has its locks")
        assert sorted(str(one.name) for one in client.holders("r")) == names
        assert [one.name for one in client.inspect("r3")] == ["r3"]
        other = "one" if client.group_of("r3") == "two" else "two"
        with FastRedlock(groups[other], engine=engine_name, check_masters="off", **PATIENT) as wrong:
            assert wrong.acquire("r3", TTL)
        assert len(client.holders("r3")) == 1, "the other group does not decide on it"
        assert len(client.break_lock("r3")) == 1
        assert client.inspect("r3") == []
