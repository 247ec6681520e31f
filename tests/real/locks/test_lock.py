"""The lock on real masters, with both clients: what callers get, and what is on the masters then."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.inside import core_of
from support.keys import OTHER_CLIENT, calls, forget_calls, occupy, paused, values
from support.makers import MakeClient
from support.waiting import DEADLINE, PATIENT, answered, eventually, start

from redlock_fast import (
    ClientClosed,
    ConfigError,
    Contended,
    FastRedlock,
    Lock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    Retry,
    Stats,
    TooManyExtensions,
)
from redlock_fast.algorithm.policy import lease_clock
from redlock_fast.embedded import Masters

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]

Nodes = list[redis.Redis]
Raw = Callable[[Masters], Nodes]

#: Seconds; shorter than the leases: a key that goes later was forgotten, and only expired.
SOON = 8.0


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = lease_clock()

    def __call__(self) -> float:
        return self.now


def until_values(nodes: Nodes, key: str | bytes, expected: list[bytes | None]) -> None:
    """Grants and undoings are sent to all masters and awaited from some."""
    eventually(
        lambda: values(nodes, key) == expected, f"the masters have {expected} for {key!r}", deadline=SOON
    )


def until_held(nodes: Nodes, lock: Lock) -> None:
    token = lock.token
    assert token is not None
    until_values(nodes, lock.resource, [token] * len(nodes))


def until_empty(nodes: Nodes) -> None:
    eventually(
        lambda: not any(node.dbsize() for node in nodes), "no key is left on any master", deadline=SOON
    )


@contextlib.contextmanager
def brief(client: FastRedlock) -> Iterator[None]:
    """In this block the client waits for masters that do not answer, and not for long."""
    core_of(client).policy.node_timeout = 0.2
    try:
        yield
    finally:
        core_of(client).policy.node_timeout = PATIENT["node_timeout"]


def held(client: FastRedlock, resource: str | bytes = "r", ttl: float | None = None, **options: Any) -> Lock:
    lock = client.lock(resource, ttl, **options)
    assert lock.acquire(timeout=DEADLINE)
    return lock


# --- acquire and release ------------------------------------------------------------------------


def test_life_of_a_lock(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    lock = connected(masters).lock("orders:42", ttl=20)
    assert not lock.locked()
    assert (lock.token, lock.validity, lock.remaining()) == (None, 0.0, 0.0)
    assert lock.acquire() is True
    assert lock.locked()
    assert lock.token is not None
    assert len(lock.token) > 20, "random bytes and the owner"
    until_held(nodes, lock)
    for node in nodes:
        left = int(node.pttl("orders:42"))
        assert 1000 * lock.remaining() < left <= 20_000
    assert 0 < lock.remaining() <= lock.validity < 20 * 0.99
    lock.check()
    assert lock.release() is True
    assert not lock.locked()
    assert lock.token is None
    with pytest.raises(LockLost, match="it was not acquired, or was released") as lost:
        lock.check()
    assert lost.value.reason.startswith("not held: ")
    until_empty(nodes)


def test_every_attempt_has_a_token_of_its_own(valkey: Masters, client: MakeClient) -> None:
    lock, tokens = client(valkey).lock("r"), set()
    for _ in range(20):
        assert lock.acquire()
        tokens.add(lock.token)
        assert lock.release()
    assert len(tokens) == 20


@pytest.mark.parametrize(
    ("resource", "key"),
    [
        ("orders:42", b"orders:42"),
        (b"orders:42", b"orders:42"),
        ("gr\u00fc\u00dfe \U0001f512", "gr\u00fc\u00dfe \U0001f512".encode()),
        (bytes(range(256)), bytes(range(256))),
        (b"\r\n$3\r\nfoo\r\n", b"\r\n$3\r\nfoo\r\n"),
        ("x" * (64 << 10), b"x" * (64 << 10)),
    ],
    ids=["str", "bytes", "unicode", "binary", "protocol", "64 kB"],
)
def test_resource_is_the_key(
    masters: Masters, connected: MakeClient, raw: Raw, resource: str | bytes, key: bytes
) -> None:
    nodes = raw(masters)
    client = connected(masters)
    lock = held(client, resource)
    until_held(nodes, lock)
    assert nodes[0].keys() == [key]
    assert client.acquire(key, blocking=False) is None
    assert lock.extend() > 0
    assert lock.release()
    until_empty(nodes)


@pytest.mark.parametrize("prefix", ["l\u00f6ck:", b"l\xc3\xb6ck:"])
def test_key_prefix(masters: Masters, connected: MakeClient, raw: Raw, prefix: str | bytes) -> None:
    nodes = raw(masters)
    client = connected(masters, key_prefix=prefix)
    lock = held(client, "r")
    until_values(nodes, b"l\xc3\xb6ck:r", [lock.token] * 5)
    assert client.locked("r")
    assert lock.extend() > 0
    assert lock.release()
    until_empty(nodes)


def test_others_see_it_taken_until_it_is_released(masters: Masters, client: MakeClient) -> None:
    mine, theirs = client(masters), client(masters)
    lock, other = mine.lock("r"), theirs.lock("r")
    assert lock.acquire()
    assert other.acquire(blocking=False) is False
    assert mine.lock("r").acquire(blocking=False) is False
    assert theirs.lock("another").acquire(blocking=False) is True
    assert lock.release()
    assert other.acquire() is True


def test_waits_until_the_holder_releases(masters: Masters, client: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    lock = held(client(masters), ttl=60)
    forget_calls(nodes)
    waiting = start(client(masters).lock("r").acquire)
    eventually(lambda: max(calls(nodes, "set")) > 1, "it tries more than once")
    assert not waiting.done()
    assert lock.release()
    assert waiting.result(DEADLINE) is True


def test_waits_until_the_lease_of_a_lost_holder_ends(masters: Masters, client: MakeClient) -> None:
    held(client(masters), ttl=0.3)
    assert client(masters).lock("r").acquire(timeout=DEADLINE) is True


def test_failed_acquire_leaves_only_what_others_have(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes = raw(masters)
    occupy(nodes[:3], "r")
    assert connected(masters).lock("r").acquire(blocking=False) is False
    until_values(nodes, "r", [OTHER_CLIENT] * 3 + [None] * 2)


def test_release_twice_is_false(masters: Masters, client: MakeClient) -> None:
    lock = client(masters).lock("r")
    assert lock.release() is False
    assert lock.acquire()
    assert lock.release() is True
    assert lock.release() is False


def test_release_after_expiry_leaves_the_next_owner_alone(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes = raw(masters)
    late = held(connected(masters, decide="all"), ttl=0.2)
    until_empty(nodes)
    owner = held(connected(masters))
    until_held(nodes, owner)
    assert late.release() is False
    assert late.release() is False
    assert values(nodes, "r") == [owner.token] * 5
    assert owner.release() is True


def test_acquire_on_a_held_lock_raises_and_forgets_no_token(masters: Masters, client: MakeClient) -> None:
    one = client(masters)
    lock = held(one)
    token = lock.token
    for arguments in ({}, {"blocking": False}, {"timeout": 0}):
        with pytest.raises(LockAlreadyHeld) as error:
            lock.acquire(**arguments)
        assert isinstance(error.value, RuntimeError)
    with pytest.raises(LockAlreadyHeld), lock:
        pytest.fail("the body ran")
    assert lock.token == token
    assert lock.release() is True
    assert one.lock("r").acquire(blocking=False) is True


def test_acquire_while_another_caller_acquires_with_the_same_object(
    valkey: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes = raw(valkey)
    occupy(nodes, "r")
    lock = connected(valkey).lock("r")
    forget_calls(nodes)
    waiting = start(lambda: lock.acquire(timeout=DEADLINE))
    eventually(lambda: any(calls(nodes, "set")), "the other thread tries")
    with pytest.raises(LockAlreadyHeld):
        lock.acquire(blocking=False)
    assert [node.delete("r") for node in nodes] == [1] * 5
    assert waiting.result(DEADLINE) is True
    assert lock.release() is True


def test_lease_that_ended_can_be_followed_by_another(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, clock = raw(masters), Clock()
    lock = held(connected(masters, clock=clock), ttl=20)
    first = lock.token
    clock.now += 20
    assert not lock.locked()
    assert lock.acquire(blocking=False) is True  # its own old keys are still there
    assert lock.token != first
    until_held(nodes, lock)
    assert lock.release() is True
    until_empty(nodes)


# --- waiting ------------------------------------------------------------------------------------


def test_one_attempt_on_a_free_lock_succeeds(masters: Masters, client: MakeClient) -> None:
    lock = client(masters).lock("r")
    for arguments in (
        {"blocking": False},
        {"timeout": 0},
        {"timeout": 0.0},
        {"timeout": 10},
        {"timeout": -1},
    ):
        assert lock.acquire(**arguments) is True
        assert lock.release() is True
    assert lock.acquire(False) is True
    assert lock.release() is True
    assert lock.acquire(True, 10) is True


def test_timeout_is_kept_and_neither_cut_nor_endless(valkey: Masters, client: MakeClient, raw: Raw) -> None:
    occupy(raw(valkey), "r")
    lock = client(valkey).lock("r")
    assert lock.acquire(timeout=0) is False  # connected from here on

    def waits(timeout: float) -> bool:
        """Whether it waits for most of its time. After a slow round it begins none that would be late."""
        began = time.monotonic()
        assert answered(lambda: lock.acquire(timeout=timeout)) is False
        taken = time.monotonic() - began
        assert taken < DEADLINE
        return taken > timeout / 2

    for timeout in (0.1, 0.3):
        assert any(waits(timeout) for _ in range(10)), "or was the machine busy each time?"


def test_a_timeout_that_makes_no_sense_is_refused(valkey: Masters, client: MakeClient) -> None:
    lock = client(valkey).lock("r")
    for wrong in ({"blocking": False, "timeout": 1}, {"timeout": -2}, {"timeout": float("nan")}):
        with pytest.raises(ConfigError, match="timeout"):
            lock.acquire(**wrong)


def test_seconds_in_place_of_blocking_are_refused(masters: Masters, client: MakeClient) -> None:
    """Also where one exchange would decide."""
    one = client(masters)
    one.connect()
    lock = one.lock("r")
    with pytest.raises(ConfigError, match="blocking"):
        lock.acquire(0.5)
    assert not lock.locked()
    assert lock.acquire(1) is True  # as threading.Lock
    assert lock.release() is True


def test_timeout_of_the_lock_is_for_acquire_and_with(valkey: Masters, client: MakeClient, raw: Raw) -> None:
    occupy(raw(valkey), "r")
    lock = client(valkey).lock("r", timeout=1.0)
    assert answered(lock.acquire) is False
    with pytest.raises(Contended):
        answered(lock.__enter__)
    for node in raw(valkey):
        node.delete("r")
    with lock:
        assert lock.locked()


def test_attempts_are_bounded(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(valkey)
    occupy(nodes, "r")
    lock = connected(valkey, retry=Retry(0.001, 0.002, max_attempts=3)).lock("r")
    forget_calls(nodes)
    assert lock.acquire() is False
    eventually(lambda: calls(nodes, "set") == [3] * 5, "three attempts on each master")


# --- others hold it, or masters are down --------------------------------------------------------


def test_contended_names_the_masters_that_refused(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    occupy(nodes[:4], "r")
    client = connected(masters, decide="all")
    names = [master.name for master in client.health()]
    with pytest.raises(Contended, match="already held on") as error, client.lock("r", timeout=0):
        pytest.fail("the body ran")
    assert not isinstance(error.value, QuorumUnavailable)
    assert error.value.masters == tuple(names[:4])
    assert client.acquire("r", blocking=False) is None


def test_masters_that_are_down_are_no_contention(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(masters, node_timeout=0.1, connect_timeout=0.1)
    names = [master.name for master in client.health()]
    for master in (0, 2, 4):
        masters[master].kill()
    lock = client.lock("r")
    attempts: list[Callable[[], object]] = [
        lock.acquire,
        lambda: lock.acquire(blocking=False),
        lambda: lock.acquire(timeout=0.1),
        lock.__enter__,
        lambda: client.locked("r"),
    ]
    for attempt in attempts:
        with pytest.raises(QuorumUnavailable) as error:
            attempt()
        assert {names[master] for master in (0, 2, 4)} <= {cause.master for cause in error.value.causes}
        assert all(cause.master in str(error.value) and cause.cause for cause in error.value.causes)
        assert not lock.locked()
    until_empty([raw(masters)[1], raw(masters)[3]])
    assert client.stats().contended == 0


def test_minority_that_is_down_fails_nothing(
    masters: Masters, client: MakeClient, connected: MakeClient
) -> None:
    one = connected(masters)
    lock = held(one)
    masters[0].kill()
    masters[3].kill()
    assert lock.extend() > 0
    assert lock.release() is True
    for _ in range(5):
        assert lock.acquire(blocking=False) is True
        assert lock.extend() > 0
        assert lock.release() is True
    assert one.locked("r") is False
    assert client(masters).lock("r").acquire() is True  # a client that never saw the two


def test_nothing_answers_at_all(client: MakeClient) -> None:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        urls = [f"redis://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
        one = client(urls, connect_timeout=0.1, node_timeout=0.05)
        with pytest.raises(QuorumUnavailable) as error:
            one.lock("r").acquire()
        assert len(error.value.causes) == 3
        one.close()


# --- validity -----------------------------------------------------------------------------------


def test_validity_is_the_ttl_less_the_drift(valkey: Masters, client: MakeClient) -> None:
    clock = Clock()
    lock = held(client(valkey, clock=clock), ttl=10)
    assert lock.validity == pytest.approx(10 - 0.1 - 0.002)
    clock.now += 4
    assert lock.validity == pytest.approx(10 - 0.1 - 0.002)
    assert lock.remaining() == pytest.approx(10 - 0.1 - 0.002 - 4)
    clock.now += 5.9
    assert lock.remaining() == 0.0
    assert not lock.locked()
    with pytest.raises(LockLost, match="the lease has ended, and nothing extended it") as lost:
        lock.check()
    assert lost.value.reason.startswith("ended: ")
    steady = held(client(valkey, clock=Clock(), drift_factor=0.2), "another", ttl=10)
    assert steady.validity == pytest.approx(10 - 2 - 0.002)


def acquire_while_time_jumps(
    masters: Masters, client: FastRedlock, clock: Clock, nodes: Nodes, seconds: float
) -> tuple[Lock, bool]:
    """The clock jumps after the first masters got the SET, and before the last can answer."""
    lock = client.lock("r", ttl=10)
    with paused(masters, 2, 3, 4):
        acquiring = start(lambda: lock.acquire(blocking=False))
        eventually(lambda: None not in values(nodes[:2], "r"), "two masters are asked")
        clock.now += seconds
    return lock, acquiring.result(DEADLINE)


def test_validity_is_less_the_time_that_acquiring_took(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    clock = Clock()
    lock, acquired = acquire_while_time_jumps(
        masters, connected(masters, clock=clock), clock, raw(masters), 3
    )
    assert acquired is True
    assert lock.validity == lock.remaining() == pytest.approx(10 - 3 - 0.1 - 0.002)


def test_acquiring_that_took_longer_than_the_lease_fails(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    clock, nodes = Clock(), raw(masters)
    one = connected(masters, clock=clock)
    with pytest.raises(QuorumUnavailable, match="too late"):  # not held: False would mean that
        acquire_while_time_jumps(masters, one, clock, nodes, 9.9)
    assert one.stats().unavailable == 1
    until_empty(nodes)


# --- extend -------------------------------------------------------------------------------------


def test_extend_lengthens_the_same_lease(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes, clock = raw(masters), Clock()
    lock = held(connected(masters, clock=clock), ttl=20)
    token = lock.token
    until_held(nodes, lock)
    assert lock.extend(50) == pytest.approx(50 - 0.5 - 0.002)
    assert lock.validity == lock.remaining() == pytest.approx(50 - 0.5 - 0.002)
    eventually(lambda: all(20_000 < int(n.pttl("r")) <= 50_000 for n in nodes), "all keys last longer")
    assert lock.token == token
    assert values(nodes, "r") == [token] * 5
    clock.now += 40
    assert lock.extend() == pytest.approx(20 - 0.2 - 0.002)  # the lock's own ttl, from now on
    assert lock.release() is True
    until_empty(nodes)


def test_extend_never_shortens(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes, clock = raw(masters), Clock()
    lock = held(connected(masters, clock=clock), ttl=50)
    until_held(nodes, lock)
    remaining = lock.remaining()
    assert lock.extend(1) == pytest.approx(remaining)
    assert lock.remaining() == pytest.approx(remaining)
    assert lock.release() is True  # behind what an extension may have sent
    lock = held(connected(masters, clock=clock), ttl=50)
    until_held(nodes, lock)
    lock.extend(1)
    assert all(int(node.pttl("r")) > 20_000 for node in nodes)


def test_extend_of_what_is_not_held(masters: Masters, client: MakeClient, raw: Raw) -> None:
    lock = client(masters).lock("r")
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.acquire()
    assert lock.release()
    with pytest.raises(LockLost):
        lock.extend()
    until_values(raw(masters), "r", [None] * 5)


def test_extend_after_the_lease_ended_sends_no_request(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, clock = raw(masters), Clock()
    lock = held(connected(masters, clock=clock), ttl=20)
    until_held(nodes, lock)
    clock.now += 20
    with pytest.raises(LockLost):
        lock.extend(50)
    assert not lock.locked()
    assert all(0 < int(node.pttl("r")) <= 20_000 for node in nodes)


def test_extend_of_an_expired_key_does_not_create_it(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    # Its clock stands still: only the masters see the end.
    nodes = raw(masters)
    lock = held(connected(masters, clock=Clock()), ttl=0.2)
    until_empty(nodes)
    assert lock.locked()
    with pytest.raises(LockLost):
        lock.extend(20)
    assert not lock.locked()
    assert lock.remaining() == 0.0
    with pytest.raises(LockLost):
        lock.extend(20)
    assert lock.release() is False
    assert values(nodes, "r") == [None] * 5


def test_extend_of_a_lock_that_others_took(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    lock = held(connected(masters))
    until_held(nodes, lock)
    token = lock.token
    occupy(nodes[:3], "r")
    with pytest.raises(LockLost):
        lock.extend()
    assert values(nodes, "r") == [OTHER_CLIENT] * 3 + [token] * 2  # a failing extend deletes nothing
    assert all(node.pttl("r") == -1 for node in nodes[:3])
    assert lock.release() is False
    until_values(nodes, "r", [OTHER_CLIENT] * 3 + [None] * 2)


def test_extend_holds_with_a_majority_and_creates_no_key(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes = raw(masters)
    lock = held(connected(masters, decide="all", refill=False), ttl=20)
    assert [node.delete("r") for node in nodes[:2]] == [1, 1]
    assert lock.extend(50) > 20
    assert values(nodes, "r") == [None] * 2 + [lock.token] * 3
    nodes[2].delete("r")
    with pytest.raises(LockLost):
        lock.extend(50)
    assert values(nodes, "r") == [None] * 3 + [values(nodes, "r")[4]] * 2
    assert lock.release() is False
    until_empty(nodes)


def test_extend_that_ends_after_the_lease_counts_for_nothing(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, clock = raw(masters), Clock()
    lock = held(connected(masters, clock=clock), ttl=20)
    until_held(nodes, lock)
    with paused(masters, 2, 3, 4):
        extending = start(lambda: lock.extend(50))
        eventually(lambda: all(int(n.pttl("r")) > 20_000 for n in nodes[:2]), "two masters are asked")
        clock.now += 19.9
    assert isinstance(extending.exception(DEADLINE), LockLost)
    assert not lock.locked()
    lock.release()
    until_empty(nodes)


def test_inconclusive_extend_leaves_the_lease_as_it_was(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, clock = raw(masters), Clock()
    client = connected(masters, clock=clock)
    lock = held(client, ttl=20)
    until_held(nodes, lock)
    token, remaining = lock.token, lock.remaining()
    with paused(masters, 0, 1, 2), brief(client):
        with pytest.raises(QuorumUnavailable, match="held for") as error:
            lock.extend(50)
        assert {cause.master for cause in error.value.causes} >= {m.name for m in client.health()[:3]}
        assert lock.locked()
        assert lock.token == token
        assert lock.remaining() == pytest.approx(remaining)
        assert values(nodes[3:], "r") == [token] * 2
    until_held(nodes, lock)
    assert lock.extend(50) > 20
    assert lock.release() is True
    until_empty(nodes)


def test_extensions_are_bounded(masters: Masters, client: MakeClient) -> None:
    one = client(masters)
    lock = held(one, ttl=10, max_extensions=2)
    for ttl in (20, 30):
        assert lock.extend(ttl) > ttl - 10
    remaining = lock.remaining()
    with pytest.raises(TooManyExtensions, match="max_extensions"):
        lock.extend(40)
    assert lock.locked()
    assert lock.remaining() <= remaining
    assert lock.release() is True
    assert lock.acquire()
    assert lock.extend(20) > 10  # a new lease, a new count
    never = held(one, "never", max_extensions=0)
    with pytest.raises(TooManyExtensions):
        never.extend(20)
    without_end = held(one, "without end", ttl=10)
    for number in range(120):
        assert without_end.extend(10 + number / 10) > 0


# --- with, decorator, short ways ----------------------------------------------------------------


def test_with_holds_the_lock_and_lets_go(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    with connected(masters).lock("r") as lock:
        assert lock.locked()
        until_held(nodes, lock)
    assert not lock.locked()
    until_empty(nodes)
    with pytest.raises(KeyError, match="mine"), lock:
        raise KeyError("mine")
    assert not lock.locked()
    until_empty(nodes)


def work_too_long_and_fail(nodes: Nodes) -> None:
    until_empty(nodes)
    raise ZeroDivisionError


def test_leaving_with_after_the_lease_ended(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client, nodes = connected(masters), raw(masters)
    with pytest.raises(LockLost, match="before the body did"), client.lock("r", 0.2):
        until_empty(nodes)
    with pytest.raises(ZeroDivisionError), client.lock("r", 0.2):
        work_too_long_and_fail(nodes)
    with pytest.raises(LockLost), client.lock("r"):
        occupy(nodes, "r")
    assert values(nodes, "r") == [OTHER_CLIENT] * 5


def test_synchronized_runs_the_function_under_the_lock(masters: Masters, client: MakeClient) -> None:
    one = client(masters)

    @one.synchronized("r", ttl=20, timeout=5)
    def work(number: int, *, plus: int = 0) -> tuple[int, bool]:
        """Adds."""
        return number + plus, one.lock("r").acquire(blocking=False)

    assert (work.__name__, work.__doc__) == ("work", "Adds.")
    assert work(1, plus=2) == (3, False)
    assert work(3) == (3, False)  # and it was released in between
    assert one.locked("r") is False


def test_synchronized_with_a_name_from_the_arguments(masters: Masters, connected: MakeClient) -> None:
    client = connected(masters, decide="all")

    @client.synchronized(lambda order, **_: f"order:{order}")
    def work(order: int, *, fail: bool = False) -> list[bool]:
        if fail:
            raise KeyError(order)
        return [client.locked(f"order:{one}") for one in (1, 2)]

    assert work(1) == [True, False]
    assert work(2) == [False, True]
    with pytest.raises(KeyError, match="7"):
        work(7, fail=True)
    assert client.locked("order:7") is False


def test_synchronized_never_runs_unlocked(valkey: Masters, client: MakeClient, raw: Raw) -> None:
    occupy(raw(valkey), "r")
    one = client(valkey)

    @one.synchronized("r", timeout=0)
    def work() -> None:
        pytest.fail("the body ran")

    with pytest.raises(Contended):
        work()
    with pytest.raises(ConfigError, match="ttl"):
        one.synchronized("r", ttl=-1)  # where it is written, not where it is called


def test_the_short_way(masters: Masters, client: MakeClient) -> None:
    one = client(masters)
    lock = one.acquire("r", 20)
    assert lock is not None
    assert lock.ttl == 20
    assert lock.locked()
    assert one.acquire("r", ttl=10, blocking=False) is None
    assert answered(lambda: one.acquire("r", timeout=1.0)) is None
    assert lock.release() is True


def test_locked_is_asked_of_the_masters(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    client = connected(masters)
    assert client.locked("r") is False
    lock = held(client)
    assert connected(masters).locked("r") is True
    assert lock.release()
    occupy(nodes[:2], "r")
    assert client.locked("r") is False  # a minority excludes no client
    occupy(nodes[:3], "r")
    assert client.locked("r") is True
    with paused(masters, 0, 1):
        assert client.locked("free") is False
        with pytest.raises(QuorumUnavailable), brief(client):
            client.locked("r")


# --- the client ---------------------------------------------------------------------------------


def test_stats_count_what_happened(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client, nodes = connected(masters), raw(masters)
    lock = held(client)
    client.acquire("r", blocking=False)
    lock.extend(20)
    lock.release()
    late = held(client, "late", 0.2)
    until_empty(nodes)
    late.release()
    lost = held(client, "lost")
    occupy(nodes, "lost")
    with pytest.raises(LockLost):
        lost.extend(20)
    lost.release()
    kept = held(client, "kept")
    with paused(masters, 0, 1, 2), brief(client):
        with pytest.raises(QuorumUnavailable):
            kept.extend(20)
        with pytest.raises(QuorumUnavailable):
            client.acquire("r", blocking=False)
    assert client.stats() == Stats(
        acquired=4, contended=1, unavailable=1, released=1, expired=2, extended=1, inconclusive=1, lost=1
    )


def test_health_shows_the_state(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(masters, decide="all")
    held(client).release()
    for health, master, node in zip(client.health(), masters, raw(masters), strict=True):
        info = node.info("server")
        version = info.get("valkey_version", info["redis_version"])
        assert health.name == f"127.0.0.1:{master.port}/0"
        assert (health.state, health.role, health.error) == ("connected", "master", "")
        assert (health.server, health.version) == ("valkey" if "valkey_version" in info else "redis", version)
        assert (health.run_id, health.protocol) == (info["run_id"], 3)
        assert 0 <= health.uptime <= info["uptime_in_seconds"]
        assert (health.connections, health.faults, health.pending) == (1, 0, 0)
        assert 0 < health.round_trip < 5


def test_health_follows_a_master_that_restarts(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(valkey, restart_guard="off")
    before = client.health()[2].run_id
    valkey[2].kill()
    eventually(lambda: client.health()[2].state == "down", "the dead master is known")
    assert client.health()[2].error
    assert client.lock("r").acquire(blocking=False) is True
    valkey[2].restart()
    eventually(lambda: client.health()[2].state == "connected", "it is back")
    health = client.health()[2]
    assert health.connections == 2
    assert health.run_id == raw(valkey)[2].info("server")["run_id"] != before
    lock = held(client, "another")
    until_held(raw(valkey), lock)  # at full strength again


def test_closed_client(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(masters)
    lock, free = held(client, ttl=50), client.lock("free")
    until_held(raw(masters), lock)
    token = lock.token
    client.close()
    client.close()
    calls: list[Callable[[], object]] = [
        free.acquire,
        free.__enter__,
        lambda: free.acquire(blocking=False),
        lambda: client.acquire("free"),
        lambda: client.locked("free"),
        client.connect,
        lock.extend,
    ]
    for call in calls:
        with pytest.raises(ClientClosed):
            call()
    assert lock.release() is False
    assert len(client.health()) == 5
    assert values(raw(masters), "r") == [token] * 5  # held until the lease ends
    assert values(raw(masters), "free") == [None] * 5


def test_client_as_a_context_manager(masters: Masters, client: MakeClient, raw: Raw) -> None:
    with client(masters) as one, one.lock("r"):
        pass
    with pytest.raises(ClientClosed):
        one.lock("r").acquire()
    until_empty(raw(masters))  # what was sent last has arrived
    with pytest.raises(KeyError, match="mine"), client(masters) as one:
        raise KeyError("mine")
    with pytest.raises(ClientClosed):
        one.connect()


def test_close_before_the_first_use(valkey: Masters, client: MakeClient) -> None:
    one = client(valkey)
    one.close()
    with pytest.raises(ClientClosed):
        one.lock("r").acquire()


def test_connect_waits_for_a_quorum(valkey: Masters, client: MakeClient) -> None:
    one = client(valkey)
    assert one.connect() is True
    assert sum(master.state == "connected" for master in one.health()) >= 3
    for master in valkey:
        master.kill()
    two = client(valkey)
    assert two.connect(0.1) is False
    valkey[1].restart()
    valkey[2].restart()
    assert two.connect(0.1) is False
    valkey[4].restart()
    assert two.connect(DEADLINE) is True


def test_deciding_by_all_waits_for_all(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    lock = held(connected(masters, decide="all"))
    for _ in range(20):
        assert values(nodes, "r") == [lock.token] * 5
        assert lock.release() is True
        assert values(nodes, "r") == [None] * 5
        assert lock.acquire()


def test_deciding_by_all_bears_a_silent_minority(masters: Masters, connected: MakeClient) -> None:
    lock = connected(masters, decide="all", node_timeout=1.5).lock("r")
    with paused(masters, 0, 4):
        assert lock.acquire(blocking=False) is True
        assert lock.extend(20) > 10
        assert lock.release() is True


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_quorum_of_n_masters(
    valkey: Masters, redis7: Masters, connected: MakeClient, raw: Raw, n: int
) -> None:
    urls = (valkey.urls + redis7.urls)[:n]
    nodes = (raw(valkey) + raw(redis7))[:n]
    spare = n - (n // 2 + 1)
    lock = connected(urls).lock("r")
    occupy(nodes[:spare], "r")
    assert lock.acquire(blocking=False) is True
    until_values(nodes[spare:], "r", [lock.token] * (n - spare))
    assert lock.extend(20) > 0
    assert lock.release() is True
    until_values(nodes, "r", [OTHER_CLIENT] * spare + [None] * (n - spare))
    occupy(nodes[: spare + 1], "r")
    assert lock.acquire(blocking=False) is False
    until_values(nodes, "r", [OTHER_CLIENT] * (spare + 1) + [None] * (n - spare - 1))


@pytest.mark.parametrize("settings", [{}, {"decode_responses": True}, {"protocol": 2}, {"protocol": 3}])
def test_settings_from_redis_clients(
    masters: Masters, connected: MakeClient, raw: Raw, settings: dict[str, Any]
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis(port=master.port, db=2, **settings)) for master in masters]
        one = connected(clients)
        # Older versions of redis-py say 2 where their user says nothing.
        default_protocol = clients[0].connection_pool.connection_kwargs.get("protocol") or 3
        assert {health.protocol for health in one.health()} == {settings.get("protocol", default_protocol)}
        lock = held(one)
        assert one.acquire("r", blocking=False) is None
        assert one.locked("r") is True
        assert lock.extend(20) > 10
        eventually(lambda: [c.exists("r") for c in clients] == [1] * 5, "the keys are in database 2")
        assert values(raw(masters), "r") == [None] * 5
        assert lock.release() is True
        assert lock.release() is False
        eventually(lambda: [c.exists("r") for c in clients] == [0] * 5, "no key is left in database 2")


def test_making_a_client_does_no_io(client: MakeClient) -> None:
    threads = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        urls = [f"redis://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
        one = client(urls, connect_timeout=0.3, node_timeout=0.05)
        lock = one.lock("r")
        assert not lock.locked()
        assert lock.release() is False
        one.synchronized("r")(lambda: None)
        assert {health.state for health in one.health()} == {"connecting"}
        assert one.stats() == Stats()
        assert set(threading.enumerate()) <= threads
        assert select.select(listeners, [], [], 0.1)[0] == []
        using = start(lambda: lock.acquire(blocking=False))
        for listener in listeners:
            assert select.select([listener], [], [], DEADLINE)[0] == [listener]
        assert isinstance(using.exception(DEADLINE), QuorumUnavailable)
        one.close()
