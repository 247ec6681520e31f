"""What a client knows of the record of one master, and what follows for the vote of that master."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .membership import Record, Seen
from .no_vote import NoVote


@dataclass(slots=True)
class KnownRecord:
    """The record of one master as a client knows it. ``records`` reads, compares and writes it.

    Times are of ``boot_time``, in seconds.
    """

    seen: Seen | None = None  # the record as read last; None: not compared
    read_at: float = 0.0  # before ``seen`` was read, or was shown to be as it was
    former: Record | None = None  # the last record with a list that the master had before ``seen``
    former_at: float = -math.inf  # ``read_at`` of that one
    no_vote: NoVote | None = None  # why the master casts no vote by the records of all masters
    why: str = ""  # the same as text
    ruled: bool = False  # it was compared, and the client's list is in force
    error: str = ""  # why it is not written again before the master is connected or read again
    writes: int = 0  # how often it was written since the master was connected or read again
    tries: int = 0  # the same with failed writes, since the client's list was in force
    reported: str = ""  # the last logged ``why``

    @property
    def listed(self) -> bool | None:
        """Whether it allows the client's lists. None: it is not compared, or not yet."""
        if self.no_vote in (NoVote.AWAITED, NoVote.RECORD):
            return False
        return self.ruled or None

    @property
    def has_list(self) -> bool:
        """Whether a list of masters was in it when it was read."""
        return self.seen is not None and self.seen.record is not None and self.seen.record.epoch > 0

    def learn(self, seen: Seen | None, at: float) -> None:
        """What it is now. ``at``: ``boot_time`` before it was read."""
        if self.has_list and self.seen:
            self.former, self.former_at = self.seen.record, self.read_at
        self.seen, self.read_at = seen, at

    def begin_again(self) -> None:
        """Allow as many writes as at first: the master is connected or read again."""
        self.error, self.writes = "", 0

    def copy_after_fork(self) -> KnownRecord:
        """The same for a child of fork, which has written nothing yet."""
        return replace(self, ruled=False, error="", writes=0, tries=0, reported="")
