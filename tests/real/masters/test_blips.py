"""After a blip: a caller without a quorum has masters connected at once, and goes on when one is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from support.event_loops import Plain
from support.inside import core_of
from support.proxy import Pipe, Proxy
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.masters import dialler

MakeClient = Callable[..., FastRedlock]

#: Far longer than a test: a connector that waits for its backoff does so for ever.
NEVER = 1000.0


@pytest.fixture
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, a master that was lost is not connected again before the test has failed."""
    monkeypatch.setattr("redlock_fast.masters.link._backoff", lambda failures: NEVER)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("blocking", [True, False], ids=["waits", "tries once"])
def test_a_caller_has_masters_connected(blocking: bool, valkey: Masters, plain: Any) -> None:
    """Catches: a caller that waits for the connector's backoff."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(master.port)) for master in valkey]
        one = plain([proxy.url for proxy in proxies]).at_full_strength()
        lock = one.client.lock("blip", 60.0)
        for proxy in proxies[2:]:
            proxy.refusing = True
            proxy.cut()
        eventually(lambda: unavailable(one, lock), "two masters are left, which is no quorum")
        proxies[2].refusing = False
        if blocking:
            assert one.wait(lock.acquire(timeout=60.0))
        else:
            eventually(lambda: not unavailable(one, lock), "an attempt has the third connected")
            assert one.wait(lock.acquire(blocking=False))
        assert one.wait(lock.release())


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("blocking", [True, False], ids=["waits", "tries once"])
def test_a_master_that_is_gone_is_connected_where_others_hang(
    blocking: bool, valkey: Masters, plain: Any
) -> None:
    """Catches: a caller that has masters connected only where these alone are too many for a quorum."""
    with Proxy(valkey[2].port) as proxy:
        urls = [*valkey.urls[:2], proxy.url, *valkey.urls[3:]]
        one = plain(urls, node_timeout=0.2, socket_timeout=NEVER).at_full_strength()
        lock = one.client.lock("blip", 60.0)
        for master in valkey[0], valkey[1]:
            master.pause()
        proxy.refusing = True
        proxy.cut()
        eventually(lambda: unavailable(one, lock), "two masters answer, which is no quorum")
        proxy.refusing = False
        if blocking:
            assert one.wait(lock.acquire(timeout=DEADLINE))
        else:
            eventually(lambda: not unavailable(one, lock), "an attempt has the third connected")


class Faulty(Proxy):
    """Has one of FAULTS: "refused", "cut" at the next request, "half" of the next reply, "garbage" for it."""

    fault = ""

    def turn(self, fault: str) -> None:
        self.fault = fault
        self.refusing = fault == "refused"
        if self.refusing:
            self.cut()

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if self.fault == "cut" and pipe.from_client:
            self.carry(pipe, None)
        elif self.fault == "half" and not pipe.from_client:
            self.carry(pipe, data[: len(data) // 2] or None)
            self.carry(pipe, None)
        elif self.fault == "garbage" and not pipe.from_client:
            self.carry(pipe, b"garbage")
        else:
            self.carry(pipe, data)


FAULTS = ("refused", "cut", "half", "garbage")
#: Never more than a minority at a time, and never the same twice.
MOVES = [(0, 1), (2, 3), (4, 0), (1, 2), (3, 4), (0, 2)]


@pytest.mark.usefixtures("no_backoff")
def test_faults_that_move_fail_no_acquire(
    valkey: Masters, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: healthy masters that were not yet connected again when the next ones failed."""
    monkeypatch.setattr("redlock_fast.algorithm.attempts.BLIP", DEADLINE)
    with ExitStack() as stack:
        proxies = [stack.enter_context(Faulty(master.port)) for master in valkey]
        one = plain([proxy.url for proxy in proxies], node_timeout=DEADLINE).at_full_strength()
        for step, hit in enumerate(MOVES * 2):
            for proxy in proxies:
                proxy.turn("")
            for number in hit:
                proxies[number].turn(FAULTS[(step + number) % len(FAULTS)])
            for attempt in range(5):
                lock = one.client.lock(f"{step}:{attempt}", 60.0)
                assert one.wait(lock.acquire(blocking=False))
                one.wait(lock.release())


def unavailable(one: Plain, lock: Any) -> bool:
    """Whether an attempt on a free lock found no quorum."""
    try:
        assert one.wait(lock.acquire(blocking=False))
    except QuorumUnavailable:
        return True
    assert one.wait(lock.release()) in (True, False)
    return False


def up(one: Any) -> list[str]:
    return [health.name for health in one.health() if health.state in ("connected", "lagging")]


@pytest.mark.usefixtures("no_backoff")
def test_masters_are_left_alone_where_no_caller_waits(valkey: Masters, connected: MakeClient) -> None:
    """Catches: a connector that goes on without pauses."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(master.port)) for master in valkey]
        one = connected([proxy.url for proxy in proxies])
        for proxy in proxies:
            proxy.refusing = True
            proxy.cut()
        eventually(lambda: not up(one), "all are lost")
        with pytest.raises(QuorumUnavailable):
            one.lock("blip").acquire(blocking=False)
        eventually(
            lambda: time.monotonic() > core_of(one).masters.connector.dialler.urgent_until, "its time is over"
        )
        links = [master.link for master in core_of(one).masters.connector.roster.masters]
        eventually(lambda: not any(link.connecting for link in links), "the last attempts end")
        soon = time.monotonic() + NEVER / 2
        assert all(link.next_try > soon for link in links), "each waits for its backoff"
        proxies[0].refusing = False
        waiting = start(lambda: one.lock("other").acquire(timeout=60.0))
        eventually(lambda: len(up(one)) == 1, "a caller that waits has it connected")
        for proxy in proxies[1:]:
            proxy.refusing = False
        assert waiting.result(60.0)


def test_connections_that_end_at_once_are_made_ever_more_rarely(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a hostile master that has its connection ended again and again. Each new one makes all that
    watch ask every master.
    """
    failures: list[int] = []
    monkeypatch.setattr("redlock_fast.masters.link.SHORT_CONNECTION", NEVER, raising=False)
    monkeypatch.setattr("redlock_fast.masters.link._backoff", lambda count: failures.append(count) or 0.0)
    with Proxy(valkey[0].port) as proxy:
        one = connected([proxy.url, *valkey.urls[1:]])
        for connections in range(1, 4):
            until_connected(one, connections)
            proxy.cut()
        until_connected(one, 4)
    assert max(failures) >= 3


def until_connected(one: FastRedlock, connections: int) -> None:
    eventually(lambda: one.health()[0].connections == connections, "the first master is connected again")


@pytest.mark.parametrize("where", ["connect", "thread"])
def test_a_master_is_tried_again_where_memory_is_short(
    where: str, valkey: Masters, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a master that is being connected for ever, without a thread that does it."""
    failed: list[object] = []
    begin, connect = threading.Thread.start, dialler.connect

    def short(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(first: Any, *args: Any, **options: Any) -> Any:
            ours = call is connect or first.name == "redlock-fast-connect"
            if ours and len(failed) < len(valkey):
                failed.append(first)
                raise MemoryError
            return call(first, *args, **options)

        return called

    if where == "connect":
        monkeypatch.setattr(dialler, "connect", short(connect))
    else:
        monkeypatch.setattr(threading.Thread, "start", short(begin))
    one = client(valkey)
    one.connect()
    eventually(lambda: len(up(one)) == len(valkey), "all masters connect")
    assert len(failed) == len(valkey)
