"""What a client knows of each master by its record, and what follows: the data of a list check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from .membership import Record, Seen


class View(NamedTuple):
    """What a client knows of one master.

    ``seen``: its record as read last; None: it was not read. ``read_at``: when this client saw it there last.
    ``former``, ``former_at``: the same of the record before, if a list is in it. ``attached``: it is
    connected now. ``tried``: it is connected, or the last attempt failed. ``writable``: its record may be
    written now. ``awaited``: no master votes before its first record is written. ``settled``: it was read
    after the client knew a record with a list.
    """

    name: str
    seen: Seen | None = None
    former: Record | None = None
    attached: bool = False
    tried: bool = False
    writable: bool = True
    awaited: bool = True
    read_at: float = 0.0
    former_at: float = -math.inf
    settled: bool = True

    @property
    def record(self) -> Record | None:
        return self.seen.record if self.seen else None

    @property
    def id(self) -> str:
        return self.record.id if self.record else ""

    @property
    def epoch(self) -> int:
        return self.record.epoch if self.record else 0

    @property
    def readable(self) -> bool:
        return self.seen is not None and self.seen.compared and not self.seen.error

    @property
    def latest(self) -> tuple[Record | None, float]:
        """The latest record with a list that was seen there, and when; the master may have lost it since."""
        return (self.record, self.read_at) if self.epoch else (self.former, self.former_at)

    @property
    def outdated(self) -> bool:
        """Whether it had no record when it was read, and may have got one since."""
        return self.attached and self.readable and self.record is None and not self.settled


class Verdict(NamedTuple):
    """What follows from all records.

    ``reasons``: for each master why it has no vote; "": it votes. ``write``: the master and the record to be
    written next, or None. ``confirmed_at``: when the client saw that record on a quorum, at the latest; inf:
    it is a first record. ``blocked``: by what was read, masters need a record that may be out of date, or
    they must be read again. ``undecided``: the reasons are not final. ``wrong``: why the configuration cannot
    work, or "". ``step``, ``epoch``: of the client, by the record in force that allows its lists; "" and 0:
    there is none.
    """

    reasons: tuple[str, ...]
    write: tuple[int, Record] | None = None
    confirmed_at: float = math.inf
    blocked: bool = False
    undecided: bool = False
    wrong: str = ""
    step: str = ""
    epoch: int = 0

    @property
    def ruled(self) -> bool:
        """Whether a list is in force, and the client's list is that one: the ruling list."""
        return self.step != ""


Views = Mapping[int, View]
"""The masters of the client's lists, by number."""


def lost_records(views: Views) -> list[Record]:
    """The records in force that masters have lost."""
    found = (view.former for view in views.values() if not view.epoch)
    return [record for record in found if record and record.in_force]


def proposed(views: Views) -> Record | None:
    """The record with a list that the first master has, where no list is in force."""
    return next((view.record for view in views.values() if view.record and view.epoch), None)
