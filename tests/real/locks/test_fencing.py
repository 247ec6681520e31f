"""Fencing tokens over real masters: always rising, for any holder and any counters."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.event_loops import Plain
from support.keys import forget_calls, paused, values, wipe
from support.makers import MakeClient, MakePlain, Raw
from support.python_process import PythonProcess
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ClientClosed, QuorumUnavailable, Retry
from redlock_fast.algorithm import attempts
from redlock_fast.algorithm.fencing import fence
from redlock_fast.embedded import Masters

TTL = 20.0
COUNTER = "{r}:f"
#: How often the lock changes hands while masters are killed, and how many times: more for the long form.
HAND_OVERS = int(os.environ.get("REDLOCK_FAST_HAND_OVERS", "300"))
KILLS, WORKERS = (5, 4) if HAND_OVERS < 1000 else (50, 8)
WORKER = Path(__file__).parents[2] / "support" / "worker_fencing.py"


@pytest.fixture(scope="module")
def durable() -> Iterator[Masters]:
    """Five masters that forget nothing over a restart."""
    with Masters(5, options=["--appendonly", "yes", "--appendfsync", "always"]) as masters:
        yield masters


def counters(nodes: list[redis.Redis]) -> list[int]:
    return [int(node.get(COUNTER) or 0) for node in nodes]


def commands(nodes: list[redis.Redis]) -> int:
    """Scripts that were run: one on each master for a grant, more where counters had to be lifted."""
    stats = [node.info("commandstats") for node in nodes]
    none = {"calls": 0}
    return sum(one.get(f"cmdstat_{name}", none)["calls"] for one in stats for name in ("evalsha", "eval"))


@pytest.mark.usefixtures("all_masters")
def test_tokens_rise_and_outlive_an_extension(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c, nodes = plain(masters, ttl=TTL).at_full_strength(), raw(masters)
    before = time.time() * 1e6
    seen = []
    for _ in range(20):
        lock = c.client.lock("r", fencing=True)
        assert lock.fencing_token is None
        assert c.wait(lock.acquire())
        seen.append(lock.fencing_token)
        c.wait(lock.extend(TTL + 5))
        assert lock.fencing_token == seen[-1]
        assert c.wait(lock.release())
        assert lock.fencing_token is None
    assert all(one < other for one, other in pairwise(seen))
    assert before - 1e6 < seen[0] < time.time() * 1e6 + 1e6, "a new counter begins at the master's time"
    eventually(lambda: len(set(counters(nodes))) <= 5, "they were counted everywhere")
    eventually(
        lambda: all(23 * 3600e3 < node.pttl(COUNTER) <= 24 * 3600e3 for node in nodes),
        "and are not kept for ever",
    )
    plain_lock = c.client.lock("r")
    assert c.wait(plain_lock.acquire())
    assert plain_lock.fencing_token is None


@pytest.mark.usefixtures("all_masters")
def test_no_second_round_trip_without_contention(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """One script for each grant, and none besides, once the counters are equal."""
    nodes = raw(masters)
    first = time.time_ns() // 1000 + 3600_000_000  # ahead of the clock, which it follows otherwise
    for node in nodes:
        node.set(COUNTER, first)
    c = plain(masters, ttl=TTL, decide="all").at_full_strength()
    forget_calls(nodes)
    tokens = []
    for _ in range(100):
        lock = c.client.lock("r", fencing=True)
        assert c.wait(lock.acquire())
        tokens.append(lock.fencing_token)
        assert c.wait(lock.release())
    assert tokens == list(range(first + 1, first + 101))
    release = 5 if "EVALSHA" in {master.release_path for master in c.client.health()} else 0
    eventually(lambda: commands(nodes) == 100 * (5 + release), "no other script ran")
    assert counters(nodes) == [first + 100] * 5


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("decide", ["quorum", "all"])
def test_counters_that_differ(masters: Masters, plain: MakePlain, raw: Raw, decide: str) -> None:
    """Masters that are behind are lifted; one that is far ahead decides only where it has to."""
    nodes = raw(masters)
    c = plain(masters, ttl=TTL, decide=decide).at_full_strength()
    held, ahead = 0, time.time_ns() // 1000 + 3600_000_000
    for _ in range(60):
        for node in nodes:
            if random.random() < 0.5:
                node.set(COUNTER, (held or ahead) + random.randrange(1, 10))
        # What was raised to the last token on a quorum may not fall; others may be anywhere.
        lock = c.client.lock("r", fencing=True)
        assert c.wait(lock.acquire())
        assert lock.fencing_token > held
        held = lock.fencing_token
        assert sum(value >= held for value in counters(nodes)) >= 3, "a quorum stands by it"
        assert c.wait(lock.release())


@pytest.mark.usefixtures("all_masters")
def test_a_master_that_is_behind_is_lifted_by_the_way(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """A quorum agrees, so the grant does not wait for the others; the next time all agree."""
    nodes = raw(masters)
    first = time.time_ns() // 1000 + 3600_000_000
    for node, count in zip(nodes, (70, 90, 90, 90, 80), strict=True):
        node.set(COUNTER, first + count)
    c = plain(masters, ttl=TTL, decide="all").at_full_strength()
    lock = c.client.lock("r", fencing=True)
    assert c.wait(lock.acquire())
    assert lock.fencing_token == first + 91
    eventually(lambda: counters(nodes) == [first + 91] * 5, "they are lifted")


def test_a_counter_that_is_none_is_a_vote_lost(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """The SET was executed before the script failed: it is taken back."""
    nodes = raw(masters)
    for node in nodes[:2]:
        node.rpush(COUNTER, "not", "a", "number")
    c = plain(masters, ttl=TTL).at_full_strength()
    lock = c.client.lock("r", fencing=True)
    assert c.wait(lock.acquire())
    assert c.wait(lock.release())
    eventually(lambda: [node.exists("r") for node in nodes] == [0] * 5, "nothing is left")
    nodes[2].delete(COUNTER)
    nodes[2].rpush(COUNTER, "neither")
    assert not granted(c)
    eventually(lambda: [node.exists("r") for node in nodes] == [0] * 5, "nothing is left")


def granted(c: Plain) -> bool:
    try:
        return bool(c.wait(c.client.lock("r", fencing=True).acquire(blocking=False)))
    except QuorumUnavailable:
        return False


def test_scripts_that_a_server_lost_are_sent_again(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c = plain(masters, ttl=TTL).at_full_strength()
    for _ in range(3):
        for node in raw(masters):
            node.script_flush()
        lock = c.client.lock("r", fencing=True)
        assert c.wait(lock.acquire())
        assert c.wait(lock.release())
    eventually(lambda: [node.exists("r") for node in raw(masters)] == [0] * 5, "nothing is left")


def test_fencing_and_marker_together(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c = plain(masters, ttl=TTL, restart_guard="marker", assume_fresh=True).at_full_strength()
    seen = []
    for _ in range(5):
        lock = c.client.lock("r", fencing=True)
        assert c.wait(lock.acquire())
        seen.append(lock.fencing_token)
        assert c.wait(lock.release())
    assert all(one < other for one, other in pairwise(seen))
    for node in raw(masters)[:3]:
        wipe(node)
    assert not granted(c)


def test_tokens_rise_over_hand_overs_between_processes_while_masters_are_killed(
    durable: Masters, engine_name: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens"
    path.touch()
    arguments = [sys.executable, str(WORKER), engine_name, str(path), *durable.urls]
    processes = [PythonProcess(arguments, stdin=subprocess.PIPE) for _ in range(WORKERS)]

    def lines() -> int:
        return path.read_bytes().count(b"\n")

    try:
        for number in range(KILLS):
            goal = HAND_OVERS * (number + 1) // KILLS
            eventually(lambda goal=goal: lines() >= goal, "it goes on", deadline=DEADLINE + HAND_OVERS / 20)
            durable[number % 5].kill()
            durable[number % 5].restart()
    finally:
        for process in processes:
            process.communicate(timeout=DEADLINE)
    assert [process.returncode for process in processes] == [0] * len(processes)
    tokens = [int(line) for line in path.read_text().split()]
    assert len(tokens) >= HAND_OVERS
    assert all(one < other for one, other in pairwise(tokens))


# --- a resource that refuses stale tokens -----------------------------------------------------------------


class Account:
    """What docs/fencing.md says: a table that remembers the highest token it has seen."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("CREATE TABLE account (id INTEGER, owner TEXT, fence INTEGER)")
        self.db.execute("INSERT INTO account VALUES (1, '', 0)")

    def write(self, owner: str, token: int) -> bool:
        """False: a write with a later token came before."""
        done = self.db.execute(
            "UPDATE account SET owner = ?, fence = ? WHERE id = 1 AND fence <= ?", (owner, token, token)
        )
        return done.rowcount == 1

    def owner(self) -> str:
        return str(self.db.execute("SELECT owner FROM account").fetchone()[0])


def test_a_holder_that_wakes_up_late_is_refused(
    masters: Masters, connected: MakeClient, tmp_path: Path
) -> None:
    """Kleppmann's scenario: the lease ends during a pause, another takes over, the first writes on."""
    account = Account(tmp_path / "account")
    one, other = connected(masters), connected(masters, retry=Retry(0.001, 0.01))
    stopped = one.lock("account", 0.3, fencing=True)
    while not stopped.acquire():
        pass
    old = stopped.fencing_token
    assert old
    assert account.write("first", old)
    with other.lock("account", TTL, fencing=True) as lock:  # waits until the lease has ended
        assert not stopped.locked()
        token = lock.fencing_token
        assert token
        assert token > old
        assert account.write("second", token)
        assert not account.write("first, late", old)
        assert account.write("second again", token)
    assert account.owner() == "second again"
    account.db.close()


@both_clients
@pytest.mark.usefixtures("all_masters")
def test_a_close_before_the_number_is_certain_releases_the_grant(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two masters stop before their counters are raised. Catches: a grant that stays until its ttl."""
    nodes = raw(masters)
    nodes[0].set(COUNTER, time.time_ns() // 1000 + 3600_000_000)
    c = connected(masters, ttl=3 * DEADLINE)  # no key of this test expires

    def stop_and_fence(*args: Any) -> Any:
        for master in masters[1:3]:
            master.pause()
        return (yield from fence(*args))

    monkeypatch.setattr(attempts, "fence", stop_and_fence)
    with paused(masters, 1, 2, 3, 4):
        for master in masters[1:3]:
            master.resume()
        call = start(lambda: c.lock("r", fencing=True).acquire())
        eventually(lambda: all(master.pending for master in c.health()[1:3]), "their counters are raised")
        c.close()
        with pytest.raises(ClientClosed):
            call.result(DEADLINE)
    eventually(lambda: values(nodes, "r") == [None] * 5, "no master has the key")
