"""The counters of a client.

Each update is one ``+= value`` without a mutex. It loses no count, because a thread keeps the GIL while it
calls nothing between the load and the store of a field. Compiled where it can be, with C fields.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any


@dataclass
class Stats:
    """Counts of what a client has done so far.

    Attributes:
        acquired: Acquires that got the lock.
        contended: Acquires that failed because another holder had the lock.
        unavailable: Acquires that failed because too few masters answered.
        released: Releases before the end of the lease.
        expired: Releases after the end of the lease.
        extended: Extensions that were confirmed.
        inconclusive: Extensions that too few masters answered: the lease is unchanged.
        lost: Extensions that found the lock lost, and auto-extended leases that ended before their release.
        renewed: How many of ``extended`` were made by renewal.
        faults: Votes that were failures, of all masters; ``health()`` has them for each master.
    """

    acquired: int = 0
    contended: int = 0
    unavailable: int = 0
    released: int = 0
    expired: int = 0
    extended: int = 0
    inconclusive: int = 0
    lost: int = 0
    renewed: int = 0
    faults: int = 0

    def copy(self) -> Stats:
        """A copy, which does not change any more."""
        return replace(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, because C fields are not in a ``__dict__``."""
        return Stats, astuple(self)
