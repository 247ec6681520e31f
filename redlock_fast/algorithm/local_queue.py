"""Who waits for what in this client: a line (FIFO) for each key, of which only the first asks the masters."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable


class _Stand:
    """What stands in the line for a place. ``wake``: called when it may have become the first."""

    __slots__ = ("wake",)

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None


class Place:
    """One caller's place in the line for ``key``. It ends with ``leave``, or when nobody has it any more:
    what a signal handler raises may come before, or in the middle of, any call.
    """

    __slots__ = ("_line", "key", "stand")

    def __init__(self, line: Line, key: bytes) -> None:
        self._line = line
        self.key = key
        self.stand = _Stand()

    @property
    def first(self) -> bool:
        places = self._line.waiting.get(self.key)
        return places is None or places[0] is self.stand

    def leave(self) -> None:
        """The next one is first now."""
        self._line.leave(self)

    __del__ = leave


class Line:
    """The lines of one client, by key."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, collections.deque[_Stand]] = {}
        self._mutex = threading.RLock()  # reentrant: a signal handler may wait, too

    def abandon(self) -> None:
        """In a child of fork: nobody waits here."""
        self.waiting = {}
        self._mutex = threading.RLock()

    def enter(self, key: bytes) -> Place:
        place = Place(self, key)
        with self._mutex:
            self.waiting.setdefault(key, collections.deque()).append(place.stand)
        return place

    def leave(self, place: Place) -> None:
        with self._mutex:
            places = self.waiting.get(place.key)
            if places is None or place.stand not in places:
                return
            was_first = places[0] is place.stand
            places.remove(place.stand)
            if not places:
                del self.waiting[place.key]
            wake = places[0].wake if places and was_first else None
        if wake is not None:
            wake()

    def wake_all(self) -> None:
        """The client is closed: nobody has anything to wait for."""
        with self._mutex:
            wakes = [stand.wake for places in self.waiting.values() for stand in places]
        for wake in wakes:
            if wake is not None:
                wake()
