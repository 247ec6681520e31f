"""What other libraries for threads publish of their locks, in our words; and where ours is right instead."""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import valkey as valkey_py
from support.clocks import Jumping
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.interruptions import interrupted
from support.keys import OTHER_CLIENT, forget, nothing_left, occupy
from support.moments import moments
from support.renewing import THIRD
from support.signalling import interrupt
from support.waiting import DEADLINE, eventually, start

from redlock_fast import Lock
from redlock_fast.compat import _holder, _holds, pottery, redis_py, redlock
from redlock_fast.compat import redlock_py as redlock_py_
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

Raw = Callable[[Masters], list[redis.Redis]]
Options = dict[str, Any]

#: Milliseconds. A lease whose end a test waits for. It outlasts a pause of the machine between two calls.
SHORT = 2000
#: Addresses without a server.
DEAD = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


def lose_and_fail(lock: Any, masters: Masters) -> None:
    with lock:
        forget(masters)
        raise ZeroDivisionError


def impatient(options: Options) -> Options:
    return {**options, "connect_timeout": 0.2}


# --- signals ------------------------------------------------------------------------------------------


def test_a_handler_that_raises_in_an_acquire_of_redlock_py(valkey: Masters, options: Options) -> None:
    """At any moment: the caller has no lock that it could release."""
    locks = redlock_py_.Redlock(valkey.urls, **options)
    taken: list[Any] = [locks.lock("connects", 60_000)]

    def after() -> None:
        while taken:
            locks.unlock(taken.pop())
        nothing_left(valkey)

    after()
    number = moments(
        lambda: taken.append(locks.lock("r", 60_000)), interrupt, after, redlock_py_.__file__.__eq__
    )
    assert number > 2
    after()


def test_a_handler_that_raises_in_redis_pys_lock(valkey: Masters, options: Options) -> None:
    """At any moment of its acquire, and of a release that is not repeated unless it did not begin."""
    quorum_lock = redis_py.lock_class(valkey.urls, **options)
    lock = quorum_lock(redis.Redis(), "r", timeout=60)
    files = redis_py.__file__, _holds.__file__, contextlib.__file__

    def after() -> None:
        if lock.local.token is not None:
            with contextlib.suppress(redis.exceptions.LockError):
                lock.release()
        nothing_left(valkey)

    def release() -> None:
        lock.acquire()
        lock.release()

    assert lock.acquire()
    after()
    assert moments(lock.acquire, interrupt, after, files.__contains__) > 5
    assert moments(release, interrupt, after, files.__contains__) > 10


#: Each drop-in with objects that hold a lock.
HOLDERS: dict[str, Callable[[Masters, Options], Any]] = {
    "redlock": lambda masters, options: redlock.RedLock("r", masters.urls, ttl=60_000, **options),
    "redlock, reentrant": lambda masters, options: redlock.ReentrantRedLock(
        "r", masters.urls, ttl=60_000, **options
    ),
    "pottery": lambda masters, options: pottery.Redlock(
        key="r", masters=masters.urls, auto_release_time=60, **options
    ),
}
#: At the return of their functions all is done: what is raised there is for the caller.
COMPAT = tuple(f"compat/{Path(module.__file__).name}" for module in (pottery, redlock, _holder))


def interrupted_at_each(
    valkey: Masters, make: Callable[[], Callable[[], object]], spared: frozenset[str] = frozenset()
) -> int:
    """Interrupt what ``make`` returns at each of its moments. No key is left, but at the ``spared`` ones."""
    number = 0
    while moment := interrupted(make(), number, spared=COMPAT, inside=("compat",)):
        if moment in spared:
            forget(valkey)
        nothing_left(valkey)
        number += 1
    return number


@pytest.mark.parametrize("drop_in", HOLDERS)
def test_a_handler_that_raises_in_an_acquire(valkey: Masters, options: Options, drop_in: str) -> None:
    """Catches: a lock that is granted, and stored nowhere."""
    make = functools.partial(HOLDERS[drop_in], valkey, options)
    with make():
        pass
    assert interrupted_at_each(valkey, lambda: make().acquire) > 2
    forget(valkey)


@pytest.mark.parametrize("drop_in", HOLDERS)
def test_a_handler_that_raises_right_after_the_grant(
    valkey: Masters, options: Options, drop_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for signals there, where a tool replaces its evaluation of frames."""
    acquire = Lock.acquire

    def granted_and_interrupted(lock: Lock, *args: Any) -> None:
        assert acquire(lock, *args)
        interrupt()

    lock = HOLDERS[drop_in](valkey, options)
    monkeypatch.setattr(Lock, "acquire", granted_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    nothing_left(valkey)


@pytest.mark.parametrize("drop_in", [drop_in for drop_in in HOLDERS if "reentrant" not in drop_in])
def test_a_handler_that_raises_at_the_end_of_with(valkey: Masters, options: Options, drop_in: str) -> None:
    """Catches: work before the release, which a signal is likely to interrupt."""

    def held() -> Callable[[], object]:
        lock = HOLDERS[drop_in](valkey, options)
        lock.__enter__()
        return lambda: lock.__exit__(None, None, None)

    functions = ("__exit__", "release", "_release", "_acquired", "_release_lock")
    begins = frozenset(f"call {function}" for function in functions)
    assert interrupted_at_each(valkey, held, begins) > 2


@pytest.mark.parametrize("drop_in", HOLDERS)
def test_a_handler_that_raises_before_the_release(
    valkey: Masters, options: Options, drop_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a drop-in that forgets its lock, which is still held."""
    release, raised = Lock.release, []

    def interrupted_once(lock: Lock) -> bool:
        if not raised:
            raised.append(True)
            interrupt()
        return release(lock)

    lock = HOLDERS[drop_in](valkey, options)
    lock.acquire()
    monkeypatch.setattr(Lock, "release", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    if raised:
        nothing_left(valkey)


# --- redlock-py ---------------------------------------------------------------------------------------


def test_redlock_py(valkey: Masters, options: Options, raw: Raw) -> None:
    locks = redlock_py_.Redlock([{"url": url} for url in valkey.urls], **options)
    assert (locks.retry_count, locks.retry_delay, locks.quorum) == (3, 0.2, 3)
    lock = locks.lock("r", 60_000)
    assert lock
    assert 50_000 < lock.validity < 60_000
    assert [node.get("r") for node in raw(valkey)].count(lock.key) >= 3
    copy = pickle.loads(pickle.dumps(lock))
    assert copy == lock == (lock.validity, "r", lock.key)
    locks.unlock(copy)
    nothing_left(valkey)
    again = locks.lock("r", 60_000)
    assert again
    assert again.key != lock.key
    locks.unlock(lock)
    assert locks.lock("r", 60_000) is False, "an old lock unlocks nothing"
    locks.unlock((0, "r", again.key.decode()))
    nothing_left(valkey)


def test_redlock_py_unlocks_first_thing(valkey: Masters, options: Options, raw: Raw) -> None:
    """A process that was handed a lock, and never had one."""
    occupy(raw(valkey), "r")
    redlock_py_.Redlock(valkey.urls, **options).unlock(redlock_py_.Lock(0, "r", OTHER_CLIENT))
    nothing_left(valkey)


def test_redlock_py_tries_as_often_as_configured(valkey: Masters, options: Options, raw: Raw) -> None:
    locks = redlock_py_.Redlock(valkey.urls, retry_count=1_000_000, retry_delay=0.05, **options)
    occupy(raw(valkey), "r")
    waiting = start(lambda: locks.lock("r", 60_000))
    eventually(lambda: core_of(locks._client).masters.connector.roster.connected() == 0b11111, "it tries")
    assert not waiting.done()
    forget(valkey)
    assert waiting.result(DEADLINE)


def test_redlock_py_says_when_masters_are_down(masters: Masters, options: Options) -> None:
    """A minority fails nothing: the original raised with the lock in its hands."""
    locks = redlock_py_.Redlock([*masters.urls[:3], *DEAD[:2]], **options)
    lock = locks.lock("r", 60_000)
    assert lock
    locks.unlock(lock)
    nothing_left(masters)
    down = redlock_py_.Redlock([*masters.urls[:2], *DEAD], **impatient(options))
    down._client.connect(0.01)
    eventually(
        lambda: core_of(down._client).masters.connector.roster.connected().bit_count() == 2,
        "two are connected",
    )
    with pytest.raises(redlock_py_.MultipleRedlockException, match="not connected") as caught:
        down.lock("r", 60_000)
    assert len(caught.value.errors) == 3
    nothing_left(masters)
    down.unlock(lock)


@pytest.mark.parametrize("ttl", [0, -5, 1, 1.5, "1000", None, True])
def test_redlock_py_takes_whole_milliseconds(options: Options, ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl"):
        redlock_py_.Redlock(DEAD, **options).lock("r", ttl)


# --- redlock ------------------------------------------------------------------------------------------


def test_redlock(valkey: Masters, options: Options) -> None:
    factory = redlock.RedLockFactory([{"url": url} for url in valkey.urls], retry_times=1, **options)
    lock, other = factory.create_lock("r", ttl=60_000), factory.create_lock("r")
    assert isinstance(lock, redlock.RedLock)
    assert (lock.resource, lock.ttl, other.ttl, other.retry_times) == ("r", 60_000, 100_000, 1)
    assert lock.acquire() is True
    assert other.acquire() is False
    with pytest.raises(redlock.RedLockError, match="failed to acquire"), other:
        raise AssertionError("the body runs unlocked")
    other.release()
    assert other.acquire() is False, "it released nothing of the other's"
    lock.release()
    lock.release()
    with other:
        assert lock.acquire() is False
    nothing_left(valkey)


def test_redlock_reports_what_the_original_hides(valkey: Masters, options: Options) -> None:
    lock = redlock.RedLock("r", valkey.urls, **options)
    with pytest.raises(redlock.RedLockError, match="before the body"), lock:
        forget(valkey)
    with pytest.raises(ZeroDivisionError):
        lose_and_fail(lock, valkey)
    with pytest.raises(redlock.RedLockError, match="no quorum"):
        redlock.RedLock("r", DEAD, **impatient(options)).acquire()


def test_reentrant_locks(valkey: Masters, options: Options) -> None:
    """By the thread that holds it; others wait, also for the same object."""
    lock = redlock.ReentrantRedLock("r", valkey.urls, retry_times=1, ttl=60_000, **options)
    assert lock.acquire()
    assert lock.acquire()
    assert start(lock.acquire).result(DEADLINE) is False
    lock.release()
    assert start(lock.acquire).result(DEADLINE) is False
    lock.release()
    nothing_left(valkey)
    assert lock.acquire()
    with lock:
        pass
    lock.release()
    nothing_left(valkey)


def test_a_nested_acquire_of_a_lost_lock_raises(valkey: Masters, options: Options) -> None:
    """An acquire in its place would hide the loss from the outer block."""
    lock = redlock.ReentrantRedLock("r", valkey.urls, ttl=SHORT, **options)
    assert lock.acquire()
    assert lock.acquire()
    eventually(lambda: not lock._lock or not lock._lock.locked(), "the lease ends")
    with pytest.raises(redlock.RedLockError, match="acquired again"):
        lock.acquire()
    lock.release()
    lock.release()
    assert lock.acquire()
    lock.release()
    nothing_left(valkey)


@needs_fork
def test_a_child_of_fork_does_not_hold_a_reentrant_lock(valkey: Masters, options: Options) -> None:
    """The object of the parent has another owner there, and is not lost."""
    lock = redlock.ReentrantRedLock("r", valkey.urls, ttl=60_000, retry_times=1, **options)
    assert lock.acquire()

    def refused() -> None:
        assert lock.acquire() is False
        lock.release()

    assert exit_code(fork_child(refused)) == 0
    assert lock.acquire()
    lock.release()
    lock.release()
    nothing_left(valkey)


def test_the_masters_are_there_as_clients(valkey: Masters, options: Options) -> None:
    """Programs send other commands to them, or close them."""
    factory = redlock.RedLockFactory([{"url": url} for url in valkey.urls], **options)
    lock = factory.create_lock("r")
    assert lock.factory is factory
    assert lock.redis_nodes is factory.redis_nodes
    assert (lock.quorum, factory.quorum) == (3, 3)
    alone = redlock.RedLock("r", valkey.urls, **options)
    locks = redlock_py_.Redlock([*valkey.urls[:4], redis.Redis.from_url(valkey.urls[4])], **options)
    assert locks.servers is locks.servers
    for nodes in (factory.redis_nodes, alone.redis_nodes, locks.servers):
        assert [node.ping() for node in nodes] == [True] * 5
        for node in nodes:
            node.close()


def test_a_dropped_object_does_not_end_the_extension(valkey: Masters, options: Options) -> None:
    """Nor does the end of the thread that has acquired: in the originals such a lock lasts."""
    clock = Jumping()
    options = {**options, "clock": clock}
    quorum_lock = redis_py.lock_class(valkey.urls, ttl=60.0, **options)
    local = quorum_lock(redis.Redis, "thread")

    def dropped() -> list[Any]:
        """What redis-py holds, also in a thread that ends."""
        plain = quorum_lock(redis, "plain")
        assert plain.acquire()
        held = [plain.local.lock, start(lambda: local.acquire() and local.local.lock).result()]
        return [lock._lease for lock in held]

    leases = dropped()
    gc.collect()
    for count in (1, 2):
        clock.jump(THIRD)
        eventually(lambda: all(lease.extensions >= count for lease in leases), "they are extended")  # noqa: B023
    forget(valkey)
    clock.jump(THIRD)
    eventually(lambda: all(lease.lost for lease in leases), "its end is noticed")


# --- pottery ------------------------------------------------------------------------------------------


def printer(masters: Masters, options: Options, **settings: Any) -> pottery.Redlock:
    """A new object for each use, as its document says."""
    return pottery.Redlock(key="printer", masters=frozenset(masters.urls), **settings, **options)


def test_pottery(masters: Masters, options: Options) -> None:
    lock, other = printer(masters, options), printer(masters, options)
    assert (lock.key, lock.auto_release_time, lock.num_extensions) == ("redlock:printer", 10, 3)
    assert not lock.locked()
    assert lock.acquire() is True
    assert 5 < lock.locked() < 10
    assert other.locked() == 0
    assert other.acquire(blocking=False) is False
    assert other.acquire(timeout=0.05) is False
    with pytest.raises(ValueError, match="timeout"):
        other.acquire(blocking=False, timeout=1)
    with pytest.raises(pottery.ReleaseUnlockedLock):
        other.release()
    lock.release()
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()
    assert other.acquire(timeout=0), "free is free"
    other.release()
    nothing_left(masters)


def test_pottery_makes_one_attempt_where_no_time_is_left(valkey: Masters, options: Options) -> None:
    """A program may calculate the rest of its time. In pottery it gets False then, and no error."""
    free, taken = (pottery.Redlock(key="r", masters=valkey.urls, **options) for _ in range(2))
    assert free.acquire(timeout=-0.5) is True
    assert taken.acquire(timeout=-0.5) is False
    late = pottery.Redlock(key="r", masters=valkey.urls, context_manager_timeout=-2, **options)
    with pytest.raises(pottery.QuorumNotAchieved), late:
        pass
    with pytest.raises(ValueError, match="timeout"):
        taken.acquire(blocking=False, timeout=-0.5)
    free.release()


def test_pottery_prefixes_a_key_that_is_set_later(valkey: Masters, options: Options, raw: Raw) -> None:
    """Programs with pottery lock that key."""
    lock = printer(valkey, options)
    assert lock.key == "redlock:printer"
    lock.key = "scanner"
    with lock:
        assert sum(node.exists("redlock:scanner") for node in raw(valkey)) >= 3
    assert lock.key == "redlock:scanner"
    nothing_left(valkey)


def test_pottery_extends_so_many_times(valkey: Masters, options: Options) -> None:
    lock = printer(valkey, options, num_extensions=2)
    with pytest.raises(pottery.ExtendUnlockedLock):
        lock.extend()
    with lock:
        lock.extend()
        lock.extend()
        with pytest.raises(pottery.TooManyExtensions) as caught:
            lock.extend()
        assert caught.value.key == "redlock:printer"
        assert isinstance(caught.value, (pottery.PrimitiveError, RuntimeError))
    assert lock.acquire()
    forget(valkey)
    with pytest.raises(pottery.ExtendUnlockedLock):
        lock.extend()
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()


def test_an_extension_lasts_as_long_as_the_object_says_now(valkey: Masters, options: Options) -> None:
    """A program may have set a longer time since the acquire; a shorter one takes nothing from the lease."""
    lock = printer(valkey, options, auto_release_time=20)
    assert lock.acquire()
    lock.auto_release_time = 60
    lock.extend()
    assert 50 < lock.locked() < 60
    lock.auto_release_time = 20
    lock.extend()
    assert 50 < lock.locked() < 60
    forget(valkey)
    with pytest.raises(pottery.ExtendUnlockedLock):
        lock.extend()  # the masters are asked


def test_pottery_contexts(valkey: Masters, options: Options) -> None:
    with printer(valkey, options):
        for settings in ({"context_manager_timeout": 0.05}, {"context_manager_blocking": False}):
            with pytest.raises(pottery.QuorumNotAchieved), printer(valkey, options, **settings):
                raise AssertionError("the body runs unlocked")
    with pytest.raises(ZeroDivisionError):
        lose_and_fail(printer(valkey, options), valkey)
    with pytest.raises(ValueError, match="context_manager_timeout"):
        printer(valkey, options, context_manager_blocking=False, context_manager_timeout=1)


def test_pottery_says_that_masters_are_down_if_asked(options: Options) -> None:
    down = pottery.Redlock(key="r", masters=set(DEAD), **impatient(options))
    assert down.acquire() is False
    with pytest.raises(pottery.QuorumIsImpossible, match=":1/0") as caught:
        down.acquire(raise_on_redis_errors=True)
    assert len(caught.value.redis_errors) == 3
    loud = pottery.Redlock(key="r", masters=set(DEAD), raise_on_redis_errors=True, **impatient(options))
    with pytest.raises(pottery.QuorumIsImpossible), loud:
        raise AssertionError("the body runs unlocked")


def test_pottery_says_so_in_extend_and_release_too(options: Options) -> None:
    """Its own errors: what the caller of the original catches."""
    for loud in (False, True):
        with Masters(1, server="valkey") as masters:
            settings = {"auto_release_time": 60, **impatient(options), "raise_on_redis_errors": loud}
            lock = pottery.Redlock(key="r", masters=set(masters.urls), **settings)
            eventually(lock.acquire, "the master is connected, which may take longer than the timeout")
            lock.release()
            with pytest.raises(pottery.ReleaseUnlockedLock):
                lock.release()
            assert lock.acquire()
        for attempt, quiet in (
            (lock.extend, pottery.ExtendUnlockedLock),
            (lock.release, pottery.ReleaseUnlockedLock),
        ):
            with pytest.raises(pottery.QuorumIsImpossible if loud else quiet) as caught:
                attempt()
            assert caught.value.redis_errors


def test_pottery_synchronize(valkey: Masters, options: Options) -> None:
    inside, most = 0, []
    counting = threading.Lock()

    @pottery.synchronize(key="function", masters=set(valkey.urls), auto_release_time=60, **options)
    def work(number: int) -> int:
        """Its words."""
        nonlocal inside
        with counting:
            inside += 1
            most.append(inside)
        with counting:
            inside -= 1
        return number

    assert work.__doc__ == "Its words."
    futures = [start(lambda number=number: work(number)) for number in range(8)]
    assert sorted(future.result(DEADLINE) for future in futures) == list(range(8))
    assert most == [1] * 8
    held = pottery.Redlock(key="function", masters=set(valkey.urls), **options)
    settings = {"masters": set(valkey.urls), **options}
    with held, pytest.raises(pottery.QuorumNotAchieved):
        pottery.synchronize(key="function", timeout=0.05, **settings)(lambda: None)()


def test_one_object_among_threads_is_a_lock_among_them(valkey: Masters, options: Options) -> None:
    """As a threading.Lock would be: the second thread waits; no token is overwritten."""
    lock = printer(valkey, options, auto_release_time=60)
    assert lock.acquire()
    waiting = start(lock.acquire)
    assert not waiting.done()
    assert lock.acquire(blocking=False) is False
    lock.release()
    assert waiting.result(DEADLINE) is True
    assert lock.locked()
    lock.release()
    nothing_left(valkey)


# --- lock_class= of redis-py and valkey-py ------------------------------------------------------------


@pytest.fixture(params=[redis, valkey_py], ids=["redis-py", "valkey-py"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_lock_class(valkey: Masters, options: Options, library: Any) -> None:
    kind = redis_py.lock_class(valkey.urls, **options)
    errors = library.exceptions
    with getattr(library, library.__name__.title())(port=1) as client:  # no server, and no request
        lock = client.lock("r", timeout=60, lock_class=kind)
        other = client.lock("r", timeout=60, blocking_timeout=0, lock_class=kind)
        for nothing in (lock.release, lock.reacquire, lambda: lock.extend(1)):
            with pytest.raises(errors.LockError, match="not locked"):
                nothing()
        assert not lock.locked()
        assert lock.acquire() is True
        assert other.acquire(blocking=False) is False
        assert other.acquire() is False
        assert (lock.owned(), other.owned(), other.locked()) == (True, False, True)
        with pytest.raises(errors.LockError, match="not acquired"), other:
            raise AssertionError("the body runs unlocked")
        assert lock.extend(30) is True
        assert lock.reacquire() is True
        forget(valkey)
        with pytest.raises(errors.LockNotOwnedError):
            lock.extend(110, replace_ttl=True)
        with pytest.raises(errors.LockNotOwnedError):
            lock.release()
        with pytest.raises(errors.LockError):
            lock.release()
        with other:
            assert other.owned()
        nothing_left(valkey)


@pytest.mark.parametrize("thread_local", [True, False])
def test_lock_class_has_the_token(valkey: Masters, options: Options, raw: Raw, thread_local: bool) -> None:
    """``local.token`` is what the masters have. With it another object may extend and release."""
    kind = redis_py.lock_class(valkey.urls, **options)
    lock = kind(redis.Redis, "r", timeout=60, thread_local=thread_local)
    other = kind(redis.Redis, "r", timeout=60, thread_local=thread_local)
    assert lock.local.token is None
    assert lock.acquire()
    assert [node.get("r") for node in raw(valkey)].count(lock.local.token) >= 3
    assert start(lambda: lock.local.token).result(DEADLINE) == (None if thread_local else lock.local.token)
    other.local.token = "wrong"
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        other.extend(100, replace_ttl=True)
    other.local.token = lock.local.token.decode()
    assert other.extend(100, replace_ttl=True)
    assert sum(int(node.pttl("r")) > 60_000 for node in raw(valkey)) >= 3
    assert other.owned()
    other.release()
    assert other.local.token is None
    nothing_left(valkey)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()


def test_lock_class_takes_no_token(valkey: Masters, options: Options) -> None:
    """A failed acquire takes its token back: with the token of the holder it would free the lock."""
    lock = redis_py.lock_class(valkey.urls, **options)(redis.Redis, "r", timeout=60)
    with pytest.raises(ValueError, match="token"):
        lock.acquire(token="mine")
    lock.local.token = []
    with pytest.raises(ValueError, match="token"):
        lock.release()


def test_lock_class_has_the_names_of_redis_py(valkey: Masters, options: Options, raw: Raw) -> None:
    kind = redis_py.lock_class(valkey.urls, **options)
    for name, key in ((5, b"5"), (2.5, b"2.5"), (memoryview(b"view"), b"view"), (bytearray(b"a"), b"a")):
        lock = kind(redis.Redis, name, timeout=60)
        with lock:
            assert lock.name is name
            assert lock.locked()
            assert sum(node.exists(key) for node in raw(valkey)) >= 3
    nothing_left(valkey)


def test_lock_class_counts_as_redis_py_does(valkey: Masters, options: Options, raw: Raw) -> None:
    """No time left is one attempt, ``timeout=0`` is none, and no lease is longer than all clients promise."""
    kind = redis_py.lock_class(valkey.urls, ttl=2.0, **options)
    lock, late = kind(redis.Redis, "r", timeout=60), kind(redis.Redis, "r", blocking_timeout=-3)
    assert late.acquire()
    late.release()
    assert lock.acquire()
    assert late.acquire() is False
    assert late.acquire(blocking_timeout=-1) is False
    assert lock.extend(100)
    assert sum(105_000 < int(node.pttl("r")) <= 120_000 for node in raw(valkey)) >= 3
    for attempt in (lambda: lock.extend(121, replace_ttl=True), lambda: lock.extend(-1000)):
        with pytest.raises(redis.exceptions.LockError, match="ttl"):
            attempt()
    lock.release()
    endless = kind(redis.Redis, "r", timeout=0)
    with endless:
        assert endless._held().ttl == 2.0
        with pytest.raises(redis.exceptions.LockError, match="no timeout"):
            endless.extend(1)
        with pytest.raises(redis.exceptions.LockError, match="no timeout"):
            endless.reacquire()
    nothing_left(valkey)


def test_lock_class_takes_no_scripts_but_those_that_it_can_honour(valkey: Masters, options: Options) -> None:
    lock = redis_py.lock_class(valkey.urls, **options)(redis.Redis, "r", timeout=60)
    assert (lock.lua_extend, lock.lua_release, lock.lua_reacquire) == (None, None, None)
    for script in (redis.lock.Lock.LUA_EXTEND_SCRIPT, "return 1", None):
        with pytest.raises(ValueError, match="lua_extend"):
            lock.lua_extend = script
    for name in ("lua_release", "lua_reacquire"):
        with pytest.raises(AttributeError):
            setattr(lock, name, "return 1")


def test_lock_class_extends_by_what_is_added(valkey: Masters, options: Options, raw: Raw) -> None:
    kind = redis_py.lock_class(valkey.urls, **options)
    lock = kind(redis.Redis, "r", timeout=20)
    with lock:
        lock.extend(20)
        assert sum(20_000 < int(node.pttl("r")) <= 41_000 for node in raw(valkey)) >= 3
        lock.extend(50, replace_ttl=True)
        assert sum(41_000 < int(node.pttl("r")) <= 50_000 for node in raw(valkey)) >= 3


def test_lock_class_without_a_timeout_lasts(valkey: Masters, options: Options) -> None:
    """For as long as it is held: it is extended, and it ends with its process."""
    kind = redis_py.lock_class(valkey.urls, ttl=2 * SHORT / 1000, **options)
    lock = kind(redis.Redis, "r")
    with lock:
        lease = lock._held()._lease
        assert lease is not None
        eventually(lambda: lease.extensions > 0, "it is extended")
        with pytest.raises(redis.exceptions.LockError, match="no timeout"):
            lock.extend(1)
    nothing_left(valkey)


def test_lock_class_belongs_to_a_thread_unless_it_may_not(valkey: Masters, options: Options) -> None:
    kind = redis_py.lock_class(valkey.urls, **options)
    own, free = (
        kind(redis.Redis, "own", timeout=60),
        kind(redis.Redis, "free", timeout=60, thread_local=False),
    )
    assert own.acquire()
    assert free.acquire()
    with pytest.raises(redis.exceptions.LockError):
        start(own.release).result(DEADLINE)
    assert start(own.owned).result(DEADLINE) is False
    start(free.release).result(DEADLINE)
    own.release()
    nothing_left(valkey)


def test_lock_class_says_what_went_wrong(valkey: Masters, options: Options, library: Any) -> None:
    errors = library.exceptions
    client = getattr(library, library.__name__.title())
    down = redis_py.lock_class(DEAD, **impatient(options))(client(port=1), "r", timeout=60)
    for attempt in (down.acquire, down.locked, lambda: down.acquire(blocking_timeout=0.05)):
        with pytest.raises(errors.ConnectionError, match=":1/0"):
            attempt()
    kind = redis_py.lock_class(valkey.urls, **options)
    quiet = kind(client(port=1), "r", timeout=60, raise_on_release_error=False)
    with quiet:
        forget(valkey)
    with pytest.raises(errors.LockNotOwnedError), kind(client(port=1), "r", timeout=60):
        forget(valkey)
    assert quiet.acquire()
    forget(valkey)
    with pytest.raises(errors.LockError) as caught:
        quiet.extend(1)
    assert caught.value.lock_name == "r"
