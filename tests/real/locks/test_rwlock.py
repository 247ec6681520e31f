"""Read-write locks on real masters: which requests are granted, in which order, and what is left."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
import redis
from support.clocks import Jumping
from support.event_loops import until
from support.inside import core_of
from support.keys import nothing_left, paused, wipe
from support.kinds import claim_of, values, waiting_writers
from support.makers import MakeAio, MakeClient, MakePlain, Raw
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ConfigError, LockLost, QuorumUnavailable, Retry
from redlock_fast.embedded import Masters
from redlock_fast.locks.rwlock import Reader, Writer

pytestmark = pytest.mark.usefixtures("all_masters")


TTL = 60.0
W, R, I = "{r}:w", "{r}:r", "{r}:i"  # noqa: E741
ALL_MASTERS = 0b11111


@pytest.fixture
def long_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is held up must not lose a writer its place."""
    monkeypatch.setattr("redlock_fast.locks.rwlock.INTENT", TTL)


def now(node: redis.Redis) -> int:
    seconds, micros = node.time()
    return int(seconds) * 1000 + int(micros) // 1000


def waits(nodes: list[redis.Redis], count: int = 1) -> None:
    eventually(lambda: waiting_writers(nodes, "r") == [count] * len(nodes), "the writer waits everywhere")


# --- which requests are granted ---------------------------------------------------------------------


def test_readers_of_one_client_wait_in_one_queue_and_enter_together(
    masters: Masters, aclient: MakeAio, connected: MakeClient, raw: Raw
) -> None:
    """The first of them watches the masters. Once it is granted, all ask, without waiting for its release."""
    writer, nodes = connected(masters, ttl=TTL).rwlock("r").write(), raw(masters)

    async def main() -> None:
        async with aclient(masters, ttl=TTL) as c:
            assert writer.acquire()
            readers = [c.rwlock("r").read() for _ in range(20)]
            tasks = [asyncio.create_task(reader.acquire()) for reader in readers]
            await until(
                lambda: len(core_of(c).policy.local_queue.waiting.get(R.encode(), ())) == 20, "all wait"
            )
            for task in tasks[:3]:  # the first too
                task.cancel()
            await asyncio.gather(*tasks[:3], return_exceptions=True)
            assert writer.release()
            assert all(await asyncio.gather(*tasks[3:]))
            assert max(int(node.zcard(R)) for node in nodes) == 17
            assert core_of(c).policy.local_queue.waiting == {}
            for reader in readers[3:]:
                assert await reader.release()

    asyncio.run(main())
    nothing_left(masters)


def test_readers_share_and_a_writer_excludes(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    nodes = raw(masters)
    c = plain(masters, ttl=TTL, retry=Retry(max_attempts=3)).at_full_strength()
    rw = c.client.rwlock("r")
    readers, writer = [rw.read() for _ in range(3)], rw.write()
    assert all(c.wait(reader.acquire(blocking=False)) for reader in readers)
    eventually(lambda: [int(node.zcard(R)) for node in nodes] == [3] * 5, "all are everywhere")
    assert c.wait(writer.acquire(blocking=False)) is False
    assert c.wait(writer.acquire()) is False, "after three rounds"
    assert c.wait(readers[0].release()) is c.wait(readers[1].release()) is True
    assert c.wait(writer.acquire(blocking=False)) is False, "one is still in"
    assert c.wait(readers[2].release()) is True
    nothing_left(masters)
    assert c.wait(writer.acquire()) is True
    assert writer.validity > 0
    assert not c.wait(readers[0].acquire(blocking=False))
    assert not c.wait(rw.write().acquire(blocking=False))
    assert c.wait(c.client.rwlock("other").write().acquire()), "another resource"
    assert c.wait(c.client.lock("r").acquire()), "the plain lock of this name is another one"
    assert c.wait(writer.release()) is True
    assert c.wait(writer.release()) is False
    assert c.wait(readers[0].acquire()) is True


def test_even_number_of_masters(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey.urls[:4], ttl=TTL).at_full_strength()
    rw = c.client.rwlock("r")
    reader = rw.read()
    assert c.wait(reader.acquire())
    assert c.wait(rw.read().acquire(blocking=False))
    assert not c.wait(rw.write().acquire(blocking=False))


@pytest.mark.usefixtures("long_intents")
@pytest.mark.parametrize("wait", ["push", "poll"])
def test_a_writer_gets_in_under_a_stream_of_readers(
    masters: Masters, connected: MakeClient, wait: str
) -> None:
    """The next reader comes before the last one goes; without preference no writer would ever get in."""
    c = connected(masters, ttl=TTL, wait=wait)
    rw, written, handed = c.rwlock("r", timeout=DEADLINE), threading.Event(), 0

    def stream() -> int:
        nonlocal handed
        refused, last = 0, rw.read()
        assert last.acquire()
        while not written.is_set():
            following = rw.read()
            if following.acquire(blocking=False):
                handed += 1
                assert last.release()
                last = following
            else:
                refused += 1
                assert last.release()
                assert last.acquire()  # when the writer is through
        assert last.release()
        return refused

    readers = start(stream)
    eventually(lambda: handed > 20, "readers come and go")
    with rw.write() as writer:
        assert writer.locked()
        written.set()
    assert readers.result(DEADLINE) == 1
    nothing_left(masters)


@pytest.mark.usefixtures("long_intents")
def test_a_reader_after_a_waiting_writer_goes_after_it(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    rw = c.rwlock("r")
    first, writer = rw.read(), rw.write()
    assert first.acquire()
    writing = start(lambda: writer.acquire(timeout=DEADLINE))
    waits(nodes)
    assert not rw.read().acquire(blocking=False)
    assert first.extend() > 0, "a reader stays in"
    late = rw.read()
    reading = start(lambda: late.acquire(timeout=DEADLINE))
    assert first.release()
    assert writing.result(DEADLINE) is True
    assert not reading.done()
    assert writer.release()
    assert reading.result(DEADLINE) is True
    assert late.release()
    nothing_left(masters)


def test_waiting_needs_no_polling(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses would outlast the test: pushes and the ends of leases wake each waiter."""
    monkeypatch.setattr("redlock_fast.algorithm.attempts.REARM", TTL)
    nodes = raw(masters)
    c = connected(masters, ttl=TTL, wait="push", retry=Retry(min_delay=TTL, max_delay=TTL))
    rw = c.rwlock("r")
    reader, writer = rw.read(), rw.write()
    assert reader.acquire()
    writing = start(lambda: writer.acquire(timeout=DEADLINE))
    waits(nodes)
    assert reader.release()
    assert writing.result(DEADLINE)
    readings = [start(partial(rw.read().acquire, timeout=DEADLINE)) for _ in range(10)]
    assert writer.release()
    assert all(reading.result(DEADLINE) for reading in readings), "all together"
    dying = c.rwlock("dies")
    for node in nodes:  # not by a lease of ours: a busy machine would be late for a short one
        node.set("{dies}:w", "another client", px=500)
    last = dying.read()
    assert last.acquire(timeout=DEADLINE)
    assert last.release()
    for node in nodes:
        node.zadd("{dies}:r", {"another client": now(node) + 500})
    assert dying.write().acquire(timeout=DEADLINE)


# --- processes that die -----------------------------------------------------------------------------


def test_what_dead_clients_leave_expires(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """Each reader by itself, though others come and go."""
    nodes = raw(masters)
    c = plain(masters, ttl=TTL).at_full_strength()
    rw = c.client.rwlock("r")
    reader, writer = rw.read(), rw.write()
    for key, lock in ((R, writer), (I, reader)):
        for node in nodes:
            node.zadd(key, {"another client": now(node) + 60_000})
        assert not c.wait(lock.acquire(blocking=False))
        for node in nodes:
            node.zadd(key, {"another client": now(node)})
        assert c.wait(lock.acquire(blocking=False))
        assert c.wait(lock.release())
        nothing_left(masters)
    for node in nodes:
        node.zadd(R, {"another client": now(node) - 1})
    assert c.wait(reader.acquire())
    eventually(lambda: all(node.pttl(R) > 50_000 for node in nodes), "nothing is kept for ever")
    assert [node.zcard(R) for node in nodes] == [1] * 5, "the dead one is gone"
    assert c.wait(reader.release())
    for lock in (reader, writer):
        for node in nodes:
            node.set(W, "another client", px=60_000)
        assert not c.wait(lock.acquire(blocking=False))
        for node in nodes:
            node.pexpire(W, 1)
        assert c.wait(lock.acquire(timeout=DEADLINE))
        assert c.wait(lock.release())
    nothing_left(masters)


def test_places_and_leases_end_by_themselves(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a client that dies: what it had is not released."""
    nodes, c = raw(masters), connected(masters, ttl=2.0)
    monkeypatch.setattr(core_of(c).policy.server_entries, "close", list)
    assert c.rwlock("r").read().acquire()
    writing = start(lambda: c.rwlock("r").write().acquire())
    waits(nodes)
    c.close()
    assert writing.exception(DEADLINE) is not None
    other = connected(masters, ttl=TTL).rwlock("r")
    assert other.write().acquire(timeout=DEADLINE)


# --- downgrade --------------------------------------------------------------------------------------


def test_downgrade(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    nodes = raw(masters)
    c = plain(masters, ttl=TTL).at_full_strength()
    rw = c.client.rwlock("r")
    lock, other = rw.write(), rw.read()
    assert c.wait(lock.acquire())
    assert not c.wait(other.acquire(blocking=False))
    token = lock.token
    before = lock.remaining()
    assert 0 < c.wait(lock.downgrade()) <= before + 1.0
    assert lock.token == token
    eventually(lambda: [node.zcard(R) for node in nodes] == [1] * 5, "a reader everywhere")
    assert not any(node.exists(W) for node in nodes)
    assert c.wait(other.acquire(blocking=False))
    assert not c.wait(rw.write().acquire(blocking=False))
    assert c.wait(lock.extend(TTL - 1)) > 0
    assert c.wait(c.client.extend_many([lock, other], TTL)) == [True, True]
    assert c.wait(other.release()) is c.wait(lock.release()) is True
    nothing_left(masters)
    assert c.wait(lock.acquire())
    assert not c.wait(other.acquire(blocking=False)), "what was made as a write lock is one again"


@pytest.mark.usefixtures("long_intents")
def test_no_writer_gets_in_between(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    rw = c.rwlock("r")
    lock, waiting = rw.write(), rw.write()
    assert lock.acquire()
    writing = start(lambda: waiting.acquire(timeout=DEADLINE))
    waits(nodes)
    eager = connected(masters, ttl=TTL).rwlock("r")
    begun, over = threading.Event(), threading.Event()

    def hammer() -> None:
        while not over.is_set():
            assert not eager.write().acquire(blocking=False)
            begun.set()

    hammering = start(hammer)
    assert begun.wait(DEADLINE)
    assert lock.downgrade() > 0
    before = c.stats().contended
    for _ in range(20):
        assert not rw.write().acquire(blocking=False)
    assert c.stats().contended == before + 20
    over.set()
    hammering.result(DEADLINE)
    assert not writing.done()
    assert not rw.read().acquire(blocking=False), "a waiting writer goes before a new reader"
    lock.check()
    assert lock.release()
    assert writing.result(DEADLINE)
    assert waiting.release()
    nothing_left(masters)


def test_masters_that_do_not_answer_a_downgrade(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    """They follow when they can; until then the caller is a reader, for as long as it was the writer."""
    nodes, c = raw(valkey), connected(valkey, ttl=TTL)
    patience, rw = core_of(c).policy.node_timeout, c.rwlock("r")
    lock = rw.write()
    for hung in ((3, 4), (0, 1, 2)):
        assert lock.acquire(timeout=DEADLINE)
        eventually(lambda: all(node.exists(W) for node in nodes), "the writer, everywhere")
        with paused(valkey, *hung):
            if len(hung) == 2:
                assert lock.downgrade() > 0
                assert rw.read().acquire()
            else:
                core_of(c).policy.node_timeout = 0.5
                with pytest.raises(QuorumUnavailable):
                    lock.downgrade()
                with pytest.raises(ConfigError):
                    lock.downgrade()
                core_of(c).policy.node_timeout = patience
            lock.check()
        eventually(lambda: not any(node.exists(W) for node in nodes), "all have made it a reader")
        assert lock.extend(TTL) > 0
        assert lock.release()
        for node in nodes:
            wipe(node)


def test_downgrade_of_what_is_lost(masters: Masters, connected: MakeClient) -> None:
    clock = Jumping()
    c = connected(masters, ttl=TTL, clock=clock)
    lock = c.rwlock("r").write()
    with pytest.raises(LockLost):
        lock.downgrade()
    assert lock.acquire()
    for master in masters:
        wipe(master)
    with pytest.raises(LockLost):
        lock.downgrade()
    assert not lock.locked()
    assert lock.release() is False
    assert lock.acquire()
    clock.jump(TTL)
    with pytest.raises(LockLost):
        lock.downgrade()
    assert lock.release() is False
    nothing_left(masters)


def test_downgrade_of_what_is_no_write_lock(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey, ttl=TTL)
    reader, ordinary = c.client.rwlock("r").read(), c.client.lock("r")
    for lock in (reader, ordinary):
        assert c.wait(lock.acquire())
        with pytest.raises(ConfigError, match="only a write lock"):
            c.wait(lock.downgrade())
        assert lock.locked()
    assert not hasattr(reader, "upgrade")


def test_downgraded_under_renewal(valkey: Masters, connected: MakeClient) -> None:
    clock, losses = Jumping(), list[str]()
    c = connected(valkey, ttl=TTL, clock=clock)
    rw = c.rwlock("r", auto_extend=True, on_lost=lambda lock, reason: losses.append(reason))
    lock = rw.write()
    assert lock.acquire()
    assert lock.downgrade() > 0
    clock.jump(TTL / 2)
    eventually(lambda: c.stats().renewed == 1, "it is renewed as a reader")
    assert lock.remaining() > TTL / 2
    assert rw.read().acquire(blocking=False)
    assert lock.release()
    assert losses == []


# --- what each master does --------------------------------------------------------------------------


def test_a_vote_that_is_there_already_is_refreshed(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    rw = c.rwlock("r")
    writer, reader = claim_of(rw.write()), claim_of(rw.read())
    assert isinstance(writer, Writer)
    again = writer.acquire_request(b"t" * 20, b"60000", ALL_MASTERS)
    longer = Reader.extend_requests(writer, b"t" * 20, b"60000", ALL_MASTERS)
    assert values(c, again, again, *longer) == [(1,) * 5] * 3
    assert all(node.pttl(W) > 50_000 for node in nodes)
    down = writer.downgrade(b"t" * 20, b"60000", ALL_MASTERS, 0.0)
    assert values(c, down) == [(1,) * 5]
    for node in nodes:
        node.zadd(R, {b"t" * 20 + b"1": now(node) + 5000})
        node.pexpire(R, 5000)
    assert values(c, down) == [(1,) * 5], "a reader already"
    assert all(node.zscore(R, b"t" * 20 + b"1") > now(node) + 50_000 for node in nodes)
    assert all(node.pttl(R) > 50_000 for node in nodes)
    assert values(c, reader.acquire_request(b"r" * 20, b"5000", ALL_MASTERS)) == [(1,) * 5]
    for node in nodes:
        node.zadd(I, {"another client": now(node) + 60_000})
    assert values(c, reader.acquire_request(b"s" * 20, b"60000", ALL_MASTERS)) == [(0,) * 5]
    assert values(c, reader.acquire_request(b"r" * 20, b"60000", ALL_MASTERS)) == [(1,) * 5], (
        "a reader may ask again"
    )
    assert all(node.zscore(R, b"r" * 20) > now(node) + 50_000 for node in nodes)


def test_a_short_reader_leaves_the_others_their_time(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Catches: the key of all readers that expires with the one that came, or was extended, last."""
    nodes, client = raw(masters), connected(masters, max_ttl=1000.0)
    long, short = client.rwlock("r", 900.0).read(), client.rwlock("r", TTL).read()
    assert long.acquire(blocking=False)
    assert short.acquire(blocking=False)
    eventually(lambda: [int(node.zcard(R)) for node in nodes] == [2] * 5, "both are everywhere")
    assert all(node.pttl(R) > 600_000 for node in nodes)
    short.extend(2 * TTL)
    assert all(node.pttl(R) > 600_000 for node in nodes)
    assert short.release()
    long.check()
    assert all(node.pttl(R) > 600_000 for node in nodes)
    assert long.release()


def test_a_grant_leaves_the_place(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """It may not be enough; the next round needs it. Only what ends the waiting takes it away."""
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    writer = claim_of(c.rwlock("r").write())
    token = b"t" * 20
    assert values(c, writer.acquire_request(token, b"60000", ALL_MASTERS)) == [(1,) * 5]
    assert waiting_writers(nodes, "r") == [0] * 5, "a writer that need not wait has no place"
    assert values(c, *writer.rollback_requests(token, ALL_MASTERS, 0.0)) == [(1,) * 5]
    assert waiting_writers(nodes, "r") == [1] * 5
    assert not any(node.exists(W) for node in nodes)
    assert values(c, writer.acquire_request(token, b"60000", ALL_MASTERS)) == [(1,) * 5]
    assert waiting_writers(nodes, "r") == [1] * 5
    assert values(c, *writer.release_requests(token, ALL_MASTERS, 0.0)) == [(1,) * 5]
    nothing_left(masters)


def test_what_takes_back_an_earlier_round_comes_late(valkey: Masters, connected: MakeClient) -> None:
    """As on an old connection: the place is the same, what holds the lock is not."""
    c = connected(valkey, ttl=TTL)
    writer, token = claim_of(c.rwlock("r").write()), b"t" * 20
    first = writer.acquire_request(token, b"60000", ALL_MASTERS)
    earlier = writer.release_requests(token, ALL_MASTERS, 0.0)
    later = writer.rollback_requests(token, ALL_MASTERS, 0.0)
    second = writer.acquire_request(token, b"60000", ALL_MASTERS)
    assert values(c, first, *earlier, second, *earlier, *later) == [(1,) * 5] * 3 + [(0,) * 5, (1,) * 5]
    assert values(c, *writer.extend_requests(token, b"60000", ALL_MASTERS)) == [(1,) * 5], (
        "held by the second round"
    )


def test_a_late_downgrade_shortens_nothing(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """As on an old connection, after a longer extension."""
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    writer, token = claim_of(c.rwlock("r").write()), b"t" * 20
    ask = writer.acquire_request(token, b"60000", ALL_MASTERS)
    assert values(c, ask, writer.downgrade(token, b"1000", ALL_MASTERS, 0.0)) == [(1,) * 5] * 2
    for node in nodes:
        seconds, micro = node.time()
        assert node.zscore(R, token + b"1") - seconds * 1000 - micro // 1000 > 30_000
        assert node.pttl(R) > 30_000


def test_an_end_is_an_end(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """A reader whose time is over is none, although no client has asked since."""
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    reader, token = claim_of(c.rwlock("r").read()), b"r" * 20
    assert values(c, reader.acquire_request(token, b"60000", ALL_MASTERS)) == [(1,) * 5]
    for node in nodes:
        node.zadd(R, {token: now(node)})
    assert values(c, *reader.extend_requests(token, b"60000", ALL_MASTERS)) == [(0,) * 5]
    assert values(c, *reader.release_requests(token, ALL_MASTERS, 0.0)) == [(0,) * 5]
    nothing_left(masters)


def test_options(valkey: Masters, plain: MakePlain) -> None:
    c = plain(valkey)
    for wrong in ({"fencing": True}, {"ttl": -1}, {"timeout": -2}, {"unknown": 1}, {"on_lost": print}):
        with pytest.raises(ConfigError):
            c.client.rwlock("r", **wrong)
    with pytest.raises(ConfigError):
        c.client.rwlock("")
    assert "r" in repr(c.client.rwlock("r"))
