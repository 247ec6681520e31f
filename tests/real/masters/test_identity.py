"""The identity of a master: data lost without a restart, another disk, a run_id that two masters claim.

Each begins with a lock that is held, and asks whether another client gets it while the lease has time left.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.event_loops import until
from support.forking import exit_code, fork_child
from support.inside import core_of
from support.proxy import Pipe, Proxy
from support.waiting import eventually
from support.watching import EVERYTHING

from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock, Lock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

TTL = 30.0
#: For "strict", which waits for masters to be as old.
SHORT = 5.0
AOF = ["--appendonly", "yes", "--appendfsync", "always"]


@pytest.fixture
def fleet() -> Iterator[Masters]:
    """Three masters of this test's own, and a server besides, which is empty."""
    options = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
    with Masters(4, options=options) as masters:
        yield masters


@pytest.fixture
def on_disk() -> Iterator[Masters]:
    with Masters(3, options=AOF) as masters:
        yield masters


def guard(mode: str) -> dict[str, Any]:
    ttl = SHORT if mode == "strict" else TTL
    return {"restart_guard": mode, "max_ttl": ttl, "ttl": ttl, "assume_fresh": mode == "marker"}


def old_enough(nodes: list[redis.Redis], mode: str) -> None:
    """So that "strict" lets them vote at first contact."""
    if mode == "strict":
        uptimes = [node.info("server")["uptime_in_seconds"] for node in nodes]
        if min(uptimes) < SHORT + 2:
            eventually(
                lambda: min(n.info("server")["uptime_in_seconds"] for n in nodes) >= SHORT + 2,
                "they are old enough",
                deadline=60.0,
            )


def gets_it(thief: FastRedlock) -> bool:
    try:
        return thief.acquire("r", blocking=False) is not None
    except QuorumUnavailable:
        return False


def two_holders(lock: Lock, thief: FastRedlock) -> bool:
    """Whether the thief gets what ``lock`` holds."""
    if not gets_it(thief) or not lock.remaining():
        return False
    lock.check()
    return True


def back(client: FastRedlock, *numbers: int) -> None:
    """Each was connected again, as a master."""

    def there() -> bool:
        health = client.health()
        return all(health[n].connections > 1 and health[n].state == "connected" for n in numbers)

    eventually(there, "they are connected again", deadline=60.0)


# --- the same process, with other data -------------------------------------------------------------------


def follow(node: redis.Redis, port: int) -> None:
    assert node.replicaof("127.0.0.1", port)
    eventually(lambda: node.info("replication")["master_link_status"] == "up", "it follows", deadline=60.0)


@pytest.mark.parametrize("mode", ["auto", "durable", "strict", "marker"])
def test_demoted_and_promoted_again(fleet: Masters, connected: MakeClient, raw: Raw, mode: str) -> None:
    """The process is the same, and so are the connections; the data is another server's."""
    nodes = raw(fleet)
    old_enough(nodes, mode)
    urls = fleet.urls[:3]
    holder, thief = connected(urls, **guard(mode)), connected(urls, **guard(mode))
    lock = holder.acquire("r")
    assert lock
    eventually(lambda: all(node.exists("r") for node in nodes[:3]), "all three have it")
    for number in (0, 1):
        if mode == "marker":  # as if that server had been its replica, before the lock
            assert nodes[3].set("redlock-fast:marker", nodes[number].get("redlock-fast:marker"))
        follow(nodes[number], fleet[3].port)
        assert not nodes[number].exists("r")
        assert nodes[number].replicaof("NO", "ONE")
    assert not two_holders(lock, thief)
    back(thief, 0, 1)
    assert not two_holders(lock, thief)
    if mode == "marker":  # a new client notices it, too
        assert not two_holders(lock, connected(urls, **{**guard(mode), "assume_fresh": False}))


def test_a_promoted_master_whose_history_changes_votes_again(
    fleet: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Catches: clients that connected before and after the change expect two markers. Each of them replaces
    the other's, and the master never votes again.
    """
    node = raw(fleet)[0]
    follow(node, fleet[3].port)
    assert node.replicaof("NO", "ONE")
    options: dict[str, Any] = {"restart_guard": "marker", "max_ttl": 1.0, "ttl": 0.5}
    before = connected(fleet.urls[:1], **options)
    eventually(lambda: gets_it(before), "it votes", deadline=60.0)
    assert node.config_set("repl-backlog-ttl", 1)  # an hour by default
    eventually(lambda: not int(str(node.info("replication")["master_replid2"]), 16), "its history changes")
    after = connected(fleet.urls[:1], **options)

    def votes_for(client: FastRedlock) -> bool:
        try:
            lock = client.acquire("r", blocking=False)
        except QuorumUnavailable:
            return False
        return lock is not None and lock.release()

    eventually(
        lambda: [votes_for(before), votes_for(after)] == [True, True],
        "both clients expect the same marker",
        deadline=30.0,
    )


# --- flushes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "durable", "marker"])
@pytest.mark.parametrize("wait", ["auto", "poll"])
def test_a_flush_silences(valkey: Masters, connected: MakeClient, mode: str, wait: str) -> None:
    """Also where nothing is watched: a client that polls gets the push, too."""
    holder, thief = (connected(valkey, wait=wait, **guard(mode)) for _ in range(2))
    assert all(master.witness for master in thief.health())
    lock = holder.acquire("r")
    assert lock
    for number in range(3):
        assert valkey[number].ask("FLUSHALL") == "+OK"
    assert not two_holders(lock, thief)
    back(thief, 0, 1, 2)
    assert not two_holders(lock, thief)
    assert [master.guard > 0 for master in thief.health()] == [True] * 3 + [False] * 2


class Reporting(Proxy):
    """``reports``: how many reports of a flush it has passed on."""

    def __init__(self, upstream: int) -> None:
        self.reports = 0
        super().__init__(upstream)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        super().arrived(pipe, data)
        self.reports += not pipe.from_client and EVERYTHING in data


def test_a_flush_before_a_reset_silences(masters: Masters, connected: MakeClient) -> None:
    """A balancer or a firewall resets the connection of an idle client, whose socket has the report."""
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Reporting(masters[number].port)) for number in range(3)]
        holder = connected(masters.urls[:3], ttl=TTL)
        thief = connected([proxy.url for proxy in proxies], ttl=TTL)
        lock = holder.acquire("r")
        assert lock
        for number in (0, 1):
            assert masters[number].ask("FLUSHALL") == "+OK"
        eventually(lambda: all(proxy.reports for proxy in proxies[:2]), "the reports are there")
        for proxy in proxies[:2]:
            proxy.cut()
        assert not two_holders(lock, thief)
        back(thief, 0, 1)
        assert not two_holders(lock, thief)


def test_a_flush_before_a_kill_silences_a_loop(
    masters: Masters, connected: MakeClient, aclient: Callable[..., AsyncFastRedlock]
) -> None:
    """The loop does something else during FLUSHALL and CLIENT KILL. Then two of its tasks send requests."""
    holder = connected(masters.urls[:3], ttl=TTL)
    lock = holder.acquire("r")
    assert lock

    async def main() -> bool:
        async with aclient(masters.urls[:3], ttl=TTL) as thief:

            async def granted(name: str) -> bool:
                with contextlib.suppress(QuorumUnavailable):
                    return await thief.acquire(name, blocking=False) is not None
                return False

            def pending() -> int:
                engine = core_of(thief).masters.engine
                return sum(engine.connection_state(number).pending for number in range(3))

            await thief.connect()
            await until(lambda: all(master.witness for master in thief.health()), "all masters connect")
            assert await granted("first")
            await until(lambda: not pending(), "all have replied")
            for number in (0, 1):
                assert masters[number].ask("FLUSHALL") == "+OK"
                assert masters[number].ask("CLIENT KILL TYPE normal").startswith(":")
            await asyncio.gather(granted("x"), granted("y"))
            await until(lambda: all(m.connections > 1 for m in thief.health()[:2]), "both are back")
            return await granted("r")

    assert not (asyncio.run(main()) and lock.locked()), "two holders"


@pytest.mark.parametrize("mode", ["auto", "durable", "marker"])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("check_masters", ["auto", "off"])
def test_a_flush_without_a_report_silences(
    masters: Masters, connected: MakeClient, raw: Raw, mode: str, protocol: int, check_masters: str
) -> None:
    """The server ends the connections in the turn in which it flushes, and reports nothing."""
    urls = [f"{url}?protocol={protocol}" for url in masters.urls[:3]]
    holder, thief = (connected(urls, check_masters=check_masters, **guard(mode)) for _ in range(2))
    lock = holder.acquire("r")
    assert lock
    for node in raw(masters)[:2]:
        with node.pipeline(transaction=True) as one_turn:
            one_turn.flushall()
            one_turn.client_kill_filter(_type="normal", skipme=True)
            one_turn.execute()
    assert not two_holders(lock, thief)
    back(thief, 0, 1)
    assert not two_holders(lock, thief)
    assert [master.guard > 0 for master in thief.health()] == [True] * 2 + [False]


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1"])
def test_a_flush_while_a_client_is_away_silences(
    masters: Masters, connected: MakeClient, command: str
) -> None:
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(masters[number].port)) for number in range(3)]
        holder = connected(masters.urls[:3], ttl=TTL)
        thief = connected([proxy.url for proxy in proxies], ttl=TTL)
        lock = holder.acquire("r")
        assert lock
        for proxy in proxies[:2]:
            proxy.refusing = True
            proxy.cut()
        for number in (0, 1):
            assert masters[number].ask(command) == "+OK"
        for proxy in proxies[:2]:
            proxy.refusing = False
        back(thief, 0, 1)
        assert not two_holders(lock, thief)


@pytest.fixture
def reloading() -> Iterator[Masters]:
    """Three masters that may load a dump while they run."""
    try:
        fleet = Masters(3, server="valkey", options=["--enable-debug-command", "yes", "--save", ""])
    except ConfigError as missing:
        pytest.skip(str(missing))
    with fleet:
        yield fleet


@pytest.mark.parametrize("mode", ["auto", "durable", "strict", "marker"])
def test_an_older_dump_in_the_same_process_silences(
    reloading: Masters, connected: MakeClient, raw: Raw, mode: str
) -> None:
    """The dump has the witness key and the marker, and not the lock."""
    nodes = raw(reloading)
    for node in nodes:
        with node.pipeline(transaction=True) as other:
            other.set("else", 1).move("else", 1).execute()
    old_enough(nodes, mode)
    holder, thief = (connected(reloading, **guard(mode)) for _ in range(2))
    assert all(master.state == "connected" for master in (*holder.health(), *thief.health()))
    for node in nodes[:2]:
        assert node.save()
    lock = holder.acquire("r")
    assert lock
    for node in nodes[:2]:
        assert node.execute_command("DEBUG", "RELOAD", "NOSAVE")
    back(thief, 0, 1)
    assert not two_holders(lock, thief)
    assert [master.guard > 0 for master in thief.health()] == [True, True, False]


def test_a_child_of_fork_notices_a_flush(masters: Masters, connected: MakeClient) -> None:
    """Its parent has not read the reports yet, and the child has connections of its own."""
    holder, thief = (connected(masters.urls[:3], ttl=TTL) for _ in range(2))
    lock = holder.acquire("r")
    assert lock
    for number in (0, 1):
        assert masters[number].ask("FLUSHALL") == "+OK"

    def in_child() -> None:
        thief.connect()
        eventually(lambda: all(one.state == "connected" for one in thief.health()), "the child connects")
        assert not gets_it(thief)

    assert exit_code(fork_child(in_child)) == 0
    assert lock.locked()


def test_a_flush_of_another_database_costs_one_master_nothing(
    valkey: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes = raw(valkey)
    for node in nodes[:3]:
        node.execute_command("SELECT", 1)
        node.set("else", 1)
    c = connected(valkey, max_ttl=TTL)
    for number, command in enumerate(("FLUSHDB", "FLUSHDB", "FLUSHALL")):
        nodes[number].execute_command(command)
    back(c, 0, 1, 2)
    assert [master.guard > 0 for master in c.health()] == [False, False, True, False, False]
    assert c.acquire("r", TTL)


def test_without_resp3_there_is_no_witness(valkey: Masters, connected: MakeClient) -> None:
    c = connected([f"{url}?protocol=2" for url in valkey.urls])
    assert not any(master.witness for master in c.health())


# --- disks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "strict", "marker"])
@pytest.mark.parametrize("disk", ["empty", "older"])
def test_another_disk(on_disk: Masters, connected: MakeClient, raw: Raw, mode: str, disk: str) -> None:
    """Under ``appendfsync always``, which says nothing of the disk that it comes back with."""
    connected(on_disk, **guard("marker"))  # a marker is on the older disk, too
    folders = [Path(on_disk[number].socket_path).parent / "appendonlydir" for number in (0, 1)]
    for folder in folders:
        shutil.copytree(folder, folder.with_name("copy"))
    old_enough(raw(on_disk), mode)
    holder, thief = connected(on_disk, **guard(mode)), connected(on_disk, **guard(mode))
    lock = holder.acquire("r")
    assert lock
    for number, folder in zip((0, 1), folders, strict=True):
        on_disk[number].kill()
        shutil.rmtree(folder)
        if disk == "older":
            folder.with_name("copy").rename(folder)
        on_disk[number].restart()
    back(thief, 0, 1)
    assert not two_holders(lock, thief)
    if mode != "auto":
        assert not two_holders(lock, connected(on_disk, **{**guard(mode), "assume_fresh": False}))


# --- a name that is borrowed -------------------------------------------------------------------------------


class Impostor(Proxy):
    """A master that says that it is another: the same length, so that all else stays as it is."""

    def __init__(self, upstream: int, own: str, claimed: str) -> None:
        self._names = own.encode(), claimed.encode()
        super().__init__(upstream)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        super().arrived(pipe, data if pipe.from_client else data.replace(*self._names))


@pytest.mark.parametrize("first", [True, False])
def test_a_borrowed_run_id_costs_no_other_client_anything(
    valkey: Masters, connected: MakeClient, client: MakeClient, raw: Raw, first: bool
) -> None:
    own, good = (raw(valkey)[n].info("server")["run_id"] for n in (4, 0))
    with Impostor(valkey[4].port, own, good) as impostor:
        impostor.refusing = not first
        urls = [*valkey.urls[:4], impostor.url]
        if first:
            c = connected(urls)
        else:
            c = client(urls)
            assert c.connect()
            impostor.refusing = False
            eventually(lambda: c.health()[4].connections == 1, "the last one is there, too")
        assert len({master.run_id for master in c.health()}) == 4, "two of them say the same"
        for number in range(5):
            lock = c.acquire(f"r{number}")
            assert lock
            assert lock.release()


def test_a_borrowed_run_id_costs_nothing_where_memory_is_full(
    valkey: Masters, client: MakeClient, raw: Raw
) -> None:
    """Catches: a good master that is given up because it does not write what would distinguish the two."""
    nodes = raw(valkey)
    own, good = (nodes[n].info("server")["run_id"] for n in (4, 0))
    with Impostor(valkey[4].port, own, good) as impostor:
        impostor.refusing = True
        c = client([*valkey.urls[:4], impostor.url])
        c.connect()
        eventually(lambda: sum(m.state == "connected" for m in c.health()) == 4, "all others are connected")
        nodes[0].config_set("maxmemory", 1)
        try:
            impostor.refusing = False
            eventually(lambda: c.health()[4].connections == 1, "the last one is there, too")
            assert (c.health()[0].connections, c.health()[0].state) == (1, "connected")
        finally:
            nodes[0].config_set("maxmemory", 0)
