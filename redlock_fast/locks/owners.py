"""Who owns a reentrant lock, and what each owner holds of it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, Protocol


class Hold:
    """What one owner has: a lock, and how many levels are to be left. At 0 it is being released."""

    __slots__ = ("depth", "generation", "lock")

    def __init__(self, lock: Any, generation: int) -> None:
        self.lock = lock
        self.depth = 1
        self.generation = generation  # of the process: a child of fork owns nothing


class Owner(Protocol):
    """Keeps the hold of an owner. ``drop``: unless it is another one by now."""

    def get(self) -> Hold | None: ...

    def put(self, hold: Hold) -> None: ...

    def drop(self, hold: Hold) -> None: ...


class ThisThread(threading.local):
    """The calling thread, whatever its ident: another thread may get the same when it has ended.

    What a thread leaves behind ends with it: it is renewed no more, so that its lease ends.
    """

    hold: Hold | None = None

    def get(self) -> Hold | None:
        return self.hold

    def put(self, hold: Hold) -> None:
        self.hold = hold

    def drop(self, hold: Hold) -> None:
        if self.hold is hold:
            self.hold = None


class Named:
    """Whoever gives this name, in any thread or task."""

    def __init__(self, holds: dict[Hashable, Hold], name: Hashable) -> None:
        hash(name)
        self._holds = holds
        self._name = name

    def get(self) -> Hold | None:
        return self._holds.get(self._name)

    def put(self, hold: Hold) -> None:
        self._holds[self._name] = hold

    def drop(self, hold: Hold) -> None:
        if self._holds.get(self._name) is hold:
            del self._holds[self._name]
