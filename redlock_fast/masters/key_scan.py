"""Reads the keys on the masters with SCAN, GETRANGE and PTTL, over separate connections.

redis-py connects. The replies are read here, because a name may be longer than the longest reply that an
engine accepts. A hostile master is bounded in time, bytes and entries, and fails for itself only.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..wire.dialect import COMPARE_AND_DELETE
from ..wire.resp import ProtocolError
from .address import Target
from .connect import connection_of
from .connect_errors import error_text

#: Keys in one round trip: of SCAN, and of the commands for values.
OF_STRINGS = (b"COUNT", b"1000", b"TYPE", b"string")
ALL_TYPES = (b"COUNT", b"1000")
ASKED_AT_ONCE = 500
#: The last entry that is read of a sorted set.
MAX_ENTRIES = 10_000
#: Bytes. A longer value is no lock: tokens of this library have up to 100 bytes, of others up to 40.
MAX_TOKEN = 128
#: The name and the value of a counter of fencing tokens.
COUNTER = re.compile(rb"\{.*\}:f", re.DOTALL)
COUNT = re.compile(rb"-?\d+")
#: The key that a client watches while it waits in a queue (``wire/scripts.py``), and those of a turn.
WAIT_KEY = re.compile(rb"\{.*\}:[bt]:.*", re.DOTALL)

#: Limits for one master: bytes until ``begin_again``, bytes of a name, items of an array, bytes of a line.
MAX_BYTES = 64 << 20
MAX_STRING = 1 << 20
MAX_ITEMS = 100_000
MAX_LINE = 1024
RECEIVE_SIZE = 1 << 16

#: For each name its token and the milliseconds left; None if it is no lock.
Found = list[tuple[bytes, int] | None]


class ErrorReply(str):
    """An error that a server answered, such as ``OOM command not allowed``."""


class Replies:
    """Sends commands to a socket and reads their replies in RESP2."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()
        self._left = MAX_BYTES
        self._end = 0.0

    def begin_again(self) -> None:
        self._left = MAX_BYTES

    def send(self, data: bytes, end: float) -> None:
        """Send commands; ``end``: the deadline of the last reply, in monotonic seconds."""
        self._end = end
        self._wait()
        self._sock.sendall(data)

    def next(self, depth: int = 0) -> Any:
        """The next reply: bytes, an int, None, a list, or an :class:`ErrorReply`. Raises ProtocolError."""
        line = self._line()
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text
        if kind == b"-":
            return ErrorReply(text.decode(errors="backslashreplace"))
        try:
            number = int(text)
        except ValueError:
            raise ProtocolError("not a number") from None
        if kind == b":":
            if not -(1 << 63) <= number < 1 << 63:
                raise ProtocolError("a number of more than 64 bits")
            return number
        if number == -1 and kind in b"$*":
            return None
        if kind == b"$" and 0 <= number <= MAX_STRING:
            return self._take(number + 2)[:-2]
        if kind == b"*" and 0 <= number <= MAX_ITEMS and depth < 2:
            return [self.next(depth + 1) for _ in range(number)]
        raise ProtocolError("unexpected reply")

    def _line(self) -> bytes:
        searched = 0
        while (at := self._received.find(b"\r\n", searched, MAX_LINE)) < 0:
            if len(self._received) >= MAX_LINE:
                raise ProtocolError("line is too long")
            searched = max(0, len(self._received) - 1)
            self._receive()
        return self._take(at + 2)[:-2]

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _receive(self) -> None:
        if self._left <= 0:
            raise ProtocolError(f"more than {MAX_BYTES >> 20} MiB")
        self._wait()
        data = self._sock.recv(RECEIVE_SIZE)
        if not data:
            raise ConnectionError("connection closed by the master")
        self._left -= len(data)
        self._received += data

    def _wait(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)


#: What follows a refusal of a command.
NEEDS_ADMIN = "; this command needs the user of an operator, as admin in deploy/valkey/users.acl"


class Server:
    """One master. ``error``: why it failed. ``end``: the deadline of the call, in monotonic seconds."""

    def __init__(self, target: Target, timeout: float) -> None:
        self.name: str = target.name
        self.error: str = ""
        self.complete: bool = True  # SCAN has returned all names
        self.end: float = 0.0
        self._target = target
        self._timeout = timeout
        self._connection: Any = None
        self._replies: Replies

    @property
    def behind_sentinels(self) -> bool:
        return self._target.ask_sentinels is not None

    def names(
        self, pattern: bytes, limit: int, deadline: float, types: tuple[bytes, ...] | None = None
    ) -> set[bytes]:
        """The matching keys of these types, by default strings; ends soon after ``limit`` keys."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            (reply,) = self.ask([(b"SCAN", cursor, b"MATCH", pattern, *(types or OF_STRINGS))])
            cursor = _add_names(found, reply)
            if cursor == b"0":
                return found
            if len(found) > limit or time.monotonic() > deadline:
                self.complete = False
                return found

    def values(self, names: Sequence[bytes]) -> Found:
        """The token and the time left of each name."""
        found: Found = []
        for at in range(0, len(names), ASKED_AT_ONCE):
            part = names[at : at + ASKED_AT_ONCE]
            values = self.ask([(b"GETRANGE", name, b"0", b"%d" % MAX_TOKEN) for name in part], errors=True)
            left = self.ask([(b"PTTL", name) for name in part], errors=True)
            found += map(_lock, part, values, left)
        return found

    def entries(self, names: Sequence[bytes]) -> dict[tuple[bytes, bytes], int]:
        """The entries of these sorted sets, whose scores are times. By set and token: milliseconds left.

        A key of another type is no set of this library, and one that this user may not read has no entries.
        """
        commands: list[tuple[bytes | str, ...]] = [(b"TIME",)]
        commands += [(b"ZRANGE", name, b"0", b"%d" % MAX_ENTRIES, b"WITHSCORES") for name in names]
        (seconds, microseconds), *sets = self.ask(commands, errors=True)
        now = int(seconds) * 1000 + int(microseconds) // 1000
        return {
            (name, token): max(1, round(float(score)) - now)
            for name, flat in zip(names, sets, strict=True)
            if isinstance(flat, list)
            for token, score in zip(flat[::2], flat[1::2], strict=True)
        }

    def delete_entries(self, found: Sequence[tuple[bytes, bytes]]) -> int:
        """Delete the entry of each token from each set; returns how many there were."""
        replies = self.ask([(b"ZREM", *each) for each in found]) if found else []
        return sum(map(int, replies))

    def delete_tokens(self, found: Sequence[tuple[bytes, bytes]]) -> int:
        """Delete each key that still has its token; returns how many had it."""
        script = COMPARE_AND_DELETE.text
        commands: list[tuple[bytes | str, ...]] = [(b"EVAL", script, b"1", *each) for each in found]
        return sum(int(reply) for reply in self.ask(commands)) if commands else 0

    def delete(self, names: Sequence[bytes]) -> int:
        """Delete the keys, each by itself, as a Cluster wants it; returns how many existed."""
        return sum(map(int, self.ask([(b"UNLINK", name) for name in names]))) if names else 0

    def begin_again(self) -> None:
        """Forget an error: the next call connects again. The limits hold from here on."""
        self.complete = True
        if self.error:
            self.error = ""
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.disconnect()
        elif self._connection is not None:
            self._replies.begin_again()

    def ask(self, commands: list[tuple[bytes | str, ...]], errors: bool = False) -> list[Any]:
        """The replies to ``commands``, by ``end``. Without ``errors`` an error reply raises ProtocolError."""
        if self._connection is None:
            self._connection = connection_of(self._target, self._timeout, 2)
            self._replies = Replies(self._connection._sock.release())
        self._replies.send(b"".join(self._connection.pack_commands(commands)), self.end)
        said = [self._replies.next() for _ in commands]
        for reply in said:
            if isinstance(reply, ErrorReply) and not errors:
                hint = NEEDS_ADMIN if reply.startswith("NOPERM") else ""
                raise ProtocolError(reply + hint)
        return said

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()


def _add_names(found: set[bytes], reply: Any) -> bytes:
    """Add the names in a reply to SCAN; returns the cursor."""
    cursor, names = reply if isinstance(reply, list) and len(reply) == 2 else (None, None)
    if not isinstance(cursor, bytes) or not isinstance(names, list):
        raise ProtocolError("unexpected reply to SCAN")
    if not all(isinstance(name, bytes) for name in names):
        raise ProtocolError("unexpected reply to SCAN")
    found.update(names)
    return cursor


def _lock(name: bytes, value: Any, left: Any) -> tuple[bytes, int] | None:
    """Token and time left, if the value may be a token and will expire, and the key is that of a lock."""
    if not isinstance(value, bytes) or not 1 <= len(value) <= MAX_TOKEN:
        return None
    other = WAIT_KEY.fullmatch(name) or (COUNTER.fullmatch(name) and COUNT.fullmatch(value))
    return (value, left) if isinstance(left, int) and left > 0 and not other else None


class Servers:
    """Calls all masters at the same time, those that failed no more. A context manager."""

    def __init__(self, targets: Sequence[Target], timeout: float) -> None:
        self.timeout: float = timeout
        self.all: list[Server] = [Server(target, timeout) for target in targets]
        self._pool = ThreadPoolExecutor(len(targets))

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for server in self.all:
            with contextlib.suppress(Exception):
                server.close()

    def begin_again(self) -> None:
        """Call all masters again, also those that failed."""
        for server in self.all:
            with contextlib.suppress(OSError):
                server.begin_again()

    def each(self, question: Callable[[Server], Any], seconds: float) -> Iterator[Any]:
        """The results, in the order of the masters; None for those that fail or exceed ``seconds``."""
        end = time.monotonic() + seconds
        return self._pool.map(lambda server: _answer(server, question, end), self.all)


def _answer(server: Server, question: Callable[[Server], Any], end: float) -> Any:
    if server.error:
        return None
    server.end = end
    try:
        return question(server)
    except Exception as error:  # redis-py raises many kinds
        server.error = error_text(error)
    return None


def escape_pattern(name: bytes) -> bytes:
    """A pattern for MATCH that matches this name only."""
    return re.sub(rb"([*?\[\]\\])", rb"\\\1", name)
