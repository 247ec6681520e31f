"""Callers that share prepared commands, without a client: what threads and tasks cost by themselves.

They draw no tokens, encode nothing, know no keys and bear no failure. All callers ask before a flush, so each
write is as full as one of the floor. A client for such callers has its work on top.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections import deque
from urllib.parse import urlsplit

from libraries import TTL_MS

#: What a caller asks for, as an index into Commands.
ACQUIRE, RELEASE = 0, 1
REPLIES = (b"+OK\r\n", b":1\r\n")
#: Seconds until a flush without those callers that do not ask any more, and for a connection.
LATE, CONNECT = 0.05, 5.0


def commands(callers: int, release_path: str) -> list[tuple[bytes, bytes]]:
    """What each caller sends, by what it asks for. ``release_path``: as floor.c wants it."""
    name, _, sha1 = release_path.partition(":")
    before = (sha1.encode(), b"1") if sha1 else ()
    between = (b"IFEQ",) if name == "DELEX" else ()
    prepared = []
    for caller in range(callers):
        key, token = b"bare:%d" % caller, b"%020d" % caller
        acquire = encoded(b"SET", key, token, b"NX", b"PX", b"%d" % TTL_MS)
        prepared.append((acquire, encoded(name.encode(), *before, key, *between, token)))
    return prepared


def encoded(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Connections:
    """One connection to each master. A flush is decided when a majority has replied to all of it."""

    def __init__(self, urls: list[str]) -> None:
        self.sockets = [connected(url) for url in urls]
        self._quorum = len(urls) // 2 + 1
        self._expected = [bytearray() for _ in urls]
        self._flushes: list[deque[tuple[int, int]]] = [deque() for _ in urls]
        self._sent = [0] * len(urls)
        self._read = [0] * len(urls)
        self._decided: dict[int, int] = {}

    def send(self, flush: int, data: bytes, replies: bytes) -> None:
        self._decided[flush] = 0
        for number, one in enumerate(self.sockets):
            one.sendall(data)
            self._expected[number] += replies
            self._sent[number] += len(replies)
            self._flushes[number].append((self._sent[number], flush))

    def receive(self, number: int) -> list[int]:
        """The flushes that these replies of a master decide."""
        got = self.sockets[number].recv(65536)
        if not got or not self._expected[number].startswith(got):
            raise RuntimeError(f"not acquired or not released: {got[:80]!r}")
        del self._expected[number][: len(got)]
        self._read[number] += len(got)
        decided = []
        while self._flushes[number] and self._flushes[number][0][0] <= self._read[number]:
            flush = self._flushes[number].popleft()[1]
            self._decided[flush] += 1
            if self._decided[flush] == self._quorum:
                decided.append(flush)
            if self._decided[flush] == len(self.sockets):
                del self._decided[flush]
        return decided

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    one = socket.create_connection((parts.hostname, parts.port), CONNECT)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


class Threads:
    """The last thread that asks sends for all, reads the replies and wakes the other threads."""

    def __init__(self, urls: list[str], callers: int, release_path: str) -> None:
        self._connections = Connections(urls)
        self._commands = commands(callers, release_path)
        self._callers = callers
        self._free = list(range(callers))
        self._mutex, self._leading = threading.Lock(), threading.Lock()
        self._waiting: list[tuple[int, int]] = []
        self._gates = [threading.Lock() for _ in range(callers)]
        for gate in self._gates:
            gate.acquire()
        self._poll = select.poll()
        self._numbers = {one.fileno(): number for number, one in enumerate(self._connections.sockets)}
        for fd in self._numbers:
            self._poll.register(fd, select.POLLIN)
        self._flush = 0

    def acquire(self, key: str) -> tuple[int]:
        caller = self._free.pop()
        self._ask(caller, ACQUIRE)
        return (caller,)

    def release(self, lock: tuple[int]) -> None:
        self._ask(lock[0], RELEASE)
        self._free.append(lock[0])

    def close(self) -> None:
        self._connections.close()

    def _ask(self, caller: int, what: int) -> None:
        with self._mutex:
            self._waiting.append((caller, what))
            flushed = self._take() if len(self._waiting) == self._callers else []
        while not flushed:
            if self._gates[caller].acquire(timeout=LATE):
                return
            with self._mutex:
                flushed = self._take() if (caller, what) in self._waiting else []
        with self._leading:
            self._exchange(flushed)
        for other, _ in flushed:
            if other != caller:
                self._gates[other].release()

    def _take(self) -> list[tuple[int, int]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _exchange(self, flushed: list[tuple[int, int]]) -> None:
        self._flush += 1
        data = b"".join([self._commands[caller][what] for caller, what in flushed])
        self._connections.send(self._flush, data, b"".join([REPLIES[what] for _, what in flushed]))
        decided = False
        while not decided:
            for fd, _ in self._poll.poll():
                decided |= self._flush in self._connections.receive(self._numbers[fd])


class Tasks:
    """All tasks that ask in one turn of the loop share a flush."""

    def __init__(self, urls: list[str], callers: int, release_path: str) -> None:
        self._connections = Connections(urls)
        self._commands = commands(callers, release_path)
        self._free = list(range(callers))
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._flushed: dict[int, list[asyncio.Future[None]]] = {}
        self._flush = 0
        for number, one in enumerate(self._connections.sockets):
            self._loop.add_reader(one, self._receive, number)

    async def acquire(self, key: str) -> tuple[int]:
        caller = self._free.pop()
        await self._ask(caller, ACQUIRE)
        return (caller,)

    async def release(self, lock: tuple[int]) -> None:
        await self._ask(lock[0], RELEASE)
        self._free.append(lock[0])

    def close(self) -> None:
        for one in self._connections.sockets:
            self._loop.remove_reader(one)
        self._connections.close()

    def _ask(self, caller: int, what: int) -> asyncio.Future[None]:
        future = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append((caller, what, future))
        return future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._flush += 1
        self._flushed[self._flush] = [future for _, _, future in waiting]
        data = b"".join([self._commands[caller][what] for caller, what, _ in waiting])
        self._connections.send(self._flush, data, b"".join([REPLIES[what] for _, what, _ in waiting]))

    def _receive(self, number: int) -> None:
        for flush in self._connections.receive(number):
            for future in self._flushed.pop(flush):
                future.set_result(None)
