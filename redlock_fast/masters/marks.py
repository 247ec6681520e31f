"""Marks: each client says on each master at which step it is, for the operator of a change of masters.

A mark is a key that expires by itself. The client's connector thread writes it when a master is connected,
and again every MARK_INTERVAL; no acquire waits for it. Marks are information. Safety depends on the records.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..algorithm.master_lists import mask_of
from ..engine.contract import Engine, Request
from ..wire.commands import Verb
from ..wire.text import clean
from .master import Master

#: The key of a mark: the key prefix, this, and the random id of the client.
MARK_KEY = b"redlock-fast:masters:mark:"
#: Seconds: between two writes, and until a mark expires.
MARK_INTERVAL, MARK_TTL = 15.0, 60.0
#: The step of a client whose lists the records do not allow: it has no lock and gets none.
REFUSED = "refused"
#: The version of the encoding.
VERSION = b"1"
#: Characters of an owner that is read from a mark.
MAX_OWNER = 64


class Mark(NamedTuple):
    """``epoch``: of the record that the client has compared its lists with; 0: with none."""

    epoch: int
    step: str
    owner: str


def encode_mark(mark: Mark) -> bytes:
    return b"%b %d %b %b" % (VERSION, mark.epoch, mark.step.encode() or b"-", mark.owner.encode())


def decode_mark(value: bytes) -> Mark | None:
    """The mark in ``value``; None if it is none. Any client can write anything there."""
    words = value.decode(errors="replace").split(" ", 3)
    if len(words) != 4 or words[0] != VERSION.decode() or not words[1].isdecimal() or len(words[1]) > 16:
        return None
    return Mark(int(words[1]), clean(words[2], 10), clean(words[3], MAX_OWNER))


class Marks:
    """The mark of one client on its masters. It names the host and the process of the client."""

    def __init__(self, key_prefix: bytes) -> None:
        self._key = key_prefix + MARK_KEY + os.urandom(8).hex().encode()
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._value = b""
        self._next = 0.0
        self._marked: dict[int, int] = {}  # for each master the number of the connection that has the value
        self._written: dict[int, bytes] = {}  # what each master has, if it has not expired

    def refresh(self, engine: Engine, masters: Sequence[Master], epoch: int, step: str, now: float) -> None:
        """Write the mark on each master that needs it. ``now``: monotonic."""
        value = encode_mark(Mark(epoch, step, self._owner))
        if value != self._value or now >= self._next:
            self._value = value
            self._marked.clear()
            self._next = now + MARK_INTERVAL
        links = [master.link for master in masters]
        late = [n for n, one in enumerate(links) if one.attached and self._marked.get(n) != one.connections]
        if late:
            self._write(engine, late)
            self._marked.update((n, links[n].connections) for n in late)

    def _write(self, engine: Engine, masters: Sequence[int]) -> None:
        """The replies are not awaited. A master that refuses the key has no mark, which the operator sees."""
        outdated = [n for n in masters if self._written.get(n, self._value) != self._value]
        ttl, mask = b"%d" % round(MARK_TTL * 1000), mask_of(masters)
        requests = [
            *self._releases(outdated),
            Request(Verb.REFILL, (self._key, self._value, ttl), mask),
            Request(Verb.EXTEND, (self._key, self._value, ttl), mask),
        ]
        self._written.update(dict.fromkeys(masters, self._value))
        engine.exchange(requests, 0, 0.0)

    def _releases(self, masters: Iterable[int]) -> list[Request]:
        """The requests that delete what was written on ``masters``."""
        return [Request(Verb.RELEASE, (self._key, self._written[n]), 1 << n) for n in masters]

    def remove(self, engine: Engine) -> None:
        """Remove the mark, because the client is closed."""
        engine.exchange(self._releases(self._written), 0, 0.0)
