"""What is on the masters, looked at through connections of their own: SCAN, GETRANGE and PTTL.

These are redis-py's: a name may be longer than any reply that a lock has a use for.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._dial import MAX_TEXT
from .._interview import ask
from .._resp import without_arguments
from .._target import Target

#: So many keys in one round trip.
OF_STRINGS = (b"COUNT", b"1000", b"TYPE", b"string")
ASKED_AT_ONCE = 500
#: A longer value is no lock's. Ours have 20 bytes, other libraries' up to 40.
MAX_TOKEN = 64
#: The name of a counter of fencing tokens.
COUNTER = re.compile(rb"\{.*\}:f", re.DOTALL)

#: A token and the milliseconds it has left, for each name; None where the name is no lock.
Found = list[tuple[bytes, int] | None]


class Server:
    """One master. ``error``: why it does not answer any more."""

    def __init__(self, target: Target, timeout: float) -> None:
        self.name = target.name
        self.error = ""
        self.complete = True  # all names were looked at
        self._target = target
        self._timeout = timeout
        self._connection: Any = None

    def names(self, pattern: bytes, limit: int, deadline: float) -> set[bytes]:
        """Keys with a string that match, ``limit`` and some at most."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            (reply,) = self._ask([(b"SCAN", cursor, b"MATCH", pattern, *OF_STRINGS)])
            cursor = reply[0]
            found.update(reply[1])
            if cursor == b"0":
                return found
            if len(found) > limit or time.monotonic() > deadline:
                self.complete = False
                return found

    def values(self, names: Sequence[bytes]) -> Found:
        """What each of these is now."""
        found: Found = []
        for at in range(0, len(names), ASKED_AT_ONCE):
            part = names[at : at + ASKED_AT_ONCE]
            values = self._ask([(b"GETRANGE", name, b"0", b"%d" % MAX_TOKEN) for name in part], errors=True)
            left = self._ask([(b"PTTL", name) for name in part], errors=True)
            found += map(_lock, part, values, left)
        return found

    def delete(self, names: Sequence[bytes]) -> int:
        """How many of these there were."""
        return int(self._ask([(b"UNLINK", *names)])[0]) if names else 0

    def _ask(self, commands: list[tuple[bytes | str, ...]], errors: bool = False) -> list[Any]:
        if self._connection is None:
            self._connection = self._target.connect(self._timeout, self._target.protocol or 2)
            self._connection.connect()
        replies = ask(self._connection, commands)
        for reply in replies:
            if isinstance(reply, Exception) and not errors:
                raise reply
        return replies

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()


def _lock(name: bytes, value: Any, left: Any) -> tuple[bytes, int] | None:
    """A string of a token's length that will expire; no counter of fencing tokens."""
    if not isinstance(value, bytes) or not 1 <= len(value) <= MAX_TOKEN:
        return None
    counter = value.isdigit() and COUNTER.fullmatch(name)
    return (value, left) if isinstance(left, int) and left > 0 and not counter else None


class Servers:
    """All masters, asked at the same time. A context manager. One that fails is not asked again."""

    def __init__(self, targets: Sequence[Target], timeout: float) -> None:
        self.all = [Server(target, timeout) for target in targets]
        self._pool = ThreadPoolExecutor(len(targets))

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for server in self.all:
            with contextlib.suppress(Exception):
                server.close()

    def each(self, question: Callable[[Server], Any]) -> Iterator[Any]:
        """The answers, in the order of the masters; None from those that fail."""
        return self._pool.map(lambda server: _answer(server, question), self.all)


def _answer(server: Server, question: Callable[[Server], Any]) -> Any:
    if server.error:
        return None
    try:
        return question(server)
    except Exception as error:  # whatever redis-py makes of it
        server.error = without_arguments(str(error))[:MAX_TEXT] or type(error).__name__
    return None


def literally(name: bytes) -> bytes:
    """For MATCH: this name, whatever is in it."""
    return re.sub(rb"([*?\[\]\\])", rb"\\\1", name)
