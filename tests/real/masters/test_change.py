"""Changing the masters: clients of the old list, of both and of the new one exclude each other."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clients import Blocking, both_clients
from support.forking import exit_code, fork_child
from support.inside import core_of
from support.keys import TTL, nothing_left, values, with_keys
from support.kinds import AGAINST, KINDS, waiting_writers
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ConfigError, FastRedlock, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: From one list to the next: the numbers of their masters.
CHANGES = {
    "1 to 3": ("0", "012"),
    "3 to 5": ("012", "01234"),
    "one of 3 replaced": ("012", "013"),
    "5 to 3": ("01234", "012"),
    "2 to 4": ("01", "0123"),
    "all of 2 replaced": ("01", "23"),
    "1 of 3 stays": ("012", "234"),
}
each_change = pytest.mark.parametrize("change", CHANGES)

ALL_KINDS: dict[str, Callable[..., Any]] = {
    **KINDS,
    "plain": lambda client, name, **options: client.lock(name, **options),
    "fenced": lambda client, name, **options: client.lock(name, fencing=True, **options),
    "fair": lambda client, name, **options: client.lock(name, fair=True, **options),
    "multilock": lambda client, name, **options: client.multilock([name, f"{name}:2"], **options),
}


def lock_of(kind: str, client: Any, name: str, **options: Any) -> Any:
    made = ALL_KINDS[kind](client, name, **options)
    return client._result(made) if isinstance(client, Blocking) else made


def against(kind: str, client: Any, name: str) -> Any:
    """A lock that excludes one of this kind."""
    return lock_of(EXCLUDES[kind], client, name)


EXCLUDES = {**AGAINST, "plain": "plain", "fenced": "plain", "fair": "plain", "multilock": "multilock"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that left all lists is disconnected at once."""
    monkeypatch.setattr("redlock_fast.masters.connector.LEAVE_AFTER", -60.0)


def lists(masters: Masters, change: str) -> tuple[list[str], list[str]]:
    old, new = ([masters.urls[int(number)] for number in numbers] for numbers in CHANGES[change])
    return old, new


# --- joint_with ---------------------------------------------------------------------------------------


def test_why_a_change_needs_both_lists(masters: Masters, connected: MakeClient, client: MakeClient) -> None:
    """One master was down, so the lock is on two of three: the three others of five grant it once more."""
    old_list, new_list = lists(masters, "3 to 5")
    old = client(old_list)
    masters[2].kill()
    held = old.acquire("r", TTL)
    assert held
    masters[2].restart()
    naive, joint = connected(new_list), connected(new_list, joint_with=old_list)
    assert joint.acquire("r", TTL, blocking=False) is None
    second = naive.acquire("r", TTL, blocking=False)
    assert second
    assert held.locked() is second.locked() is True, "two holders"
    assert held.release() is second.release() is True
    nothing_left(masters)


@each_change
def test_a_client_of_both_lists_sees_the_locks_of_either(
    masters: Masters, connected: MakeClient, change: str
) -> None:
    """Such a lock keeps it from acquiring. Catches: the other list, which has no key, decides."""
    old_list, new_list = lists(masters, change)
    joint = connected(new_list, joint_with=old_list)
    assert joint.locked("r") is False
    for other in connected(old_list), connected(new_list):
        held = other.acquire("r", TTL)
        assert held
        assert joint.locked("r") is True
        assert held.release() is True
        nothing_left(masters)
        assert joint.locked("r") is False


def test_a_lock_that_one_list_has_is_seen_without_the_other(masters: Masters, connected: MakeClient) -> None:
    old_list, new_list = lists(masters, "all of 2 replaced")
    joint, old = connected(new_list, joint_with=old_list), connected(old_list)
    held = old.acquire("r", TTL)
    assert held
    for number in (2, 3):
        masters[number].kill()
    assert joint.locked("r") is True
    assert held.release() is True
    with pytest.raises(QuorumUnavailable):
        joint.locked("r")


@each_change
def test_clients_of_adjacent_steps_exclude_each_other(
    masters: Masters, connected: MakeClient, change: str
) -> None:
    old_list, new_list = lists(masters, change)
    joint = connected(new_list, joint_with=old_list)
    for other, kind in itertools.product((connected(old_list), connected(new_list)), ALL_KINDS):
        for first, second in ((joint, other), (other, joint)):
            held, refused = lock_of(kind, first, kind, ttl=30.0), against(kind, second, kind)
            assert held.acquire() is True, kind
            assert refused.acquire(blocking=False) is False, kind
            assert held.extend(TTL) > 30.0
            assert held.release() is True
            assert refused.acquire() is True, kind
            assert refused.release() is True
    nothing_left_but_counters(masters)


def nothing_left_but_counters(masters: Masters) -> None:
    def left() -> list[int]:
        script = (
            "local n=0 for _,k in ipairs(redis.call('keys','*')) do if k:sub(-2)~=':f' then n=n+1 end end"
        )
        return [n for n, master in enumerate(masters) if master.ask(f'EVAL "{script} return n" 0') != ":0"]

    eventually(lambda: not left(), "no key of ours is left")


@pytest.mark.parametrize(
    ("dead", "missing"),
    [
        ((3, 4), "no quorum of 2 of 3 masters of the list masters after [0-9]+ attempt"),
        ((0, 1), "no quorum of 2 of 3 masters of the list joint_with after [0-9]+ attempt"),
    ],
)
def test_without_a_quorum_of_each_list_nothing_stays(
    masters: Masters, connected: MakeClient, dead: tuple[int, ...], missing: str
) -> None:
    joint = connected(masters.urls[2:], joint_with=masters.urls[:3], connect_timeout=0.5)
    both, new, old = ("masters", "joint_with"), ("masters",), ("joint_with",)
    health = joint.health()
    assert [one.lists for one in health] == [both, new, new, old, old]
    for number in dead:
        masters[number].kill()
    with pytest.raises(QuorumUnavailable, match=missing) as raised:
        joint.lock("r", TTL, fencing=True).acquire(blocking=False)
    assert set(raised.value.masters) == {health[number - 2].name for number in dead}  # 0 and 1 are the last
    with pytest.raises(QuorumUnavailable, match=missing):
        joint.acquire_many(["a", "b"], TTL)
    running = [master for number, master in enumerate(masters) if number not in dead]
    eventually(lambda: all(one.ask("EXISTS r a b") == ":0" for one in running), "the tokens are taken back")


@each_change
def test_fencing_tokens_rise_over_the_steps(masters: Masters, connected: MakeClient, change: str) -> None:
    old_list, new_list = lists(masters, change)
    old, joint, new = (
        connected(old_list),
        connected(new_list, joint_with=old_list),
        connected(new_list),
    )
    tokens = []
    for client in (old, joint, old, joint, new, joint, new):
        lock = client.lock("r", TTL, fencing=True)
        assert lock.acquire(blocking=False)
        tokens.append(lock.fencing_token)
        assert lock.release()
    assert tokens == sorted(set(tokens))


def test_batches(masters: Masters, connected: MakeClient) -> None:
    old_list, new_list = lists(masters, "3 to 5")
    old, joint = connected(old_list), connected(new_list, joint_with=old_list)
    names = [f"batch:{number}" for number in range(20)]
    held = old.acquire_many(names[::2], TTL)
    locks = joint.acquire_many(names, TTL)
    assert [lock is None for lock in locks] == [True, False] * 10
    mine = [lock for lock in locks if lock]
    assert joint.extend_many(mine, TTL) == [True] * 10
    assert old.acquire_many(names[1::2], TTL) == [None] * 10
    assert joint.release_many(mine) == old.release_many(held) == [True] * 10
    nothing_left(masters)


def test_a_waiter_is_notified_by_masters_of_both_lists(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redlock_fast.algorithm.attempts.REARM", 10 * DEADLINE)
    old_list, new_list = lists(masters, "one of 3 replaced")
    old, joint = connected(old_list), connected(new_list, joint_with=old_list)
    held = old.acquire("r", TTL)
    waiting = start(lambda: joint.acquire("r", TTL))
    eventually(lambda: all(map(tracked, raw(masters)[:4])), "it waits")
    assert held.release()
    lock = waiting.result(DEADLINE)

    def on_both_lists() -> bool:
        assert lock
        lock.extend(TTL)  # a master may have executed the SET before the release: the refill writes its key
        return [one.ask("EXISTS r") for one in masters] == [":1"] * 4 + [":0"]

    eventually(on_both_lists, "it is on both lists")
    assert lock.release()


def tracked(node: redis.Redis) -> int:
    """The number of keys that a master tracks for its clients."""
    return int(node.info("stats")["tracking_total_keys"])


@pytest.mark.parametrize(
    ("lists_of", "text"),
    [
        (lambda urls: (urls[:3], []), "joint_with must be a list of 1 to 63"),
        (lambda urls: (urls[:3], urls[0]), "joint_with must be a list of URLs"),
        (lambda urls: (urls[:3], [urls[4], urls[4]]), "joint_with: .* are one server with one vote"),
        (lambda urls: (urls[:3], [urls[0].replace("/0", "/1")]), "joint_with: .* are one server"),
    ],
)
def test_wrong_lists(masters: Masters, client: MakeClient, lists_of: Callable[..., Any], text: str) -> None:
    urls = [url if url.endswith("/0") else f"{url}/0" for url in masters.urls]
    first, second = lists_of(urls)
    with pytest.raises(ConfigError, match=text):
        client(first, joint_with=second)
    with pytest.raises(ConfigError, match=text):
        client(first).reconfigure(first, joint_with=second)


# --- reconfigure --------------------------------------------------------------------------------------


@each_change
def test_locks_of_all_kinds_are_held_through_a_change(
    masters: Masters, connected: MakeClient, change: str, soon: None
) -> None:
    old_list, new_list = lists(masters, change)
    one, old, new = connected(old_list), connected(old_list), connected(new_list)
    locks = {kind: lock_of(kind, one, kind, ttl=TTL / 2) for kind in ALL_KINDS}

    def extended(ttl: float) -> None:
        for kind, lock in locks.items():
            assert lock.extend(ttl) > ttl * 0.9, kind

    def excludes(client: Any) -> None:
        for kind in locks:
            assert against(kind, client, kind).acquire(blocking=False) is False, kind

    for lock in locks.values():
        assert lock.acquire()
    number = locks["fenced"].fencing_token
    one.reconfigure(new_list, joint_with=old_list)
    extended(TTL * 0.6)
    excludes(old)
    excludes(new)
    one.reconfigure(new_list)
    extended(TTL * 0.7)
    excludes(new)
    assert {kind: lock.release() for kind, lock in locks.items()} == dict.fromkeys(ALL_KINDS, True)
    nothing_left_but_counters(masters)
    again = lock_of("fenced", new, "fenced", ttl=TTL)
    assert again.acquire()
    assert again.fencing_token > number
    assert again.release() is True
    assert [health.lists for health in one.health()] == [("masters",)] * len(new_list)
    eventually(lambda: sum(link.attached for link in links(one)) == len(new_list), "old masters are left")
    nothing_left_but_counters(masters)


def links(client: Any) -> list[Any]:
    return [master.link for master in core_of(client).masters.connector.roster.masters]


def all_attached(client: Any) -> None:
    """``reconfigure`` waits for a quorum of each list, and a moment at most for the other masters."""
    eventually(lambda: all(link.attached for link in links(client)), "all masters connect")


def test_batches_are_held_through_a_change(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    old_list, new_list = lists(masters, "one of 3 replaced")
    one, nodes = connected(old_list), raw(masters)
    names = [f"batch:{number}" for number in range(50)]
    locks = one.acquire_many(names, TTL / 2)
    one.reconfigure(new_list, joint_with=old_list)
    all_attached(one)
    assert one.extend_many(locks, TTL * 0.6) == [True] * 50
    eventually(lambda: [node.dbsize() for node in nodes] == [50, 50, 50, 50, 0], "all have the tokens")
    one.reconfigure(new_list)
    assert one.extend_many(locks, TTL * 0.7) == [True] * 50
    assert one.release_many(locks) == [True] * 50
    nothing_left(masters)


def test_renewal_through_a_change_while_others_contend(masters: Masters, connected: MakeClient) -> None:
    """Eight threads of two clients, whose steps change while they run; one master dies in the middle."""
    old_list, new_list = lists(masters, "3 to 5")
    clients = [connected(old_list) for _ in range(2)]
    kept = clients[0].lock("kept", ttl=6.0, auto_extend=True)
    assert kept.acquire()
    inside, overlaps, grants, stop = set[int](), list[int](), itertools.count(), threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            lock = clients[number % 2].acquire("r", TTL, timeout=DEADLINE)
            assert lock
            inside.add(number)
            overlaps.append(len(inside) - 1)
            time.sleep(0.001)
            inside.discard(number)
            next(grants)
            assert lock.release()

    def some_grants() -> None:
        before = len(overlaps)
        eventually(lambda: len(overlaps) > before + 20 or any(map(failed, threads)), "the work goes on")

    def failed(thread: Any) -> bool:
        return bool(thread.done() and thread.exception())

    threads = [start(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    some_grants()
    for client in clients:
        client.reconfigure(new_list, joint_with=old_list)
        all_attached(client)
        some_grants()
    masters[1].kill()
    some_grants()
    for client in clients:
        client.reconfigure(new_list)
        some_grants()
    stop.set()
    for thread in threads:
        thread.result(DEADLINE)
    assert not any(overlaps)
    kept.check()
    eventually(
        lambda: len([n for n in (0, 2, 3, 4) if masters[n].ask("EXISTS kept") == ":1"]) >= 3, "renewed"
    )
    assert kept.release() is True
    assert clients[0].stats().lost == 0


def test_a_waiter_goes_on_through_a_change(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    old_list, new_list = lists(masters, "one of 3 replaced")
    holder, one = connected(old_list), connected(old_list)
    held = holder.acquire("r", TTL)
    waiting = start(lambda: one.acquire("r", TTL))
    eventually(lambda: tracked(raw(masters)[0]), "it waits")
    for client in (one, holder):
        client.reconfigure(new_list, joint_with=old_list)
    one.reconfigure(new_list)
    assert held.extend(TTL)
    assert not waiting.done()
    assert held.release()
    lock = waiting.result(DEADLINE)
    assert one.locked("r")
    assert lock.release()
    nothing_left(masters)


def test_a_reader_is_extended_on_new_masters_although_a_writer_waits_there(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    old_list, new_list = lists(masters, "3 to 5")
    one, joint = connected(old_list), connected(new_list, joint_with=old_list)
    reader, writer = lock_of("reader", one, "r", ttl=TTL / 2), lock_of("writer", joint, "r", ttl=TTL)
    assert reader.acquire()
    waiting = start(writer.acquire)
    eventually(lambda: all(waiting_writers(raw(masters), "r")), "it waits")
    one.reconfigure(new_list, joint_with=old_list)
    assert reader.extend(TTL * 0.6) > TTL / 2
    assert not waiting.done()
    assert reader.release()
    assert waiting.result(DEADLINE)
    assert writer.release()


def test_an_undone_change(masters: Masters, connected: MakeClient, raw: Raw, soon: None) -> None:
    """The new masters do not answer: nothing has changed. Back from both lists to the old one."""
    old_list, new_list = lists(masters, "3 to 5")
    # The new masters are new: without that they have no vote, because they started after an attempt in vain.
    one, nodes = connected(old_list, assume_fresh=True), raw(masters)
    held = one.acquire("r", TTL)
    with pytest.raises(ConfigError, match=r"first reconfigure\(new, joint_with=old\)"):
        one.reconfigure(new_list)
    for number in (2, 3, 4):
        masters[number].kill()
    eventually(lambda: one.health()[2].state != "connected", "the client has noticed")
    with pytest.raises(
        QuorumUnavailable, match="3 of 5 masters of the list masters votes, so nothing"
    ) as why:
        one.reconfigure(new_list, joint_with=old_list, timeout=0.2)
    assert len(why.value.causes) == 3
    for number in (2, 3, 4):
        masters[number].restart()
    eventually(lambda: all(health.state == "connected" for health in one.health()), "they are back")
    assert [health.lists for health in one.health()] == [("masters",)] * 3
    assert one.acquire("r", TTL, blocking=False) is None, "contended, and no error about masters"
    eventually(lambda: sum(link.attached for link in links(one)) == 3, "the new masters are left")
    one.reconfigure(new_list, joint_with=old_list)
    assert one.acquire("r", TTL, blocking=False) is None
    assert held.extend(TTL) > 0
    one.reconfigure(old_list)
    assert held.extend(TTL) > 0
    assert held.release() is True
    nothing_left(masters)
    lock = one.acquire("r", TTL)
    assert values(nodes, "r")[:2] == [lock.token] * 2, "the third may have forgotten locks"
    assert lock.release()
    assert with_keys(masters) == []


def test_another_database_is_no_step(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """The servers are the same, and the keys are not: a client would move there with its next connections."""
    old = masters.urls[:3]
    holder, one = connected(old), connected(old)
    held = holder.acquire("r", TTL)
    assert held
    with contextlib.suppress(ConfigError):
        one.reconfigure([f"{url.removesuffix('/0')}/1" for url in old])
    for node in raw(masters)[:3]:
        node.client_kill_filter(_type="normal", skipme=True)
    eventually(lambda: all(link.connections > 1 and link.attached for link in links(one)), "it is back")
    assert one.acquire("r", TTL, blocking=False) is None, "two holders"
    with pytest.raises(ConfigError, match=r"reconfigure: .*/1 is another database than .*/0"):
        one.reconfigure([f"{url.removesuffix('/0')}/1" for url in old])
    assert held.release() is True


def test_a_master_that_dies_between_the_steps_costs_no_lock(masters: Masters, connected: MakeClient) -> None:
    old_list, new_list = lists(masters, "3 to 5")
    one = connected(old_list)
    lock = one.acquire("r", TTL / 2)
    one.reconfigure(new_list, joint_with=old_list)
    all_attached(one)
    masters[0].kill()
    assert lock.extend(TTL * 0.6) > 0
    masters[3].kill()
    with pytest.raises(QuorumUnavailable):
        one.reconfigure(old_list[:1] + new_list[3:4], joint_with=new_list, timeout=0.2)
    one.reconfigure(new_list)
    assert lock.extend(TTL * 0.7) > 0
    assert lock.release() is True


def test_a_master_that_dies_during_a_change_is_awaited(
    masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was a quorum of each list, and the change waited a moment for the other masters."""
    monkeypatch.setattr("redlock_fast.masters.change.GRACE", DEADLINE)
    old_list, new_list = lists(masters, "3 to 5")
    one = connected(old_list, assume_fresh=True)
    for number in (3, 4):
        masters[number].pause()
    change = start(lambda: one.reconfigure(new_list, joint_with=old_list, timeout=2 * DEADLINE))
    eventually(lambda: core_of(one).masters.connector.roster.change(), "it has begun")
    for number in (2, 3, 4):
        masters[number].kill()
    failing = links(one)[2:]
    eventually(lambda: all(link.failures and not link.attached for link in failing), "all fail")
    masters[3].restart()
    change.result(2 * DEADLINE)
    lock = one.acquire("r", TTL)
    assert lock
    assert lock.release()


def test_a_second_client_with_the_token(masters: Masters, connected: MakeClient) -> None:
    """A lock that was detached at the step before is taken over, once it was extended at the present one."""
    old_list, new_list = lists(masters, "3 to 5")
    one, joint = connected(old_list), connected(new_list, joint_with=old_list)
    lock = one.acquire("r", TTL)
    one.reconfigure(new_list, joint_with=old_list)
    lock.extend(TTL)
    token = lock.detach()
    taken = joint.lock("r", token=token)
    assert taken.extend(TTL) > 0
    assert taken.release() is True
    with pytest.raises(LockLost):
        joint.lock("r", token=token).extend()
    nothing_left(masters)


def test_a_child_of_fork_goes_on_with_the_new_masters(masters: Masters, connected: MakeClient) -> None:
    """It has another engine, with as many masters."""
    old_list, new_list = lists(masters, "one of 3 replaced")
    one = connected(old_list)
    one.reconfigure(new_list, joint_with=old_list)
    one.reconfigure(new_list)

    def in_child() -> None:
        connector = core_of(one).masters.connector
        assert connector.roster.own().keys() == {0, 1, 3}
        assert connector.roster.masters[2].left_at > 0
        if isinstance(one, FastRedlock):
            lock = one.acquire("r", TTL)
            assert lock
            assert lock.release()

    assert exit_code(fork_child(in_child)) == 0
    nothing_left(masters)


@pytest.mark.parametrize("reused", [False, True])
def test_a_restart_of_a_master_that_was_in_no_list_is_noticed(
    masters: Masters, connected: MakeClient, soon: None, reused: bool
) -> None:
    """When it comes back, it is no first contact: it casts no vote for what it may have forgotten.

    ``reused``: another master has got its number.
    """
    old, new = masters.urls[:3], masters.urls[1:4]
    one = connected(old)
    one.reconfigure(new, joint_with=old)
    one.reconfigure(new)
    eventually(lambda: core_of(one).masters.connector.roster.masters[0].gone, "it has left")
    masters[0].kill()
    masters[0].restart()
    if reused:
        other = masters.urls[2:]
        one.reconfigure(other, joint_with=new)
        one.reconfigure(other)
        assert core_of(one).masters.connector.roster.names()[0] == f"127.0.0.1:{masters[4].port}/0"
        one.reconfigure(new, joint_with=other)
        one.reconfigure(new)
    one.reconfigure(old, joint_with=new)

    def returned() -> Any:
        return next(master for master in one.health() if master.name == f"127.0.0.1:{masters[0].port}/0")

    eventually(lambda: returned().state == "connected", "it is connected")
    assert returned().guard > 0
