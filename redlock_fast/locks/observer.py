"""The observer of one client, for metrics and traces. A client without an observer only checks for None."""

from __future__ import annotations

from typing import Any, Protocol

from ..algorithm.lease import Lease


class Grants(Protocol):
    """Receives each lease that the client was granted."""

    def add(self, lease: Lease) -> None: ...


class Observer:
    """Observes one client. Either field may be set without the other.

    ``grants``: receives each granted lease. ``lock_class``: the client makes locks of this class instead of
    its own.
    """

    __slots__ = ("grants", "lock_class")

    def __init__(self) -> None:
        self.grants: Grants | None = None
        self.lock_class: type[Any] | None = None

    def granted(self, lease: Lease) -> None:
        if self.grants is not None:
            self.grants.add(lease)
