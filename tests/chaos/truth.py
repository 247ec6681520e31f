"""From a recording to spans: which token was on which master, from when until when."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.recorder import Chapter, Piece

from proof.conformance import ACQUIRE, EXTEND, FORGOT, RELEASE, Step

#: "+1795285700.425689 [0 unix:/path] "SET" "k" ...": its time, its sender and its words.
COMMAND = re.compile(rb'^\+(\d+\.\d+) \[\d+ ([^"]*)\] (".*")$')
WORD = re.compile(rb'"(?:[^"\\]|\\.)*"')
SCRIPTED = (b"EVAL", b"EVALSHA")
#: What a restart may differ by from what was reckoned, in seconds.
ROUNDING = 0.005


class Command(NamedTuple):
    """As MONITOR reports it. ``scripted``: a script sent it; the script's own report came before."""

    at: float
    scripted: bool
    words: list[bytes]


@dataclass(slots=True)
class Span:
    """``token`` was on a master from ``start`` until ``end``. Times of our clock."""

    token: bytes
    start: float
    expiry: float
    #: The ttl of the request; 0.0 if its report was lost.
    ttl: float = 0.0
    end: float = float("inf")
    why: str = ""
    #: (until, expiry), before it was extended.
    before: list[tuple[float, float]] = field(default_factory=list)

    @property
    def until(self) -> float:
        """When it stopped to keep others out: its expiry, if nothing ended it before."""
        return min(self.end, self.expiry)

    def expiry_at(self, moment: float) -> float:
        """As it was then."""
        return next((expiry for until, expiry in self.before if moment < until), self.expiry)

    def extend(self, now: float, expiry: float) -> None:
        self.before.append((now, self.expiry))
        self.expiry = expiry


@dataclass(slots=True)
class Truth:
    """What one master did to the key."""

    spans: list[Span] = field(default_factory=list)
    #: (token of the owner, last argument of the command that deleted the key).
    foreign: list[tuple[bytes, bytes]] = field(default_factory=list)
    late_sets: int = 0
    #: What it executed of the key, by its own clock, for proof/conformance.py; nothing if that clock jumps.
    steps: list[Step] = field(default_factory=list)


class Reader:
    """Follows one master. ``true_clock``: its wall clock is the machine's."""

    def __init__(self, key: bytes, true_clock: bool) -> None:
        self.truth = Truth()
        self._key = key
        self._true_clock = true_clock
        self._live: Span | None = None
        self._events: list[bytes] = []
        self._script: list[bytes] = []
        self._released: set[bytes] = set()
        self._now = 0.0
        self._died = 0.0

    def read(self, chapter: Chapter) -> None:
        self._begin(chapter)
        for piece, line in lines(chapter.pieces):
            if isinstance(line, bytes):
                self._event(line, piece.arrival)
            else:
                ago = piece.wall - line.at if self._true_clock else 0.0
                self._now = piece.arrival - ago
                self._command(line)
        self._died = chapter.ended

    def _step(self, at: float, verb: str, token: bytes = b"", ttl: float = 0.0, reply: int = 1) -> None:
        if self._true_clock:
            self.truth.steps.append(
                Step(0, round(at * 1000), verb, self._key, token, round(ttl * 1000), reply)
            )

    def _begin(self, chapter: Chapter) -> None:
        """What a restart left. The last reports of the old process may be lost: what it
        set or deleted at its end counts from its last line, and until its death.
        """
        self._events = []
        token, expiry = chapter.found.get(self._key, (b"", 0.0))
        self._step(chapter.wall, FORGOT)
        if token:
            self._step(chapter.wall, ACQUIRE, token, expiry - chapter.began)
        live = self._live
        if live is not None and live.token == token:
            if abs(live.expiry - expiry) > ROUNDING:
                live.expiry = expiry
            return
        if live is not None and live.expiry <= chapter.began:
            self._end(chapter.began, "expired")  # while no recorder was connected
        self._end(self._died, "forgotten")
        if token:
            self._live = Span(token, self._now, expiry)
            self.truth.spans.append(self._live)

    def _event(self, line: bytes, arrival: float) -> None:
        name, _, key = line.partition(b" ")
        if key != self._key:
            return
        if name == b"expired":
            self._end(arrival, "expired")
        else:
            self._events.append(name)

    def _command(self, command: Command) -> None:
        at, scripted, words = command
        verb = words[0].upper()
        events, self._events = self._events, []
        if verb in SCRIPTED:
            self._script = words
        if verb in (b"FLUSHALL", b"FLUSHDB"):
            self._step(at, FORGOT)
            self._end(self._now, "flushed")
        if verb in (b"DELIFEQ", b"DELEX", *SCRIPTED) and len(words) > 2:
            self._released.add(words[-1])
        if verb == b"SET" and words[1] == self._key:
            ttl = int(words[[w.upper() for w in words].index(b"PX") + 1]) / 1000
            self._step(at, ACQUIRE, words[2], ttl, int(b"set" in events))
            if b"set" in events:
                self._set(words[2], ttl)
        elif b"expire" in events and self._live:
            self._step(at, EXTEND, self._argument(), int(words[2]) / 1000)
            self._live.extend(self._now, self._now + int(words[2]) / 1000)
        elif b"del" in events:
            by = self._argument() if scripted else words[-1]
            self._step(at, RELEASE, by)
            self._deleted(by)

    def _argument(self) -> bytes:
        """The first one of the last script, after its keys: a token."""
        return self._script[3 + int(self._script[2])]

    def _set(self, token: bytes, ttl: float) -> None:
        live = self._live
        if live is not None and live.token == token:
            live.extend(self._now, self._now + ttl)
            return
        self._end(self._now, "overwritten")
        self._live = Span(token, self._now, self._now + ttl, ttl)
        self.truth.spans.append(self._live)
        self.truth.late_sets += token in self._released

    def _deleted(self, by: bytes) -> None:
        if self._live is not None and self._live.token != by:
            self.truth.foreign.append((self._live.token, by))
        self._end(self._now, "deleted")

    def _end(self, now: float, why: str) -> None:
        if self._live is not None:
            self._live.end, self._live.why = now, why
            self._live = None


def read(chapters: Iterable[Chapter], key: bytes, true_clock: bool) -> Truth:
    reader = Reader(key, true_clock)
    for chapter in chapters:
        reader.read(chapter)
    return reader.truth


def lines(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, bytes | Command]]:
    """Events as ``name key``, and commands, each with the piece that it ended in."""
    rest, event = b"", list[bytes]()
    for piece in pieces:
        *whole, rest = (rest + piece.data).split(b"\r\n")
        for line in whole:
            if event:
                event.append(line)
                if len(event) == 9:
                    yield piece, event[6].partition(b":")[2] + b" " + event[8]
                    event = []
            elif line == b">4":
                event = [line]
            elif match := COMMAND.match(line):
                words = [unquoted(word) for word in WORD.findall(match[3])]
                yield piece, Command(float(match[1]), match[2] == b"lua", words)


def unquoted(word: bytes) -> bytes:
    if b"\\" not in word:
        return word[1:-1]
    value = ast.literal_eval("b" + word.decode("latin-1"))
    assert isinstance(value, bytes)
    return value
