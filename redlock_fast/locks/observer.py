"""What is told of a client that metrics or traces observe. A client without an observer tells nothing."""

from __future__ import annotations

from typing import Any, Protocol

from ..algorithm.lease import Lease


class Grants(Protocol):
    """What is told of each grant."""

    def add(self, lease: Lease) -> None: ...


class Observer:
    """Of one client. Times of grants and traces of locks are independent of each other.

    ``grants``: is told of each lease that is granted. ``lock_class``: the class of the locks that the
    client makes, in place of its own.
    """

    __slots__ = ("grants", "lock_class")

    def __init__(self) -> None:
        self.grants: Grants | None = None
        self.lock_class: type[Any] | None = None

    def granted(self, lease: Lease) -> None:
        if self.grants is not None:
            self.grants.add(lease)
