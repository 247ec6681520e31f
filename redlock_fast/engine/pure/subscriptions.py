"""Subscriptions: requests whose votes stay open until a push, a fault or their time changes them.

The twin of src/subscriptions.c. Only the I/O thread changes them. The cost of a push is linear in its bytes
and in the votes that it changes, however many subscriptions there are.
"""

from __future__ import annotations

from ...wire.commands import WATCH_KEY, WATCH_PREFIX
from ...wire.push import invalidated
from ..contract import FAULT
from .request import PendingRequest, Subscription


class Table:
    """The open votes of one master, by the watched name.

    ``lengths``: number of watched prefixes by length.
    """

    __slots__ = ("lengths", "names")

    def __init__(self) -> None:
        self.names: dict[tuple[int, bytes], dict[PendingRequest, None]] = {}
        self.lengths: dict[int, int] = {}

    def add(self, request: PendingRequest, watch: int) -> None:
        name = request.request.args[0]
        if request in self.names.setdefault((watch, name), {}):
            return
        self.names[watch, name][request] = None
        if watch == WATCH_PREFIX:
            self.lengths[len(name)] = self.lengths.get(len(name), 0) + 1

    def remove(self, request: PendingRequest, watch: int) -> None:
        name = request.request.args[0]
        same = self.names.get((watch, name), {})
        if request not in same:
            return
        del same[request]
        if not same:
            del self.names[watch, name]
        if watch == WATCH_PREFIX:
            self.lengths[len(name)] -= 1
            if not self.lengths[len(name)]:
                del self.lengths[len(name)]

    def watching(self, key: bytes) -> list[PendingRequest]:
        """The requests that watch this key or a prefix of it."""
        names = [
            (WATCH_KEY, key),
            *((WATCH_PREFIX, key[:length]) for length in self.lengths if length <= len(key)),
        ]
        return [request for name in names for request in self.names.get(name, ())]


class Subscriptions:
    """The undecided subscriptions of an engine."""

    def __init__(self) -> None:
        self._requests: dict[PendingRequest, None] = {}
        self._tables: dict[int, Table] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: PendingRequest, master: int, watch: int) -> None:
        """Opens the vote of this master."""
        if request.subscription is None:
            request.subscription = Subscription(watch, len(request.values), self)
            self._requests[request] = None
            if request.waiter is not None:
                request.waiter.subscribed += 1
        request.subscription.masters |= 1 << master
        self._tables.setdefault(master, Table()).add(request, watch)

    def remove(self, request: PendingRequest) -> None:
        """Removes a request that is decided."""
        if self._requests.pop(request, request) is None and request.subscription is not None:
            for table in self._tables.values():
                table.remove(request, request.subscription.watch)

    def on_push(self, master: int, push: bytes) -> bool:
        """Grants what the push names. Returns False if it names every key."""
        keys, table = invalidated(push), self._tables.get(master)
        if keys is None:
            self._count_all(master, 1, b"")
        elif table is not None and table.names:
            for key in keys:
                for request in table.watching(key):
                    self._count(request, master, 1, b"")
        return keys is not None

    def fail(self, master: int, why: str) -> None:
        """The connection of this master ended: its open votes are faults."""
        self._count_all(master, FAULT, why)

    def end(self) -> None:
        """Decides every subscription with the votes that it has."""
        for request in list(self._requests):
            request.decide()

    def _count_all(self, master: int, value: int, detail: str | bytes) -> None:
        for request in list(self._requests):
            if request.subscription is not None and request.subscription.masters >> master & 1:
                self._count(request, master, value, detail)

    def _count(self, request: PendingRequest, master: int, value: int, detail: str | bytes) -> None:
        """Counts the vote of a master. Its table lists the request no more."""
        if request.subscription is not None:
            self._tables[master].remove(request, request.subscription.watch)
            request.count(master, value, detail)
            request.settle()
