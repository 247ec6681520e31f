"""Refill on real masters: a lease that is extended outlives the restarts of all of them, one by one."""

from __future__ import annotations

import contextlib
import threading

import pytest
import redis
from support.clocks import Jumping
from support.engines import ONCE
from support.keys import wipe
from support.makers import MakeClient, MakePlain, Raw
from support.thorough import crossed
from support.waiting import eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

TTL = 20.0


def restart(masters: Masters, number: int) -> None:
    masters[number].kill()
    masters[number].restart()


def connected_again(c: FastRedlock, number: int, before: int) -> None:
    def there() -> bool:
        master = c.health()[number]
        return master.connections > before and master.state == "connected"

    eventually(there, f"master {number} is connected again")


def having(servers: list[redis.Redis], key: str) -> int:
    count = 0
    for server in servers:
        with contextlib.suppress(redis.ConnectionError):
            count += bool(server.exists(key))
    return count


class Thief(threading.Thread):
    """Tries all the time, until it is stopped or has the lock."""

    def __init__(self, client: FastRedlock) -> None:
        super().__init__()
        self.client = client
        self.tries = 0
        self.stole = False
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set() and not self.stole:
            try:
                self.stole = self.client.acquire("r", TTL, blocking=False) is not None
            except Exception:  # a quorum may be away for a moment, or guarded
                self.over.wait(0.01)
            self.tries += 1
            self.over.wait(0.001)  # others have work to do, too


@pytest.mark.parametrize(
    ("way", "engine_name", "masters"),
    [(way, *once) for way, once in crossed(["extend", "renewal", "fenced"], ONCE)],
    indirect=["engine_name", "masters"],
)
@pytest.mark.usefixtures("all_masters")
def test_held_while_all_masters_restart_one_after_the_other(
    masters: Masters, connected: MakeClient, raw: Raw, way: str
) -> None:
    """Each has forgotten the key; no other client gets the lock at any time."""
    servers = raw(masters)
    clock = Jumping()
    holder = connected(masters, ttl=TTL, max_ttl=TTL, clock=clock)
    thief = Thief(connected(masters, ttl=TTL, max_ttl=TTL))
    lock = holder.lock("r", auto_extend=way == "renewal", max_extensions=None, fencing=way == "fenced")
    assert lock.acquire(blocking=False)
    eventually(lambda: having(servers, "r") == len(masters), "all masters have the key")
    thief.start()
    try:
        for number in range(len(masters)):
            before = holder.health()[number].connections
            restart(masters, number)
            assert having(servers, "r") == len(masters) - 1
            connected_again(holder, number, before)
            if way == "renewal":
                clock.ahead += TTL * 0.4  # it is due

            def full() -> bool:
                if way != "renewal":
                    lock.extend()
                lock.check()
                return having(servers, "r") == len(masters)

            eventually(full, f"the key is on master {number} again", deadline=15.0)
        assert not thief.stole
        assert thief.tries
    finally:
        thief.over.set()
        thief.join()
    assert lock.release()
    eventually(lambda: having(servers, "r") == 0, "nothing is left")


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("refill", [True, False])
def test_many_at_once(masters: Masters, plain: MakePlain, raw: Raw, refill: bool) -> None:
    servers = raw(masters)
    c = plain(masters, ttl=TTL, refill=refill).at_full_strength()
    locks = c.acquire_many([f"r{n}" for n in range(50)])
    eventually(lambda: [s.dbsize() for s in servers] == [50] * 5, "all masters have all keys")
    wipe(servers[1])
    wipe(servers[3])
    for _ in range(8):  # by then the replies that no extension waited for are read, too
        assert c.extend_many(locks) == [True] * 50
    if refill:
        eventually(lambda: [s.dbsize() for s in servers] == [50] * 5, "all are where they were")
    else:
        assert [s.dbsize() for s in servers] == [50, 0, 50, 0, 50]
    assert c.release_many(locks) == [True] * 50
    eventually(lambda: sum(s.dbsize() for s in servers) == 0, "nothing is left")


def test_a_master_that_was_away_at_the_acquire_joins_and_is_released(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    servers = raw(masters)
    c = connected(masters, ttl=TTL)
    masters[0].kill()
    eventually(lambda: c.health()[0].state == "down", "its end is noticed")
    lock = c.lock("r", max_extensions=None)
    assert lock.acquire(blocking=False)
    masters[0].restart()
    connected_again(c, 0, 1)

    def joined() -> bool:
        lock.extend()
        return bool(servers[0].get("r") == lock.token)

    eventually(joined, "it has the key too")
    assert lock.release()
    eventually(lambda: having(servers, "r") == 0, "nothing is left")


def test_a_foreign_key_is_left_alone(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    servers = raw(masters)
    c = connected(masters, ttl=TTL)
    lock = c.lock("r", max_extensions=None)
    assert lock.acquire(blocking=False)
    servers[2].set("r", b"foreign", px=60_000)
    for _ in range(8):
        lock.extend()
    assert servers[2].get("r") == b"foreign"
    assert lock.release()
    assert servers[2].get("r") == b"foreign"


def test_a_master_whose_marker_refuses_is_filled_up_all_the_same(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """It casts no vote for any client; the key excludes other clients only once it votes."""
    servers = raw(masters)
    c = connected(masters, ttl=TTL, max_ttl=TTL, restart_guard="marker", assume_fresh=True)
    lock = c.lock("r", max_extensions=None)
    assert lock.acquire(blocking=False)
    wipe(servers[4])

    def there() -> bool:
        lock.extend()
        return bool(servers[4].get("r") == lock.token)

    eventually(there, "it has the key again")
    assert lock.release()
