"""Reentrant locks for threads on real masters."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from support.clocks import Jumping
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.interruptions import interrupted
from support.keys import calls, forget_calls, nothing_left, paused, values, wipe
from support.makers import MakeClient, Raw
from support.proxy import Proxy
from support.waiting import DEADLINE, PATIENT, answered, eventually, start

from redlock_fast import (
    ClientClosed,
    Contended,
    ContendedTimeout,
    FastRedlock,
    Lock,
    LockLost,
    QuorumUnavailable,
    RLock,
    ShardedRedlock,
)
from redlock_fast.embedded import Masters

TTL = 60.0
#: A little more than a third of it.
THIRD = 21.0


def elsewhere(call: Callable[[], Any]) -> Any:
    """In another thread, which has ended when this returns."""
    return start(call).result(DEADLINE)


def test_only_the_outermost_level_is_on_the_wire(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    lock = connected(masters).rlock("r", TTL)
    with lock:
        eventually(lambda: values(nodes, "r") == [lock.token] * 5, "all masters have the key")
        forget_calls(nodes)
        token = lock.token
        with lock:
            assert lock.acquire()
            assert (lock.depth, lock.token) == (3, token)
            assert lock.release() is True
        assert values(nodes, "r") == [token] * 5
        assert calls(nodes, "set", "evalsha", "delifeq", "del") == [0] * 5
    nothing_left(masters)


def test_threads_exclude_each_other(masters: Masters, connected: MakeClient) -> None:
    """One object; each thread enters up to four deep. Catches: owners that are mixed up."""
    lock = connected(masters).rlock("r", TTL, timeout=DEADLINE)
    inside: list[int] = []
    rounds = []

    def enter(depth: int) -> None:
        with lock:
            assert set(inside) <= {threading.get_ident()}
            inside.append(threading.get_ident())
            if depth > 1:
                enter(depth - 1)
            inside.pop()

    def work(number: int) -> None:
        for depth in range(1, 5):
            enter(depth)
            rounds.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(rounds) == 16
    nothing_left(masters)


def test_others_are_excluded_as_by_any_lock(masters: Masters, connected: MakeClient) -> None:
    c, other = connected(masters), connected(masters)
    lock = c.rlock("r", TTL)
    with lock, lock:
        assert not other.lock("r", TTL).acquire(blocking=False)
        assert not other.rlock("r", TTL).acquire(blocking=False)
        assert elsewhere(lambda: lock.acquire(blocking=False)) is False
        assert elsewhere(lambda: answered(lambda: lock.acquire(timeout=0.5))) is False
        with pytest.raises(Contended):  # another object is another owner
            answered(lambda: nested(c.rlock("r", TTL, timeout=0.5)))
    plain = other.lock("r", TTL)
    assert plain.acquire(timeout=DEADLINE)
    with pytest.raises(Contended):
        answered(lambda: nested(c.rlock("r", TTL, timeout=0.5)))
    assert plain.release()
    with lock:
        pass
    nothing_left(masters)


def test_two_lost_messages_are_harmless(valkey: Masters, connected: MakeClient) -> None:
    """With counts on the masters, an owner that enters level 2 unheard by one master and level
    3 unheard by another has lost the lock to others after it left both levels.
    """
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(master.port, record=True)) for master in list(valkey)[:3]]
        a, b = connected([proxy.url for proxy in proxies]), connected(valkey.urls[:3])
        lock = a.rlock("r", TTL)
        assert lock.acquire()
        eventually(lambda: all(m.pending == 0 for m in a.health()), "all masters answer")
        before = [len(proxy.requests) for proxy in proxies]
        for recheck in (2, 1):
            proxies[recheck].deaf = True
            assert lock.acquire()
            proxies[recheck].deaf = False
        assert lock.release()
        assert lock.release()
        assert [len(proxy.requests) for proxy in proxies] == before, "nothing that could be lost"
        assert lock.depth == 1
        assert not b.lock("r", TTL).acquire(blocking=False), "A is at level 1"
        lock.check()
        assert lock.release()
        assert b.lock("r", TTL).acquire(timeout=DEADLINE)


def test_a_longer_ttl_extends(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    lock = connected(masters, max_ttl=300.0).rlock("r", TTL)
    nodes = raw(masters)
    with lock:
        assert lock.acquire(ttl=200.0)
        assert lock.remaining() > TTL
        assert lock.release()
        assert lock.remaining() > TTL, "leaving does not shorten"
        assert sum(node.pttl("r") > 100_000 for node in nodes) >= 3
        assert lock.extend(250.0) > 200.0
    with lock:
        assert lock.remaining() < TTL


def test_min_validity_extends(masters: Masters, connected: MakeClient) -> None:
    clock = Jumping()
    c = connected(masters, clock=clock)
    lock = c.rlock("r", TTL, min_validity=30.0)
    with lock:
        with lock:
            assert c.stats().extended == 0
        clock.jump(40.0)
        with lock:
            assert c.stats().extended == 1
            assert lock.remaining() > 50.0


def test_all_levels_have_the_fencing_token_of_the_first(masters: Masters, connected: MakeClient) -> None:
    lock = connected(masters).rlock("r", TTL, fencing=True)
    tokens = []
    for _ in range(3):
        with lock:
            first = lock.fencing_token
            with lock:
                assert lock.fencing_token == first
            assert lock.fencing_token == first
            tokens.append(first)
    assert tokens == sorted(set(tokens))
    assert lock.fencing_token is None


def test_what_cannot_be_had_leaves_nothing(masters: Masters, connected: MakeClient) -> None:
    c = connected(masters, node_timeout=0.1)
    lock = c.rlock("r", TTL)
    with paused(masters, 0, 1, 2):
        with pytest.raises(QuorumUnavailable):
            lock.acquire(timeout=0.2)
        assert lock.depth == 0
    nothing_left(masters)
    with pytest.raises(ZeroDivisionError), lock, lock:
        raise ZeroDivisionError
    assert lock.depth == 0
    nothing_left(masters)


# --- loss -----------------------------------------------------------------------------------------


@pytest.fixture
def losses() -> list[tuple[RLock, str]]:
    return []


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def kept(masters: Masters, connected: MakeClient, clock: Jumping, losses: list[tuple[RLock, str]]) -> RLock:
    """A reentrant lock that is renewed; not acquired."""
    c = connected(masters, ttl=TTL, clock=clock)
    return c.rlock("kept", auto_extend=True, on_lost=lambda *loss: losses.append(loss))


def test_it_is_renewed_until_the_last_level_is_left(kept: RLock, clock: Jumping, masters: Masters) -> None:
    with kept, kept:
        for count in range(1, 4):
            clock.jump(THIRD)
            eventually(lambda count=count: kept._core.client_state.counts.renewed >= count, "renewal")  # type: ignore[misc]
            kept.check()
        assert not kept.lost.is_set()
        event = kept.lost
    assert not event.is_set()
    nothing_left(masters)


def test_a_loss_is_reported_once_and_no_thread_enters_under_it(
    kept: RLock, clock: Jumping, masters: Masters, losses: list[tuple[RLock, str]], raw: Raw
) -> None:
    assert kept.acquire()
    assert kept.acquire()
    for node in raw(masters):
        wipe(node)
    clock.jump(THIRD)
    eventually(lambda: losses, "the loss is reported")
    assert kept.lost.is_set()
    assert not kept.locked()
    with pytest.raises(LockLost):
        kept.acquire()
    with pytest.raises(LockLost), kept:
        raise AssertionError("entered a lost lock")
    with pytest.raises(LockLost):
        kept.extend()
    with pytest.raises(LockLost):
        kept.check()
    assert kept.depth == 2
    assert kept.release() is False
    assert kept.release() is False
    assert [lock for lock, _ in losses] == [kept]
    with kept:
        kept.check()
    nothing_left(masters)


def test_the_innermost_level_says_that_the_lease_has_ended(
    connected: MakeClient, masters: Masters, clock: Jumping
) -> None:
    lock = connected(masters, clock=clock).rlock("r", TTL)
    left = []
    with pytest.raises(LockLost), lock:  # noqa: PT012
        with lock:
            clock.jump(2 * TTL)
        left.append("inner")
    assert not left
    assert lock.depth == 0
    nothing_left(masters)


def test_what_a_dead_thread_held_is_free_when_its_lease_ends(masters: Masters, connected: MakeClient) -> None:
    """And is renewed no more; a thread that has its ident now is another owner."""
    lock = connected(masters).rlock("r", 0.5, auto_extend=True, timeout=DEADLINE)
    elsewhere(lock.acquire)
    gc.collect()
    assert elsewhere(lambda: lock.depth) == 0
    assert lock.acquire(ttl=TTL)
    assert lock.release()
    nothing_left(masters)


# --- interrupts -----------------------------------------------------------------------------------


def nested(lock: RLock) -> None:
    with lock, lock:
        pass


def verbs(lock: RLock) -> None:
    """What raises is not entered, and what was entered is left once."""
    if lock.acquire():
        try:
            nested(lock)
        finally:
            lock.release()


def leave(lock: RLock) -> None:
    lock.release()


#: What returns from there has done all: the caller has the result.
WHOLE = "threads/client.py", "threads/lock.py", "threads/operations.py"
#: Before the first step of a leave, and after the last step of an enter.
OUTSIDE = ("call release", "call __exit__", "return _enter", "return acquire", "return __enter__")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in QueueEntry.__del__
@pytest.mark.parametrize("use", [nested, verbs, leave])
@pytest.mark.parametrize("name", [None, "job"])
def test_interrupted_at_any_moment(
    valkey: Masters, connected: MakeClient, name: str | None, use: Callable[[RLock], None]
) -> None:
    """No level stays entered: the lock is released, and is not renewed any more."""
    c = connected(valkey)
    for number in range(1000):
        lock = c.rlock("r", TTL, auto_extend=True)
        if name is not None:
            lock = lock.owned_by(name)
        if use is leave:
            assert lock.acquire()
        moment = interrupted(partial(use, lock), number, spared=WHOLE)
        if moment is None:
            break
        if moment in OUTSIDE and lock.depth:
            assert lock.depth == 1, moment
            lock.release()
        assert lock.depth == 0, moment
        assert not core_of(c).client_state.held, moment
        assert len(core_of(c).renewal().schedule) == 0, moment
        assert queued(c) == 0, moment
    assert number > 5, "there were moments to interrupt it at"
    nothing_left(valkey)


# --- other owners ---------------------------------------------------------------------------------


def test_a_name_hands_it_on(masters: Masters, connected: MakeClient) -> None:
    lock = connected(masters).rlock("r", TTL)
    job = lock.owned_by("job")
    assert job.acquire()
    with pytest.raises(RuntimeError, match="has not acquired"):
        lock.release()
    assert lock.acquire(blocking=False) is False
    with elsewhere(lambda: lock.owned_by("job")):
        assert job.depth == 2
    assert elsewhere(job.release) is True
    with lock:
        pass
    nothing_left(masters)


def queued(c: FastRedlock) -> int:
    return sum(map(len, core_of(c).masters.turns.waiting.values()))


def until_queued(c: FastRedlock, calls: int) -> None:
    eventually(lambda: queued(c) == calls, f"{calls} calls queue for their turn")


def test_calls_of_one_name_do_not_exclude_each_other(valkey: Masters, connected: MakeClient) -> None:
    """Catches: both wait at the masters, and the second waits for its own owner."""
    c, holder = connected(valkey), connected(valkey).acquire("r", TTL)
    assert holder
    job = c.rlock("r", TTL).owned_by("job")
    calls = [start(lambda: job.acquire(timeout=DEADLINE)) for _ in range(3)]
    until_queued(c, 3)
    assert job.acquire(blocking=False) is False, "at once"
    assert job.acquire(timeout=0.05) is False
    until_queued(c, 3)
    holder.release()
    assert [call.result(DEADLINE) for call in calls] == [True] * 3
    assert job.depth == 3
    assert [job.release() for _ in calls] == [True] * 3
    assert not core_of(c).masters.turns.waiting
    nothing_left(valkey)


def test_a_call_that_gives_up_lets_the_next_one_of_its_name_acquire(
    valkey: Masters, connected: MakeClient
) -> None:
    c, holder = connected(valkey), connected(valkey).acquire("r", TTL)
    assert holder
    job = c.rlock("r", TTL).owned_by("job")
    first = start(lambda: answered(lambda: job.acquire(timeout=1.5)))
    until_queued(c, 1)
    second = start(lambda: job.acquire(timeout=DEADLINE))
    eventually(lambda: queued(c) == 2 or first.done(), "the second queues behind the first")
    assert first.result(DEADLINE) is False
    holder.release()
    assert second.result(DEADLINE) is True
    assert job.depth == 1
    assert job.release()
    nothing_left(valkey)


def test_with_of_a_name_whose_turn_does_not_come(valkey: Masters, connected: MakeClient) -> None:
    c, holder = connected(valkey), connected(valkey).acquire("r", TTL)
    assert holder
    lock = c.rlock("r", TTL, timeout=1.0)
    first = start(lambda: lock.owned_by("job").acquire(timeout=DEADLINE))
    until_queued(c, 1)
    with pytest.raises(ContendedTimeout, match="another call of its owner"), lock.owned_by("job"):
        raise AssertionError("entered")
    with pytest.raises(ContendedTimeout), lock.owned_by("another job"):
        raise AssertionError("entered")
    holder.release()
    assert first.result(DEADLINE)
    with lock.owned_by("job") as job:
        assert job.depth == 2
    assert job.release()
    nothing_left(valkey)


def test_threads_of_one_name_come_and_go(valkey: Masters, connected: MakeClient) -> None:
    """A call that finds the lock released by another thread of its name acquires it."""
    c = connected(valkey)
    lock, other = c.rlock("r", TTL, timeout=DEADLINE), c.rlock("r", TTL, timeout=DEADLINE)
    inside = [0, 0]

    def work(number: int) -> None:
        job, own = (lock, other)[number % 2].owned_by("job"), number % 2
        for turn in range(40):
            with job if turn % 2 else entered(job):
                inside[own] += 1
                assert not inside[1 - own], "another object is another owner"
                inside[own] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not core_of(c).masters.turns.waiting
    nothing_left(valkey)


@contextmanager
def entered(lock: RLock) -> Iterator[None]:
    assert lock.acquire()
    try:
        yield
    finally:
        assert lock.release()


@pytest.mark.parametrize("when", ["before", "after"])
def test_another_thread_of_the_name_releases_it_beside_an_extension(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The call that enters a level acquires the lock then. Catches: a level of a lock that was released."""
    job = connected(valkey).rlock("r", TTL / 2).owned_by("job")
    extend = Lock.extend

    def extended(lock: Lock, ttl: float | None = None) -> float:
        monkeypatch.undo()
        if when == "before":
            elsewhere(job.release)
        validity = extend(lock, ttl)
        if when == "after":
            elsewhere(job.release)
        return validity

    with job:
        monkeypatch.setattr(Lock, "extend", extended)
        assert job.acquire(ttl=TTL)
        assert (job.depth, job.locked()) == (1, True)
        assert job.remaining() > TTL / 2
    nothing_left(valkey)


def test_closed_while_calls_of_one_name_wait(valkey: Masters, connected: MakeClient) -> None:
    c, holder = connected(valkey), connected(valkey).acquire("r", TTL)
    assert holder
    job = c.rlock("r", TTL).owned_by("job")
    calls = [start(job.acquire) for _ in range(2)]
    until_queued(c, 2)
    c.close()
    for call in calls:
        with pytest.raises(ClientClosed):
            call.result(DEADLINE)
    assert holder.release()


@needs_fork
def test_a_child_of_fork_waits_for_no_call_of_its_parent(valkey: Masters, connected: MakeClient) -> None:
    c, holder = connected(valkey), connected(valkey).acquire("r", TTL)
    assert holder
    job = c.rlock("r", TTL).owned_by("job")
    first = start(lambda: job.acquire(timeout=DEADLINE))
    until_queued(c, 1)
    ours, theirs = os.pipe()

    def child() -> None:
        assert not core_of(c).masters.turns.waiting
        os.write(theirs, b".")
        assert job.acquire(timeout=DEADLINE)
        assert job.release()

    pid = fork_child(child)
    os.close(theirs)  # so that the end of the child is the end of the pipe
    os.read(ours, 1)
    os.close(ours)
    holder.release()
    assert first.result(DEADLINE)
    assert job.release()
    assert exit_code(pid) == 0
    nothing_left(valkey)


@needs_fork
def test_a_child_of_fork_owns_nothing(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    lock = connected(masters).rlock("r", TTL)
    with lock, lock:
        eventually(lambda: values(raw(masters), "r") == [lock.token] * 5, "all masters have the key")
        token = lock.token

        def child() -> None:
            assert lock.depth == 0
            assert not lock.locked()
            with pytest.raises(RuntimeError):
                lock.release()
            assert lock.acquire(blocking=False) is False  # it is the parent's
            lock.__exit__(SystemExit, SystemExit(), None)  # an inherited ``with`` that an exception leaves

        assert exit_code(fork_child(child)) == 0
        assert values(raw(masters), "r") == [token] * 5
        assert lock.depth == 2
    nothing_left(masters)


def test_it_is_on_the_group_of_its_name(valkey: Masters, engine_name: str) -> None:
    groups = {"a": valkey.urls[:1], "b": valkey.urls[1:2], "c": valkey.urls[2:3]}
    with ShardedRedlock(groups, engine=engine_name, **PATIENT) as c:
        for number in range(8):
            lock = c.rlock(f"r:{number}", TTL)
            with lock, lock:
                where = "abc".index(c.group_of(f"r:{number}"))
                assert valkey[where].ask(f"EXISTS r:{number}") == ":1"
    nothing_left(valkey)
