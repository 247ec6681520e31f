"""Two groups of real masters: each resource on one of them, and one group's trouble is its own.

Each test runs with the client for threads and with that for asyncio.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import redis
from support.event_loops import LOOPS, Plain, on_loops, until
from support.inside import core_of
from support.keys import TTL, calls, forget_calls, nothing_left, occupy, paused, sizes, values
from support.moments import at_moment, moments
from support.signalling import interrupt
from support.thorough import amount
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import AsyncShardedRedlock, ClientClosed, QuorumUnavailable, ShardedRedlock
from redlock_fast.algorithm import batch
from redlock_fast.embedded import Masters
from redlock_fast.masters.masters import CLOSE_TIMEOUT
from redlock_fast.masters.masters import Masters as MastersOfClient
from redlock_fast.sharded import clients, placement

pytestmark = pytest.mark.usefixtures("all_masters")

MakeSharded = Callable[..., Plain]
Raw = Callable[[Masters], list[redis.Redis]]

NAMES = [f"orders:{number}" for number in range(24)]


@pytest.fixture(scope="module")
def three(started: list[Masters]) -> Iterator[Masters]:
    """The second group; smaller than the first, as it may be."""
    with Masters(3, server="valkey") as masters:
        started.append(masters)
        yield masters


@pytest.fixture
def groups(valkey: Masters, three: Masters) -> dict[str, Masters]:
    return {"five": valkey, "three": three}


#: Clients for threads, and those for asyncio: of the kinds of loops one for each test, or all of them.
KINDS = ["threads", *(LOOPS if amount(0, 1, twice=1) else ["tasks"])]


@pytest.fixture(params=KINDS)
def sharded(
    request: pytest.FixtureRequest, engine_name: str, groups: dict[str, Masters]
) -> Iterator[MakeSharded]:
    """``sharded(groups, **options)``: every master connected; called without ``await``."""
    made: list[Plain] = []
    turn = zlib.crc32(request.node.originalname.encode())
    loop = [*LOOPS][turn % len(LOOPS)] if request.param == "tasks" else request.param

    def make(which: Any = None, **options: Any) -> Plain:
        urls = which or {name: masters.urls for name, masters in groups.items()}
        options = {"engine": engine_name, **PATIENT, **options}
        kind: Any = AsyncShardedRedlock if loop in LOOPS else ShardedRedlock
        made.append(Plain(kind(urls, **options), LOOPS.get(loop)))
        assert made[-1].connect(DEADLINE) is True
        eventually(lambda: all_connected(made[-1].client), "all masters connect")
        return made[-1]

    yield make
    for one in made:
        one.end()


def all_connected(client: Any) -> bool:
    return all(master.state == "connected" for group in client.health().values() for master in group)


def any_connected(client: Any, group: str) -> bool:
    return any(master.state == "connected" for master in client.health()[group])


def of(client: Any, group: str, count: int = 1000) -> list[str]:
    """Those of NAMES that are this group's."""
    return [name for name in NAMES if client.group_of(name) == group][:count]


def down(masters: Masters) -> None:
    for master in masters:
        master.kill()


def taken(c: Plain, names: Sequence[str]) -> list[Any]:
    """An acquired lock on each."""
    locks = [c.acquire(name, TTL, blocking=False) for name in names]
    assert all(locks)
    return locks


# --- one lock ---------------------------------------------------------------------------------------


def test_a_key_is_on_its_groups_masters_only(
    sharded: MakeSharded, groups: dict[str, Masters], raw: Raw
) -> None:
    c = sharded(key_prefix="app:")
    nodes = {name: raw(masters) for name, masters in groups.items()}
    for lock in taken(c, NAMES):
        own = c.client.group_of(lock.resource)
        for name, group in nodes.items():
            expected = [lock.token if name == own else None] * len(group)
            eventually(lambda: values(group, f"app:{lock.resource}") == expected, f"{expected} in {name}")  # noqa: B023
        assert c.locked(lock.resource) is True
        assert c.wait(lock.extend(TTL)) > 0
        assert c.wait(lock.release()) is True
    for masters in groups.values():
        nothing_left(masters)


def test_one_holder_from_any_client(sharded: MakeSharded, groups: dict[str, Masters]) -> None:
    """Groups and masters in another order, resources as bytes: the same locks."""
    c = sharded()
    other = sharded({name: masters.urls[::-1] for name, masters in reversed(groups.items())})
    locks = taken(c, NAMES)
    assert {c.client.group_of(name) for name in NAMES} == set(groups)
    assert [other.acquire(name.encode(), TTL, blocking=False) for name in NAMES] == [None] * len(NAMES)
    for lock in locks:
        assert c.wait(lock.release()) is True
    taken(other, NAMES)


def test_threads_of_two_clients_exclude_each_other(groups: dict[str, Masters], engine_name: str) -> None:
    urls = [masters.urls for masters in groups.values()]
    with (
        ShardedRedlock(urls, engine=engine_name, **PATIENT) as one,
        ShardedRedlock(urls[::-1], engine=engine_name, **PATIENT) as other,
    ):
        # The groups' names are made of ports: any six names could all be of one group.
        names = [f"counter:{number}" for number in range(200)]
        shares = [[name for name in names if one.group_of(name) == group] for group in one.health()]
        counters = dict.fromkeys([name for share in shares for name in share[:3]], 0)
        assert len(counters) == 6

        def work(client: ShardedRedlock) -> None:
            for name in [*counters] * 20:
                with client.lock(name, TTL):
                    before = counters[name]
                    client.health()  # a moment in which others would come between
                    counters[name] = before + 1

        workers = [start(lambda client=client: work(client)) for client in (one, other) * 3]
        for worker in workers:
            worker.result(3 * DEADLINE)
        assert set(counters.values()) == {6 * 20}
        assert one.stats().acquired == one.stats().released == 3 * 20 * 6


def test_synchronized(sharded: MakeSharded) -> None:
    c = sharded()
    asynchronous = isinstance(c.client, AsyncShardedRedlock)

    def held(name: str) -> Any:
        return c.client.locked(name)

    async def aheld(name: str) -> Any:
        return await c.client.locked(name)

    body = aheld if asynchronous else held
    for decorate in (c.client.synchronized(NAMES[0], TTL), c.client.synchronized(lambda name: name)):
        assert c.wait(decorate(body)(NAMES[0])) is True
    assert [c.wait(c.client.synchronized(lambda name: name)(body)(name)) for name in NAMES] == [True] * 24
    assert [c.wait(c.client.single_run(lambda name: name)(body)(name)) for name in NAMES] == [True] * 24
    assert c.wait(body(NAMES[0])) is False


def test_a_leader(sharded: MakeSharded) -> None:
    c = sharded()
    leader = c.client.leader(NAMES[0])
    c.wait(leader.start())
    assert c.wait(leader.wait(DEADLINE)) is True
    assert c.locked(NAMES[0]) is True
    c.wait(leader.stop())
    assert c.locked(NAMES[0]) is False


# --- batches ----------------------------------------------------------------------------------------


def test_batches_across_groups(sharded: MakeSharded, groups: dict[str, Masters], raw: Raw) -> None:
    c = sharded()
    held = [of(c.client, name)[1] for name in groups]
    for name, masters in groups.items():
        occupy(raw(masters), *set(held) & set(of(c.client, name)))
    locks = c.acquire_many(NAMES, TTL / 2)
    assert [lock and lock.resource for lock in locks] == [None if n in held else n for n in NAMES]
    mine = [lock for lock in locks if lock]
    assert c.extend_many(mine, TTL) == [True] * len(mine)
    assert all(lock.remaining() > TTL / 2 for lock in mine)
    gone = mine[::3]
    for lock in gone:
        assert c.wait(lock.release()) is True
    assert c.extend_many(mine) == [lock not in gone for lock in mine]
    assert c.release_many(mine) == [lock not in gone for lock in mine]
    eventually(lambda: [sizes(masters) for masters in groups.values()] == [[1] * 5, [1] * 3], "only theirs")
    stats = c.client.stats()
    assert (stats.acquired, stats.contended, stats.faults) == (22, 2, 0)


@pytest.mark.parametrize("first", ["five", "three"])
def test_a_batch_is_all_or_nothing_where_a_group_is_down(
    sharded: MakeSharded, groups: dict[str, Masters], first: str
) -> None:
    """Whichever group is asked first."""
    c = sharded()
    names = sorted(NAMES, key=lambda name: c.client.group_of(name) != first)
    down(groups["three"])
    with pytest.raises(QuorumUnavailable):
        c.acquire_many(names, TTL)
    nothing_left(groups["five"])
    assert all(c.acquire_many(of(c.client, "five"), TTL))


def test_a_batch_whose_first_leases_ended_before_its_last_is_none(
    sharded: MakeSharded, groups: dict[str, Masters], monkeypatch: pytest.MonkeyPatch
) -> None:
    jump = [0.0]
    c = sharded(clock=lambda: time.monotonic() + jump[0])
    last = c.client._clients["three"]
    granting = last._acquire_part

    def late(*args: Any) -> Any:
        jump[0] += TTL
        return granting(*args)

    monkeypatch.setattr(last, "_acquire_part", late)
    with pytest.raises(QuorumUnavailable, match="ended before"):
        c.acquire_many([*of(c.client, "five"), *of(c.client, "three")], TTL)
    for masters in groups.values():
        nothing_left(masters)


def test_close_undoes_the_groups_that_granted(groups: dict[str, Masters], engine_name: str, raw: Raw) -> None:
    """While the last group is silent. Catches: locks of a call that was not completed."""
    urls, nodes = {name: masters.urls for name, masters in groups.items()}, raw(groups["three"])
    forget_calls(nodes)
    c = ShardedRedlock(urls, engine=engine_name, **PATIENT)
    assert c.connect(DEADLINE)
    eventually(lambda: all_connected(c), "all masters connect")
    with paused(groups["three"], 0, 1):
        call = start(lambda: c.acquire_many([*of(c, "five"), *of(c, "three")], TTL))
        eventually(lambda: calls(nodes[2:], "set") != [0], "the last group is asked")
        c.close()
        with pytest.raises(ClientClosed):
            call.result(DEADLINE)
        eventually(lambda: not any(sizes(groups["five"])), "at once, where it can")
    nothing_left(groups["three"])


@on_loops
async def test_close_undoes_the_groups_that_granted_to_a_task(
    engine_name: str, valkey: Masters, three: Masters
) -> None:
    urls = {"five": valkey.urls, "three": three.urls}
    client = AsyncShardedRedlock(urls, engine=engine_name, **PATIENT)
    await client.connect()
    await until(lambda: all_connected(client), "all masters connect")
    with paused(three, 0, 1):
        names = [*of(client, "five"), *of(client, "three")]  # asked in this order
        batch = asyncio.create_task(client.acquire_many(names, TTL))
        await until(lambda: sizes(three[2:]) != [0], "the last group is asked")
        await client.close()
        with pytest.raises(ClientClosed):
            await batch
        await until(lambda: not any(sizes(valkey)), "at once, where it can")
    await until(lambda: not any(sizes(three)), "and so is what was on its way")


def test_a_call_is_undone_in_all_groups_if_one_of_them_was_closed(
    groups: dict[str, Masters], engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed between its grants and those of the last group. Catches: a call that is completed in part."""
    urls = {name: masters.urls for name, masters in groups.items()}
    with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
        assert c.connect(DEADLINE)
        first, last = c._clients["five"], c._clients["three"]
        granting = last._acquire_part

        def late(*args: Any) -> Any:
            granted = granting(*args)
            first.close()
            return granted

        monkeypatch.setattr(last, "_acquire_part", late)
        with pytest.raises(ClientClosed):
            c.acquire_many([*of(c, "five"), *of(c, "three")], TTL)
        for masters in groups.values():
            nothing_left(masters)
        assert not core_of(first).client_state.batches | core_of(last).client_state.batches


# --- one group's trouble ----------------------------------------------------------------------------


def test_a_group_that_is_down_is_missed_by_its_own_resources_only(
    sharded: MakeSharded, groups: dict[str, Masters]
) -> None:
    c = sharded(connect_timeout=1.0, restart_guard="off")
    theirs, ours = of(c.client, "three"), of(c.client, "five")
    locks = taken(c, [theirs[0], ours[0]])
    down(groups["three"])
    for name in theirs[:3]:
        with pytest.raises(QuorumUnavailable):
            c.acquire(name, TTL, blocking=False)
    with pytest.raises(QuorumUnavailable):
        c.locked(theirs[0])
    taken(c, ours[1:])
    assert c.extend_many(locks, TTL) == [False, True]
    assert locks[0].remaining() > 0, "not lost: it cannot be asked"
    assert c.release_many(locks) in ([False, True], [True, True])
    states = {name: {one.state for one in group} for name, group in c.client.health().items()}
    assert states["five"] == {"connected"}
    assert "connected" not in states["three"]
    for master in groups["three"]:
        master.restart()
    eventually(lambda: all_connected(c.client), "the group is back")
    taken(c, theirs)


def test_connect_asks_for_every_group(engine_name: str, valkey: Masters, three: Masters) -> None:
    options = {**PATIENT, "engine": engine_name}
    down(three)
    with ShardedRedlock([valkey.urls, three.urls], **options) as client:
        assert client.connect(0.2) is False
        for master in three:
            master.restart()
        assert client.connect() is True


def test_closed(sharded: MakeSharded, groups: dict[str, Masters]) -> None:
    c = sharded()
    locks = taken(c, NAMES)
    c.close()
    with pytest.raises(ClientClosed):
        c.acquire(NAMES[0])
    with pytest.raises(ClientClosed):
        c.extend_many(locks)
    assert c.release_many(locks) == [False] * len(NAMES)


def test_close_takes_no_second_for_each_hung_group(
    groups: dict[str, Masters], engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: an end of a process that takes as many seconds as groups hang."""
    urls = {name: masters.urls for name, masters in groups.items()}
    given: list[float] = []
    close = MastersOfClient.close

    def counted(self: MastersOfClient, timeout: float = CLOSE_TIMEOUT) -> None:
        if not self.client_state.closed:
            given.append(timeout)
        close(self, timeout)

    with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
        assert c.connect(DEADLINE)
        locks = [lock for lock in c.acquire_many(NAMES, TTL) if lock]
        with paused(groups["five"], *range(5)), paused(groups["three"], *range(3)):
            c.release_many(locks)
            monkeypatch.setattr(MastersOfClient, "close", counted)
            c.close()
    assert len(given) == 2
    assert sum(given) <= CLOSE_TIMEOUT + clients.LEAST_CLOSE_TIMEOUT
    for masters in groups.values():
        nothing_left(masters)


@pytest.mark.parametrize(("hung", "other"), [("five", "three"), ("three", "five")])
@on_loops
async def test_a_hung_group_does_not_delay_the_close_of_another(
    groups: dict[str, Masters], engine_name: str, hung: str, other: str
) -> None:
    urls = {name: masters.urls for name, masters in groups.items()}
    client = AsyncShardedRedlock(urls, engine=engine_name, **PATIENT)
    await client.connect(DEADLINE)
    await until(lambda: all_connected(client), "all masters connect")
    locks = [lock for lock in await client.acquire_many(NAMES, TTL) if lock]
    with paused(groups[hung], *range(len(groups[hung]))):
        await client.release_many(locks)
        closing = asyncio.create_task(client.close())
        await until(lambda: not any_connected(client, other), "one group closes")
        assert not closing.done()
        closing.cancel()  # the close goes on
        with pytest.raises(asyncio.CancelledError):
            await closing
    await until(lambda: len(asyncio.all_tasks()) == 1, "the other one closes")
    assert not any_connected(client, hung)
    for masters in groups.values():
        nothing_left(masters)


# --- another map ------------------------------------------------------------------------------------


@pytest.mark.parametrize("adds", [True, False], ids=["a group is added", "a group is removed"])
def test_a_map_is_changed_while_clients_run(
    sharded: MakeSharded, groups: dict[str, Masters], raw: Raw, adds: bool
) -> None:
    """docs/scaling.md: a client of both maps excludes clients of the old map and clients of the new map."""
    two = {name: masters.urls for name, masters in groups.items()}
    one = {"five": two["five"]}
    maps = (one, two) if adds else (two, one)
    checked = {"check_masters": "auto"}
    old, new = sharded(maps[0], **checked), sharded(maps[1], **checked)
    joint = sharded(maps[1], joint_with=maps[0], **checked)
    by_two = new if adds else old
    moved = next(name for name in NAMES if by_two.client.group_of(name) == "three")
    stays = next(name for name in NAMES if by_two.client.group_of(name) == "five")
    assert joint.client.group_of(moved) == new.client.group_of(moved)
    for name, places in ((moved, 8), (stays, 5)):
        lock = joint.acquire(name, TTL)
        eventually(lambda: keys_of(groups, raw, name) == places, "all masters granted")  # noqa: B023
        assert [c.acquire(name, TTL, blocking=False) for c in (old, new)] == [None, None]
        assert joint.wait(lock.release()) is True
        for c in (old, new):
            [alone] = taken(c, [name])
            assert joint.acquire(name, TTL, blocking=False) is None
            assert c.wait(alone.release()) is True
            eventually(lambda: keys_of(groups, raw, name) == 0, "no key is left")  # noqa: B023


def keys_of(groups: dict[str, Masters], raw: Raw, name: str) -> int:
    return sum(int(master.exists(name)) for masters in groups.values() for master in raw(masters))


def test_a_resource_that_moves_needs_both_groups(sharded: MakeSharded, groups: dict[str, Masters]) -> None:
    two = {name: masters.urls for name, masters in groups.items()}
    joint = sharded(two, joint_with={"five": two["five"]})
    [moved], [stays] = of(joint.client, "three", 1), of(joint.client, "five", 1)
    down(groups["three"])
    assert joint.acquire(stays, TTL)
    with pytest.raises(QuorumUnavailable):
        joint.acquire(moved, TTL, blocking=False)


def test_a_batch_over_groups_that_change(sharded: MakeSharded, groups: dict[str, Masters]) -> None:
    two = {name: masters.urls for name, masters in groups.items()}
    joint = sharded(two, joint_with={"five": two["five"]})
    locks = taken(joint, NAMES)
    old = sharded({"five": two["five"]})
    assert [old.acquire(name, TTL, blocking=False) for name in NAMES] == [None] * len(NAMES)
    assert joint.wait(joint.client.extend_many(locks)) == [True] * len(NAMES)
    assert joint.wait(joint.client.release_many(locks)) == [True] * len(NAMES)


# --- cancelled --------------------------------------------------------------------------------------


@on_loops
async def test_a_cancelled_batch_leaves_nothing_in_any_group(
    engine_name: str, valkey: Masters, three: Masters
) -> None:
    urls = {"five": valkey.urls, "three": three.urls}
    async with AsyncShardedRedlock(urls, engine=engine_name, **PATIENT) as client:
        await client.connect()
        await until(lambda: all_connected(client), "all masters connect")
        for master in three:
            master.pause()
        names = [*of(client, "five"), *of(client, "three")]  # asked in this order
        batch = asyncio.create_task(client.acquire_many(names, TTL))
        await until(lambda: all(sizes(valkey)), "the other group has granted its part")
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        await until(lambda: not any(sizes(valkey)), "which is given back")
        for master in three:
            master.resume()
        await until(lambda: not any(sizes(three)), "and so is what was on its way")


@on_loops
async def test_a_cancelled_release_of_many_releases_in_every_group(
    engine_name: str, valkey: Masters, three: Masters
) -> None:
    urls = {"five": valkey.urls, "three": three.urls}
    async with AsyncShardedRedlock(urls, engine=engine_name, **PATIENT) as client:
        await client.connect()
        await until(lambda: all_connected(client), "all masters connect")
        locks = [lock for lock in await client.acquire_many(NAMES, TTL) if lock]
        assert len(locks) == len(NAMES)
        await until(lambda: not owed(client), "all masters have granted them")
        for masters in (valkey, three):
            for master in masters:
                master.pause()
        release = asyncio.create_task(client.release_many(locks))
        await until(lambda: owed(client), "a group is asked")
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        for masters in (valkey, three):
            for master in masters:
                master.resume()
        await until(lambda: not any(sizes(valkey) + sizes(three)), "all are released")


@on_loops
@pytest.mark.parametrize("what", ["acquire_many", "release_many"])
async def test_a_destroyed_task_releases_in_every_group(
    engine_name: str, valkey: Masters, three: Masters, what: str
) -> None:
    urls = {"five": valkey.urls, "three": three.urls}
    async with AsyncShardedRedlock(urls, engine=engine_name, **PATIENT) as client:
        await client.connect()
        await until(lambda: all_connected(client), "all masters connect")
        names = [*of(client, "five"), *of(client, "three")]  # acquired in this order, released in the other
        locks = [] if what == "acquire_many" else await client.acquire_many(names, TTL)
        await until(lambda: not owed(client), "all masters have granted them")
        for master in three:
            master.pause()
        call: Any = client.acquire_many(names, TTL) if what == "acquire_many" else client.release_many(locks)
        future = call.send(None)
        while not any(master.pending for master in client.health()["three"]):
            await asyncio.wait([future])
            future = call.send(None)
        call.close()
        for master in three:
            master.resume()
        await until(lambda: not any(sizes(valkey) + sizes(three)), "all are released")


def owed(client: AsyncShardedRedlock) -> int:
    return max(master.pending for group in client.health().values() for master in group)


def test_a_handler_that_raises_in_acquire_many(groups: dict[str, Masters], engine_name: str) -> None:
    """At any moment: the caller has no lock that it could release."""
    granted: list[Any] = []

    def after() -> None:
        while granted:
            c.release_many([lock for lock in granted.pop() if lock])
        for masters in groups.values():
            nothing_left(masters)

    urls = {name: masters.urls for name, masters in groups.items()}
    files = clients.__file__, placement.__file__
    with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
        assert c.connect(DEADLINE)
        acquire = partial(c.acquire_many, NAMES[:8], TTL)
        assert moments(lambda: granted.append(acquire()), interrupt, after, files.__contains__) > 10


def test_an_interrupted_release_of_many_keeps_the_lease_of_another_thread(
    groups: dict[str, Masters], engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquired the same object after the release. Catches: a second release."""
    urls = {name: masters.urls for name, masters in groups.items()}
    with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
        assert c.connect(DEADLINE)
        locks = [lock for lock in c.acquire_many(NAMES[:2], TTL) if lock]
        release = c._release_parts

        def release_and_raise(*args: Any) -> Any:
            monkeypatch.undo()
            release(*args)
            assert start(locks[0].acquire).result(DEADLINE)
            raise KeyboardInterrupt

        monkeypatch.setattr(c, "_release_parts", release_and_raise)
        with pytest.raises(KeyboardInterrupt):
            c.release_many(locks)
        assert [lock.locked() for lock in locks] == [True, False]
        assert locks[0].release()


def test_a_handler_that_closes_and_raises_in_acquire_many(
    groups: dict[str, Masters], engine_name: str
) -> None:
    """At any moment at the end of a call. Catches: locks that no caller has and no group releases."""
    urls = {name: masters.urls for name, masters in groups.items()}
    files = clients.__file__, placement.__file__, batch.__file__
    number, found = 0, True
    while found:
        with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
            assert c.connect(DEADLINE)
            begin = partial(at_moment, number, partial(c.acquire_many, NAMES[:2], TTL))
            found = begin(partial(close_and_raise, c), files.__contains__)
            if found:
                for masters in groups.values():
                    nothing_left(masters)
        number += 1
    assert number > 10


def close_and_raise(client: ShardedRedlock) -> None:
    client.close()
    raise KeyboardInterrupt


def test_a_handler_that_raises_in_release_many(groups: dict[str, Masters], engine_name: str) -> None:
    """At any moment after its first: all groups release."""
    urls = {name: masters.urls for name, masters in groups.items()}
    files = clients.__file__, placement.__file__
    with ShardedRedlock(urls, engine=engine_name, **PATIENT) as c:
        assert c.connect(DEADLINE)
        number, found = 1, True
        while found:
            locks = [lock for lock in c.acquire_many(NAMES[:8], TTL) if lock]
            assert len(locks) == 8
            found = at_moment(number, partial(c.release_many, locks), interrupt, files.__contains__)
            assert not any(lock.locked() for lock in locks), number
            number += 1
        assert number > 10
    for masters in groups.values():
        nothing_left(masters)
