"""Single calls on five real masters, for pytest-benchmark; not part of the normal test run.

    pytest benchmarks/test_cases.py --benchmark-only

compare.py compares with other libraries, in turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.embedded import Masters

WARMUP = 100


@pytest.fixture(scope="module")
def masters() -> Iterator[Masters]:
    with Masters(5, password="") as started:
        yield started


@pytest.fixture(params=["native", "python"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["tcp", "unix"])
def urls(request: pytest.FixtureRequest, masters: Masters) -> list[str]:
    return masters.urls if request.param == "tcp" else masters.unix_urls


@pytest.fixture(params=["quorum", "all"])
def client(request: pytest.FixtureRequest, urls: list[str], engine: str) -> Iterator[FastRedlock]:
    try:
        made = FastRedlock(urls, ttl=60, node_timeout=5.0, engine=engine, decide=request.param)
    except ConfigError as error:
        pytest.skip(str(error))
    with made:
        assert made.connect(10)
        yield made


@pytest.fixture
def key() -> Iterator[str]:
    return (f"case:{number}" for number in itertools.count())


def test_acquire_and_release(benchmark: BenchmarkFixture, client: FastRedlock, key: Iterator[str]) -> None:
    def cycle() -> None:
        lock = client.lock(next(key))
        assert lock.acquire()
        assert lock.release()

    benchmark.pedantic(cycle, rounds=1000, warmup_rounds=WARMUP)


def test_with(benchmark: BenchmarkFixture, client: FastRedlock, key: Iterator[str]) -> None:
    def cycle() -> None:
        with client.lock(next(key)):
            pass

    benchmark.pedantic(cycle, rounds=1000, warmup_rounds=WARMUP)


def test_extend(benchmark: BenchmarkFixture, client: FastRedlock) -> None:
    with client.lock("case:extend", max_extensions=None) as lock:
        benchmark.pedantic(lock.extend, rounds=1000, warmup_rounds=WARMUP)


@pytest.mark.parametrize("size", [8, 64, 256])
def test_many(benchmark: BenchmarkFixture, client: FastRedlock, size: int) -> None:
    keys = [f"case:many:{index}" for index in range(size)]

    def cycle() -> None:
        locks = client.acquire_many(keys)
        assert all(client.release_many(locks))

    benchmark.pedantic(cycle, rounds=200, warmup_rounds=20)


def test_refused(benchmark: BenchmarkFixture, client: FastRedlock) -> None:
    with client.lock("case:refused"):
        other = client.lock("case:refused")
        assert benchmark.pedantic(other.acquire, args=(False,), rounds=1000, warmup_rounds=WARMUP) is False
