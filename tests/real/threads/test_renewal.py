"""Auto-extended locks for threads on real masters: the thread that renews them, and what only threads have.

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
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.clocks import Jumping
from support.forking import exit_code, fork_child, fork_here, needs_fork
from support.inside import core_of
from support.keys import calls, forget_calls, names, nothing_left
from support.makers import Raw
from support.moments import moments
from support.python_process import PythonProcess, support_program
from support.renewing import THIRD, TTL, Kept, LossRecorder, MakeClient, held, renewed
from support.signalling import interrupt
from support.starting import fail_start
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, Lock, LockLost, ShardedRedlock
from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.renewal_schedule import GONE, LATE, MAX_EXTENSIONS, UNCONFIRMED
from redlock_fast.embedded import Masters
from redlock_fast.locks.auto_extend import AutoExtension
from redlock_fast.threads import renewal as renewal_threads

pytestmark = pytest.mark.usefixtures("all_masters")


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "redlock-fast-renewal"}


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    before = threads()
    yield
    gc.collect()
    eventually(lambda: threads() <= before, "renewal threads end with their clients")


# --- held as long as it is wanted -----------------------------------------------------------------


def test_one_thread_for_many(
    masters: Masters, connected: MakeClient, clock: Jumping, recorder: LossRecorder, raw: Raw
) -> None:
    nodes = raw(masters)
    before = threads()
    c = connected(masters, ttl=TTL, clock=clock)
    locks = [held(c, name, on_lost=recorder) for name in names(300)]
    for turn in (1, 2):
        clock.jump(THIRD)
        renewed(c, turn * 300)
    assert len(threads() - before) == 1
    assert min(lock.remaining() for lock in locks) > TTL - THIRD
    eventually(lambda: all(node.pttl(names(300)[-1]) > 50_000 for node in nodes), "all masters extend")
    assert c.stats().renewed == c.stats().extended == 600
    assert c.release_many(locks) == [True] * 300
    assert recorder.losses == []
    nothing_left(masters)


def test_sharded_and_decorated(
    valkey: Masters, redis7: Masters, engine_name: str, recorder: LossRecorder
) -> None:
    clock = Jumping()
    groups = {"one": valkey.urls, "two": redis7.urls}
    options: dict[str, Any] = {"engine": engine_name, "node_timeout": 5.0, "connect_timeout": DEADLINE}
    with ShardedRedlock(groups, ttl=TTL, clock=clock, **options) as c:
        c.connect()

        @c.synchronized(lambda name: name, auto_extend=True, on_lost=recorder)
        def work(name: str) -> None:
            before = c.stats().renewed
            clock.jump(THIRD)
            eventually(lambda: c.stats().renewed > before, "it is renewed")

        for name in ("a", "b", "c", "d"):
            work(name)
        assert c.stats().released == 4
        with pytest.raises(ValueError, match="on_lost"):
            c.lock("r", on_lost=recorder)
    assert recorder.losses == []


# --- lost -----------------------------------------------------------------------------------------


def test_with_raises_after_a_loss(
    masters: Masters, connected: MakeClient, clock: Jumping, recorder: LossRecorder
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    lock = c.lock("kept", auto_extend=True, on_lost=recorder)

    def outlive() -> None:
        with lock:
            clock.jump(TTL)
            assert lock.lost.wait(DEADLINE)

    with pytest.raises(LockLost):
        outlive()
    eventually(lambda: recorder.reasons() == [LATE], "the clock ran away from the thread")
    nothing_left(masters)


def test_with_raises_after_a_loss_although_on_lost_acquired_it_again(
    masters: Masters, connected: MakeClient, clock: Jumping
) -> None:
    """The body relies on the lease that it began with. Catches: a loss that the program does not see."""
    c = connected(masters, ttl=TTL, clock=clock)
    again: list[bool] = []
    lock = c.lock("kept", auto_extend=True, on_lost=lambda one, _: again.append(one.acquire()))

    def outlive() -> None:
        with lock:
            clock.jump(TTL)
            eventually(lambda: again == [True], "on_lost has acquired it")

    with pytest.raises(LockLost):
        outlive()
    nothing_left(masters)
    with lock:
        pass


# --- not after its end ----------------------------------------------------------------------------


def test_released_by_many_threads_none_is_lost(
    masters: Masters, connected: MakeClient, recorder: LossRecorder
) -> None:
    """Releases in the midst of extensions, in real time."""
    c = connected(masters)

    def work(name: int) -> None:
        end, done = time.monotonic() + 3.0, 0
        while time.monotonic() < end:
            with c.lock(f"{name}:{done}", 6.0, auto_extend=True, on_lost=recorder, timeout=DEADLINE) as lock:
                if done % 3 == 0:
                    lock.extend()
                if done % 50 == 0:
                    before = c.stats().renewed
                    eventually(lambda before=before: c.stats().renewed > before, "one is renewed")  # type: ignore[misc]
            done += 1

    workers = [start(partial(work, name)) for name in range(4)]
    for worker in workers:
        worker.result(2 * DEADLINE)
    assert recorder.losses == []
    assert c.stats().renewed > 0
    assert len(core_of(c).renewal().schedule) == 0
    nothing_left(masters)


def test_released_by_two_threads_at_once_none_is_lost(
    masters: Masters, connected: MakeClient, recorder: LossRecorder
) -> None:
    """Masters refuse the later release, because the earlier one has removed the key."""
    c = connected(masters)
    ways: list[Callable[[Lock], object]] = [lambda lock: lock.release(), lambda lock: c.release_many([lock])]
    for number in range(20):
        lock = c.lock(f"r{number}", auto_extend=True, on_lost=recorder)
        assert lock.acquire()
        at_once = threading.Barrier(2)

        def release(way: Callable[[Lock], object], lock: Lock = lock, at_once: Any = at_once) -> None:
            at_once.wait(DEADLINE)
            way(lock)

        for one in [start(partial(release, ways[n])) for n in (0, number % 2)]:
            one.result(DEADLINE)
        assert not lock.lost.is_set()
    assert recorder.losses == []
    assert (c.stats().released, c.stats().expired) == (20, 0)
    nothing_left(masters)


@pytest.mark.parametrize("many", [False, True])
def test_a_release_of_an_ended_lease_leaves_the_renewal_of_the_next(
    masters: Masters, kept: Kept, clock: Jumping, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """Another thread acquires the lock when the release has read the ended lease.

    Catches: a release that stops the renewal of whatever lease the lock has by then.
    """
    c, lock = kept(masters)
    stop = AutoExtension.stop
    acquired: list[bool] = []

    def stop_late(extension: AutoExtension, *lease: Lease) -> None:
        if not acquired:
            clock.jump(TTL + 1)
            assert all(master.ask("DEL kept") for master in masters)
            acquired.append(start(lambda: lock.acquire(timeout=DEADLINE)).result(DEADLINE))
        stop(extension, *lease)

    monkeypatch.setattr(AutoExtension, "stop", stop_late)
    assert (c.release_many([lock]) == [False]) if many else not lock.release()
    assert acquired == [True]
    assert lock.locked()
    before = c.stats().renewed
    clock.jump(THIRD)
    renewed(c, before + 1)
    assert lock.remaining() > TTL - THIRD
    assert lock.release()
    nothing_left(masters)


def test_a_loss_is_not_of_the_next_lease(
    masters: Masters, kept: Kept, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread that renews writes the loss to its log, another one acquires the lock again.

    Catches: the event of the next lease is set.
    """
    c, lock = kept(masters)
    before = lock.lost
    warn_of = core_of(c).client_state.events.warn_of
    acquired: list[bool] = []

    def warn_late(event: str, text: str, **fields: str) -> None:
        if event == "lock-lost":
            acquired.append(start(lambda: lock.acquire(timeout=DEADLINE)).result(DEADLINE))
        warn_of(event, text, **fields)

    monkeypatch.setattr(core_of(c).client_state.events, "warn_of", warn_late)
    assert all(master.ask("DEL kept") for master in masters)
    clock.jump(TTL + 1)
    eventually(lambda: acquired == [True], "the loss is reported, and the lock acquired")
    eventually(lambda: c.stats().lost == 1 and not core_of(c).renewal()._losses, "on_lost is called")
    assert before.is_set()
    assert lock.locked()
    assert not lock.lost.is_set()
    assert lock.release()


@pytest.mark.parametrize("many", [False, True])
def test_a_release_that_finds_the_loss_leaves_the_event_of_the_next_lease(
    masters: Masters, kept: Kept, clock: Jumping, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """Another thread acquires the lock before the release reports what it found."""
    c, lock = kept(masters)
    before = lock.lost
    acquired: list[bool] = []
    mark_lost = core_of(c).renewal().mark_lost

    def mark_late(*loss: Any, **options: Any) -> None:
        if not acquired:
            acquired.append(True)
            acquired.append(start(lambda: lock.acquire(timeout=DEADLINE)).result(DEADLINE))
        mark_lost(*loss, **options)

    monkeypatch.setattr(core_of(c).renewal(), "mark_lost", mark_late)
    assert all(master.ask("DEL kept") for master in masters)
    lock._lease.mark_lost(clock())
    assert (c.release_many([lock]) == [False]) if many else not lock.release()
    assert acquired == [True, True]
    assert many or before.is_set()
    assert lock.locked()
    assert not lock.lost.is_set()
    assert lock.release()


def test_abandoned(masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder, raw: Raw) -> None:
    c, lock = kept(masters)
    stays = held(c, "stays", on_lost=recorder)
    token = lock.token
    del lock
    gc.collect()
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    assert c.stats().renewed == 3
    assert len(core_of(c).renewal().schedule) == 1
    assert token in [node.get("kept") for node in raw(masters)], "its lease ends by itself"
    assert stays.release()
    assert recorder.losses == []


def test_abandoned_while_its_loss_is_found(
    masters: Masters, connected: MakeClient, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a lease that the schedule counts without end, so that the thread never ends."""
    c = connected(masters, ttl=TTL, clock=clock)
    locks, schedule = [held(c, max_hold=TTL / 10)], core_of(c).renewal().schedule
    lease: Any = locks[0]._auto_extension._renewed
    clock.jump(THIRD)
    eventually(lambda: lease.stopped, "it is not extended any more, and only its end is scheduled")
    pop_ended = schedule.pop_ended

    def drop_last_reference(now: float) -> list[Any]:
        ended = pop_ended(now)
        if ended:
            locks.clear()
            gc.collect()
        return ended

    monkeypatch.setattr(schedule, "pop_ended", drop_last_reference)
    clock.jump(TTL)
    eventually(lambda: not locks and len(schedule) == 0, "the schedule is empty")


# --- with others ----------------------------------------------------------------------------------


def test_the_users_extensions_beside_ours(
    masters: Masters, connected: MakeClient, recorder: LossRecorder, raw: Raw
) -> None:
    """For other times, by threads that are in no order: we never believe in more than a quorum keeps. (That
    they take turns, without which this is only likely, is shown in virtual time.)
    """
    nodes = raw(masters)
    c = connected(masters)
    lock = held(c, "shared", ttl=3.0, on_lost=recorder, max_extensions=None)
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
    assert recorder.losses == []


def test_callbacks_that_raise_do_not_stop_renewal(
    masters: Masters,
    connected: MakeClient,
    clock: Jumping,
    recorder: LossRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One raises, one is slow: renewal goes on, and the other callbacks are called."""
    go_on = threading.Event()

    def bad(lock: Lock, reason: str) -> None:
        raise SystemExit("on purpose")

    def slow(lock: Lock, reason: str) -> None:
        assert go_on.wait(DEADLINE)
        assert lock.release() is False
        recorder(lock, reason)

    c = connected(masters, ttl=TTL, clock=clock)
    stays = held(c, "stays", on_lost=recorder)
    lost = [held(c, name, on_lost=on_lost, max_extensions=0) for name, on_lost in (("a", bad), ("b", slow))]
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        renewed(c, turn)
    assert all(lock.lost.wait(DEADLINE) for lock in lost)
    clock.jump(THIRD)
    renewed(c, 4)
    assert recorder.losses == []
    go_on.set()
    eventually(lambda: recorder.losses == [(lost[1], MAX_EXTENSIONS)], "the slow one")
    assert any(record.getMessage() == "on-lost-error" for record in caplog.records)
    assert stays.release()


def lost_at_once(c: FastRedlock, clock: Jumping, callbacks: list[Callable[[Lock, str], None]]) -> list[Lock]:
    """One lock for each callback; all are lost at the same time."""
    locks = [
        held(c, f"r{number}", on_lost=on_lost, max_extensions=0) for number, on_lost in enumerate(callbacks)
    ]
    clock.jump(TTL + 1)
    assert all(lock.lost.wait(DEADLINE) for lock in locks)
    return locks


def drop(locks: list[Lock]) -> None:
    """Release what is lost by the test's clock, and not by that of the masters."""
    for lock in locks:
        lock.release()


def test_a_callback_that_blocks_delays_no_other(
    masters: Masters, connected: MakeClient, clock: Jumping
) -> None:
    """Each blocks until the last one is called.

    Catches: one queue for all: a callback comes after another client has the lock.
    """
    c = connected(masters, ttl=TTL, clock=clock)
    called: list[str] = []
    all_called = threading.Event()

    def block(lock: Lock, reason: str) -> None:
        called.append(str(lock.resource))
        if len(called) == 3:
            all_called.set()
        assert all_called.wait(DEADLINE)

    lost = lost_at_once(c, clock, [block] * 3)
    assert all_called.wait(DEADLINE)
    later = held(c, "later", on_lost=lambda lock, _: called.append(str(lock.resource)), max_extensions=0)
    clock.jump(TTL + 1)
    assert later.lost.wait(DEADLINE)
    eventually(lambda: len(called) == 4, "each is called once")
    assert sorted(called) == ["later", "r0", "r1", "r2"]
    eventually(lambda: not any("on-lost" in one.name for one in threading.enumerate()), "their threads end")
    drop([*lost, later])


def test_calls_that_block_are_bounded(
    masters: Masters, connected: MakeClient, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are called when one of these has ended."""
    monkeypatch.setattr("redlock_fast.threads.renewal.MAX_CALLERS", 3)
    c = connected(masters, ttl=TTL, clock=clock)
    inside, go_on = [0], threading.Event()
    called: list[str] = []
    most = 0

    def block(lock: Lock, reason: str) -> None:
        nonlocal most
        inside[0] += 1
        most = max(most, inside[0])
        assert go_on.wait(DEADLINE)
        inside[0] -= 1
        called.append(str(lock.resource))

    lost = lost_at_once(c, clock, [block] * 8)
    eventually(lambda: inside == [3], "three are called")
    go_on.set()
    eventually(lambda: len(called) == 8, "all are called")
    assert most == 3
    drop(lost)


@needs_fork
def test_a_child_that_a_callback_forks_makes_no_other_calls(
    masters: Masters, connected: MakeClient, clock: Jumping, tmp_path: Path
) -> None:
    c = connected(masters, ttl=TTL, clock=clock)
    pids: list[int] = []
    go_on = threading.Event()

    def note(lock: Lock, reason: str) -> None:
        (tmp_path / f"{os.getpid()}").touch()

    def fork(lock: Lock, reason: str) -> None:
        assert go_on.wait(DEADLINE)
        pid = fork_here()
        if pid:
            pids.append(pid)  # the child ends with its only thread, this one

    lost = lost_at_once(c, clock, [fork, note, note])
    go_on.set()
    eventually(lambda: pids, "it forks")
    assert exit_code(pids[0]) == 0
    eventually(lambda: (tmp_path / str(os.getpid())).exists(), "the others are called here")
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]
    drop(lost)


def test_a_handler_raises_while_the_thread_starts(valkey: Masters, connected: MakeClient) -> None:
    """Catches, with Python 3.11: a lock of ``threading`` that stays taken, so that no thread starts."""
    c = connected(valkey)
    lock = c.lock("r", TTL, auto_extend=True)

    def acquire() -> None:
        core_of(c).renewal()._thread = None  # the one before ends: it was replaced
        lock.acquire()

    def check() -> None:
        assert start(lambda: True).result(DEADLINE)
        lock.release()

    before = signal.signal(signal.SIGUSR1, lambda *_: interrupt())
    try:
        count = moments(
            acquire, lambda: signal.raise_signal(signal.SIGUSR1), check, threading.__file__.__eq__
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert count > 3
    lock.release()


def test_closed(masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder, raw: Raw) -> None:
    """Renewal ends; a lock is held until its lease ends; on_lost is not called, but check() raises."""
    before = threads()
    c, lock = kept(masters)
    (thread,) = threads() - before
    c.close()
    assert not thread.is_alive()
    lock.check()
    forget_calls(raw(masters))
    clock.jump(TTL)
    with pytest.raises(LockLost):
        lock.check()
    assert calls(raw(masters), "set", "evalsha") == [0] * 5
    assert recorder.losses == []


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
    # The connector lives until the lease of the lock that is dropped ends.
    c = FastRedlock(valkey.urls, ttl=1.0, engine=engine_name, node_timeout=5.0, connect_timeout=DEADLINE)
    lock = held(c)
    assert len(threads() - before) == 1
    for one in core_of(c).masters.connector, core_of(c)._renewal:
        # With a callback, Python 3.15 clears it before the engine closes its sockets.
        (reference,) = weakref.getweakrefs(one)
        assert reference.__callback__ is not None
    del c, lock, one, reference
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


@needs_fork
def test_a_child_of_fork_renews_its_own_only(
    masters: Masters, kept: Kept, clock: Jumping, recorder: LossRecorder
) -> None:
    c, lock = kept(masters)
    event = lock.lost

    def child() -> None:
        assert not lock.locked()
        assert threads() == set()
        own = held(c, "child's", on_lost=recorder)
        before = c.stats().renewed
        clock.jump(THIRD)
        renewed(c, before + 1)
        assert len(threads()) == 1
        clock.jump(TTL)
        assert own.lost.wait(DEADLINE)
        eventually(lambda: [one for one, _ in recorder.losses] == [own], "only its own is reported")
        assert not event.is_set()
        c.close()

    assert exit_code(fork_child(child)) == 0
    clock.jump(THIRD)
    renewed(c, 1)
    assert lock.release()
    assert recorder.losses == []


def test_a_release_before_the_renewal_begins(
    masters: Masters, connected: MakeClient, recorder: LossRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread releases what this one is granted, and an extension of a third one finds no key.

    Catches: the report of a loss.
    """
    c = connected(masters)
    lock = c.lock("r", TTL, auto_extend=True, on_lost=recorder)
    begin, leases = AutoExtension.begin, []

    def begin_late(extension: AutoExtension, lock: Lock, lease: Lease) -> None:
        assert start(lock.release).result(DEADLINE)
        begin(extension, lock, lease)
        leases.append(lease)

    monkeypatch.setattr(AutoExtension, "begin", begin_late)
    assert lock.acquire()
    lock._auto_extension.on_lease_lost(lock, leases[0])
    assert not core_of(c).renewal().schedule
    assert c.stats().lost == 0
    assert not lock.lost.is_set()
    assert recorder.losses == []


@pytest.mark.skipif(sys.platform != "linux", reason="stops a process")
def test_a_stopped_holder_notices_the_loss_when_it_goes_on(masters: Masters, engine_name: str) -> None:
    setting = {"urls": masters.urls, "engine": engine_name, "ttl": 1.5}
    worker = PythonProcess(
        **support_program("worker_renewal", setting),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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
    assert len(result["losses"]) == 1
    assert result["losses"][0] in (LATE, UNCONFIRMED, GONE)
    assert (result["event"], result["released"]) == (True, False)
