"""A client that is closed during acquire_many: the caller gets ClientClosed, and no master keeps a key."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from support.clients import both_clients
from support.inside import core_of
from support.keys import TTL, calls, forget_calls, names, nothing_left, with_keys
from support.makers import MakeClient, Raw
from support.moments import at_moment
from support.proxy import Pipe, Proxy
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ClientClosed, FastRedlock
from redlock_fast.algorithm import batch as batches
from redlock_fast.embedded import Masters
from redlock_fast.locks import many
from redlock_fast.threads import operations

pytestmark = pytest.mark.usefixtures("all_masters")

#: The keys of a part in these tests.
PART = 10


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST", PART)


@contextmanager
def stopped_before_part(number: int, masters: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These masters stop when the part of this number begins; they run again at the end."""
    numbers, start_attempts = itertools.count(), batches.start_attempts

    def start_or_stop(*args: Any) -> Any:
        if next(numbers) == number:
            for master in masters:
                master.pause()
        return start_attempts(*args)

    monkeypatch.setattr(batches, "start_attempts", start_or_stop)
    try:
        yield
    finally:
        for master in masters:
            master.resume()


@both_clients
def test_parts_that_were_granted_are_undone(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third part waits for a quorum. Catches: grants that only the call itself knows of."""
    c, running = connected(masters), raw(masters)[3:]
    forget_calls(running)
    with stopped_before_part(2, masters[:3], monkeypatch):
        call = start(lambda: c.acquire_many(names(3 * PART), TTL))
        eventually(lambda: calls(running, "set") == [3 * PART] * 2, "the third part is under way")
        c.close()
        with pytest.raises(ClientClosed):
            call.result(DEADLINE)
        eventually(lambda: not set(with_keys(masters[3:])), "at once, where it can")
    nothing_left(masters)
    assert not core_of(c).client_state.batches


class Scant(Proxy):
    """Passes ``left`` more bytes of replies, and holds the rest. None: passes all."""

    left: int | None = None

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe.from_client or self.left is None:
            return super().arrived(pipe, data)
        passed, rest = data[: self.left], data[self.left :]
        self.left -= len(passed)
        if passed:
            self.carry(pipe, passed)
        if rest:
            self._held.append((pipe, rest))


@both_clients
def test_grants_of_a_part_that_is_under_way_are_undone(masters: Masters, connected: MakeClient) -> None:
    """A quorum granted the first half of its keys. Catches: the keys that the engine does not roll back."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Scant(master.port)) for master in masters[2:]]
        c = connected([*masters.urls[:2], *(proxy.url for proxy in proxies)], check_masters="off")
        for proxy in proxies:
            proxy.left = PART // 2 * len(b"+OK\r\n")
        call = start(lambda: c.acquire_many(names(PART), TTL))
        half = [0, 0, PART // 2, PART // 2, PART // 2]
        eventually(lambda: [master.pending for master in c.health()] == half, "one half is decided")
        c.close()
        with pytest.raises(ClientClosed):
            call.result(DEADLINE)
        nothing_left(masters)


class Draining:
    """The engine of a client. It calls ``before`` when it is drained for the first time."""

    def __init__(self, engine: Any, before: Any) -> None:
        self._engine = engine
        self._before = [before]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def drain(self, timeout: float) -> Any:
        if self._before:
            self._before.pop()()
        return self._engine.drain(timeout)


def test_a_part_that_is_sent_behind_its_release_is_undone(
    valkey: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread pauses before the exchange of its second part, until the releases are sent."""
    c, nodes = connected(valkey), raw(valkey)
    forget_calls(nodes)
    begun, goes_on, closed = threading.Event(), threading.Event(), threading.Event()
    perform, needed = operations.perform, itertools.count()

    def paused_exchange(effect: Any, masters: Any) -> Any:
        if not effect.need or next(needed) == 0:
            return perform(effect, masters)
        begun.set()
        assert goes_on.wait(DEADLINE)
        answers = perform(effect, masters)
        assert closed.wait(DEADLINE)  # the thread cannot undo anything
        return answers

    def let_it_send() -> None:
        goes_on.set()
        eventually(lambda: calls(nodes, "set") == [2 * PART] * 5, "the second part is executed")

    monkeypatch.setattr(operations, "perform", paused_exchange)
    monkeypatch.setattr(core_of(c).masters, "engine", Draining(core_of(c).masters.engine, let_it_send))
    call = start(lambda: c.acquire_many(names(2 * PART), TTL))
    assert begun.wait(DEADLINE)
    c.close()
    assert goes_on.is_set(), "close() drained the engine"
    closed.set()
    with pytest.raises(ClientClosed):
        call.result(DEADLINE)
    nothing_left(valkey)


def acquire(client: FastRedlock, locks: list[Any]) -> None:
    with suppress(ClientClosed):
        locks.extend(client.acquire_many(names(2 * PART)))


def test_a_call_either_returns_its_locks_or_leaves_nothing(valkey: Masters, connected: MakeClient) -> None:
    """Closed at each moment of a call. Catches: locks that are returned and released, and lost ones."""
    files = batches.__file__, many.__file__
    outcomes = []
    number, found = 0, True
    while found:
        c = connected(valkey, ttl=TTL)
        locks: list[Any] = []
        found = at_moment(number, partial(acquire, c, locks), c.close, files.__contains__)
        outcomes.append(len(locks))
        if locks:
            eventually(lambda: with_keys(valkey) == [*range(5)], f"the caller holds them: {number}")
            for master in valkey:
                assert master.ask("FLUSHALL").startswith("+OK")
        else:
            nothing_left(valkey)
        c.close()
        number += 1
    assert outcomes.count(0) > 20
    assert outcomes == sorted(outcomes), "there is a moment from which on the caller has the locks"
    assert {*outcomes} == {0, 2 * PART}


def test_a_handler_that_closes_and_raises_leaves_nothing(valkey: Masters, connected: MakeClient) -> None:
    """At each moment of a call. Catches: locks that no caller has, of a client that cannot release them."""

    def close_and_raise() -> None:
        c.close()
        raise KeyboardInterrupt

    files = batches.__file__, operations.__file__
    number, found = 0, True
    while found:
        c = connected(valkey, ttl=TTL)
        found = at_moment(number, partial(acquire, c, []), close_and_raise, files.__contains__)
        if found:
            nothing_left(valkey)
            assert not core_of(c).client_state.batches
        number += 1
    assert number > 20


def test_calls_that_returned_are_forgotten(valkey: Masters, connected: MakeClient) -> None:
    """Catches: batches that pile up."""
    c = connected(valkey)
    for number in range(10):
        assert all(c.acquire_many([f"{number}:{name}" for name in names(2 * PART)]))
        assert not core_of(c).client_state.unfinished_batches()
        assert len(core_of(c).client_state.batches) <= 1
