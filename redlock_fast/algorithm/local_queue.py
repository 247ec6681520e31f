"""Who waits for what in this client: a line (FIFO) for each key, of which only the first asks the masters."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable


class _Slot:
    """What stands in the line for a place. ``wake``: called when it may have become the first."""

    __slots__ = ("wake",)

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None


class QueueEntry:
    """One caller's place in the line for ``key``. It ends with ``leave``, or when nobody has it any more:
    what a signal handler raises may come before, or in the middle of, any call.
    """

    __slots__ = ("_queue", "key", "slot")

    def __init__(self, queue: LocalQueue, key: bytes) -> None:
        self._queue = queue
        self.key = key
        self.slot = _Slot()

    @property
    def is_first(self) -> bool:
        entries = self._queue.waiting.get(self.key)
        return entries is None or entries[0] is self.slot

    def leave(self) -> None:
        """The next one is first now."""
        self._queue.leave(self)

    __del__ = leave


class LocalQueue:
    """The lines of one client, by key."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, collections.deque[_Slot]] = {}
        self._mutex = threading.RLock()  # reentrant: a signal handler may wait, too

    def after_fork_in_child(self) -> None:
        """In a child of fork: nobody waits here."""
        self.waiting = {}
        self._mutex = threading.RLock()

    def enter(self, key: bytes) -> QueueEntry:
        entry = QueueEntry(self, key)
        with self._mutex:
            self.waiting.setdefault(key, collections.deque()).append(entry.slot)
        return entry

    def leave(self, entry: QueueEntry) -> None:
        with self._mutex:
            entries = self.waiting.get(entry.key)
            if entries is None or entry.slot not in entries:
                return
            was_first = entries[0] is entry.slot
            entries.remove(entry.slot)
            if not entries:
                del self.waiting[entry.key]
            wake = entries[0].wake if entries and was_first else None
        if wake is not None:
            wake()

    def wake_all(self) -> None:
        """The client is closed: nobody has anything to wait for."""
        with self._mutex:
            wakes = [slot.wake for entries in self.waiting.values() for slot in entries]
        for wake in wakes:
            if wake is not None:
                wake()
