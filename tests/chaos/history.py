"""What a worker believes, written down as it happens: one line of JSON for each step of a holder.

All processes read one clock (CLOCK_BOOTTIME, whatever the product reads), so what two of them wrote
can be compared exactly.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The most seconds between two reads of clocks that are compared.
READING = 0.001


def clock() -> float:
    """Seconds; all times of this suite are by it."""
    return time.clock_gettime(CLOCK)


def both_clocks() -> tuple[float, float]:
    """``clock()`` and the wall clock, at most half of READING apart.

    A thread that loses its core between the two reads would place an event of a master too early.
    """
    while True:
        before, wall = clock(), time.time()
        if clock() - before <= READING / 2:
            return before, wall


class HistoryWriter:
    """Appends lines; each is one write, so that a killed worker's last line is whole."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, what: str, holder: int, at: float, **more: Any) -> None:
        os.write(self._fd, json.dumps({"what": what, "holder": holder, "at": at, **more}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class Hold:
    """From a grant to a release. ``deadlines``: from when on which deadline was stated."""

    worker: str
    token: bytes
    granted: float
    deadlines: list[tuple[float, float]]
    released_at: float = float("inf")
    released: bool | None = None
    #: When the shared counter was written, if it was; and whether it let that be.
    wrote: float | None = None
    accepted: bool = True
    fence: int | None = None
    #: Of the worker's wall clock, in seconds, against our clock.
    skew: float = 0.0
    #: The number of what was locked, where there are several.
    resource: int = 0

    @property
    def deadline(self) -> float:
        return self.deadlines[-1][1]

    @property
    def end(self) -> float:
        """Until then its holder believed to hold the lock."""
        return min(self.released_at, self.deadline)

    @property
    def overslept(self) -> bool:
        """The holder woke up when the lease had ended."""
        return self.released_at > self.deadline

    @property
    def wrote_late(self) -> bool:
        return self.wrote is not None and self.wrote > self.deadline


@dataclass(slots=True)
class History:
    """All that one worker wrote down."""

    holds: list[Hold] = field(default_factory=list)
    unavailable: int = 0
    contended: int = 0
    #: The longest that an acquire took beyond its timeout, in seconds.
    overtime: float = 0.0
    #: When acquires ended without the lock.
    refused: list[float] = field(default_factory=list)


def read(path: Path) -> History:
    history = History()
    open_holds: dict[int, Hold] = {}
    for line in _lines(path):
        what, holder, at = line["what"], line["holder"], line["at"]
        if what == "refused":
            history.unavailable += line["unavailable"]
            history.contended += not line["unavailable"]
            history.refused.append(at)
            history.overtime = max(history.overtime, line["overtime"])
            continue
        if what == "grant":
            token = bytes.fromhex(line["token"])
            stated = [(at, line["deadline"])]
            resource = line.get("resource", 0)
            hold = Hold(
                path.stem, token, at, stated, skew=line["skew"], fence=line["fence"], resource=resource
            )
            open_holds[holder] = hold
            history.holds.append(hold)
            continue
        hold = open_holds[holder]
        if what == "extend":
            hold.deadlines.append((at, line["deadline"] or min(at, hold.deadline)))
        elif what == "write":
            hold.wrote, hold.accepted = at, line["accepted"]
        elif what == "letting go":
            hold.released_at = at
        elif what == "released":
            hold.released = line["alive"]
    return history


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)
