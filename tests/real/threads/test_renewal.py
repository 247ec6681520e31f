"""Auto-extended locks for threads on real masters: what keeps them, what ends them, who is told.

Leases are so long that no busy machine loses one; a clock that the test puts forward makes them due, and ends
them.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.clocks import Jumping
from support.forking import exit_code, fork_child
from support.keys import calls, names, nothing_left, paused, wipe
from support.starting import fail_start
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, Lock, LockLost, ShardedRedlock, TooManyExtensions
from redlock_fast.algorithm.renewal_schedule import GONE, LATE, MAX_EXTENSIONS, MAX_HOLD, UNCONFIRMED
from redlock_fast.embedded import Masters
from redlock_fast.threads import renewal as renewal_threads

pytestmark = pytest.mark.usefixtures("all_masters")

MakeClient = Callable[..., FastRedlock]
Kept = Callable[..., tuple[FastRedlock, Lock]]
Raw = Callable[[Masters], list[redis.Redis]]

TTL = 60.0
#: A little more than a third of it.
THIRD = 21.0
#: Seconds that a hung master is waited for.
HUNG = 0.3
TESTS = Path(__file__).parents[2]


class Told:
    """``on_lost`` that remembers."""

    def __init__(self) -> None:
        self.losses: list[tuple[Lock, str]] = []

    def __call__(self, lock: Lock, reason: str) -> None:
        self.losses.append((lock, reason))

    def reasons(self) -> list[str]:
        return [reason for _, reason in self.losses]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def kept(connected: MakeClient, clock: Jumping, told: Told) -> Kept:
    """``kept(masters, **options)``: a client, and an auto-extended lock that it holds.

    ``node_timeout``: a short one makes hung masters cheap. An extension that it ends is tried again.
    """

    def make(masters: Masters, node_timeout: float = 5.0, **options: Any) -> tuple[FastRedlock, Lock]:
        c = connected(masters, ttl=TTL, clock=clock, node_timeout=node_timeout)
        return c, held(c, **{"on_lost": told, **options})

    return make


def held(c: FastRedlock, key: str = "kept", **options: Any) -> Lock:
    lock = c.lock(key, auto_extend=True, **options)
    assert lock.acquire(timeout=DEADLINE)
    return lock


def renewed(c: FastRedlock, count: int) -> None:
    eventually(lambda: c.stats().renewed >= count, f"{count} extensions by renewal")


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "redlock-fast-renewal"}


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    before = threads()
    yield
    gc.collect()
    eventually(lambda: threads() <= before, "renewal threads end with their clients")


# --- held as long as it is wanted -----------------------------------------------------------------


def test_held_for_longer_than_its_lease(masters: Masters, connected: MakeClient, told: Told) -> None:
    """In real time."""
    c = connected(masters)
    with c.lock("kept", 3.0, auto_extend=True, on_lost=told) as lock:
        renewed(c, 4)
        lock.check()
    nothing_left(masters)
    assert told.losses == []
    assert c.stats().released == 1


def test_one_thread_for_many(
    masters: Masters, connected: MakeClient, clock: Jumping, told: Told, raw: Raw
) -> None:
    nodes = raw(masters)
    before = threads()
    c = connected(masters, ttl=TTL, clock=clock)
    locks = [held(c, name, on_lost=told) for name in names(300)]
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, turn * 300)
    assert len(threads() - before) == 1
    assert min(lock.remaining() for lock in locks) > TTL - THIRD
    eventually(lambda: all(node.pttl(names(300)[-1]) > 50_000 for node in nodes), "all masters extend")
    assert c.stats().renewed == c.stats().extended == 600
    assert c.release_many(locks) == [True] * 300
    assert told.losses == []
    nothing_left(masters)


def test_sharded_and_decorated(valkey: Masters, redis7: Masters, engine_name: str, told: Told) -> None:
    clock = Jumping()
    groups = {"one": valkey.urls, "two": redis7.urls}
    options: dict[str, Any] = {"engine": engine_name, "node_timeout": 5.0, "connect_timeout": DEADLINE}
    with ShardedRedlock(groups, ttl=TTL, clock=clock, **options) as c:
        c.connect()

        @c.synchronized(lambda name: name, auto_extend=True, on_lost=told)
        def work(name: str) -> None:
            before = c.stats().renewed
            clock.jump(THIRD)
            eventually(lambda: c.stats().renewed > before, "it is renewed")

        for name in ("a", "b", "c", "d"):
            work(name)
        assert c.stats().released == 4
        with pytest.raises(ValueError, match="on_lost"):
            c.lock("r", on_lost=told)
    assert told.losses == []


def test_with_a_fencing_token(masters: Masters, kept: Kept, clock: Jumping) -> None:
    """It stays the same."""
    c, lock = kept(masters, fencing=True)
    token = lock.fencing_token
    assert token is not None
    clock.jump(THIRD)
    renewed(c, 1)
    assert lock.fencing_token == token
    assert lock.release()


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_minority_does_not_matter(
    masters: Masters, kept: Kept, clock: Jumping, told: Told, how: str
) -> None:
    c, lock = kept(masters, HUNG)
    for number in (0, 1):
        getattr(masters[number], how)()
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    lock.check()
    assert told.losses == []
    assert lock.release()


def test_masters_that_come_back_in_time(valkey: Masters, kept: Kept, clock: Jumping, told: Told) -> None:
    """It is tried again and again until then."""
    c, lock = kept(valkey, HUNG)
    with paused(valkey, 0, 1, 2):
        clock.jump(THIRD)
        eventually(lambda: c.stats().inconclusive, "an extension fails", deadline=2 * DEADLINE)
    renewed(c, 1)
    assert lock.release()
    assert told.losses == []


# --- lost -----------------------------------------------------------------------------------------


def test_a_majority_killed_every_lock_tells_once(
    masters: Masters, connected: MakeClient, clock: Jumping, told: Told
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    locks = [held(c, name, on_lost=told) for name in names(50)]
    for number in (0, 1, 2):
        masters[number].kill()
    clock.jump(THIRD)
    eventually(lambda: c.stats().inconclusive >= 50, "extensions fail")
    assert told.losses == []
    assert all(lock.locked() and not lock.lost.is_set() for lock in locks)
    clock.jump(TTL)
    assert not any(lock.locked() for lock in locks), "by the clock, whoever has noticed"
    eventually(lambda: len(told.losses) >= 50, "all are told")
    assert {lock for lock, _ in told.losses} == set(locks)
    assert set(told.reasons()) == {UNCONFIRMED}
    assert all(lock.lost.is_set() for lock in locks)
    assert not any(c.release_many(locks))
    assert len(told.losses) == 50
    assert c.stats().lost == 50


def test_a_hung_majority_does_not_delay_the_telling(
    valkey: Masters, connected: MakeClient, told: Told
) -> None:
    """In real time. Catches: an exchange that lasts as long as masters may take, beyond the deadline."""
    c = connected(valkey, node_timeout=60.0)
    lock = held(c, "hung", ttl=2.0, on_lost=told)
    with paused(valkey, 0, 1, 2):
        assert lock.lost.wait(DEADLINE)
        assert not lock.locked()
        eventually(lambda: told.reasons() == [UNCONFIRMED], "it is told")


def test_gone_from_the_masters(
    masters: Masters, kept: Kept, clock: Jumping, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    c, lock = kept(masters)
    for master in masters:
        wipe(master)
    assert lock.locked(), "nobody knows yet"
    clock.jump(THIRD)
    eventually(lambda: told.losses, "it is told")
    assert told.losses == [(lock, GONE)]
    assert lock.lost.is_set()
    assert not lock.locked()
    with pytest.raises(LockLost):
        lock.check()
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.release() is False
    assert len(told.losses) == 1
    assert [getattr(record, "event", "") for record in caplog.records].count("lock-lost") == 1
    stats = c.stats()
    assert (stats.lost, stats.expired, stats.released) == (1, 1, 0)


def test_with_raises_after_a_loss(
    masters: Masters, connected: MakeClient, clock: Jumping, told: Told
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    lock = c.lock("kept", auto_extend=True, on_lost=told)

    def outlive() -> None:
        with lock:
            clock.jump(TTL)
            assert lock.lost.wait(DEADLINE)

    with pytest.raises(LockLost):
        outlive()
    eventually(lambda: told.reasons() == [LATE], "the clock ran away from the thread")
    nothing_left(masters)


def test_what_the_users_extension_or_release_finds(
    masters: Masters, connected: MakeClient, told: Told
) -> None:
    """Long before renewal would look."""
    c = connected(masters, ttl=TTL)
    extended, released, many = (held(c, name, on_lost=told) for name in ("a", "b", "c"))
    for master in masters:
        wipe(master)
    with pytest.raises(LockLost):
        extended.extend()
    assert released.release() is False
    assert c.release_many([many, extended]) == [False, False]
    eventually(lambda: len(told.losses) == 3, "all are told")
    assert told.reasons() == [GONE] * 3
    assert c.stats().lost == 3


def test_max_extensions_and_max_hold(
    masters: Masters, connected: MakeClient, clock: Jumping, told: Told
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    counted, timed = held(c, "a", on_lost=told, max_extensions=2), held(c, "b", on_lost=told, max_hold=90.0)
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, 2 * turn)
    with pytest.raises(TooManyExtensions):
        counted.extend()
    clock.jump(THIRD)
    holds = [hold for _, _, hold in c.renewal().schedule._ends]
    eventually(lambda: all(hold.stopped for hold in holds), "no more is asked for")
    assert told.losses == []
    clock.jump(TTL)
    eventually(lambda: len(told.losses) == 2, "both are told")
    assert dict(told.losses) == {counted: MAX_EXTENSIONS, timed: MAX_HOLD}
    assert c.stats().renewed == 4


def test_each_hold_has_its_own_loss(masters: Masters, kept: Kept, clock: Jumping, told: Told) -> None:
    c, lock = kept(masters)
    first = lock.lost
    clock.jump(TTL)
    assert lock.acquire(timeout=DEADLINE), "nobody else has it"
    eventually(lambda: told.reasons() == [LATE], "the end of the hold before is told")
    assert first.is_set()
    assert not lock.lost.is_set()
    clock.jump(THIRD)
    renewed(c, 1)
    clock.jump(TTL)
    assert lock.lost.wait(DEADLINE)
    eventually(lambda: len(told.losses) == 2, "and that of this one")


# --- not after its end ----------------------------------------------------------------------------


def test_never_after_a_release(masters: Masters, kept: Kept, clock: Jumping, told: Told) -> None:
    c, lock = kept(masters)
    clock.jump(THIRD)
    renewed(c, 1)
    other = held(c, "other", on_lost=told)
    assert lock.release()
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, 1 + turn)
    assert c.stats().renewed == 3, "the other one's only"
    assert other.release()
    assert told.losses == []
    nothing_left(masters)


def test_release_while_an_extension_is_under_way(
    valkey: Masters, kept: Kept, clock: Jumping, told: Told
) -> None:
    """The extension finds the key gone, or not: neither is a loss."""
    c, lock = kept(valkey)
    for _ in range(3):
        eventually(lambda: not any(m.pending for m in c.health()), "all masters have answered")
        with paused(valkey, 0, 1, 2, 3, 4):
            clock.jump(THIRD)
            eventually(lambda: all(m.pending for m in c.health()), "an extension is sent")
            releasing = start(lock.release)
            eventually(lambda: all(m.pending >= 2 for m in c.health()), "and the release")
        assert releasing.result(DEADLINE) is True
        assert lock.acquire(timeout=DEADLINE)
    assert lock.release()
    assert told.losses == []
    assert c.stats().lost == 0


def test_released_by_many_threads_none_is_lost(masters: Masters, connected: MakeClient, told: Told) -> None:
    """Releases in the midst of extensions, in real time."""
    c = connected(masters)

    def work(name: int) -> None:
        end, done = time.monotonic() + 3.0, 0
        while time.monotonic() < end:
            with c.lock(f"{name}:{done}", 6.0, auto_extend=True, on_lost=told, timeout=DEADLINE) as lock:
                if done % 3 == 0:
                    lock.extend()
                if done % 50 == 0:
                    before = c.stats().renewed
                    eventually(lambda before=before: c.stats().renewed > before, "one is renewed")  # type: ignore[misc]
            done += 1

    workers = [start(partial(work, name)) for name in range(4)]
    for worker in workers:
        worker.result(2 * DEADLINE)
    assert told.losses == []
    assert c.stats().renewed > 0
    assert len(c.renewal().schedule) == 0
    nothing_left(masters)


def test_abandoned(masters: Masters, kept: Kept, clock: Jumping, told: Told, raw: Raw) -> None:
    c, lock = kept(masters)
    stays = held(c, "stays", on_lost=told)
    token = lock.token
    del lock
    gc.collect()
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    assert c.stats().renewed == 3
    assert len(c.renewal().schedule) == 1
    assert token in [node.get("kept") for node in raw(masters)], "its lease ends by itself"
    assert stays.release()
    assert told.losses == []


# --- with others ----------------------------------------------------------------------------------


def test_the_users_extensions_beside_ours(
    masters: Masters, connected: MakeClient, told: Told, raw: Raw
) -> None:
    """For other times, by threads that are in no order: we never believe in more than a quorum keeps. (That
    they take turns, without which this is only likely, is shown in virtual time.)
    """
    nodes = raw(masters)
    c = connected(masters)
    lock = held(c, "shared", ttl=3.0, on_lost=told, max_extensions=None)
    stop = threading.Event()

    def extend(ttl: float) -> None:
        while not stop.is_set():
            lock.extend(ttl)

    def believed() -> bool:
        """Whether a quorum keeps the key for as long as we believe."""
        end = time.monotonic() + lock.remaining()
        # What is left first, then the time: a pause in between only makes the end seem later.
        ends = sorted((node.pttl("shared") / 1000 + time.monotonic() for node in nodes), reverse=True)
        return ends[2] >= end - 0.002

    workers = [start(partial(extend, ttl)) for ttl in (0.5, 3.0, 20.0)]
    try:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            assert believed()
    finally:
        stop.set()
        for worker in workers:
            worker.result(DEADLINE)
    assert believed()
    assert lock.release()
    assert told.losses == []


def test_callbacks_harm_nobody(
    masters: Masters, connected: MakeClient, clock: Jumping, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """One raises, one takes its time: renewal goes on, and others are told."""
    go_on = threading.Event()

    def bad(lock: Lock, reason: str) -> None:
        raise SystemExit("on purpose")

    def slow(lock: Lock, reason: str) -> None:
        assert go_on.wait(DEADLINE)
        assert lock.release() is False
        told(lock, reason)

    c = connected(masters, ttl=TTL, clock=clock)
    stays = held(c, "stays", on_lost=told)
    lost = [held(c, name, on_lost=on_lost, max_extensions=0) for name, on_lost in (("a", bad), ("b", slow))]
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    assert all(lock.lost.wait(DEADLINE) for lock in lost)
    clock.jump(THIRD)
    renewed(c, 4)
    assert told.losses == []
    go_on.set()
    eventually(lambda: told.losses == [(lost[1], MAX_EXTENSIONS)], "the slow one")
    assert any(record.getMessage() == "on-lost-error" for record in caplog.records)
    assert stays.release()


def test_closed(masters: Masters, kept: Kept, clock: Jumping, told: Told, raw: Raw) -> None:
    """Renewal ends; what is held stays so until its lease ends; nobody is told, but who asks."""
    before = threads()
    c, lock = kept(masters)
    (thread,) = threads() - before
    c.close()
    assert not thread.is_alive()
    lock.check()
    for node in raw(masters):
        node.config_resetstat()
    clock.jump(TTL)
    with pytest.raises(LockLost):
        lock.check()
    assert calls(raw(masters), "set", "evalsha") == [0] * 5
    assert told.losses == []


def test_the_thread_ends_when_nothing_is_left(
    valkey: Masters, kept: Kept, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next lock starts another one."""
    monkeypatch.setattr(renewal_threads, "IDLE_TIMEOUT", 0.0)
    before = threads()
    c, lock = kept(valkey)
    assert lock.release()
    eventually(lambda: threads() <= before, "the thread ends")
    for turn in (1, 2):
        assert lock.acquire(timeout=DEADLINE)
        clock.jump(THIRD)
        renewed(c, turn)
        assert lock.release()


def test_a_forgotten_clients_thread_ends(valkey: Masters, engine_name: str) -> None:
    before = threads()
    c = FastRedlock(valkey.urls, engine=engine_name, node_timeout=5.0, connect_timeout=DEADLINE)
    lock = held(c)
    assert len(threads() - before) == 1
    del c, lock
    gc.collect()
    eventually(lambda: threads() <= before, "the thread ends")


def test_a_thread_that_cannot_be_started(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no lock that would not be renewed: the acquire fails, and leaves nothing behind."""
    c = connected(valkey)

    def fail(renewal: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(renewal_threads.ThreadRenewal, "wake_soon", fail)
    lock = c.lock("kept", TTL, auto_extend=True)
    with pytest.raises(RuntimeError, match="new thread"):
        lock.acquire()
    assert not lock.locked()
    nothing_left(valkey)


@pytest.mark.parametrize("begun", [False, True])
def test_interrupted_while_the_thread_starts(
    valkey: Masters, connected: MakeClient, clock: Jumping, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Catches: a thread that is taken for one that runs, and a second one beside the first."""
    before = threads()
    c = connected(valkey, ttl=TTL, clock=clock)
    fail_start(monkeypatch, "redlock-fast-renewal", KeyboardInterrupt(), begun=begun)
    with pytest.raises(KeyboardInterrupt):
        c.lock("first", auto_extend=True).acquire()
    lock = held(c, "second")
    clock.jump(THIRD)
    renewed(c, 1)
    eventually(lambda: len(threads() - before) == 1, "one thread renews")
    assert lock.release()
    nothing_left(valkey)


@pytest.mark.parametrize("begun", [False, True])
def test_closed_after_the_thread_was_interrupted(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    c = connected(valkey)
    fail_start(monkeypatch, "redlock-fast-renewal", KeyboardInterrupt(), begun=begun)
    with pytest.raises(KeyboardInterrupt):
        c.lock("first", auto_extend=True).acquire()
    c.close()


# --- other processes ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_of_fork_renews_its_own_only(
    masters: Masters, kept: Kept, clock: Jumping, told: Told
) -> None:
    c, lock = kept(masters)
    event = lock.lost

    def child() -> None:
        assert not lock.locked()
        assert threads() == set()
        own = held(c, "child's", on_lost=told)
        before = c.stats().renewed
        clock.jump(THIRD)
        renewed(c, before + 1)
        assert len(threads()) == 1
        clock.jump(TTL)
        assert own.lost.wait(DEADLINE)
        eventually(lambda: [one for one, _ in told.losses] == [own], "only its own is told")
        assert not event.is_set()
        c.close()

    assert exit_code(fork_child(child)) == 0
    clock.jump(THIRD)
    renewed(c, 1)
    assert lock.release()
    assert told.losses == []


@pytest.mark.skipif(sys.platform != "linux", reason="stops a process")
def test_a_stopped_holder_is_told_when_it_wakes_up(masters: Masters, engine_name: str) -> None:
    setting = {"urls": masters.urls, "engine": engine_name, "ttl": 1.5}
    worker = subprocess.Popen(
        [sys.executable, "-m", "support.worker_renewal", json.dumps(setting)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
    )
    try:
        assert worker.stdin
        assert worker.stdout
        assert worker.stdout.readline() == "held\n"
        os.kill(worker.pid, signal.SIGSTOP)
        nothing_left(masters)  # its lease has ended
        worker.stdin.write("go\n")
        worker.stdin.flush()
        os.kill(worker.pid, signal.SIGCONT)
        result = json.loads(worker.stdout.readline())
    finally:
        worker.kill()
        worker.communicate()
    assert result["checked"] == "lost", "at once"
    assert len(result["told"]) == 1
    assert result["told"][0] in (LATE, UNCONFIRMED, GONE)
    assert (result["event"], result["released"]) == (True, False)
