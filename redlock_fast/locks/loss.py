"""The event of a loss: what ``lock.lost`` is."""

from __future__ import annotations

from typing import Any, Protocol


class Event(Protocol):
    """An event of threads or of asyncio."""

    def is_set(self) -> bool: ...


class TrueWhenSet:
    """A base for classes of events: an event is true when it is set.

    The events of threads and of asyncio are always true, so ``if lock.lost:`` would hold for every lock.
    """

    def __bool__(self: Event) -> bool:
        return self.is_set()


def loss_event(lock: Any) -> Any:
    """The event of the present hold of ``lock``. Raises AttributeError without ``auto_extend``."""
    if lock._auto_extension is None:
        raise AttributeError("lost: only a lock with auto_extend=True has this event")
    return lock._auto_extension.lost
