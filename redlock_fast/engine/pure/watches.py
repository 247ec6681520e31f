"""Requests of the pure-Python engine that watch: votes that stay open until a push, or time, changes them.

As elsewhere nothing is locked: a request is listed before it is on any line, and who leads looks at copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import ref

from ...wire.commands import WATCH_KEY, WATCH_PREFIX
from ...wire.resp import MAX_PUSH, frame
from ..contract import FAULT, NO_REPLY
from .requests import Op

#: Where votes stand by the hash of what they watch. Places are made when they are needed, and stay: nobody
#: can take one away while another thread is about to use it.
PLACES = 1024

#: A dict for its atomic changes, and its order.
Place = dict[ref[Op], None]


class Names:
    """What one master watches: all votes; by the hash of the name; those on prefixes, by their length."""

    __slots__ = ("all", "lengths", "places")

    def __init__(self) -> None:
        self.all: Place = {}
        self.places: dict[int, Place] = {}
        self.lengths: dict[int, Place] = {}

    def homes(self, op: Op) -> list[Place]:
        """Where a request is listed."""
        name = op.request.args[0]
        homes = [self.all, self.places.setdefault(hash(name) % PLACES, {})]
        if op.vigil is not None and op.vigil.watch == WATCH_PREFIX:
            homes.append(self.lengths.setdefault(len(name), {}))
        return homes

    def of(self, watch: int, name: bytes) -> list[Op]:
        """The requests that watch this."""
        listed = [entry() for entry in list(self.places.get(hash(name) % PLACES, ()))]
        return [
            op for op in listed if op and op.vigil and op.vigil.watch == watch and op.request.args[0] == name
        ]


class Vigils:
    """All requests that watch, as long as somebody waits for them.

    What a push costs is linear in its bytes and in the votes that it changes, however many requests watch:
    a vote that is there is not listed any more.
    """

    def __init__(self) -> None:
        self._masters: dict[int, Names] = {}

    def __len__(self) -> int:
        return sum(len(names.all) for names in self._masters.values())

    def _homes(self, op: Op) -> list[Place]:
        masters, homes = op.request.masters, list[Place]()
        while masters:
            lowest = masters & -masters
            masters ^= lowest
            homes += self._masters.setdefault(lowest.bit_length() - 1, Names()).homes(op)
        return homes

    def add(self, op: Op) -> None:
        homes = self._homes(op)
        # A request that a signal handler made forget ends with its replies.
        entry = ref(op, lambda gone: _leave(homes, gone))
        for home in homes:
            home[entry] = None

    def discard(self, op: Op) -> None:
        if op.vigil is not None:
            _leave(self._homes(op), ref(op))

    def pushed(self, master: int, push: bytes, now: float) -> bool:
        """Grant what it names; False where it names everything."""
        names, keys = self._masters.get(master), _invalidated(push)
        if names is None or not names.all:
            return keys is not None
        if keys is None:
            self._grant(names, [op for entry in list(names.all) if (op := entry())], master, now)
            return False
        lengths = [length for length, listed in list(names.lengths.items()) if listed]
        for key in keys:
            self._grant(names, names.of(WATCH_KEY, key), master, now)
            for length in lengths:
                if length <= len(key):
                    self._grant(names, names.of(WATCH_PREFIX, key[:length]), master, now)
        return True

    def _grant(self, names: Names, ops: list[Op], master: int, now: float) -> None:
        for op in ops:
            if _open_at(op, master):
                op.vote(master, 1, b"", now)
                op.settle()
            # Only now: what a signal handler interrupted is pushed once more.
            if op.decided or op.values[master] != NO_REPLY:
                _leave(names.homes(op), ref(op))

    def at(self, master: int) -> Iterator[Op]:
        """The undecided that this master watches for."""
        names = self._masters.get(master)
        for entry in list(names.all) if names else ():
            op = entry()
            if op is not None and _open_at(op, master):
                yield op

    def condemn(self, master: int, why: str, now: float) -> None:
        """The open votes of a master whose connection ended are faults; decided by ``fail``."""
        for op in self.at(master):
            op.vote(master, FAULT, why, now)

    def fail(self, master: int, why: str, now: float) -> None:
        for op in self.at(master):
            op.vote(master, FAULT, why, now)
            op.settle()

    def end(self) -> None:
        """The time of all is over."""
        for names in list(self._masters.values()):
            for entry in list(names.all):
                if (op := entry()) is not None and not op.decided:
                    op.decide()


def _open_at(op: Op, master: int) -> bool:
    """Whether it waits, and this master watches for it."""
    return not op.decided and op.vigil is not None and op.vigil.masters >> master & 1 == 1


def _leave(homes: list[Place], entry: ref[Op]) -> None:
    for home in homes:
        home.pop(entry, None)


def _invalidated(push: bytes) -> Iterable[bytes] | None:
    """The keys that a whole push invalidates, read when they are asked for; None: all of them."""
    at, items = _enter(push, 0)
    if items != 2:
        return []
    _, name, at = _item(push, at)
    if name != b"invalidate":
        return []
    start, what, _ = _item(push, at)
    kind = push[start : start + 1]
    if kind == b"_" or (kind == b"$" and what is None):
        return None
    if kind != b"*":
        return []
    at, items = _enter(push, start)
    if items < 0:
        return None
    return _keys(push, at, items)


def _keys(push: bytes, at: int, items: int) -> Iterator[bytes]:
    """What is no string is no key."""
    for _ in range(items):
        _, key, at = _item(push, at)
        if key is not None:
            yield key


def _enter(push: bytes, start: int) -> tuple[int, int]:
    """Where the first item of an array or a push stands, and how many there are."""
    end = push.index(b"\r\n", start)
    return end + 2, int(push[start + 1 : end])


def _item(push: bytes, start: int) -> tuple[int, bytes | None, int]:
    """Where it starts, behind its attributes; its text, if it is a string; and where it ends."""
    while push.startswith(b"|", start):
        start = frame(push, start, MAX_PUSH)
    end = frame(push, start, MAX_PUSH)
    if push[start : start + 1] != b"$" or push[start + 1 : start + 2] == b"-":
        return start, None, end
    return start, push[push.index(b"\r\n", start) + 2 : end - 2], end
