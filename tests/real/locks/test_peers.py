"""What other locks got wrong, each as a test of this one. The numbers are those of the collection that
the project was started with; where only a later feature can show all of a defect, its test says so.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest
import redis
from support.inside import core_of
from support.keys import paused, values, wipe
from support.makers import MakeClient, Raw
from support.proxy import Proxy, jitter
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import (
    ConfigError,
    Contended,
    FastRedlock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    Retry,
)
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")


#: No key of these tests expires while a client waits for it.
TTL = 60.0
#: Seconds; long past what is immediate, long before any time limit that these tests set.
SOON = 10.0


def with_keys(masters: Masters) -> list[int]:
    """Which of the masters that run have keys."""
    return [n for n, master in enumerate(masters) if master.pid and master.ask("DBSIZE") != ":0"]


def nothing_left(masters: Masters) -> None:
    eventually(lambda: not with_keys(masters), "no key of ours is left")


def at_full_strength(client: FastRedlock) -> None:
    client.connect()

    def strong() -> bool:
        core_of(client).masters.engine.maintain()
        return {master.state for master in client.health()} == {"connected"}

    eventually(strong, "all masters are connected")


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    taken = time.monotonic() - began
    assert taken < seconds, f"took {taken:.2f} s"


def test_01_early_return_leaves_no_stragglers(valkey: Masters, connected: MakeClient) -> None:
    """A release must never overtake its SET: on healthy masters, and where two of them are late."""
    with Proxy(valkey[3].port, jitter(1, 0.02)) as three, Proxy(valkey[4].port, jitter(2, 0.02)) as four:
        for where, cycles in ((valkey.urls, 500), ([*valkey.urls[:3], three.url, four.url], 200)):
            c = connected(where)
            for number in range(cycles):
                with c.lock(f"straggler:{number}", TTL):
                    pass
            nothing_left(valkey)


def test_02_a_dead_master_fails_no_operation(masters: Masters, connected: MakeClient) -> None:
    """One dead master of five: neither an exception while the lock is held, nor keys that stay."""
    c = connected(masters)
    for dead in (False, True):
        if dead:
            masters[4].kill()
        for number in range(50):
            lock = c.lock(f"dead:{number}", TTL / 2)
            assert lock.acquire()
            assert lock.extend(TTL) > TTL / 2
            assert lock.release()
    nothing_left(masters)


def test_03_a_lost_reply_excludes_no_client(masters: Masters, connected: MakeClient) -> None:
    """A SET whose reply is lost is not sent again, and what it set is neither kept nor met again."""
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(master.port, record=True)) for master in masters]
        c = connected([proxy.url for proxy in proxies])
        for proxy in proxies[:3]:
            proxy.deaf = True
        lock = c.lock("lost reply", TTL)
        future = start(lambda: lock.acquire(blocking=False))
        eventually(lambda: all(proxy.sets() for proxy in proxies), "the requests go through")
        for proxy in proxies[:3]:
            proxy.refusing = True
            proxy.cut()
        with pytest.raises(QuorumUnavailable):
            future.result(DEADLINE)
        for proxy in proxies[:3]:
            proxy.refusing = False
        with within(SOON):
            assert lock.acquire()
        assert lock.release()
        nothing_left(masters)
        for proxy in proxies:
            tokens = [words[2] for words in proxy.sets()]
            assert len(tokens) == len(set(tokens))


def test_04_a_failed_acquire_deletes_nothing_of_the_owner(
    masters: Masters, client: MakeClient, connected: MakeClient, raw: Raw
) -> None:
    """Taking back what an acquire set must compare the token: on masters that refused, too."""
    owner, other = connected(masters), client(masters)
    lock = owner.lock("owned", TTL)
    assert lock.acquire()
    eventually(lambda: len(with_keys(masters)) == 5, "all masters have the key")
    for _ in range(50):
        assert other.acquire("owned", TTL, blocking=False) is None
        assert not other.lock("owned").release()
    assert values(raw(masters), "owned") == [lock.token] * 5
    assert lock.release()


def test_04_a_minority_that_was_won_is_given_back(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """The same with votes on both sides: ours go, the others' stay."""
    c, servers = connected(masters), raw(masters)
    for server in servers[:3]:
        server.set("split", b"foreign")
    for _ in range(20):
        assert c.acquire("split", TTL, blocking=False) is None
    eventually(lambda: with_keys(masters) == [0, 1, 2], "our votes are given back")
    assert values(servers, "split") == [b"foreign"] * 3 + [None] * 2


@pytest.mark.parametrize("ttl", [None, 0.5, 0.0405, 59.9999])
def test_05_every_key_expires_and_not_before_the_lease(
    masters: Masters, connected: MakeClient, raw: Raw, ttl: float | None
) -> None:
    """No way of asking for a lease makes a key that never expires, or one that ends before it."""
    c = connected(masters, max_ttl=120.0)
    lock = c.lock("expires", ttl)
    asked = 10.0 if ttl is None else ttl
    while not lock.acquire():
        pass  # a tiny lease may end before it is granted
    left = [server.pttl("expires") for server in raw(masters)]
    assert all(0 <= milliseconds <= asked * 1000 + 1 or milliseconds == -2 for milliseconds in left)
    assert lock.validity < asked
    if asked > 1:
        lock.extend(asked + 30)
        longer = (asked * 1000, asked * 1000 + 30_001)
        servers = raw(masters)
        eventually(
            lambda: all(longer[0] < server.pttl("expires") <= longer[1] for server in servers),
            "all keys live longer",
        )


@pytest.mark.parametrize("ttl", [0, -1, 0.002, float("inf"), float("nan"), False, "10", 61])
def test_05_leases_that_make_no_sense_are_refused(masters: Masters, client: MakeClient, ttl: float) -> None:
    """Nothing stands for "no expiry", and nothing is cut to something else."""
    with pytest.raises(ConfigError, match="ttl"):
        client(masters).lock("nonsense", ttl)


def test_05_two_holders_never_overlap(valkey: Masters, connected: MakeClient) -> None:
    """The next holder comes only after the first one's own clock says that its lease is over."""
    first, second = connected(valkey), connected(valkey)
    for number in range(5):
        lock = first.lock(f"overlap:{number}", 0.1)
        assert lock.acquire()
        other = second.acquire(f"overlap:{number}", TTL)
        assert not lock.locked()
        assert other
        assert not lock.release()
        assert other.release()
    nothing_left(valkey)


def test_06_an_interrupted_acquire_takes_its_keys_back(masters: Masters, connected: MakeClient) -> None:
    """Here by a signal; test_signals.py does it at random moments. Cancelling comes with asyncio."""

    class Stop(BaseException):
        pass

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    c = connected(masters, node_timeout=10 * DEADLINE)
    before = signal.signal(signal.SIGUSR1, stop)
    main = threading.get_ident()

    def interrupt() -> None:
        eventually(lambda: with_keys_of(masters, 0, 1), "the first masters have it")
        signal.pthread_kill(main, signal.SIGUSR1)

    try:
        with paused(masters, 2, 3, 4):
            start(interrupt)
            with within(DEADLINE), pytest.raises(Stop):
                c.acquire("interrupted", TTL)
    finally:
        signal.signal(signal.SIGUSR1, before)
    nothing_left(masters)


def with_keys_of(masters: Masters, *numbers: int) -> bool:
    return all(masters[number].ask("DBSIZE") != ":0" for number in numbers)


def test_07_a_lock_belongs_to_its_object(valkey: Masters, client: MakeClient) -> None:
    """Not to a thread: another thread may release it, another object in the same thread may not."""
    c = client(valkey)
    mine, other = c.lock("object", TTL), c.lock("object", TTL)
    assert start(mine.acquire).result(DEADLINE)
    assert mine.locked()
    assert not other.locked()
    assert other.token is None
    assert not other.release()
    assert not start(other.release).result(DEADLINE)
    with pytest.raises(LockLost):
        other.extend()
    assert mine.locked()
    assert c.locked("object")
    assert start(mine.release).result(DEADLINE)
    nothing_left(valkey)


def test_08_the_body_never_runs_unlocked(masters: Masters, connected: MakeClient) -> None:
    """`with` and the decorator raise where they do not get the lock."""
    c = connected(masters)
    ran: list[str] = []
    body = c.synchronized("body", TTL, timeout=0)(lambda: ran.append("decorator"))

    def enter() -> None:
        with c.lock("body", TTL, timeout=0):
            ran.append("with")

    holder = c.acquire("body", TTL)
    assert holder
    for use in (enter, body):
        with pytest.raises(Contended):
            use()
    holder.release()
    core_of(c).policy.node_timeout = 0.5
    with paused(masters, 0, 1, 2):
        for use in (enter, body):
            with pytest.raises(QuorumUnavailable):
                use()
    assert ran == []
    nothing_left(masters)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_09_any_minority_may_be_down(valkey: Masters, client: MakeClient, size: int) -> None:
    """Quorum is the majority of the configured masters and nothing more: of three, two will do.

    What the first failure of a renewal must not do comes with renewal.
    """
    c = client(valkey.urls[:size])
    for down in range((size - 1) // 2 + 1):
        if down:
            valkey[down - 1].kill()
        for number in range(5):
            with c.lock(f"minority:{number}", TTL):
                pass
    valkey[size - 1].kill()
    with pytest.raises(QuorumUnavailable):
        c.acquire("majority", TTL, timeout=0.05)
    nothing_left(valkey)


def test_10_extend_never_acquires_again(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Of a lease that ended it says so, and leaves the next owner's keys and free keys alone."""
    c, servers = connected(masters), raw(masters)
    lock = c.lock("extend", 0.05)
    while not lock.acquire():
        pass
    eventually(lambda: not lock.locked(), "the lease ends")
    other = c.acquire("extend", TTL)
    assert other
    with pytest.raises(LockLost):
        lock.extend(TTL)
    # A master that still had the old key when the next owner came has none at all once that key ends.
    eventually(
        lambda: (
            set(values(servers, "extend")) <= {other.token, None}
            and values(servers, "extend").count(other.token) >= 3
        ),
        "the old owner's keys are gone, the next owner's are not",
    )
    assert other.release()
    # The same where the masters lost the key before its time, and no other client came.
    long = c.lock("lost", TTL / 2)
    assert long.acquire()
    for server in servers:
        wipe(server)
    with pytest.raises(LockLost):
        long.extend(TTL)
    assert not long.locked()
    nothing_left(masters)


def test_10_one_hung_master_blocks_no_client(valkey: Masters, connected: MakeClient) -> None:
    """Acquire, extend and release end without it, each time, and in no more than its time."""
    c = connected(valkey, node_timeout=30.0)
    with paused(valkey, 2), within(SOON):
        for number in range(20):
            lock = c.lock(f"hung:{number}", TTL / 2)
            assert lock.acquire()
            lock.extend(TTL)
            assert lock.release()
    nothing_left(valkey)


def test_11_fractions_of_a_second_are_waited(valkey: Masters, client: MakeClient) -> None:
    """A timeout of half a second is neither cut to nothing nor turned into for ever."""
    c = client(valkey)
    assert c.acquire("fraction", TTL)

    def waits(timeout: float) -> bool:
        """Whether it waits for most of its time. After a slow round it begins none that would be late."""
        began = time.monotonic()
        assert answered(lambda: c.lock("fraction", TTL).acquire(timeout=timeout)) is False
        taken = time.monotonic() - began
        assert taken < DEADLINE
        return taken > timeout * 0.5

    for timeout in (0.2, 0.5):
        assert any(waits(timeout) for _ in range(5)), "or was the machine busy each time?"


def test_12_tokens_come_from_no_seed(valkey: Masters, client: MakeClient) -> None:
    """Workers that seed `random` alike share no token, so a stale release frees no other lock."""
    tokens = []
    first, second = client(valkey), client(valkey)
    for c in (first, second):
        random.seed(12)
        for number in range(20):
            with c.lock(f"token:{number}", TTL) as lock:
                tokens.append(lock.token)
    assert len(set(tokens)) == 40
    assert len({token[:20] for token in tokens}) == 40, "the random bytes differ"
    random.seed(12)
    stale = first.lock("stale", 0.03)
    while not stale.acquire():
        pass
    random.seed(12)
    owner = second.acquire("stale", TTL)
    assert owner
    assert not stale.release()
    assert second.locked("stale")
    assert owner.release()


def test_13_the_wall_clock_plays_no_part(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of the wall clock, back or forth, change neither validity nor the time that is waited."""
    c = connected(valkey)
    wall = iter(range(10**9, 0, -60))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    monkeypatch.setattr(time, "time_ns", lambda: next(wall) * 10**9)
    with c.lock("clock", 10.0) as lock:
        assert 0 < lock.validity <= 10.0 - 0.102
        assert 0 < lock.remaining() <= lock.validity
        assert not answered(lambda: c.lock("clock").acquire(timeout=1.0))


@pytest.mark.parametrize("hung", ["from the start", "later"])
def test_14_a_hung_master_costs_no_more_than_its_time(valkey: Masters, hung: str, engine_name: str) -> None:
    """Accepts and never answers: acquires take milliseconds, neither minutes nor its connect_timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        late = hung == "later"
        url = valkey.urls[4] if late else f"redis://127.0.0.1:{silent.getsockname()[1]}"
        urls = [url, *valkey.urls[:4]]
        with FastRedlock(urls, engine=engine_name, node_timeout=5.0, connect_timeout=20.0) as c:
            if late:
                at_full_strength(c)
                valkey[4].pause()
            with within(DEADLINE):  # much less than the silent one's 5 s for each
                for number in range(100):
                    with c.lock(f"hung:{number}", TTL):
                        pass
        valkey[4].resume()
    nothing_left(valkey)


def test_15_a_failing_extend_keeps_what_is_ours(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Without a quorum of answers it is still our lock until the old deadline, on all masters."""
    c = connected(masters, node_timeout=0.05)
    lock = c.lock("extend", TTL / 2)
    while not lock.acquire():
        pass
    eventually(lambda: len(with_keys(masters)) == 5, "all masters have the key")
    with paused(masters, 0, 1, 2):
        with pytest.raises(QuorumUnavailable, match="held for"):
            lock.extend(TTL)
        assert TTL / 2 - SOON < lock.remaining() <= TTL / 2
    at_full_strength(c)
    assert values(raw(masters), "extend") == [lock.token] * 5
    with pytest.raises(LockLost):
        c.lock("extend").extend()
    assert values(raw(masters), "extend") == [lock.token] * 5
    assert lock.release()


@pytest.mark.parametrize("size", [2, 4])
def test_16_an_even_tie_is_resolved(
    masters: Masters, client: MakeClient, connected: MakeClient, raw: Raw, size: int
) -> None:
    """Half of the masters each: no client wins, each notices at once, and gives the votes back."""
    c, servers = connected(masters.urls[:size], node_timeout=60.0), raw(masters)
    for server in servers[: size // 2]:
        server.set("tie", b"foreign")
    with within(SOON):
        assert c.acquire("tie", TTL, blocking=False) is None
    eventually(lambda: with_keys(masters) == list(range(size // 2)), "our votes are given back")
    for server in servers:
        wipe(server)
    done = [start(lambda: rounds(c, 20)), start(lambda: rounds(client(masters.urls[:size]), 20))]
    with within(DEADLINE):
        assert [future.result(DEADLINE) for future in done] == [20, 20]
    nothing_left(masters)


def rounds(client: FastRedlock, count: int) -> int:
    for _ in range(count):
        with client.lock("tie", TTL):
            pass
    return count


def test_16_a_lease_that_is_over_when_granted_is_no_lease(masters: Masters, connected: MakeClient) -> None:
    """Validity is looked at after the votes: a process that slept too long must not think it holds."""
    eleven_seconds_at_each_look = itertools.count(0.0, 11.0)
    c = connected(masters, clock=lambda: next(eleven_seconds_at_each_look))
    lock = c.lock("late", 10.0)
    with contextlib.suppress(QuorumUnavailable):
        assert lock.acquire(blocking=False) is False
    assert not lock.locked()
    nothing_left(masters)


def test_17_cleaning_up_has_time_of_its_own(masters: Masters, connected: MakeClient) -> None:
    """The release after a failed acquire is sent although the caller's time is over."""
    c = connected(masters, node_timeout=0.02)
    with paused(masters, 0, 1, 2):
        for timeout in (0.001, 0.02, 0.05):
            with pytest.raises(QuorumUnavailable):
                c.acquire("late", TTL, timeout=timeout)
        eventually(
            lambda: not with_keys_of(masters, 3) and not with_keys_of(masters, 4), "it is sent at once"
        )
    nothing_left(masters)


def test_18_a_lost_lock_is_reported(masters: Masters, connected: MakeClient) -> None:
    """By `check`, by `extend`, by leaving `with`. By a callback, and before the lease ends, comes with
    renewal; that nothing renews after the release, too: nothing does today.
    """
    c = connected(masters)

    def too_long(end: Exception | None) -> None:
        with c.lock("lost", 0.05) as lock:
            eventually(lambda: not lock.locked(), "the lease ends")
            nothing_left(masters)
            with pytest.raises(LockLost):
                lock.check()
            with pytest.raises(LockLost):
                lock.extend()
            if end:
                raise end

    with pytest.raises(LockLost):
        too_long(None)
    with pytest.raises(ZeroDivisionError):
        too_long(ZeroDivisionError())
    with c.lock("released", TTL) as released:
        released.extend(TTL)
    nothing_left(masters)


@pytest.mark.parametrize("protocol", [2, 3])
def test_19_replies_mean_the_same_whatever_they_are_decoded_to(
    masters: Masters, client: MakeClient, connected: MakeClient, protocol: int
) -> None:
    """Settings of clients that decode, for either protocol: refused, granted and lost stay the same."""
    servers = [redis.Redis.from_url(url, decode_responses=True, protocol=protocol) for url in masters.urls]
    c, other = connected(servers), client(masters)
    lock = c.lock("decoded", TTL / 2)
    assert lock.acquire() is True
    assert c.lock("decoded").acquire(blocking=False) is False
    assert other.acquire("decoded", blocking=False) is None
    assert lock.extend(TTL) > TTL / 2
    assert lock.release() is True
    assert lock.release() is False
    assert other.acquire("decoded", TTL)
    assert c.lock("decoded").acquire(blocking=False) is False
    for server in servers:
        server.close()


def test_20_zero_is_zero(valkey: Masters, client: MakeClient) -> None:
    """A lease of zero is refused; a timeout of zero is one try."""
    c = client(valkey)
    with pytest.raises(ConfigError):
        c.lock("zero", 0)
    holder = c.lock("zero", TTL, timeout=0)
    assert holder.acquire()
    with within(SOON):
        assert c.lock("zero", TTL, timeout=0).acquire() is False
        assert c.lock("zero", TTL).acquire(timeout=0) is False
        assert c.lock("zero", TTL).acquire(blocking=False) is False
    with pytest.raises(ConfigError):
        c.lock("zero").acquire(timeout=-2)


def test_20_a_timeout_below_the_pause_is_more_than_one_try(
    valkey: Masters, client: MakeClient, raw: Raw
) -> None:
    """The last try comes at the end of the time, however long the pauses are."""
    c = client(valkey, retry=Retry(min_delay=300.0, max_delay=600.0))
    server = raw(valkey)[0]

    def taken_over() -> bool:
        holder = c.acquire("pause", TTL)
        assert holder
        before, lock = sets(server), c.lock("pause", TTL)
        waiting = start(lambda: lock.acquire(timeout=1.0))
        eventually(lambda: sets(server) > before, "it is tried while the lock is held")
        assert holder.release()
        try:
            return waiting.result(DEADLINE) and lock.release()
        except QuorumUnavailable:  # no master answered in its time
            return False

    assert any(taken_over() for _ in range(5)), "or did the machine stand still each time?"


def sets(server: redis.Redis) -> int:
    """How many it has executed since it was started."""
    return int(server.info("commandstats")["cmdstat_set"]["calls"])


def test_21_a_held_lock_is_not_acquired_again(valkey: Masters, client: MakeClient) -> None:
    """A second token would make the first lock impossible to release; and free is free at timeout 0."""
    c = client(valkey)
    lock = c.lock("twice", TTL)
    assert lock.acquire(timeout=0)
    token = lock.token
    for again in (lock.acquire, lambda: lock.acquire(timeout=0), lock.__enter__):
        with pytest.raises(LockAlreadyHeld):
            again()
    assert lock.token == token
    assert lock.release()
    nothing_left(valkey)
    assert lock.acquire(timeout=0)
    assert lock.release()


def test_22_held_by_others_is_not_masters_down(masters: Masters, connected: MakeClient) -> None:
    """False where others hold it, also while a minority is down; QuorumUnavailable, with the masters
    and their troubles, where masters are.
    """
    c = connected(masters)
    holder = c.acquire("difference", TTL)
    assert holder
    eventually(lambda: len(with_keys(masters)) == 5, "all masters have the key")
    for down in range(3):
        if down:
            masters[down].kill()
        assert c.lock("difference").acquire(blocking=False) is False
        with pytest.raises(Contended) as caught, c.lock("difference", timeout=0):
            pass
        assert set(caught.value.masters) <= {master.name for master in c.health()}
        assert caught.value.masters
    masters[3].kill()
    eventually(lambda: c.health()[3].state == "down", "the loss is seen")
    with pytest.raises(QuorumUnavailable) as failed:
        c.acquire("difference", blocking=False)
    names = [master.name for master in c.health()]
    assert {cause.master for cause in failed.value.causes} >= set(names[1:4])
    assert all(cause.cause for cause in failed.value.causes)
    assert c.stats().contended == 6
    assert c.stats().unavailable == 1
