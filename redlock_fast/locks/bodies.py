"""The bodies of ``with`` of one lock object, each with the lease that it began with.

An object has one lease at a time. A lease may end before its body does, and then another thread or task may
enter the same object: the end of the first body must leave the lease of the second one alone.
Compiled with the types of ``locks/bodies.pxd``, if there is a compiler.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ..algorithm.lease import Lease


class Body:
    """``owner``: the number of its thread, or a reference to its task; None: it is a call of ``acquire``.

    ``lease``: what it was granted, or None. ``task``: with asyncio the ``BodyTask`` that a loss of the lease
    cancels, or None.
    """

    __slots__ = ("lease", "owner", "task")

    def __init__(self, owner: object = None, lease: Lease | None = None, task: Any = None) -> None:
        self.owner: object = owner
        self.lease: Lease | None = lease
        self.task: Any = task


def remove_ended(bodies: list[Body], owner: object, destroyed: bool) -> Body:
    """Remove the body that ends; see ``number_of``. Returns it."""
    entries = bodies.copy()
    number = number_of([body.owner for body in entries], owner, destroyed)
    # Of the first one, if another thread or task leaves a body than entered it.
    ended = entries[number or 0]
    bodies.remove(ended)
    return ended


def remove_bodies_of(bodies: list[Body], lease: Lease) -> None:
    """Remove what is left of the bodies that began with ``lease``, which has ended with them."""
    for body in bodies.copy():
        if body.lease is lease:
            bodies.remove(body)


def number_of(owners: Sequence[object], owner: object, destroyed: bool) -> int | None:
    """The number of the body that ``owner`` ends, among the bodies of ``owners``. None: it ends none of them.

    The bodies of one owner end in the reverse order. ``destroyed``: a coroutine or an async generator is
    closed, perhaps because its task does not exist any more. It ends inside the task that runs at that time.
    """
    if destroyed:
        for number, one in enumerate(owners):
            if isinstance(one, weakref.ref) and one() is None:
                return number
    if owner in owners:
        return len(owners) - 1 - owners[::-1].index(owner)
    return 0 if destroyed and owners else None


def has_lease(bodies: list[Body], lease: Lease, owner: object) -> bool:
    """Whether a body of another owner began with ``lease``."""
    return len([body for body in bodies if body.lease is lease and body.owner != owner]) > 0


def cancel_bodies(bodies: list[Body] | None, lost: Lease, reason: str) -> None:
    """Cancel the bodies of a lease that is lost. A lease of no body was acquired in the last one."""
    entries = [body for body in bodies or () if body.lease is lost] or (bodies or [])[-1:]
    for body in entries:
        if body.task is not None:
            body.task.cancel(reason)
