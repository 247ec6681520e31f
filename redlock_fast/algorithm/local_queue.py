"""The local queues of one client: a FIFO of callers per key. Only the first caller asks the masters."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable

from ..engine.mutex import new_mutex

#: What callers wait for: a key, a set of keys, or the first level of a reentrant lock.
QueueKey = bytes | tuple[Hashable, ...]


class _Slot:
    """An element of a queue. ``wake``: called when the element may have become the first, or was admitted.

    ``admitted``: its caller asks the masters at once, wherever it was in the queue.
    The queue refers to the slot and not to its entry, so that a forgotten entry is collected and leaves.
    """

    __slots__ = ("admitted", "wake")

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None
        self.admitted: bool = False


class QueueEntry:
    """One caller's place in the queue for ``key``. It ends with ``leave``, or when the entry is collected.

    The latter is needed because a signal handler may raise before or inside any call.
    """

    __slots__ = ("_queue", "entered", "key", "slot")

    def __init__(self, queue: LocalQueue, key: QueueKey) -> None:
        self._queue = queue
        self.key: QueueKey = key
        self.slot: _Slot = _Slot()
        self.entered: bool = True

    @property
    def is_first(self) -> bool:
        entries = self._queue.waiting.get(self.key)
        return entries is None or entries[0] is self.slot or self.slot.admitted

    def leave(self) -> None:
        """Leave the queue, and wake the next caller if this one was the first.

        If an exception interrupts this, call it again.
        """
        if self.entered:
            self._queue.leave(self)
            self.entered = False

    def admit_all(self) -> None:
        """Empty the queue: all its callers ask the masters now, and do not wait for this one.

        If an exception interrupts this, call it again.
        """
        self._queue.admit_all(self)

    def __del__(self) -> None:
        if hasattr(self, "entered"):  # otherwise an exception interrupted __init__
            self.leave()


class LocalQueue:
    """The local queues of one client, by key."""

    def __init__(self) -> None:
        self.waiting: dict[QueueKey, collections.deque[_Slot]] = {}
        self._mutex = new_mutex()  # reentrant: a signal handler may queue, too

    def after_fork_in_child(self) -> None:
        """Empty all queues in a child of fork: their callers are in the parent."""
        self.waiting = {}
        self._mutex = new_mutex()

    def clear(self) -> None:
        """Empty all queues: their callers can never leave. A collected entry leaves without effect."""
        with self._mutex:
            self.waiting = {}

    def enter(self, key: QueueKey) -> QueueEntry:
        entry = QueueEntry(self, key)
        with self._mutex:
            self.waiting.setdefault(key, collections.deque()).append(entry.slot)
        return entry

    def leave(self, entry: QueueEntry) -> None:
        with self._mutex:
            entries = self.waiting.get(entry.key)
            if entries is None:
                return
            # An interrupted call may have removed the entry, and woken no caller.
            present = entry.slot in entries
            next_is_first = not present or entries[0] is entry.slot
            if present:
                entries.remove(entry.slot)
            if not entries:
                del self.waiting[entry.key]
            wake = entries[0].wake if entries and next_is_first else None
        if wake is not None:
            wake()

    def admit_all(self, entry: QueueEntry) -> None:
        with self._mutex:
            entries = self.waiting.get(entry.key, ())
            if entry.slot not in entries:
                return
            for slot in entries:
                slot.admitted = True
                if slot.wake is not None:
                    slot.wake()
            del self.waiting[entry.key]  # not before: an interrupted call must find them again

    def wake_all(self) -> None:
        """Wake all callers: the client is closed."""
        with self._mutex:
            wakes = [slot.wake for entries in self.waiting.values() for slot in entries]
        for wake in wakes:
            if wake is not None:
                wake()
