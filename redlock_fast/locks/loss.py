"""The event of a loss: what ``lock.lost`` is."""

from __future__ import annotations

from typing import Protocol


class Event(Protocol):
    """An event of threads or of asyncio."""

    def is_set(self) -> bool: ...


class TrueWhenSet:
    """A base for classes of events: an event is true when it is set.

    The events of threads and of asyncio are always true, so ``if lock.lost:`` would hold for every lock.
    """

    def __bool__(self: Event) -> bool:
        return self.is_set()
