"""Requests that watch on real servers: what is tracked is pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
import redis
from support.fleet import LONG, SOON, Stopwatch
from support.waiting import eventually, start
from support.watching import WATCHING, watch

from redlock_fast.embedded import Masters
from redlock_fast.engine import load
from redlock_fast.engine.contract import NO_REPLY, ConnectionState, Engine, Votes


def tracked(url: str) -> redis.Connection:
    """A connection on which the server pushes what CLIENT CACHING YES armed."""
    connection = redis.Redis.from_url(url, protocol=3).connection_pool.make_connection()
    connection.connect()
    connection.send_command("CLIENT", "TRACKING", "ON", "OPTIN")
    assert connection.read_response() in (b"OK", "OK")
    return connection


@contextmanager
def watching(engine_name: str, masters: Masters) -> Iterator[Engine]:
    engine = load(engine_name)(len(masters), lambda: None, lag_after=60.0)
    connections = [tracked(url) for url in masters.urls]
    with closing(engine):
        for number, connection in enumerate(connections):
            sock = connection._sock
            connection._sock = None
            engine.attach(number, sock, WATCHING)
        yield engine


def ask(engine: Engine, masters: Masters, timeout: float = LONG) -> Votes:
    all_masters = (1 << len(masters)) - 1
    return engine.exchange([watch(b"watched", all_masters)], len(masters) // 2 + 1, timeout)[0]


def tended(engine: Engine, condition: Callable[[ConnectionState], bool], what: str) -> None:
    """Until that is true of all five connections."""

    def look() -> bool:
        engine.maintain()
        return all(condition(engine.connection_state(number)) for number in range(5))

    eventually(look, what)


@pytest.mark.parametrize("change", ["DEL watched", "SET watched 2", "FLUSHALL", "PEXPIRE watched 5000"])
def test_changes_are_pushed(engine_name: str, masters: Masters, change: str) -> None:
    with watching(engine_name, masters) as engine:
        assert ask(engine, masters).granted >= 3, "nothing is there"
        for master in masters:
            master.ask("SET watched 1")
        tended(engine, lambda link: link.pushes == 1, "what was armed before is pushed")
        future = start(lambda: ask(engine, masters))
        assert ask(engine, masters, 0.2).values == (NO_REPLY,) * 5
        for master in masters:
            assert not master.ask(change).startswith("-")
        assert future.result(SOON).granted >= 3


def test_an_expiry_ends_it(engine_name: str, masters: Masters) -> None:
    with watching(engine_name, masters) as engine:
        for master in masters:
            master.ask("SET watched 1 PX 300")
        with Stopwatch() as watched:
            ask(engine, masters)
        assert watched.seconds < SOON
        # A PTTL that took long ends it a moment too early.
        eventually(lambda: ask(engine, masters).granted >= 3, "the keys have ended")
