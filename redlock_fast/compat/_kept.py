"""References to held locks: renewal goes on only while something refers to the lock that it extends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many locks are kept before those that have ended are removed.
LEAST = 100


class Kept(Generic[T]):
    """A set of held locks. Those that have ended are removed at times. ``is_held``: whether one is held.

    It has no mutex, which a child of fork might find locked: each step is one operation of a set.
    """

    def __init__(self, is_held: Callable[[T], bool]) -> None:
        self._is_held = is_held
        self._all: set[T] = set()
        self._prune_at = LEAST

    def add(self, lock: T) -> None:
        if len(self._all) >= self._prune_at:
            for other in list(self._all):
                if not self._is_held(other):
                    self._all.discard(other)
            self._prune_at = 2 * len(self._all) + LEAST
        self._all.add(lock)

    def discard(self, lock: T) -> None:
        self._all.discard(lock)

    def clear(self) -> None:
        self._all.clear()

    def held(self) -> list[T]:
        """The locks that are held now."""
        return [lock for lock in list(self._all) if self._is_held(lock)]
