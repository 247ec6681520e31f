"""Several resources at once, on real masters: all or none, and each a lock of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.clocks import Jumping
from support.event_loops import Plain, until
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.keys import calls, forget_calls, names, nothing_left, occupy, paused, values, wipe
from support.makers import MakeAio, MakeClient, Raw
from support.proxy import Pipe, Proxy, fixed
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import AsyncFastRedlock, Contended, FastRedlock, Lock, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

TTL = 60.0
#: A little more than a third of it.
THIRD = 21.0


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


def held(c: FastRedlock, nodes: list[redis.Redis], *resources: str, **options: Any) -> Lock:
    """A lock whose keys are on all masters."""
    lock = c.multilock(resources, TTL, **options)
    assert lock.acquire(timeout=DEADLINE)
    eventually(lambda: all(values(nodes, one) == [lock.token] * 5 for one in resources), "all have the keys")
    return lock


def test_in_one_round_trip(masters: Masters, plain: Callable[..., Plain], raw: Raw) -> None:
    """Of any client. Keys in no order; names that are no text."""
    nodes = raw(masters)
    c = plain(masters).at_full_strength()
    forget_calls(nodes)
    lock = c.client.multilock(["c", b"\xff\r\n$1", "a"], TTL)
    assert c.wait(lock.acquire()) is True
    eventually(lambda: calls(nodes, "evalsha", "eval") == [1] * 5, "one script on each master")
    assert lock.locked()
    assert all(set(node.keys()) == {b"a", b"c", b"\xff\r\n$1"} for node in nodes)
    assert 0.0 < lock.remaining() <= TTL
    assert c.wait(lock.extend(TTL)) > 0.0
    assert c.wait(c.client.locked("a")) is True
    assert c.wait(c.client.lock("c", TTL).acquire(blocking=False)) is False
    assert c.wait(lock.release()) is True
    nothing_left(masters)


def test_none_where_one_is_taken(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """A plain lock excludes, and is excluded; what is refused leaves nothing."""
    c = connected(masters)
    nodes = raw(masters)
    with c.lock("b", TTL):
        for lock in (c.multilock(["a", "b"], TTL), c.multilock(["b", "c"], TTL), c.multilock(["b"], TTL)):
            assert lock.acquire(blocking=False) is False
            assert answered(lambda lock=lock: lock.acquire(timeout=0.5)) is False  # type: ignore[misc]
        with pytest.raises(Contended, match=r"^'b', of 2 resources, is already held on") as error:
            answered(c.multilock(["a", "b"], TTL, timeout=0.5).__enter__)
        assert len(error.value.masters) >= 3
        eventually(lambda: not any(values(nodes, "a") + values(nodes, "c")), "nothing is left")
    with c.multilock(["a", "b"], TTL):
        assert c.lock("a", TTL).acquire(blocking=False) is False
        with c.multilock(["c", "d"], TTL):
            pass
    nothing_left(masters)


def test_whatever_stands_under_a_name_takes_it(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """As for a plain lock; and nothing of others is deleted. Catches: scripts that break half way."""
    c, nodes = connected(masters), raw(masters)
    for node in nodes:
        node.hset("b", "field", "value")
    assert answered(lambda: c.multilock(["a", "b", "c"], TTL).acquire(timeout=0.5)) is False
    lock = held(c, nodes, "a", "d")
    for node in nodes:
        node.delete("a")
        node.hset("a", "field", "value")
    lock.release()
    for node in nodes:
        eventually(lambda node=node: set(node.keys()) == {b"a", b"b"}, "nothing of ours")  # type: ignore[misc]


def test_a_minority_that_is_taken_or_down_does_not_matter(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    c, nodes = connected(masters), raw(masters)
    occupy(nodes[:1], "b")
    with paused(masters, 4), c.multilock(["a", "b", "c"], TTL, timeout=DEADLINE) as lock:
        lock.extend()
    eventually(lambda: not any(values(nodes, "a") + values(nodes, "c")), "all is released")
    nodes[0].delete("b")
    nothing_left(masters)


def test_a_majority_that_is_down(masters: Masters, connected: MakeClient) -> None:
    c = connected(masters, node_timeout=0.1)
    lock = c.multilock(["a", "b"], TTL)
    with paused(masters, 0, 1, 2), pytest.raises(QuorumUnavailable):
        lock.acquire(timeout=0.3)
    nothing_left(masters)
    with pytest.raises(ZeroDivisionError), c.multilock(["a", "b"], TTL, timeout=DEADLINE):
        raise ZeroDivisionError
    nothing_left(masters)


def test_a_thousand(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    c, nodes = connected(masters), raw(masters)
    resources = names(1000)
    lock = c.multilock(resources, TTL)
    assert lock.acquire()
    assert lock.extend() > 0.0
    assert c.lock(resources[-1], TTL).acquire(blocking=False) is False
    assert lock.release() is True
    with c.lock(resources[-1], TTL):
        assert c.multilock(resources, TTL).acquire(blocking=False) is False
        eventually(lambda: [node.dbsize() <= 1 for node in nodes] == [True] * 5, "only the one")
    long = [f"{number}".ljust(60_000, "x") for number in range(17)]
    with c.multilock(long, TTL):
        pass
    nothing_left(masters)


def test_scripts_that_a_master_forgot(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    c, nodes = connected(masters), raw(masters)
    for node in nodes:
        node.script_flush()
    with c.multilock(["a", "b"], TTL):
        pass
    assert [m.faults for m in c.health()] == [0] * 5
    nothing_left(masters)


def test_masters_with_a_marker(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """A master without its marker may have forgotten locks: it has no vote here either."""
    c, nodes = connected(masters, restart_guard="marker", assume_fresh=True), raw(masters)
    with c.multilock(["a", "b"], TTL) as lock:
        lock.extend()
    for node in nodes[:3]:
        node.delete("redlock-fast:marker")
    with pytest.raises(QuorumUnavailable, match="GUARDED"):
        c.multilock(["a", "b"], TTL).acquire(blocking=False)
    for node in nodes:
        eventually(lambda node=node: node.keys() == [b"redlock-fast:marker"], "nothing of ours")  # type: ignore[misc]


# --- loss -----------------------------------------------------------------------------------------


def test_held_as_long_as_each_resource_has_a_quorum(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """No two masters have the same part of it, and only one has all."""
    c, nodes = connected(masters), raw(masters)
    lock = held(c, nodes, "a", "b")
    for node, key in ((nodes[0], "a"), (nodes[1], "a"), (nodes[2], "b"), (nodes[3], "b")):
        node.delete(key)
    assert lock.extend() > 0.0
    for key in ("a", "b"):
        assert not c.lock(key, TTL).acquire(blocking=False)
    assert not c.multilock(["a", "b"], TTL).acquire(blocking=False)
    assert lock.release() is True
    lock = held(c, nodes, "a", "b")
    for node in nodes[:3]:
        node.delete("b")
    with pytest.raises(LockLost):
        lock.extend()
    assert not lock.locked()
    assert lock.release() is False
    nothing_left(masters)


class OneCommand(Proxy):
    """Once ``armed``, passes one more command on, and loses the rest."""

    def __init__(self, upstream: int) -> None:
        self.armed = False
        self._passed = False
        super().__init__(upstream)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if not (self.armed and pipe.from_client):
            return super().arrived(pipe, data)
        if not self._passed:
            self._passed = True
            super().arrived(pipe, data[: data.index(b"\n*") + 1])


def test_each_resource_needs_a_quorum_of_each_list(
    masters: Masters, connected: MakeClient, clock: Jumping
) -> None:
    """a is extended on 1 and 2, and so has both quorums. b is extended on 0 and 1, and so has no new one."""
    with contextlib.ExitStack() as stack:
        late, cut, deaf = (stack.enter_context(OneCommand(masters[n].port)) for n in (0, 2, 3))
        old, new = [late.url, masters.urls[1], cut.url], [masters.urls[1], cut.url, deaf.url]
        c = connected(new, joint_with=old, clock=clock, node_timeout=0.5)
        lock = c.multilock(["a", "b"], TTL)
        assert lock.acquire()
        for n in range(4):
            eventually(lambda n=n: masters[n].ask("EXISTS a b") == ":2", "each master has both")  # type: ignore[misc]
        clock.jump(THIRD)
        deaf.hold()
        cut.armed = True
        late.delay = fixed(0.05)
        with pytest.raises(QuorumUnavailable):
            lock.extend()
        assert lock.remaining() <= TTL - THIRD


def test_one_master_that_comes_back_empty(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    c, nodes = connected(valkey), raw(valkey)
    lock = held(c, nodes, "a", "b", "c")
    valkey[0].kill()
    valkey[0].restart()
    eventually(lambda: c.health()[0].connections == 2, "it is connected again")
    wipe(nodes[1])
    lock.extend()
    assert not connected(valkey).lock("b", TTL).acquire(blocking=False)
    wipe(nodes[2])
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.release() is False
    nothing_left(valkey)


def test_renewal(masters: Masters, connected: MakeClient, clock: Jumping, raw: Raw) -> None:
    losses: list[tuple[Lock, str]] = []
    c = connected(masters, clock=clock)
    lock = held(c, raw(masters), "a", "b", auto_extend=True, on_lost=lambda *loss: losses.append(loss))
    with c.lock("beside", TTL, auto_extend=True) as plain:
        for count in (2, 4):
            clock.jump(THIRD)
            eventually(lambda count=count: c.stats().renewed >= count, "both are renewed")  # type: ignore[misc]
        for node in raw(masters)[:3]:
            node.delete("b")
        clock.jump(THIRD)
        eventually(lambda: losses, "the loss is reported")
        assert losses[0][0] is lock
        assert lock.lost.is_set()
        plain.check()
        with pytest.raises(LockLost):
            lock.check()
    assert lock.release() is False
    assert len(losses) == 1
    nothing_left(masters)


def test_in_batches_with_others(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    c = connected(masters)
    locks = [held(c, raw(masters), "a", "b"), c.lock("p", TTL), held(c, raw(masters), "c")]
    assert locks[1].acquire()
    assert c.extend_many(locks, TTL) == [True] * 3
    for node in raw(masters):
        node.delete("b")
    assert c.release_many(locks) == [False, True, True]
    nothing_left(masters)


@needs_fork
def test_a_child_of_fork_holds_nothing(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    c = connected(masters)
    lock = held(c, raw(masters), "a", "b")
    token = lock.token

    def child() -> None:
        assert not lock.locked()
        assert lock.release() is False
        assert lock.acquire(blocking=False) is False  # it is the parent's
        with c.multilock(["c", "d"], TTL, timeout=DEADLINE):
            pass

    assert exit_code(fork_child(child)) == 0
    assert values(raw(masters), "b") == [token] * 5
    assert lock.release() is True
    nothing_left(masters)


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["poll", "auto"])
def test_it_waits_for_what_is_taken(masters: Masters, connected: MakeClient, wait: str) -> None:
    c = connected(masters, wait=wait)
    first, second = c.lock("b", TTL), c.lock("c", TTL)
    assert first.acquire()
    assert second.acquire()
    lock = c.multilock(["a", "b", "c"], TTL)
    waiting = start(lambda: lock.acquire(timeout=DEADLINE))
    eventually(lambda: c.locked("b"), "others hold")
    assert first.release()
    assert second.release()
    assert waiting.result(DEADLINE) is True
    assert lock.release()
    nothing_left(masters)


def test_callers_of_one_client_that_want_the_same_wait_in_one_queue(
    masters: Masters, aclient: MakeAio, connected: MakeClient, raw: Raw
) -> None:
    """They are served by arrival. Callers with another set have another queue."""
    other, order = connected(masters).lock("b", TTL), list[int]()

    async def one(c: AsyncFastRedlock, number: int) -> None:
        async with c.multilock(["b", "a"], TTL):
            order.append(number)

    async def main() -> None:
        async with aclient(masters) as c:
            assert other.acquire()
            tasks, waiting = [], core_of(c).policy.local_queue.waiting
            for number in range(10):
                tasks.append(asyncio.create_task(one(c, number)))
                await until(lambda number=number: len(waiting.get((b"a", b"b"), ())) > number, "it waits")
            another = c.multilock(["a", "c"], TTL)
            assert await another.acquire(timeout=DEADLINE)
            assert other.release()
            assert await another.release()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == list(range(10))
    nothing_left(masters)


@both_clients
@pytest.mark.parametrize("wait", ["poll", "auto"])
def test_sets_that_overlap_in_a_circle_get_on(masters: Masters, connected: MakeClient, wait: str) -> None:
    """{0, 1}, {1, 2}, {2, 0}: one lock after the other, they would wait for each other until leases end."""
    clients = [connected(masters, wait=wait), connected(masters, wait=wait)]
    inside: set[str] = set()
    mutex = threading.Lock()
    rounds = 12

    def work(number: int) -> int:
        c = clients[number % 2]
        own = [f"r:{number % 3}", f"r:{(number + 1) % 3}"]
        for _ in range(rounds):
            with c.multilock(random.sample(own, 2), TTL, timeout=DEADLINE):
                with mutex:
                    assert not inside & set(own), "two hold one resource"
                    inside.update(own)
                with mutex:
                    inside.difference_update(own)
        return rounds

    futures = [start(lambda number=number: work(number)) for number in range(6)]  # type: ignore[misc]
    assert [future.result(3 * DEADLINE) for future in futures] == [rounds] * 6
    nothing_left(masters)
