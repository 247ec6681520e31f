"""Requests of the pure-Python engine that watch: votes that stay open until a push, or time, changes them.

As elsewhere nothing is locked: a request is listed before it is on any line, and who leads looks at copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

from ._commands import WATCH_PREFIX
from ._engine import FAULT
from ._pure_op import Op
from ._resp import frame

#: Those that watch a key stand where its hash says; one more place is for those that watch a prefix.
PLACES = 256


class Vigils:
    """All requests that watch, as long as somebody waits for them."""

    def __init__(self) -> None:
        self._places = tuple(dict[ref[Op], None]() for _ in range(PLACES + 1))

    def __len__(self) -> int:
        return sum(map(len, self._places))

    def add(self, op: Op) -> None:
        place = self._place(op)
        # A request that a signal handler made forget ends with its replies.
        place[ref(op, lambda gone: place.pop(gone, None))] = None

    def discard(self, op: Op) -> None:
        if op.vigil is not None:
            self._place(op).pop(ref(op), None)

    def _place(self, op: Op) -> dict[ref[Op], None]:
        prefix = op.vigil is not None and op.vigil.watch == WATCH_PREFIX
        return self._places[PLACES if prefix else hash(op.request.args[0]) % PLACES]

    def pushed(self, master: int, push: bytes, now: float) -> None:
        """Grant what it names."""
        if not any(self._places):
            return
        keys = _invalidated(push)
        if keys is None:
            for op in self.at(master):
                _grant(op, master, now)
            return
        for key in keys:
            for op in _undecided(self._places[hash(key) % PLACES], master):
                if op.request.args[0] == key:
                    _grant(op, master, now)
            for op in _undecided(self._places[PLACES], master):
                if key.startswith(op.request.args[0]):
                    _grant(op, master, now)

    def at(self, master: int) -> Iterator[Op]:
        """The undecided that this master watches for."""
        for place in self._places:
            yield from _undecided(place, master)

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
        for place in self._places:
            for listed in list(place):
                if (op := listed()) is not None and not op.decided:
                    op.decide()


def _undecided(place: dict[ref[Op], None], master: int) -> Iterator[Op]:
    for listed in list(place):
        op = listed()
        if op is not None and not op.decided and op.vigil is not None and op.vigil.masters >> master & 1:
            yield op


def _grant(op: Op, master: int, now: float) -> None:
    op.vote(master, 1, b"", now)
    op.settle()


def _invalidated(push: bytes) -> list[bytes] | None:
    """The keys that a whole push invalidates; None: all of them. What is no string is no key."""
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
    keys = []
    for _ in range(items):
        _, key, at = _item(push, at)
        if key is not None:
            keys.append(key)
    return keys


def _enter(push: bytes, start: int) -> tuple[int, int]:
    """Where the first item of an array or a push stands, and how many there are."""
    end = push.index(b"\r\n", start)
    return end + 2, int(push[start + 1 : end])


def _item(push: bytes, start: int) -> tuple[int, bytes | None, int]:
    """Where it starts, behind its attributes; its text, if it is a string; and where it ends."""
    while push.startswith(b"|", start):
        start = frame(push, start)
    end = frame(push, start)
    if push[start : start + 1] != b"$" or push[start + 1 : start + 2] == b"-":
        return start, None, end
    return start, push[push.index(b"\r\n", start) + 2 : end - 2], end
