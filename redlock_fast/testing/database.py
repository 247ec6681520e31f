"""The keys of a memory master and the commands on them: those that clients and scripts of redlock-fast send.

Replies and errors are those of the servers; tests/real/testing compares both. A method is named as its
command, and takes the words behind it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

#: Parts of a pattern of SCAN: an escaped byte, a set of bytes, any number of bytes, one byte, a plain byte.
PATTERN = re.compile(rb"\\(.)|(\[[^\]]+\])|(\*)|(\?)|(.)", re.DOTALL)
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"

Value = bytes | dict[bytes, float]
#: A change of a key; None: all keys were removed.
Changed = Callable[[bytes | None], None]


class ErrorReply(Exception):
    """An error that a command answers. The text begins with its code."""


class Status(bytes):
    """A status reply, such as ``+OK``."""


OK = Status(b"OK")


class Database:
    """Strings and sorted sets, of which each may end at a time of ``clock``, in seconds since 1970."""

    def __init__(self, clock: Callable[[], float], changed: Changed) -> None:
        self._clock = clock
        self._changed = changed
        self._values: dict[bytes, Value] = {}
        self._ends: dict[bytes, int] = {}

    def execute(self, name: bytes, *args: bytes) -> Any:
        """The reply to one command. Raises ErrorReply."""
        text = name.decode(errors="backslashreplace").lower()
        command = COMMANDS.get(text)
        if command is None:
            raise ErrorReply(f"ERR unknown command '{text}'")
        try:
            inspect.signature(command).bind(self, *args)
        except TypeError:
            raise ErrorReply(f"ERR wrong number of arguments for '{text}' command") from None
        self.expire()
        return command(self, *args)

    def expire(self) -> None:
        """Remove the keys whose time has come."""
        now = self._now()
        for key in [key for key, end in self._ends.items() if end <= now]:
            self._remove(key)

    # --- strings, and keys of any type ---

    def set(self, key: bytes, value: bytes, *options: bytes) -> Any:
        words = iter(options)
        end, wanted = None, None
        for word in map(bytes.lower, words):
            if word in (b"nx", b"xx"):
                wanted = word == b"xx"
            elif word in (b"px", b"ex"):
                end = self._now() + _integer(next(words, b"")) * (1000 if word == b"ex" else 1)
            else:
                raise ErrorReply(SYNTAX)
        if wanted is not None and (key in self._values) != wanted:
            return None
        self._put(key, value, end)
        return OK

    def get(self, key: bytes) -> bytes | None:
        value = self._values.get(key)
        if isinstance(value, dict):
            raise ErrorReply(WRONG_TYPE)
        return value

    def getrange(self, key: bytes, first: bytes, last: bytes) -> bytes:
        return (self.get(key) or b"")[_slice(first, last)]

    def incr(self, key: bytes) -> int:
        number = _integer(self.get(key) or b"0") + 1
        if number >= 1 << 63:
            raise ErrorReply("ERR increment or decrement would overflow")
        self._put(key, b"%d" % number, self._ends.get(key))
        return number

    def delete(self, *keys: bytes) -> int:
        return sum(self._remove(key) for key in keys)

    def delifeq(self, key: bytes, value: bytes) -> int:
        return int(self.get(key) == value and self._remove(key))

    def exists(self, *keys: bytes) -> int:
        return sum(key in self._values for key in keys)

    def type(self, key: bytes) -> Status:
        return Status(_type(self._values[key]) if key in self._values else b"none")

    def pttl(self, key: bytes) -> int:
        if key not in self._values:
            return -2
        return self._ends[key] - self._now() if key in self._ends else -1

    def pexpire(self, key: bytes, milliseconds: bytes, option: bytes = b"") -> int:
        if option.lower() not in (b"", b"gt"):
            raise ErrorReply(f"ERR Unsupported option {option.decode(errors='backslashreplace')}")
        end = self._now() + _integer(milliseconds)
        if key not in self._values or (option and end <= self._ends.get(key, math.inf)):
            return 0
        self._ends[key] = end
        self._changed(key)
        return 1

    def time(self) -> list[bytes]:
        microseconds = int(self._clock() * 1e6)
        return [b"%d" % (microseconds // 1_000_000), b"%d" % (microseconds % 1_000_000)]

    def keys(self, pattern: bytes) -> list[bytes]:
        return [key for key in self._values if matches(pattern, key)]

    def scan(self, cursor: bytes, *options: bytes) -> list[Any]:
        """All keys at once."""
        given = dict(zip(map(bytes.lower, options[::2]), options[1::2], strict=True))
        wanted = given.get(b"type")
        names = self.keys(given.get(b"match", b"*"))
        return [b"0", [name for name in names if wanted in (None, _type(self._values[name]))]]

    def dbsize(self) -> int:
        return len(self._values)

    def flushall(self) -> Status:
        self._values.clear()
        self._ends.clear()
        self._changed(None)
        return OK

    # --- sorted sets ---

    def zadd(self, key: bytes, score: bytes, member: bytes, *words: bytes) -> int:
        rest, options = [score, member, *words], set()
        while rest and rest[0].lower() in (b"xx", b"gt"):
            options.add(rest.pop(0).lower())
        if not rest or len(rest) % 2:
            raise ErrorReply(SYNTAX)
        before = self._members(key)
        members = dict(before)
        for number, name in zip(map(_score, rest[::2]), rest[1::2], strict=True):
            lower = b"gt" in options and name in members and number <= members[name]
            if not lower and (b"xx" not in options or name in members):
                members[name] = number
        if members != before:
            self._put(key, members, self._ends.get(key))
        return len(members) - len(before)

    def zrem(self, key: bytes, *members: bytes) -> int:
        return self._without(key, [member for member in members if member in self._members(key)])

    def zremrangebyscore(self, key: bytes, least: bytes, most: bytes) -> int:
        return self._without(key, self.zrangebyscore(key, least, most))

    def zcard(self, key: bytes) -> int:
        return len(self._members(key))

    def zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = self._members(key).get(member)
        return None if score is None else number_text(score)

    def zrank(self, key: bytes, member: bytes) -> int | None:
        return self._line(key).index(member) if member in self._members(key) else None

    def zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[bytes]:
        if [option.lower() for option in options] not in ([], [b"withscores"]):
            raise ErrorReply(SYNTAX)
        found = self._line(key)[_slice(first, last)]
        members = self._members(key)
        return [word for one in found for word in (one, number_text(members[one]))] if options else found

    def zrangebyscore(self, key: bytes, least: bytes, most: bytes, *limit: bytes) -> list[bytes]:
        low, high = _score(least), _score(most)
        found = [member for member in self._line(key) if low <= self._members(key)[member] <= high]
        if limit and (len(limit) != 3 or limit[0].lower() != b"limit"):
            raise ErrorReply(SYNTAX)
        start, count = map(_integer, limit[1:]) if limit else (0, -1)
        return found[start:] if count < 0 else found[start : start + count]

    # --- how they are stored ---

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _put(self, key: bytes, value: Value, end: int | None) -> None:
        self._values[key] = value
        if end is None:
            self._ends.pop(key, None)
        else:
            self._ends[key] = end
        self._changed(key)

    def _remove(self, key: bytes) -> bool:
        found = self._values.pop(key, None) is not None
        if found:
            self._ends.pop(key, None)
            self._changed(key)
        return found

    def _members(self, key: bytes) -> dict[bytes, float]:
        value = self._values.get(key, {})
        if isinstance(value, bytes):
            raise ErrorReply(WRONG_TYPE)
        return value

    def _line(self, key: bytes) -> list[bytes]:
        """The members by their scores."""
        members = self._members(key)
        return sorted(members, key=lambda member: (members[member], member))

    def _without(self, key: bytes, members: Iterable[bytes]) -> int:
        removed = {*members}
        rest = {one: score for one, score in self._members(key).items() if one not in removed}
        if removed and rest:
            self._put(key, rest, self._ends.get(key))
        elif removed:
            self._remove(key)
        return len(removed)


#: The methods of a Database that are commands, by the word that clients send.
COMMANDS: dict[str, Callable[..., Any]] = {
    name: method
    for name, method in vars(Database).items()
    if name[0] != "_" and name not in ("execute", "expire", "delete")
}
COMMANDS |= dict.fromkeys(("del", "unlink"), Database.delete)


def number_text(number: float) -> bytes:
    """A number as servers write it."""
    return b"%d" % number if math.isfinite(number) and number == int(number) else f"{number:.17g}".encode()


def _type(value: Value) -> bytes:
    return b"string" if isinstance(value, bytes) else b"zset"


def _integer(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        raise ErrorReply(NOT_AN_INTEGER) from None


def _score(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        raise ErrorReply("ERR value is not a valid float") from None


def _slice(first: bytes, last: bytes) -> slice:
    """The words ``first`` to ``last`` of a command, as Python counts."""
    return slice(_integer(first), _integer(last) + 1 or None)


def matches(pattern: bytes, key: bytes) -> bool:
    """Whether ``key`` matches a pattern of KEYS."""

    def part(found: re.Match[bytes]) -> bytes:
        escaped, of_set, many, one, plain = found.groups()
        return of_set or (many and b".*") or (one and b".") or re.escape(escaped or plain)

    return re.fullmatch(PATTERN.sub(part, pattern), key, re.DOTALL) is not None
