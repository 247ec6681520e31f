"""The bodies of ``with`` of one lock object, each with the lease that it began with.

An object has one lease at a time. A lease may end before its body does, and then another thread or task may
enter the same object: the end of the first body must leave the lease of the second one alone.
"""

from __future__ import annotations

from typing import Any

from ..algorithm.lease import Lease

#: The owner of each body, a number of its thread or task, and its lease. An entry that an interrupt leaves
#: behind has no effect: its lease has ended or is released.
Entries = list[tuple[int, Lease | None]]


def begin_body(lock: Any, owner: int) -> None:
    """Note that a body of ``owner`` begins with the present lease of ``lock``."""
    entries: Entries | None = getattr(lock, "_bodies", None)
    if entries is None:
        entries = lock._bodies = []
    entries.append((owner, lock._lease))


def end_body(lock: Any, owner: int) -> bool:
    """Note that a body of ``owner`` ends. Returns whether the present lease is that of another body."""
    entries: Entries = getattr(lock, "_bodies", [])
    for entry in reversed(entries.copy()):
        if entry[0] == owner:
            entries.remove(entry)
            break
    else:
        if entries:  # another thread or task leaves it than entered it
            entries.pop()
    return lock._lease is not None and any(lease is lock._lease for _, lease in entries.copy())
