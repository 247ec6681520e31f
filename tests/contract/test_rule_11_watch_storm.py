"""Rule 11: what a push costs does not grow with the number of requests that watch."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from support.engine_trace import unread
from support.fleet import LONG
from support.watching import EVERYTHING, WATCHING, invalidate, watch, watch_all

from redlock_fast.engine.contract import Engine, Request, Wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks a socket what is unread")

FEW, MANY = 20, 2_000
#: Keys in each of the pushes: so many that the clock can tell, for each engine. And how often all are pushed.
KEYS, TIMES = {"native": 1_000, "python": 200}, 3
#: Were each key compared with each request, many would cost up to 100 times as much. Seconds, for the clock.
FAR_LESS, TICK = 5, 0.002


#: Of so many bytes that all that is pushed is no more than was asked for (rule 13).
ASKED_FOR = watch(b"x" * (32 << 10), 0b11)


class Watched:
    """Two masters, and requests that need both; ``push`` says something as the first."""

    def __init__(self, engine_class: type[Engine], requests: list[Request]) -> None:
        self.engine = engine_class(2, lambda: None, lag_after=1e6)
        self.servers = []
        self.completed: list[object] = []
        self.engine.fileno()
        for master in range(2):
            client, server = socket.socketpair()
            self.engine.attach(master, client, WATCHING)
            self.servers.append(server)
        self.engine.cancel(self._submit(ASKED_FOR, "dropped"))
        for number, request in enumerate(requests):
            self._submit(request, number)

    def _submit(self, request: Request, context: object) -> object:
        ticket = self.engine.submit([request], 2, LONG, Wait.EARLY, 0.0, context)
        self.engine.flush()
        for server in self.servers:
            while not server.recv(1 << 16):
                pass
        return ticket

    def push(self, data: bytes, master: int = 0) -> float:
        """How many seconds of this thread it took."""
        server = self.servers[master]
        server.setblocking(False)
        spent = 0.0
        while data or unread(server):
            with contextlib.suppress(BlockingIOError):
                data = data[server.send(data) :] if data else b""
            before = time.thread_time()
            self.completed += [number for number, _ in self.engine.on_ready()]
            spent += time.thread_time() - before
        return spent

    def close(self) -> None:
        self.engine.close_loop_fd()
        self.engine.close()
        for server in self.servers:
            server.close()


@contextlib.contextmanager
def watched(engine_class: type[Engine], requests: list[Request]) -> Iterator[Watched]:
    with contextlib.closing(Watched(engine_class, requests)) as both:
        yield both


def own_keys(number: int) -> Request:
    return watch(b"lock:%d" % number, 0b11)


def own_prefixes(number: int) -> Request:
    return watch_all(b"{lock:%d}" % number, 0b11)


def many_lengths(number: int) -> Request:
    return watch_all(b"p" * (number % 20) + b"%d" % number, 0b11)


def same_key(_: int) -> Request:
    return watch(b"other:1", 0b11)


def same_prefix(_: int) -> Request:
    return watch_all(b"other:", 0b11)


def others(keys: int) -> bytes:
    return b"".join(invalidate(b"other:%d" % number) for number in range(keys))


def at_once(keys: int) -> bytes:
    return invalidate(*[b"other:%d" % number for number in range(keys)])


def same(keys: int) -> bytes:
    return invalidate(b"other:1") * keys


def cost(engine_class: type[Engine], request: object, count: int, push: bytes) -> float:
    """Of the cheapest of some times; what it changes at the first of them is not counted."""
    assert callable(request)
    with watched(engine_class, [request(number) for number in range(count)]) as both:
        both.push(push)
        return min(both.push(push) for _ in range(TIMES))


@pytest.mark.parametrize("push", [others, at_once, same])
@pytest.mark.parametrize("request_", [own_keys, own_prefixes, many_lengths, same_key, same_prefix])
def test_a_storm_costs_the_same_for_few_and_many(
    engine_name: str, engine_class: type[Engine], request_: object, push: Callable[[int], bytes]
) -> None:
    data = push(KEYS[engine_name])
    few, many = (cost(engine_class, request_, count, data) for count in (FEW, MANY))
    assert many < FAR_LESS * few + TICK


def test_among_many_the_right_ones_are_reported(engine_class: type[Engine]) -> None:
    # All lengths and names, several for each: as many are reported as are named, whatever else is listed.
    names = [b"%d" % number for number in range(300)]
    requests = [watch(name, 0b11) for name in names for _ in range(3)]
    requests += [watch_all(name, 0b11) for name in names for _ in range(2)]
    with watched(engine_class, requests) as both:
        for name in (b"7", b"42", b"299", b"1234"):
            expected = {
                number
                for number, asked in enumerate(requests)
                if (asked.verb == 0 and asked.args[0] == name)
                or (asked.verb == 1 and name.startswith(asked.args[0]))
            }
            expected -= set(both.completed)  # type: ignore[arg-type]
            before = len(both.completed)
            both.push(invalidate(name))
            assert len(both.completed) == before, "one master is not enough"
            both.push(invalidate(name), 1)
            assert set(both.completed[before:]) == expected
        left = len(requests) - len(both.completed)
        both.push(EVERYTHING)
        both.push(EVERYTHING, 1)
        assert len(both.completed) == len(requests)
        assert left


def test_a_key_again_for_those_that_came_later(engine_class: type[Engine]) -> None:
    with watched(engine_class, [watch(b"k", 0b11)]) as both:
        both.push(invalidate(b"k") + invalidate(b"k"))
        both.engine.submit([watch(b"k", 0b11)], 2, LONG, Wait.EARLY, 0.0, "later")
        both.engine.flush()
        both.push(invalidate(b"k"), 1)
        assert both.completed == [0]
        both.push(invalidate(b"k"))
        assert both.completed == [0, "later"]
        assert both.engine.next_timeout() is None
