"""The bookkeeping of reentrant locks, over scripted locks: the owner, the depth, the requests."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import DEADLINE, start

from redlock_fast import ConfigError, FastRedlock, LockLost
from redlock_fast.algorithm.local_queue import LocalQueue
from redlock_fast.locks.owners import ThreadOwner
from redlock_fast.locks.rlock import MAX_DEPTH, RLock

TTL = 10.0


class ScriptedLock:
    """A lock of which the test says how long it lasts, and what comes of its calls."""

    def __init__(self, world: World, ttl: float) -> None:
        self.world = world
        self.key = b"r"
        self.ttl = ttl
        self.left = 0.0
        self.token, self.fencing_token, self.validity = b"t", 7, ttl

    def _record(self, what: str) -> None:
        self.world.calls.append(what)
        error = self.world.errors.pop(what, None)
        if error is not None:
            raise error

    @property
    def _lease(self) -> object:
        return self.left or None

    def acquire(self, blocking: bool, timeout: float) -> bool:
        self._record("acquire")
        self.left = self.ttl if self.world.free else 0.0
        return self.world.free

    def __enter__(self) -> ScriptedLock:
        self._record("enter")
        self.left = self.ttl
        return self

    def __exit__(self, *_: object) -> None:
        self.left = 0.0
        self._record("exit")

    def release(self) -> bool:
        self._record("release")
        alive, self.left = self.locked(), 0.0
        return alive

    def extend(self, ttl: float, *, confirm: bool = False) -> float:
        self._record(f"extend {ttl:g}")
        self.left = ttl
        return ttl

    def remaining(self) -> float:
        return self.left

    def locked(self) -> bool:
        return self.left > 0.0

    def check(self) -> None:
        if not self.locked():
            raise LockLost("lost")

    def _waiting_time(self, blocking: bool, timeout: float) -> None:
        if not blocking and timeout != -1:
            raise ConfigError("timeout")


class World:
    """What all locks of a test share."""

    def __init__(self) -> None:
        self.free = True
        self.calls: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.made: list[weakref.ref[ScriptedLock]] = []
        client_state = SimpleNamespace(mutex=threading.RLock(), generation=lambda: 0)
        self.core: Any = SimpleNamespace(
            client_state=client_state,
            drift_factor=0.0,
            check_ttl=float,
            policy=SimpleNamespace(clock=lambda: 0.0),
            masters=SimpleNamespace(turns=LocalQueue()),
        )

    def make(self, resource: str, ttl: float | None = None, **options: Any) -> ScriptedLock:
        made = ScriptedLock(self, TTL if ttl is None else ttl)
        self.made.append(weakref.ref(made))
        return made

    def rlock(self, min_validity: float = 0.0) -> RLock:
        options: dict[str, Any] = {"on_lost": None}
        return RLock(self.core, self.make, "r", None, min_validity, options, ThreadOwner())

    @property
    def last(self) -> ScriptedLock:
        found = self.made[-1]()
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    return World()


def elsewhere(call: Callable[[], Any]) -> Any:
    """In another thread, which has ended when this returns."""
    return start(call).result(DEADLINE)


def test_only_the_first_acquire_and_the_last_release_reach_the_lock(world: World) -> None:
    lock = world.rlock()
    assert lock.acquire()
    with lock, lock:
        assert lock.acquire()
        assert lock.depth == 4
        assert lock.release() is True
    assert lock.release() is True
    assert world.calls == ["acquire", "release"]
    assert lock.depth == 0
    assert not lock.locked()


def test_with_reaches_the_lock_as_with(world: World) -> None:
    with world.rlock() as lock, lock:
        pass
    assert world.calls == ["enter", "exit"]


def test_all_levels_have_one_token(world: World) -> None:
    lock = world.rlock()
    assert (lock.token, lock.fencing_token, lock.validity, lock.remaining()) == (None, None, 0.0, 0.0)
    with lock, lock:
        assert (lock.token, lock.fencing_token, lock.validity, lock.remaining()) == (b"t", 7, TTL, TTL)
        lock.check()
        assert "depth 2" in repr(lock)
    assert "not held" in repr(lock)


def test_what_is_refused_is_not_entered(world: World) -> None:
    world.free = False
    lock = world.rlock()
    assert lock.acquire() is False
    assert lock.depth == 0


def test_threads_own_for_themselves(world: World) -> None:
    lock = world.rlock()
    assert lock.acquire()

    def other() -> None:
        assert lock.depth == 0
        assert not lock.locked()
        with pytest.raises(RuntimeError, match="has not acquired"):
            lock.release()
        with pytest.raises(RuntimeError), lock:
            lock.release()
        with pytest.raises(LockLost):
            lock.check()
        with pytest.raises(LockLost):
            lock.extend()

    elsewhere(other)
    assert lock.depth == 1


def test_a_thread_that_ends_leaves_nothing_to_the_next_one(world: World) -> None:
    """Which may get the same ident; the inner lock is dropped, and not renewed any more."""
    lock = world.rlock()
    idents = set()

    def leave() -> None:
        idents.add(threading.get_ident())
        assert lock.depth == 0
        assert lock.acquire()
        assert lock.depth == 1

    for _ in range(20):
        elsewhere(leave)
    gc.collect()
    assert not any(made() for made in world.made), "what the threads held is still there"


def test_an_unreferenced_lock_keeps_nothing(world: World) -> None:
    lock = world.rlock()
    lock.acquire()
    lock.owned_by("another owner").acquire()
    del lock
    assert not any(made() for made in world.made)


def test_a_name_owns_in_any_thread(world: World) -> None:
    lock = world.rlock()
    job = lock.owned_by("job 7")
    assert job.acquire()
    assert lock.depth == 0
    assert lock.owned_by("job 8").depth == 0
    assert elsewhere(lambda: lock.owned_by("job 7").acquire())
    assert job.depth == 2
    assert elsewhere(lambda: lock.owned_by("job 7").release())
    assert job.release()
    assert world.calls == ["acquire", "release"]
    assert not lock._names, "names are kept only while they own"
    with pytest.raises(TypeError):
        lock.owned_by([])


def test_a_name_of_which_one_thread_leaves_while_another_enters(world: World) -> None:
    """It is entered or it is not: no thread enters what is being released."""
    lock = world.rlock()
    job = lock.owned_by("job")
    job.acquire()
    hold = job._require_owned()
    assert job._decrement(hold, [None])
    with pytest.raises(LockLost, match="released by another"):
        job._increment(hold, [None])
    assert job.acquire(), "with a lock of its own"
    job._drop(hold.lock)
    assert job.depth == 1


def test_a_name_whose_next_level_begins_in_the_midst_of_a_release(world: World) -> None:
    """Another thread acquires it where it can: the lease has ended. Catches: its ownership is dropped."""
    job = world.rlock().owned_by("job")
    acquired: list[bool] = []

    class Ownerships(dict[Any, Any]):
        def get(self, name: Any, default: Any = None) -> Any:
            found = super().get(name, default)
            if found is not None and not found.depth and not acquired and not mutex._is_owned():
                acquired.append(True)
                acquired.append(elsewhere(job.acquire))
            return found

    mutex = world.core.client_state.mutex
    job._owner._ownerships = Ownerships()
    job.acquire()
    assert job.release()
    assert acquired in ([], [True, True])
    assert job.depth == len(acquired[1:])
    assert job.acquire()
    assert job.depth == 1 + len(acquired[1:])


def test_a_child_of_fork_owns_nothing(world: World) -> None:
    lock = world.rlock()
    lock.acquire()
    world.core.client_state.generation = lambda: 1
    assert lock.depth == 0
    assert lock.token is None
    with pytest.raises(RuntimeError, match="fork"):
        lock.release()
    assert lock.acquire()
    assert lock.depth == 1


def test_a_lost_lock_is_not_entered_again(world: World) -> None:
    lock = world.rlock(min_validity=1.0)
    lock.acquire()
    world.last.left = 0.0
    for enter in (lock.acquire, lock.__enter__, lambda: lock.acquire(ttl=TTL)):
        with pytest.raises(LockLost):
            enter()
    assert lock.depth == 1
    assert world.calls == ["acquire"], "no I/O under an outer level that believes in the lock"
    assert lock.release() is False
    assert lock.acquire(), "again, now that no outer level is left"


def test_a_level_that_ends_after_the_lease_says_so(world: World) -> None:
    lock = world.rlock()
    with lock:
        with pytest.raises(LockLost), lock:
            world.last.left = 0.0
        with pytest.raises(ZeroDivisionError), lock_again(lock, world):
            raise ZeroDivisionError
    assert lock.depth == 0


def lock_again(lock: RLock, world: World) -> RLock:
    world.last.left = 1.0
    return lock


def test_a_longer_ttl_extends_and_leaving_never_shortens(world: World) -> None:
    lock = world.rlock()
    lock.acquire()
    lock.acquire(ttl=30.0)
    assert world.calls == ["acquire", "extend 30"]
    lock.acquire(ttl=20.0)
    lock.release()
    lock.release()
    assert lock.remaining() == 30.0
    assert world.calls == ["acquire", "extend 30"], "what lasts longer than asked for is left as it is"
    lock.release()
    lock.acquire(ttl=5.0)
    assert lock.remaining() == 5.0


def test_min_validity_extends(world: World) -> None:
    lock = world.rlock(min_validity=4.0)
    lock.acquire()
    world.last.left = 4.0
    with lock:
        assert world.calls == ["acquire"]
    world.last.left = 3.9
    with lock:
        assert world.calls == ["acquire", "extend 10"]
        assert lock.extend(11.0) == 11.0
    with pytest.raises(ConfigError, match="min_validity"):
        world.rlock(min_validity=10.0)


def test_an_extension_that_fails_does_not_enter(world: World) -> None:
    lock = world.rlock()
    lock.acquire()
    world.errors["extend 30"] = LockLost("lost")
    with pytest.raises(LockLost):
        lock.acquire(ttl=30.0)
    assert lock.depth == 1


def test_bad_times_are_refused_at_any_level(world: World) -> None:
    lock = world.rlock()
    lock.acquire()
    with pytest.raises(ConfigError):
        lock.acquire(blocking=False, timeout=1.0)
    assert lock.depth == 1
    assert lock.acquire(blocking=False)


def test_there_is_a_bottom(world: World) -> None:
    lock = world.rlock()
    for _ in range(MAX_DEPTH):
        assert lock.acquire()
    with pytest.raises(RecursionError, match="1000 times"):
        lock.acquire()
    for _ in range(MAX_DEPTH):
        assert lock.release()
    assert world.calls == ["acquire", "release"]


@pytest.mark.parametrize("what", ["acquire", "enter", "exit", "release"])
def test_what_is_interrupted_leaves_nothing(world: World, what: str) -> None:
    world.errors[what] = KeyboardInterrupt()
    lock = world.rlock()

    def use() -> None:
        if what in ("acquire", "release"):
            lock.acquire()
            lock.release()
        else:
            with lock:
                pass

    with pytest.raises(KeyboardInterrupt):
        use()
    assert lock.depth == 0
    assert lock._owner.get() is None
    assert not any(made and made.left for made in (made() for made in world.made)), "one is still held"


@pytest.mark.parametrize("verb", ["acquire", "release", "__enter__", "__exit__"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_memory_runs_out(world: World, verb: str, depth: int) -> None:
    """At each allocation of a call. Catches: a level whose note needs memory, after the level has changed."""
    limits = pytest.importorskip("_testcapi")
    enters = verb in ("acquire", "__enter__")
    arguments: list[Any] = [None, None, None] if verb == "__exit__" else []
    failed = 0
    for allocation in range(200):
        lock = world.rlock()
        for _ in range(depth):
            lock.acquire()
        inner, call = world.last, getattr(lock, verb)
        error = None
        limits.set_nomemory(allocation, allocation + 1)
        try:
            call(*arguments)
        except MemoryError as raised:
            error = raised
        finally:
            limits.remove_mem_hooks()
        failed += error is not None
        expected = depth - 1 if not enters else depth if error else depth + 1
        assert lock.depth == expected, f"at allocation {allocation}"
        assert inner.locked() == (expected > 0), f"at allocation {allocation}"
        del inner
    assert failed or not enters


def test_an_interrupt_between_the_grant_and_its_note(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = world.rlock()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock, "_keep", interrupt)
    for enter in (lock.acquire, lock.__enter__):
        world.calls.clear()
        with pytest.raises(KeyboardInterrupt):
            enter()
        assert world.calls[-1] == "release"
        assert lock.depth == 0


def test_on_lost_gets_the_reentrant_lock(engine_name: str) -> None:
    losses: list[tuple[Any, str]] = []
    with FastRedlock(["redis://127.0.0.1:1"], engine=engine_name) as client:
        lock = client.rlock("r", auto_extend=True, on_lost=lambda *loss: losses.append(loss))
        lock._options["on_lost"]("the lock within", "why")
        lock.owned_by("me")._options["on_lost"]("the lock within", "why")
        assert losses == [(lock, "why")] * 2
        tell = lock._options["on_lost"]
        del lock
        losses.clear()
        gc.collect()
        tell("the lock within", "why")
        assert losses == [("the lock within", "why")]


def test_bad_settings_show_at_once(engine_name: str) -> None:
    with FastRedlock(["redis://127.0.0.1:1"], engine=engine_name) as client:
        for bad in ({"ttl": -1.0}, {"timeout": -2.0}, {"on_lost": print}, {"min_validity": -1.0}):
            with pytest.raises(ConfigError, match=next(iter(bad)) if "on_lost" not in bad else "auto_extend"):
                client.rlock("r", **bad)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"rlock\(\) has no option 'nonsense'; it has: .*min_validity"):
            client.rlock("r", nonsense=1)
        with pytest.raises(ConfigError):
            client.rlock("")
