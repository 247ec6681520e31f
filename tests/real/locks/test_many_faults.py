"""Batches that are large, and batches on a bad day: masters that fail, leases that end, interrupts."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.event_loops import Plain
from support.inside import core_of
from support.keys import (
    OTHER_CLIENT,
    TTL,
    calls,
    forget_calls,
    names,
    nothing_left,
    occupy,
    paused,
    sizes,
    values,
)
from support.makers import MakePlain, Raw
from support.proxy import Proxy, jitter
from support.python_process import run_python, support_program
from support.thorough import amount
from support.waiting import DEADLINE, PATIENT, answered, eventually, start

from redlock_fast import QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")


#: Seconds; the times that the worker gives its masters are many times longer.
PROMPT = 5.0


def all_granted(c: Plain, count: int, of: str = "batch") -> list[Any]:
    locks: list[Any] = c.acquire_many(names(count, of), TTL)
    assert all(lock and lock.locked() for lock in locks)
    return locks


@pytest.mark.parametrize("plain", ["threads", "asyncio"], indirect=True)
def test_each_key_of_a_batch_that_fails_is_released_once(valkey: Masters, plain: MakePlain, raw: Raw) -> None:
    """Catches: thousands of releases that are sent again to masters that are in trouble."""
    c, nodes = plain(valkey, node_timeout=0.2).at_full_strength(), raw(valkey)
    forget_calls(nodes)
    with paused(valkey, 2, 3, 4), pytest.raises(QuorumUnavailable):
        c.acquire_many(names(7), TTL)
    nothing_left(valkey)
    assert calls(nodes, "delifeq") == [7] * 5


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", ["threads", "asyncio"], indirect=True)
def test_thousands_of_resources_in_one_call(valkey: Masters, plain: MakePlain, raw: Raw) -> None:
    """Of 10 MB together: more than any socket takes at once. Catches: both sides that wait for the other to
    read. (That ``node_timeout`` is for progress and not for all is shown in contract/test_stall.py.)
    """
    c, nodes = plain(valkey).at_full_strength(), raw(valkey)
    count = amount(6_000, 50_000, twice=50_000)
    resources = [f"{number:0{10_000_000 // count}}" for number in range(count)]
    occupy(nodes[:3], *resources[::1000])
    locks = c.acquire_many(resources, TTL)
    assert [number for number, lock in enumerate(locks) if not lock] == list(range(0, count, 1000))
    held = [lock for lock in locks if lock]
    assert all(lock.locked() for lock in held)
    assert len({lock.token for lock in held}) == len(held) == count - count // 1000
    for lock in held[::1000]:  # a busy machine may leave out those masters that lag
        assert values(nodes, lock.resource).count(lock.token) >= 3
    assert c.release_many(held) == [True] * len(held)
    eventually(lambda: sizes(valkey) == [*[count // 1000] * 3, 0, 0], "only what others have is left")
    assert [(master.faults, master.connections) for master in c.client.health()] == [(0, 1)] * 5


def test_extend_thousands(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c = plain(masters).at_full_strength()
    locks = c.acquire_many(names(5000), TTL / 2)
    assert c.extend_many(locks, TTL) == [True] * 5000
    assert min(lock.remaining() for lock in locks) > TTL / 2
    assert c.release_many(locks) == [True] * 5000
    nothing_left(masters)


def test_large_resources(masters: Masters, plain: MakePlain) -> None:
    """20 MB for each master: more than the buffer of a connection may hold."""
    c = plain(masters, node_timeout=5.0).at_full_strength()
    resources = [f"{number:065536}" for number in range(300)]
    locks = c.acquire_many(resources, TTL)
    assert all(locks)
    assert c.extend_many(locks, TTL) == [True] * 300
    assert c.release_many(locks) == [True] * 300
    nothing_left(masters)
    # Those masters that are behind the others may have had full buffers, and that is all.
    assert [master.connections for master in c.client.health()] == [1] * 5


# --- a minority of the masters fails ------------------------------------------------------------


def test_minority_down(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters).at_full_strength()
    before = all_granted(c, 100, "before")
    masters[1].kill()
    masters[3].kill()
    during = all_granted(c, 100, "during")
    assert c.extend_many(before + during, TTL) == [True] * 200
    assert c.release_many(before + during) == [True] * 200
    nothing_left(masters)


def test_minority_hung(valkey: Masters, plain: MakePlain) -> None:
    """What it was sent and could not answer, it takes back when it goes on."""
    c = plain(valkey, node_timeout=30.0).at_full_strength()
    with paused(valkey, 0, 4):
        for turn in range(3):
            locks = all_granted(c, 100, f"hung:{turn}")
            assert c.extend_many(locks, TTL) == [True] * 100
            assert c.release_many(locks) == [True] * 100
    nothing_left(valkey)


def test_minority_late(valkey: Masters, plain: MakePlain) -> None:
    with Proxy(valkey[3].port, jitter(3, 0.02)) as three, Proxy(valkey[4].port, jitter(4, 0.02)) as four:
        c = plain([*valkey.urls[:3], three.url, four.url]).at_full_strength()
        for turn in range(20):
            locks = all_granted(c, 200, f"late:{turn}")
            assert c.release_many(locks) == [True] * 200
        nothing_left(valkey)


def test_minority_cut_off(valkey: Masters, plain: MakePlain) -> None:
    """In the middle of batches, again and again; what is owed to it is made up for."""
    with Proxy(valkey[3].port) as three, Proxy(valkey[4].port) as four:
        c = plain([*valkey.urls[:3], three.url, four.url], node_timeout=30.0).at_full_strength()
        for turn in range(10):
            cut = start((three, four)[turn % 2].cut)
            locks = all_granted(c, 500, f"cut:{turn}")
            assert c.release_many(locks) == [True] * 500
            cut.result(DEADLINE)
        c.at_full_strength()
        nothing_left(valkey)


# --- a majority fails ---------------------------------------------------------------------------


def test_majority_hung_gives_all_back(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters, node_timeout=0.5).at_full_strength()
    with paused(masters, 0, 2, 3):
        with pytest.raises(QuorumUnavailable) as caught:
            c.acquire_many(names(100), TTL)
        assert {cause.master for cause in caught.value.causes} >= {
            master.name for number, master in enumerate(c.client.health()) if number in (0, 2, 3)
        }
        eventually(lambda: [masters[n].ask("DBSIZE") for n in (1, 4)] == [":0"] * 2, "at once, where it can")
    nothing_left(masters)
    c.at_full_strength()
    core_of(c.client).policy.node_timeout = PATIENT["node_timeout"]
    assert c.release_many(all_granted(c, 100)) == [True] * 100


def test_majority_down_gives_all_back(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters, restart_guard="off").at_full_strength()
    locks = all_granted(c, 3, "before")
    for number in (0, 1, 2):
        masters[number].kill()
    for _ in range(3):
        with pytest.raises(QuorumUnavailable) as caught:
            c.acquire_many(names(100), TTL)
        assert len(caught.value.causes) >= 3
    assert c.extend_many(locks, TTL) == [False] * 3
    assert all(lock.locked() for lock in locks), "inconclusive: the old deadline stands"
    assert len(c.release_many(locks)) == 3, "it does not raise for masters"
    nothing_left(masters)
    for number in (0, 1, 2):
        masters[number].restart()
    c.at_full_strength()
    assert c.release_many(all_granted(c, 100)) == [True] * 100
    nothing_left(masters)


@contextlib.contextmanager
def forbidden(nodes: list[redis.Redis]) -> Iterator[None]:
    """These masters refuse every key but those that begin with ``ok:``, for lack of permission."""
    for node in nodes:
        node.execute_command("ACL", "SETUSER", "default", "resetkeys", "~ok:*")
    try:
        yield
    finally:
        for node in nodes:
            node.execute_command("ACL", "SETUSER", "default", "allkeys")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_resource_without_a_quorum_gives_all_back(
    valkey: Masters, plain: MakePlain, raw: Raw, place: int
) -> None:
    """Masters that fail for one resource of the batch, and grant the others."""
    c, nodes = plain(valkey).at_full_strength(), raw(valkey)
    occupy(nodes, "ok:held")
    resources = ["ok:free", "ok:held"]
    resources.insert(place, "no:permission")
    with forbidden(nodes[:2]):
        locks = c.acquire_many(resources, TTL)
        assert [lock and lock.resource for lock in locks] == [
            None if resource == "ok:held" else resource for resource in resources
        ]
        assert c.release_many([lock for lock in locks if lock]) == [True, True]
    with forbidden(nodes[:3]):
        with pytest.raises(QuorumUnavailable, match=r"(?i)permission") as caught:
            c.acquire_many(resources, TTL)
        assert len(caught.value.causes) == 3
    eventually(lambda: sizes(valkey) == [1] * 5, "only what others have is left")
    assert values(nodes, "ok:held") == [OTHER_CLIENT] * 5


def test_first_call_without_masters(plain: MakePlain) -> None:
    c = plain([f"redis://127.0.0.1:{port}" for port in (1, 2, 3)], connect_timeout=0.1)
    with pytest.raises(QuorumUnavailable) as caught:
        c.acquire_many(names(3))
    assert len(caught.value.causes) == 3
    assert c.release_many([c.client.lock("a")]) == [False]


# --- leases that end ----------------------------------------------------------------------------


def test_ttl_that_ends_while_acquiring(masters: Masters, plain: MakePlain) -> None:
    """Granted too late is not granted: a process that slept must not think that it holds."""
    eleven_seconds_at_each_look = itertools.count(0.0, 11.0)
    c = plain(masters, clock=lambda: next(eleven_seconds_at_each_look)).at_full_strength()
    with pytest.raises(QuorumUnavailable):
        c.acquire_many(names(20), 10.0)
    nothing_left(masters)


@pytest.mark.parametrize("ttl", [0.003, 0.01, 0.05])
def test_short_leases(valkey: Masters, plain: MakePlain, ttl: float) -> None:
    """Whatever comes of them: no key stays, and no lock says that it is held after its time."""
    c = plain(valkey).at_full_strength()
    locks: list[Any] = []
    for _ in range(20):
        try:
            locks = c.acquire_many(names(50), ttl)
        except QuorumUnavailable:
            continue
        assert all(lock is None or lock.remaining() < ttl for lock in locks)
    eventually(lambda: not any(lock and lock.locked() for lock in locks), "the leases end")
    nothing_left(valkey)


def test_release_of_expired_locks_leaves_the_next_owner_alone(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    c, nodes = plain(masters, decide="all").at_full_strength(), raw(masters)
    expired = answered(lambda: c.acquire_many(names(10, "short"), 0.5))
    assert all(expired)
    lasting = all_granted(c, 10, "lasting")
    eventually(lambda: sizes(masters) == [10] * 5, "the short leases end")
    occupy(nodes, *names(10, "short"))
    mixed = [lock for pair in zip(expired, lasting, strict=True) for lock in pair]
    assert c.extend_many(mixed, TTL) == [False, True] * 10
    assert [lock.remaining() for lock in expired] == [0.0] * 10
    assert c.release_many(mixed) == [False, True] * 10
    assert sizes(masters) == [10] * 5
    for name in names(10, "short"):
        assert values(nodes, name) == [OTHER_CLIENT] * 5


def test_extend_reports_the_outcome_of_each(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """Extended, lost, as often as allowed, never held: all in one batch."""
    c, nodes = plain(masters, decide="all").at_full_strength(), raw(masters)
    held, lost = c.acquire_many(["held", "lost"], TTL / 2)
    spent = c.client.lock("spent", TTL / 2, max_extensions=1)
    assert c.wait(spent.acquire())
    assert c.wait(spent.extend(TTL / 2 + 1))
    left = spent.remaining()
    never = c.client.lock("never", TTL / 2)
    for node in nodes[:3]:
        node.set("lost", OTHER_CLIENT)
    assert c.extend_many([held, lost, spent, never], TTL) == [True, False, False, False]
    assert held.remaining() > TTL / 2 + 2
    assert (lost.locked(), lost.remaining()) == (False, 0.0)
    assert 0 < spent.remaining() <= left
    assert not never.locked()
    assert c.extend_many([held], 1.0) == [True], "it is never shortened"
    assert held.remaining() > TTL / 2 + 2
    assert c.release_many([held, lost, spent, never]) == [True, False, True, False]
    eventually(lambda: sizes(masters) == [1, 1, 1, 0, 0], "a lost lock gives back what it still has")
    assert values(nodes[:3], "lost") == [OTHER_CLIENT] * 3


def test_inconclusive_extension_keeps_the_old_deadline(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters, node_timeout=0.1, decide="all").at_full_strength()
    locks: list[Any] = []
    while not all(locks) or not locks:  # a busy machine may need more than one attempt
        with contextlib.suppress(QuorumUnavailable):
            locks = c.acquire_many(names(10), TTL / 2)
    before = [lock.remaining() for lock in locks]
    with paused(masters, 1, 2, 3):
        assert c.extend_many(locks, TTL) == [False] * 10
        assert all(0 < lock.remaining() <= old for lock, old in zip(locks, before, strict=True))
    c.at_full_strength()
    eventually(lambda: all(c.extend_many(locks, TTL)), "they can still be extended")
    assert len(c.release_many(locks)) == 10
    nothing_left(masters)


# --- interrupts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["acquire", "release", "extend"])
def test_interrupts_leave_nothing(valkey: Masters, raw: Raw, engine_name: str, use: str) -> None:
    """At any instruction of a batch. Catches: tokens that are on their way, or were granted, and that
    no client knows of.
    """
    occupy(raw(valkey), *names(5, "held"))
    count = amount(100, 300, twice=300)
    setting = {"urls": valkey.urls, "engine": engine_name, "use": use, "count": count, "seed": os.getpid()}
    done = run_python(
        **support_program("worker_batches", setting),
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["interrupted"] > count // 10, "the signals came too late to test anything"
    assert result["slowest"] < PROMPT
    eventually(lambda: sizes(valkey) == [5] * 5, "only what others have is left")
