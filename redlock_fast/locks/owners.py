"""The owners of a reentrant lock, and what each owner holds."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, Protocol


class Ownership:
    """What one owner holds: a lock, and the number of levels entered. At 0 the lock is being released."""

    __slots__ = ("depth", "generation", "lock")

    def __init__(self, lock: Any, generation: int) -> None:
        self.lock: Any = lock
        self.depth: int = 1
        self.generation: int = generation  # of the process: in a child of fork an owner holds nothing


class Owner(Protocol):
    """Stores the ownership of one owner. ``drop`` removes it unless it was replaced.

    ``put`` and ``drop`` are called with the mutex of the client: a named owner may be several threads.
    """

    def get(self) -> Ownership | None: ...

    def put(self, ownership: Ownership) -> None: ...

    def drop(self, ownership: Ownership) -> None: ...


class ThreadOwner:
    """The calling thread or greenlet as owner. Not by its ident, which a later thread may get.

    When a thread ends, its ownership is collected: renewal stops, and the lease ends.
    """

    def __init__(self) -> None:
        self._local: Any = threading.local()  # no base class: gevent may replace it after this import

    def get(self) -> Ownership | None:
        ownership: Ownership | None = getattr(self._local, "ownership", None)
        return ownership

    def put(self, ownership: Ownership) -> None:
        self._local.ownership = ownership

    def drop(self, ownership: Ownership) -> None:
        if self.get() is ownership:
            self._local.ownership = None


class NamedOwner:
    """A name as owner, in any thread or task."""

    def __init__(self, ownerships: dict[Hashable, Ownership], name: Hashable) -> None:
        hash(name)
        self._ownerships = ownerships
        self._name = name
        #: What its calls queue for: the first level. Not that of the same name for another lock object.
        self.queue_key: tuple[Hashable, ...] = (id(ownerships), name)

    def get(self) -> Ownership | None:
        return self._ownerships.get(self._name)

    def put(self, ownership: Ownership) -> None:
        self._ownerships[self._name] = ownership

    def drop(self, ownership: Ownership) -> None:
        if self._ownerships.get(self._name) is ownership:
            del self._ownerships[self._name]
