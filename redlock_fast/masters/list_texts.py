"""Why a master has no vote by its record of masters, as texts for people."""

from __future__ import annotations

from .membership import Members, Record
from .verdict import View

#: Addresses of a list in a text.
MAX_SHOWN = 9
#: What to do about another list.
ADVICE = (
    "give this client that list and max_ttl, or change the list with `redlock-fast masters`; "
    "clients with locks of their own need another key_prefix (docs/changing-masters.md)"
)
#: Why a master has no vote yet.
UNDECIDED = "no vote yet: the records of the other masters are not read and written yet"
NOT_IN_FORCE = "no vote yet: its list of masters is not in force, so all {} masters must be reached once"

LOST = "it has lost its record of masters, which is not written back yet"
UNSURE = (
    "it has lost its record of masters, and too few others have theirs: a client that was connected before "
    "will write it back; if there is none, and no change of the masters is under way, give "
    "`redlock-fast masters restore`"
)
#: Another client has written a record since this master was read without one.
OUTDATED = "it had no record of masters when it was read, and is read again"
#: Reasons that another client may have ended by now.
PASSING = (LOST, UNSURE, OUTDATED)


def unread(view: View, strict: bool) -> str:
    """Why a master without a record that can be read has no vote, or ""."""
    if view.seen is None or view.readable:
        return ""
    refused = "this user may not read its record of masters, and check_masters='strict' needs it"
    return view.seen.error or refused * strict


def expects(record: Record, max_ttl: int) -> str:
    """That a master expects another list, or another ``max_ttl`` (in milliseconds)."""
    if record.max_ttl != max_ttl:
        ours, theirs = max_ttl / 1000, record.max_ttl / 1000
        return f"it expects max_ttl={theirs:g}, and this client has max_ttl={ours:g}"
    return f"it expects {_shown(record)}"


def not_listed(record: Record) -> str:
    return f"it is not in the list that the other masters have: {_shown(record)}"


def _shown(record: Record) -> str:
    """The lists that a record allows, as text."""
    if not record.old:
        return f"the masters {_addresses(record.new)} (epoch {record.epoch})"
    steps = " or ".join(record.steps)
    return (
        f"clients that are {steps} in the change from {_addresses(record.old)} to {_addresses(record.new)} "
        f"(epoch {record.epoch})"
    )


def _addresses(listed: Members) -> str:
    names = sorted(address for _, address in listed)
    more = f" and {len(names) - MAX_SHOWN} more" * (len(names) > MAX_SHOWN)
    return ", ".join(names[:MAX_SHOWN]) + more
