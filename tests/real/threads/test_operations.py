"""Operations of locks for threads: one exchange decides most of them, and a signal may end any of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any
from unittest.mock import Mock, call

import pytest
from support.clocks import Jumping
from support.inside import core_of
from support.interruptions import interrupted, lose_another_lock
from support.keys import OTHER_CLIENT, TTL, calls, nothing_left, occupy, paused, sizes, values, wipe
from support.makers import MakeClient, Raw
from support.moments import at_moment
from support.one_exchange import one_exchange
from support.waiting import DEADLINE, eventually, start

from redlock_fast import (
    AsyncFastRedlock,
    ClientClosed,
    Contended,
    FastRedlock,
    Lock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    Retry,
)
from redlock_fast.embedded import Masters
from redlock_fast.exporters.instrument import instrument
from redlock_fast.locks.procedures import entered
from redlock_fast.threads import client as threads_client
from redlock_fast.threads import lock as threads_lock
from redlock_fast.threads import operations

#: A client does not ask a master that lags.
pytestmark = pytest.mark.usefixtures("all_masters")

ALL = range(5)
URLS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


#: A measured lock has methods around those of `Lock`.
measured_or_not = pytest.mark.parametrize("measured", [False, True], ids=["", "measured"])


class Ignores:
    """A recorder."""

    slower_than = 0.0

    def record(self, *_: object) -> None: ...

    def held(self, *_: object) -> None: ...


def with_recorder(client: FastRedlock, measured: bool) -> FastRedlock:
    if measured:
        instrument(client, Ignores())
    return client


@contextlib.contextmanager
def asked(valkey: Masters, lock: Lock, blocking: bool = False, timeout: float = -1) -> Iterator[Future[bool]]:
    """The first attempt, while it waits for the masters; they answer after the block."""
    link = lock._core.masters.engine.connection_state
    with paused(valkey, *ALL):
        owed = [link(master).pending for master in ALL]
        attempt = start(lambda: lock.acquire(blocking, timeout))
        eventually(lambda: all(link(master).pending > owed[master] for master in ALL), "all are asked")
        yield attempt


def reusable(lock: Lock) -> None:
    """Whatever came of an attempt, there can be another one."""
    assert not lock.locked()
    assert lock.acquire() is True
    assert lock.release() is True


def test_a_failed_with_keeps_the_lock_of_another_thread(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquired the same object while this thread asked the masters for the holder."""
    c = connected(valkey)
    lock, holder = c.lock("k", TTL, timeout=0), c.lock("k", TTL)
    assert holder.acquire()

    def acquired_before(failed: Lock, outcome: Any) -> Generator[Any, Any, None]:
        assert holder.release()
        assert start(lock.acquire).result(DEADLINE)
        yield from entered(failed, outcome)

    monkeypatch.setattr("redlock_fast.threads.lock.entered", acquired_before)
    with pytest.raises(Contended), lock:
        pass
    assert lock.locked()
    assert lock.release()


@pytest.mark.parametrize("way", ["acquire", "with"])
def test_an_interrupted_failure_keeps_the_lock_of_another_thread(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It acquired the same object after this thread had failed. Catches: a release of its lock."""
    c = connected(valkey)
    lock, holder = c.lock("k", TTL, timeout=0), c.lock("k", TTL)
    assert holder.acquire()

    def interrupt(*_: Any) -> Any:
        assert holder.release()
        assert start(lock.acquire).result(DEADLINE)
        raise KeyboardInterrupt

    if way == "with":
        monkeypatch.setattr("redlock_fast.threads.lock.entered", interrupt)
    else:
        monkeypatch.setattr(Lock, "_acquired", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire() if way == "acquire" else lock.__enter__()
    assert lock.locked()
    assert lock.release()


@measured_or_not
@pytest.mark.parametrize("way", ["acquire", "with"])
def test_an_interrupt_keeps_the_lock_that_another_thread_has(
    valkey: Masters, connected: MakeClient, way: str, measured: bool
) -> None:
    """At each moment of a call that finds the object held. Catches: a release of what it holds."""
    lock = with_recorder(connected(valkey), measured).lock("k", TTL)
    assert start(lock.acquire).result(DEADLINE)

    def again() -> None:
        with contextlib.suppress(LockAlreadyHeld):
            lock.acquire() if way == "acquire" else lock.__enter__()

    for number in range(1000):
        moment = interrupted(again, number)
        assert lock.locked(), moment
        if moment is None:
            break
    assert number > 5
    assert lock.release()


#: Where no thread has the mutex of the client.
INSIDE = ("threads", "locks/procedures.py", "locks/operations.py", "exporters/instrument.py")


@measured_or_not
@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}], ids=["no end", "timeout"])
@pytest.mark.parametrize("way", ["acquire", "with"])
def test_an_interrupt_keeps_the_lock_that_another_thread_acquires(
    valkey: Masters, connected: MakeClient, way: str, options: dict[str, float], measured: bool
) -> None:
    """At each moment of a call, in the handler. Catches: a release of what the call was not granted."""
    c, kept = with_recorder(connected(valkey), measured), 0
    for number in range(1000):
        lock = c.lock("k", TTL, **options)  # type: ignore[arg-type]
        others: list[bool] = []

        def acquire_it(lock: Lock = lock, others: list[bool] = others) -> None:
            with contextlib.suppress(LockAlreadyHeld):
                others.append(start(partial(lock.acquire, blocking=False)).result(DEADLINE))

        call = lock.acquire if way == "acquire" else lock.__enter__
        moment = interrupted(call, number, spared=WHOLE, inside=INSIDE, handler=acquire_it)
        if moment is None:
            break
        assert lock.locked() is (others == [True]), moment
        assert not lock._bodies
        kept += lock.release()
        nothing_left(valkey)
    assert kept > 0


def outlive_lease(lock: Lock, clock: Jumping, valkey: Masters) -> None:
    """Enter ``lock``. Its body goes on when the lease has ended, and no master has the key."""
    lock.__enter__()
    clock.jump(TTL + 1)
    assert all(master.ask("DEL k") for master in valkey)


def elsewhere(call: Callable[[], Any]) -> Any:
    """The result of ``call`` in another thread."""
    return start(call).result(DEADLINE)


def leave(lock: Lock) -> None:
    with contextlib.suppress(LockLost):
        lock.__exit__(None, None, None)


@pytest.mark.parametrize("way", ["no end", "timeout"])
def test_the_end_of_with_keeps_the_lease_of_a_body_that_begins(
    valkey: Masters, connected: MakeClient, way: str
) -> None:
    """At each moment of its begin in another thread. Catches: a body whose lease is released."""
    clock = Jumping()
    c = connected(valkey, clock=clock)
    files = threads_lock.__file__, operations.__file__
    number, found = 0, True
    while found:
        lock = c.lock("k", TTL, timeout=5.0 if way == "timeout" else None)
        outlive_lease(lock, clock, valkey)
        end = partial(elsewhere, partial(leave, lock))
        found = elsewhere(partial(at_moment, number, lock.__enter__, end, files.__contains__))
        assert lock.locked(), number
        assert lock.release()
        nothing_left(valkey)
        number += 1
    assert number > 1


def test_the_end_of_with_keeps_a_lease_that_is_granted_during_it(
    valkey: Masters, connected: MakeClient
) -> None:
    """At each moment of the end. Catches: a release of what the object holds by then."""
    clock = Jumping()
    c = connected(valkey, clock=clock)
    number, found = 0, True
    while found:
        lock = c.lock("k", TTL)
        outlive_lease(lock, clock, valkey)
        enter = partial(elsewhere, lock.__enter__)
        found = at_moment(number, partial(leave, lock), enter, threads_lock.__file__.__eq__)
        assert lock.release() is found, number
        nothing_left(valkey)
        number += 1
    assert number > 1


@measured_or_not
def test_an_interrupted_end_keeps_the_lease_of_another_body(
    valkey: Masters, connected: MakeClient, measured: bool
) -> None:
    """At each moment of the end of a body whose lease had ended. Catches: a release of the other's lease."""
    clock = Jumping()
    c = with_recorder(connected(valkey, clock=clock), measured)
    for number in range(1000):
        lock = c.lock("k", TTL)
        outlive_lease(lock, clock, valkey)
        assert elsewhere(lock.__enter__) is lock
        inside = *INSIDE, "locks/lock_state.py"
        moment = interrupted(partial(leave, lock), number, inside=inside)
        assert lock.locked(), moment
        assert lock.release()
        nothing_left(valkey)
        if moment is None:
            break
    assert number > 2


@measured_or_not
@pytest.mark.parametrize("options", [{}, {"auto_extend": True}], ids=["plain", "auto_extend"])
def test_a_handler_that_finds_another_lock_lost(
    valkey: Masters, connected: MakeClient, options: dict[str, bool], measured: bool
) -> None:
    """At each moment of the end. Catches: an end that takes its LockLost for that of the body's lease."""
    c = with_recorder(connected(valkey), measured)
    for number in range(1, 1000):  # not before its first step
        lock = c.lock("k", TTL, **options)  # type: ignore[arg-type]
        lock.__enter__()
        end = partial(lock.__exit__, None, None, None)
        moment = interrupted(end, number, spared=WHOLE, handler=lose_another_lock)
        assert not lock.locked(), moment
        nothing_left(valkey)
        if moment is None:
            break
    assert number > 1


def test_an_interrupted_end_leaves_no_body(valkey: Masters, connected: MakeClient) -> None:
    """Another thread ends the next body. Catches: an end that takes an old body for its own."""
    c = connected(valkey)
    for number in range(1, 1000):  # not before its first step
        lock = c.lock("k", TTL)
        leave = partial(lock.__exit__, None, None, None)
        lock.__enter__()
        moment = interrupted(leave, number, spared=WHOLE)
        assert not lock.locked(), moment
        lock.__enter__()
        start(leave).result(DEADLINE)
        assert not lock.locked(), moment
        nothing_left(valkey)
        if moment is None:
            break
    assert number > 1


def test_an_interrupted_release_keeps_the_lease_of_another_thread(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquired the same object after the lease had ended, while the release was undone."""
    clock = Jumping()
    c = connected(valkey, clock=clock)
    lock = c.lock("k", TTL)
    assert lock.acquire()
    exchange = core_of(c).masters.engine.exchange

    def later(*args: Any) -> Any:
        monkeypatch.undo()
        clock.jump(TTL + 1)
        assert all(master.ask("DEL k") for master in valkey)
        assert start(lock.acquire).result(DEADLINE)
        return exchange(*args)

    interrupted_once = Mock(side_effect=[KeyboardInterrupt, later])
    monkeypatch.setattr(core_of(c).masters, "engine", Mock(exchange=lambda *args: interrupted_once()(*args)))
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert lock.locked()
    assert lock.release()
    nothing_left(valkey)


@pytest.mark.parametrize("ready", [True, False], ids=["connected", "not connected"])
def test_an_interrupted_release_of_a_token_releases_it(
    valkey: Masters, connected: MakeClient, client: MakeClient, ready: bool
) -> None:
    """At each moment since it has begun. Catches: a release that undoes nothing while the client connects."""
    owner = connected(valkey)
    for number in range(1000):
        held = owner.lock("k", TTL)
        assert held.acquire()
        lock = (connected if ready else client)(valkey).lock("k", TTL, token=held.detach())
        handover: Any = lock._handover
        moment = interrupted(lock.release, number, spared=WHOLE, inside=INSIDE)
        if not handover.released or not lock._core.masters.connector.started:
            lock.release()  # False if what was deferred was sent before
        nothing_left(valkey)
        if moment is None:
            break
    assert number > LEAST


def test_an_interrupted_take_over_is_renewed_or_not_begun(valkey: Masters, connected: MakeClient) -> None:
    """At each moment of extend(). Catches: a lock that is held, is not renewed and reports no loss."""
    owner, c = connected(valkey), connected(valkey)
    for number in range(1000):
        held = owner.lock("k", TTL)
        assert held.acquire()
        lock = c.lock("k", TTL, token=held.detach(), auto_extend=True)
        moment = interrupted(lock.extend, number, spared=WHOLE)
        assert len(core_of(c).renewal().schedule) == lock.locked(), moment
        assert lock.extend() > 0
        assert len(core_of(c).renewal().schedule) == lock.locked() == 1, moment
        assert lock.release()
        nothing_left(valkey)
        if moment is None:
            break
    assert number > 5


def test_an_interrupted_release_of_many_keeps_the_lease_of_another_thread(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquired the same object after the release. Catches: a second release."""
    c = connected(valkey)
    locks = [lock for lock in c.acquire_many(["a", "b"], TTL) if lock]

    def interrupt(*args: Any) -> Any:
        monkeypatch.undo()
        run(*args)
        assert start(locks[0].acquire).result(DEADLINE)
        raise KeyboardInterrupt

    run = threads_client.run
    monkeypatch.setattr(threads_client, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        c.release_many(locks)
    assert [lock.locked() for lock in locks] == [True, False]
    assert locks[0].release()
    nothing_left(valkey)


def test_an_interrupted_end_keeps_the_lock_of_another_thread(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquired the same object after the release. Catches: a second release."""
    lock = connected(valkey).lock("k", TTL)

    def interrupt(*_: Any, **__: Any) -> Any:
        assert start(lock.acquire).result(DEADLINE)
        raise KeyboardInterrupt

    monkeypatch.setattr(Lock, "_left", interrupt)
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    assert lock.locked()
    assert lock.release()


def test_a_former_lease_that_has_ended(valkey: Masters, connected: MakeClient) -> None:
    """The next acquire finds it before the renewal does. Catches: a loss that is not reported."""
    clock = Jumping()
    c = connected(valkey, clock=clock)
    losses: list[str] = []
    lock = c.lock("k", TTL, auto_extend=True, on_lost=lambda _, reason: losses.append(reason))
    renewal = core_of(c).renewal()
    assert lock.acquire()
    with renewal.mutex:  # the thread of the renewal finds the loss too late
        clock.jump(TTL + 1)
        assert all(master.ask("DEL k") for master in valkey)
        assert lock.acquire()
    eventually(lambda: losses, "the loss is reported")
    assert lock.locked()
    assert lock.release()


def test_the_end_of_with_keeps_the_lease_of_another_body(valkey: Masters, connected: MakeClient) -> None:
    """Another thread entered the object after the lease had ended. Catches: a release of its lease."""
    clock = Jumping()
    lock = connected(valkey, clock=clock).lock("k", TTL)

    def enter_later() -> None:
        clock.jump(TTL + 1)
        assert all(master.ask("DEL k") for master in valkey)
        assert start(lock.__enter__).result(DEADLINE) is lock

    with pytest.raises(LockLost), lock:
        enter_later()
    assert lock.locked()
    lock.__exit__(None, None, None)  # in another thread than the one that entered it
    assert not lock.locked()
    nothing_left(valkey)


def test_no_detours(masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    c = connected(masters)
    one_exchange(monkeypatch)
    locks = c.lock("straight", TTL), c.lock("kept", TTL, auto_extend=True), c.lock("awaited", timeout=TTL)
    for lock in locks:
        for arguments in [(True,), (False,), (True, TTL)]:
            assert lock.acquire(*arguments) is True
            with pytest.raises(LockAlreadyHeld):
                lock._mark_acquiring(object())
            assert lock.release() is True
            assert lock.release() is False
        with lock:
            assert lock.locked()
    assert (c.stats().acquired, c.stats().released) == (12, 12)
    nothing_left(masters)


def test_no_detour_where_a_quorum_of_counters_agrees(
    masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = connected(masters, decide="all").lock("fenced", TTL, fencing=True)
    numbers = []
    for _ in range(3):
        with lock:
            numbers.append(lock.fencing_token)
        one_exchange(monkeypatch)  # the first grant may have to raise counters
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_short_way_makes_the_locks_of_a_subclass() -> None:
    """Catches: ``acquire`` that makes a lock by itself although ``lock`` is overridden: of another name."""
    lock = Mock(side_effect=LookupError)
    threads: FastRedlock = type("Tenant", (FastRedlock,), {"lock": lock})(URLS)
    with pytest.raises(LookupError):
        threads.acquire("r", TTL)
    tasks: AsyncFastRedlock = type("Tenant", (AsyncFastRedlock,), {"lock": lock})(URLS)
    with pytest.raises(LookupError):
        tasks.acquire("r", TTL).send(None)  # no loop is needed to make one
    assert lock.call_args_list == [call("r", TTL), call("r", TTL)]


def test_refused(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(valkey)
    c = connected(valkey, retry=Retry(max_attempts=1))
    lock = c.lock("taken", TTL)
    occupy(nodes[:3], "taken")
    assert lock.acquire() is False
    with pytest.raises(Contended, match="3 of 5"), lock:
        pass
    eventually(lambda: sizes(valkey) == [1, 1, 1, 0, 0], "ours are taken back")
    assert c.stats().contended == 2
    for node in nodes[:3]:
        wipe(node)
    reusable(lock)


def test_refused_once(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    """Catches: a later caller that does not queue behind it."""
    nodes = raw(valkey)
    c = connected(valkey, retry=Retry(0.001, 0.002))
    occupy(nodes, "taken")
    lock = c.lock("taken", TTL)
    waiting = start(lock.acquire)
    eventually(lambda: core_of(c).policy.local_queue.waiting, "it waits")
    asked = sum(calls(nodes, "set"))
    assert c.lock("taken", TTL, timeout=0.1).acquire() is False
    assert sum(calls(nodes, "set")) == asked, "a later caller has to queue"
    with pytest.raises(LockAlreadyHeld):
        lock.acquire()
    for node in nodes:
        node.delete("taken")
    assert waiting.result(DEADLINE) is True
    assert lock.release() is True
    nothing_left(valkey)


def test_silent(valkey: Masters, connected: MakeClient) -> None:
    c = connected(valkey, node_timeout=0.05)
    lock = c.lock("silent", TTL)
    with asked(valkey, lock) as attempt, pytest.raises(QuorumUnavailable):
        attempt.result(DEADLINE)
    assert not lock.locked()
    nothing_left(valkey)


def test_faults_are_counted_once(valkey: Masters, connected: MakeClient) -> None:
    c = connected(valkey, decide="all")
    lock = c.lock("faults", TTL)
    with asked(valkey, lock) as attempt:
        valkey[0].kill()
    assert attempt.result(DEADLINE) is True
    assert core_of(c).masters.connector.roster.masters[0].tally.faults == c.stats().faults == 1
    assert lock.release() is True


def test_too_late(valkey: Masters, connected: MakeClient) -> None:
    clock = Jumping()
    lock = connected(valkey, clock=clock).lock("late", TTL)
    with asked(valkey, lock) as attempt:
        clock.jump(TTL)
    with pytest.raises(QuorumUnavailable, match="too late"):
        attempt.result(DEADLINE)
    nothing_left(valkey)
    reusable(lock)


def test_its_time_is_a_part_of_the_timeout(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    clock = Jumping()
    lock = connected(valkey, clock=clock).lock("taken", TTL)
    occupy(raw(valkey), "taken")
    with asked(valkey, lock, blocking=True, timeout=2 * TTL) as attempt:
        clock.jump(2 * TTL)
    assert attempt.result(DEADLINE) is False


def test_ended_in_the_body(valkey: Masters, connected: MakeClient) -> None:
    clock = Jumping()
    c = connected(valkey, clock=clock)
    lock = c.lock("ended", TTL)

    def body() -> None:
        with lock:
            clock.jump(TTL)
            for master in valkey:
                wipe(master)

    with pytest.raises(LockLost):
        body()
    assert (c.stats().released, c.stats().expired) == (0, 1)
    reusable(lock)


@pytest.mark.parametrize("trusted", [2, 3])
def test_electorate_changed(valkey: Masters, connected: MakeClient, trusted: int) -> None:
    """Masters that may have forgotten locks since they were asked are not counted."""
    c = connected(valkey, decide="all")
    lock = c.lock("guarded", TTL)
    with asked(valkey, lock) as attempt:
        core_of(c).policy.voters.mask = (1 << trusted) - 1
    if trusted == 3:
        assert attempt.result(DEADLINE) is True
        assert lock.release() is True
    else:
        with pytest.raises(QuorumUnavailable):
            attempt.result(DEADLINE)
    nothing_left(valkey)
    core_of(c).policy.voters.mask = 0b11111
    reusable(lock)


def test_closed_during_the_exchange(valkey: Masters, connected: MakeClient) -> None:
    c = connected(valkey)
    lock = c.lock("closed", TTL)
    with asked(valkey, lock) as attempt:
        closing = start(c.close)
        eventually(lambda: core_of(c).client_state.closed, "it is being closed")
    closing.result(DEADLINE)
    with contextlib.suppress(ClientClosed, QuorumUnavailable):
        assert attempt.result(DEADLINE) is True, "it was answered before"
    assert lock.release() is False
    with pytest.raises(ClientClosed):
        lock.acquire()
    if not lock.locked():
        nothing_left(valkey)


def test_one_object_for_many_threads(valkey: Masters, connected: MakeClient) -> None:
    """Only one of them has it; to the others it is held already."""
    lock = connected(valkey).lock("shared", TTL)
    together, held = threading.Barrier(4), threading.Lock()

    def use() -> int:
        together.wait(DEADLINE)
        had = 0
        for _ in range(200):
            with contextlib.suppress(LockAlreadyHeld):
                assert lock.acquire(blocking=False)
                assert held.acquire(blocking=False)
                had += 1
                held.release()
                assert lock.release()
        return had

    threads = [start(use) for _ in range(together.parties)]
    assert sum(thread.result(DEADLINE) for thread in threads) > 0
    nothing_left(valkey)
    reusable(lock)


# --- interrupts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_a_batch_that_is_interrupted_is_released(valkey: Masters, connected: MakeClient, kept: bool) -> None:
    c = connected(valkey, auto_extend=kept)
    for number in range(1000):
        locks = [lock for lock in c.acquire_many(["a", "b", "c"], TTL) if lock]
        assert len(locks) == 3
        moment = interrupted(partial(c.release_many, locks), number)
        if moment is None:
            break
        if number == 0:  # before its first step
            c.release_many(locks)
        assert not core_of(c).client_state.held, moment
        assert not any(lock.locked() for lock in locks), moment
        assert not kept or len(core_of(c).renewal().schedule) == 0, moment
    assert number > 10, "there were moments to interrupt it at"
    nothing_left(valkey)


def enter(lock: Lock) -> None:
    with lock:
        pass


USES: dict[str, Callable[[Lock], object]] = {
    "acquire": Lock.acquire,
    "with a timeout": lambda lock: lock.acquire(timeout=DEADLINE),
    "refused": lambda lock: lock.acquire(blocking=False),
    "release": Lock.release,
    "with": enter,
}
#: Compiled, the way itself has no moments but in the exchange, for which test_signals.py is.
LEAST = 5 if str(operations.__file__).endswith(".py") else 0
#: What returns from there has done it all: the caller has the result.
WHOLE = ("threads/client.py", "threads/lock.py", "threads/operations.py", "exporters/instrument.py")
#: On the way in, before anything of a release has begun.
BEFORE = ("call release",) if LEAST == 0 else ("call release", "call exit_lock")


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("use", USES)
def test_interrupted_at_any_moment(
    valkey: Masters, connected: MakeClient, raw: Raw, use: str, kept: bool
) -> None:
    """Nothing stays behind, and the same object can be used again at once."""
    c, nodes, free = connected(valkey), raw(valkey), use != "refused"
    if not free:
        occupy(nodes[:3], "r")
    for number in range(1000):
        lock = c.lock("r", TTL, auto_extend=kept)
        if use == "release":
            assert lock.acquire()
        moment = interrupted(partial(USES[use], lock), number, spared=WHOLE)
        if moment is None:
            break
        if lock.locked():
            assert moment in BEFORE
            assert lock.release() is True
        assert not core_of(c).client_state.held, moment
        assert not kept or len(core_of(c).renewal().schedule) == 0, moment
        assert lock.acquire(blocking=False) is free, moment
        assert lock.release() is free, moment
    lock.release()
    assert number > LEAST, "there were moments to interrupt it at"
    if free:
        nothing_left(valkey)
    else:
        eventually(lambda: values(nodes, "r") == [OTHER_CLIENT] * 3 + [None] * 2, "only theirs are left")
