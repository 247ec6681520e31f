"""What a client counts.

Each count is one ``+= value`` without a mutex: a thread that calls nothing between the load and the store of
a field keeps the GIL. Compiled where it can be, as fields of C.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Stats:
    """What a client has done so far, as counts.

    Attributes:
        acquired: Acquires that got the lock.
        contended: Acquires that did not, as others held it.
        unavailable: Acquires that did not, as too few masters answered.
        released: Releases that found the lease alive.
        expired: Releases that came after its end.
        extended: Extensions that were confirmed.
        inconclusive: Extensions that too few masters answered: the lease is what it was.
        lost: Extensions that found the lock lost; and auto-extended leases that ended otherwise before
            their release.
        renewed: Of the extensions, those by renewal.
        faults: Votes that were failures, all masters together; ``health()`` has them for each.
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
        """As they are now; the client's go on."""
        return Stats(*self._values())

    def _values(self) -> tuple[int, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: fields of C are no dictionary."""
        return Stats, self._values()
