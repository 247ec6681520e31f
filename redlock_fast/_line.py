"""Who waits for what in this client: a line (FIFO) for each key, of which only the first asks the masters."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable


class Place:
    """One caller's place in the line for ``key``. ``wake`` is called when it may have become the first."""

    __slots__ = ("_line", "key", "wake")

    def __init__(self, line: Line, key: bytes) -> None:
        self._line = line
        self.key = key
        self.wake: Callable[[], object] | None = None

    @property
    def first(self) -> bool:
        places = self._line.waiting.get(self.key)
        return places is None or places[0] is self

    def leave(self) -> None:
        """The next one is first now."""
        self._line.leave(self)


class Line:
    """The lines of one client, by key."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, collections.deque[Place]] = {}
        self._mutex = threading.RLock()  # reentrant: a signal handler may wait, too

    def abandon(self) -> None:
        """In a child of fork: nobody waits here."""
        self.waiting = {}
        self._mutex = threading.RLock()

    def enter(self, key: bytes) -> Place:
        place = Place(self, key)
        with self._mutex:
            self.waiting.setdefault(key, collections.deque()).append(place)
        return place

    def leave(self, place: Place) -> None:
        with self._mutex:
            places = self.waiting.get(place.key)
            if places is None or place not in places:
                return
            was_first = places[0] is place
            places.remove(place)
            if not places:
                del self.waiting[place.key]
            wake = places[0].wake if places and was_first else None
        if wake is not None:
            wake()

    def wake_all(self) -> None:
        """The client is closed: nobody has anything to wait for."""
        with self._mutex:
            wakes = [place.wake for places in self.waiting.values() for place in places]
        for wake in wakes:
            if wake is not None:
                wake()
