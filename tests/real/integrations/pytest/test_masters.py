"""Faults that the pytest plugin makes: what a client sees, and that nothing of them is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.waiting import eventually

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable
from redlock_fast.integrations.pytest import FaultyMasters


@pytest.fixture(scope="module")
def started() -> Iterator[FaultyMasters]:
    with FaultyMasters(3) as masters:
        yield masters


@pytest.fixture
def faulty(started: FaultyMasters) -> Iterator[FaultyMasters]:
    yield started
    started.clear()


@pytest.fixture
def client(faulty: FaultyMasters) -> Iterator[FastRedlock]:
    with FastRedlock(faulty.urls, node_timeout=5.0, connect_timeout=20.0) as one:
        one.connect()
        eventually(lambda: all(m.state == "connected" for m in one.health()), "all masters connect")
        yield one


@pytest.fixture(autouse=True)
def as_before() -> None:
    """These masters are cleaned by what is tested here."""


def keys(masters: FaultyMasters, name: str) -> list[str]:
    return [master.ask(f"EXISTS {name}") for master in masters]


def test_a_minority_that_is_killed_or_stopped(faulty: FaultyMasters, client: FastRedlock) -> None:
    faulty.kill(0)
    lock = client.acquire("r")
    assert lock
    assert lock.release()
    faulty.restart(0)
    eventually(lambda: client.health()[0].guard > 0, "it is back, without a vote")
    faulty.stop(1)
    with pytest.raises(QuorumUnavailable):
        client.lock("r").acquire(timeout=0.2)
    faulty.cont(1)
    eventually(lambda: client.health()[1].state == "connected", "it answers again")
    assert client.acquire("r")


def test_a_partition_holds_and_heals_in_order(faulty: FaultyMasters, client: FastRedlock) -> None:
    faulty.partition(2)
    lock = client.acquire("r")
    assert lock
    assert keys(faulty, "r") == [":1", ":1", ":0"], "the master itself answers, past its proxy"
    assert lock.release()
    faulty.heal()
    eventually(lambda: client.health()[2].pending == 0, "the late replies are here")
    assert keys(faulty, "r") == [":0"] * 3, "the release came behind its acquire"


def test_a_partition_of_replies_only(faulty: FaultyMasters, client: FastRedlock) -> None:
    for number in (1, 2):
        faulty.partition(number, requests=False)
    with pytest.raises(QuorumUnavailable), client.lock("r", timeout=0.5):
        raise AssertionError("two masters are silent")
    eventually(lambda: keys(faulty, "r") == [":0"] * 3, "they executed acquire and release")
    faulty.heal()


def test_a_delay(faulty: FaultyMasters, client: FastRedlock) -> None:
    for number in (1, 2):
        faulty.delay(number, 0.1)
    lock = client.lock("r", 10)
    assert lock.acquire()
    assert lock.validity < 10 - 0.2 - 0.1, "two ways, and the drift"


def test_clear_leaves_neither_faults_nor_late_requests(faulty: FaultyMasters, client: FastRedlock) -> None:
    faulty.partition(0)
    faulty.stop(1)
    faulty.kill(2)
    with pytest.raises(QuorumUnavailable):
        client.lock("r", 60).acquire(timeout=0.2)
    client.close()
    faulty.clear()
    assert [master.ask("PING") for master in faulty] == ["+PONG"] * 3
    with FastRedlock(faulty.urls, node_timeout=5.0, connect_timeout=20.0, decide="all") as again:
        assert again.acquire("another")
    assert keys(faulty, "r") == [":0"] * 3


def test_a_client_that_outlives_clear_trusts_its_masters(faulty: FaultyMasters, client: FastRedlock) -> None:
    """Catches: FLUSHALL, after which no master has a vote for ``max_ttl``."""
    assert client.acquire("r", 60)
    faulty[0].ask("SELECT 3")
    faulty.clear()
    assert keys(faulty, "r") == [":0"] * 3
    assert client.acquire("r")
    assert all(master.guard == 0 for master in client.health())


def test_wrong_numbers(faulty: FaultyMasters) -> None:
    calls: list[Callable[..., None]] = [
        faulty.kill,
        faulty.restart,
        faulty.stop,
        faulty.cont,
        faulty.partition,
    ]
    for call in (*calls, lambda number: faulty.delay(number, 0)):
        for number in (3, -1, True, "x", 1.0, None):
            with pytest.raises(ConfigError, match=f"number must be an integer from 0 to 2, not {number!r}"):
                call(number)
    for seconds in (float("nan"), -1, 3601, "x", True, None):
        with pytest.raises(ConfigError, match=f"seconds must be .*at most 3600, not {seconds!r}"):
            faulty.delay(0, seconds)  # type: ignore[arg-type]
    faulty.delay(0, 3600)


def test_masters_that_are_not_started() -> None:
    masters = FaultyMasters(1)
    with pytest.raises(ConfigError, match="the masters are not started"):
        masters.kill(0)
    with masters:
        masters.kill(0)
    for call in (masters.kill, masters.stop, masters.partition, lambda number: masters.delay(number, 1.0)):
        with pytest.raises(ConfigError, match="the masters are not started"):
            call(0)
