"""Why a connected master has no vote: one word for each kind of reason."""

from __future__ import annotations

from enum import Enum


class NoVote(Enum):
    """Why a client does not count the votes of a master that is connected. The text beside it says more.

    ``GUARDED``: the master may have forgotten locks, see ``restart_guard``. The other reasons come from the
    records of masters, see ``list_check``. ``UNDECIDED``: the records of the other masters are not read and
    written yet. ``AWAITED``: the master has lost its record, or was read too early; it is read or written
    next. ``RECORD``: its record does not allow the client's lists, or cannot be read.
    """

    GUARDED = "guarded"
    UNDECIDED = "undecided"
    AWAITED = "awaited"
    RECORD = "record"
