"""The state of many lock objects, changed in one loop each. ``locks/many.py`` has the procedures.

Compiled where it can be, with the types of ``locks/batch_state.pxd``: a batch has thousands of locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..algorithm.lease import Lease
from .client_core import ClientCore
from .lock_state import H, LockState, lock_of


def locks_of(
    kind: type[H], core: ClientCore, resources: Iterable[str | bytes], leases: Sequence[Lease | None]
) -> list[H | None]:
    """A held lock of class ``kind`` for each lease, and None for each None."""
    made: list[H | None] = []
    policy, client_state = core.policy, core.client_state
    for resource, lease in zip(resources, leases, strict=True):
        if lease is None:
            made.append(None)
        else:
            made.append(
                lock_of(kind, core, policy, client_state, resource, lease.lock_kind, lease.ttl, lease)
            )
    client_state.add_leases([lease for lease in leases if lease is not None])
    return made


def remove_leases(core: ClientCore, held: Mapping[H, Lease]) -> None:
    """Forget the leases of ``held``, which are released or have ended."""
    core.client_state.remove_leases(held.values())
    for one, lease in held.items():
        if one._lease is lease:
            one._lease = None


def foreign_locks(core: ClientCore, locks: Iterable[object]) -> list[object]:
    """The objects in ``locks`` that are not locks of this client."""
    return [one for one in locks if not isinstance(one, LockState) or one._core is not core]


def stop_auto_extension(held: Mapping[H, Lease]) -> None:
    """Stop the renewal of the leases of ``held``, before their release."""
    for one, lease in held.items():
        if one._auto_extension is not None:
            one._auto_extension.stop(lease)


def held_by(core: ClientCore, locks: Iterable[H]) -> dict[H, Lease]:
    """The locks that have a lease in this process, each with its lease."""
    held = {}
    generation = core.client_state.generation()
    for one in locks:
        lease = one._lease  # another thread may release it
        if lease is not None and one._generation == generation:
            held[one] = lease
    return held
