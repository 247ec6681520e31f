"""Who owns a reentrant lock, and what each owner holds of it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, Protocol


class Ownership:
    """What one owner has: a lock, and how many levels are to be left. At 0 it is being released."""

    __slots__ = ("depth", "generation", "lock")

    def __init__(self, lock: Any, generation: int) -> None:
        self.lock = lock
        self.depth = 1
        self.generation = generation  # of the process: a child of fork owns nothing


class Owner(Protocol):
    """Keeps the hold of an owner. ``drop``: unless it is another one by now."""

    def get(self) -> Ownership | None: ...

    def put(self, ownership: Ownership) -> None: ...

    def drop(self, ownership: Ownership) -> None: ...


class ThreadOwner(threading.local):
    """The calling thread, whatever its ident: another thread may get the same when it has ended.

    What a thread leaves behind ends with it: it is renewed no more, so that its lease ends.
    """

    ownership: Ownership | None = None

    def get(self) -> Ownership | None:
        return self.ownership

    def put(self, ownership: Ownership) -> None:
        self.ownership = ownership

    def drop(self, ownership: Ownership) -> None:
        if self.ownership is ownership:
            self.ownership = None


class NamedOwner:
    """Whoever gives this name, in any thread or task."""

    def __init__(self, ownerships: dict[Hashable, Ownership], name: Hashable) -> None:
        hash(name)
        self._ownerships = ownerships
        self._name = name

    def get(self) -> Ownership | None:
        return self._ownerships.get(self._name)

    def put(self, ownership: Ownership) -> None:
        self._ownerships[self._name] = ownership

    def drop(self, ownership: Ownership) -> None:
        if self._ownerships.get(self._name) is ownership:
            del self._ownerships[self._name]
