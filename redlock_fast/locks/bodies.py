"""The bodies of ``with`` of one lock object, each with the lease that it began with.

An object has one lease at a time. A lease may end before its body does, and then another thread or task may
enter the same object: the end of the first body must leave the lease of the second one alone.
"""

from __future__ import annotations

from ..algorithm.lease import Lease

#: The owner of each body, a number of its thread or task, and its lease. An entry that an interrupt leaves
#: behind has no effect: its lease has ended or is released.
Bodies = list[tuple[int, Lease | None]]


def end_one_of(bodies: Bodies, owner: int, lease: Lease | None) -> bool:
    """Remove the last body of ``owner``. Returns whether ``lease``, the present one, is of another body."""
    for entry in reversed(bodies.copy()):
        if entry[0] == owner:
            bodies.remove(entry)
            break
    else:
        bodies.pop()  # another thread or task leaves it than entered it
    return lease is not None and any(one is lease for _, one in bodies.copy())
