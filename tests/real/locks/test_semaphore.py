"""Semaphores on real masters: never more holders than permits, and never fewer where so many want to."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.inside import core_of
from support.keys import nothing_left, sizes
from support.makers import MakeClient, MakePlain, Raw
from support.proxy import Proxy
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import ConfigError, Retry
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.embedded import Masters
from redlock_fast.locks.semaphore import MAX_PERMITS, WINDOW

pytestmark = pytest.mark.usefixtures("all_masters")


TTL = 60.0


def test_all_permits_can_be_out_at_once_and_no_more(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    nodes = raw(masters)
    c = plain(masters, ttl=TTL).at_full_strength()
    locks = [c.client.semaphore("s", 4) for _ in range(4)]
    assert all(c.wait(lock.acquire(blocking=False)) for lock in locks), "one try finds a free slot"
    assert {key for node in nodes for key in node.scan_iter()} == {b"{s}:%d" % n for n in range(4)}
    another = c.client.semaphore("s", 4)
    assert c.wait(another.acquire(blocking=False)) is False
    assert answered(lambda: c.wait(another.acquire(timeout=0.05))) is False
    assert c.wait(c.client.semaphore("other", 4).acquire(blocking=False)), "another resource"
    assert c.wait(c.client.lock("s").acquire(blocking=False)), "the plain lock of this name is another one"
    assert c.wait(locks[2].release()) is True
    assert c.wait(another.acquire(blocking=False)) is True
    assert c.release_many([another, *locks]) == [True, True, True, False, True]
    eventually(lambda: not any(node.keys("{s}*") for node in nodes), "no slot is left")


def test_what_is_granted_is_a_plain_lock(masters: Masters, connected: MakeClient) -> None:
    """So that it goes out in columns along with others."""
    c = connected(masters, ttl=TTL)
    lock, ordinary = c.semaphore("s", 3), c.lock("ordinary")
    assert lock.acquire()
    assert ordinary.acquire()
    assert lock._lease
    assert type(lock._lease.lock_kind) is LockKind
    assert lock.key == b"s"
    assert c.extend_many([lock, ordinary], TTL) == [True, True]
    assert c.release_many([lock, ordinary]) == [True, True]
    nothing_left(masters)


def test_more_permits_than_one_look_shows(valkey: Masters, connected: MakeClient) -> None:
    permits = 2 * WINDOW + 20
    c = connected(valkey, ttl=TTL)
    locks = [c.semaphore("s", permits) for _ in range(permits)]
    assert all(lock.acquire(timeout=DEADLINE) for lock in locks)
    assert not c.semaphore("s", permits).acquire(blocking=False)
    for number in (0, WINDOW, permits - 1):
        assert locks[number].release()
        again = c.semaphore("s", permits)
        assert again.acquire(blocking=False), "it looks at all of them"
        locks[number] = again
    waiting = start(lambda: c.semaphore("s", permits).acquire(timeout=DEADLINE))
    assert locks[7].release()
    assert waiting.result(DEADLINE)


def test_counting_majorities_would_let_three_in(masters: Masters, client: MakeClient) -> None:
    """Three masters, two permits; each client reaches another pair of masters, where there is room for one
    more by count: of three holders each would be on a majority. Slots exclude all the same.
    """
    three, most = masters.urls[:3], 0
    with Proxy(1) as nowhere:
        nowhere.refusing = True
        clients = [client([*three[:cut], nowhere.url, *three[cut + 1 :]], ttl=TTL) for cut in range(3)]
        for turn in range(30):
            locks = [one.semaphore("s", 2) for one in clients[turn % 3 :] + clients[: turn % 3]]
            held = sum(lock.acquire(blocking=False) for lock in locks)
            assert held == sum(lock.locked() for lock in locks) <= 2
            most = max(most, held)
            assert sum(lock.release() for lock in locks) == held
        assert most == 2
        for one in clients:
            one.close()


def test_many_contenders(masters: Masters, connected: MakeClient) -> None:
    c, permits, workers = connected(masters, ttl=TTL), 3, 12
    mutex, inside, most, entered = threading.Lock(), 0, 0, 0

    def work(number: int) -> None:
        nonlocal inside, most, entered
        for _ in range(5):
            with c.semaphore("s", permits, timeout=DEADLINE):
                with mutex:
                    inside += 1
                    entered += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with mutex:
                    inside -= 1

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert entered == workers * 5
    assert most <= permits
    nothing_left(masters)


def test_waiting_needs_no_polling(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses would outlast the test: pushes and the ends of leases wake each waiter."""
    monkeypatch.setattr("redlock_fast.algorithm.attempts.REARM", TTL)
    c = connected(masters, ttl=TTL, wait="push", retry=Retry(min_delay=TTL, max_delay=TTL))
    locks = [c.semaphore("s", 3) for _ in range(3)]
    assert all(lock.acquire() for lock in locks)
    for turn in range(9):
        waiting = c.semaphore("s", 3)
        done = start(lambda lock=waiting: lock.acquire(timeout=DEADLINE))  # type: ignore[misc]
        eventually(lambda: core_of(c).policy.local_queue.waiting, "it waits")
        assert locks[turn % 3].release()
        assert done.result(DEADLINE)
        locks[turn % 3] = waiting
    for node in raw(masters):  # not by leases of ours: a busy machine would be late for short ones
        for slot in range(2):
            node.set(f"{{dies}}:{slot}", "another client", px=500)
    assert c.semaphore("dies", 2).acquire(timeout=DEADLINE)


def test_slots_that_are_held_on_a_few_masters(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Each master has a free slot, and yet none is free on a quorum: there is only time to wait for."""
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    for number, node in enumerate(nodes):
        node.set("{s}:0" if number < 3 else "{s}:1", "another client", px=60_000)
    nodes[0].set("{s}:1", "another client", px=60_000)
    assert not c.semaphore("s", 2).acquire(blocking=False)
    waiting = start(lambda: c.semaphore("s", 2).acquire(timeout=DEADLINE))
    nodes[3].delete("{s}:1")
    assert waiting.result(DEADLINE)


@pytest.mark.parametrize("permits", [0, -1, MAX_PERMITS + 1, True, 1.5, "2", None])
def test_bad_permits(valkey: Masters, plain: MakePlain, permits: Any) -> None:
    with pytest.raises(ConfigError, match="permits must be an integer from 1 to"):
        plain(valkey).client.semaphore("s", permits)


def test_options(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey)
    for wrong in ({"fencing": True}, {"ttl": -1}, {"timeout": -2}, {"unknown": 1}, {"on_lost": print}):
        with pytest.raises(ConfigError):
            c.client.semaphore("s", 2, **wrong)
    assert c.client.semaphore("s", MAX_PERMITS)
    assert sizes(valkey) == [0] * 5
