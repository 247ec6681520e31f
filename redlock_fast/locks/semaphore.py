"""Semaphore: one of ``permits`` slots. Each slot is a plain lock on its own key, ``{name}:0`` and so on.

So there are never more holders than slots, by construction. (Masters that count holders would admit more:
docs/kinds.md has the schedule.) The lease is that of the plain lock of the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ..algorithm.keys import MAX_SLOTS
from ..algorithm.lock_kind import LockKind
from ..algorithm.master_lists import MasterLists, mask_of
from ..algorithm.policy import Policy
from ..engine.contract import FAULT, Request, Votes
from ..wire.commands import Verb, bulk
from .config import check_integer

MAX_PERMITS = MAX_SLOTS
#: The number of slots in one map: their bits must fit into a number of Lua, which is a double.
WINDOW = 50
#: The number of immediate retries in a row for free slots: other callers may be faster each time.
MAX_IMMEDIATE_RETRIES = 8
#: The number of slots whose owners an error names.
MAX_OWNERS = 8


class SemaphoreKind(LockKind):
    """A semaphore. ``chance``: a random number in [0, 1).

    The first attempt is a plain one, for a random slot. Each further attempt also returns a map of the free
    slots of each master. The next attempt, for a slot that is free on a quorum, follows at once while there
    is such a slot.
    """

    __slots__ = (
        "_chance",
        "_first",
        "_immediate_retries",
        "_masters_with_free",
        "_next",
        "_no_common_free",
        "_searched",
        "permits",
        "prefix",
        "retry_at_once",
        "slot",
    )

    kind = "semaphore"

    def __init__(self, key: bytes, permits: int, chance: Callable[[], float]) -> None:
        super().__init__(key)
        self.prefix: bytes = b"{%b}:" % key
        self.permits: int = permits
        self.retry_at_once: bool = False
        #: The key of the slot of the last attempt.
        self.slot: bytes = b""
        self._chance = chance
        self._next = self._random(permits)
        self._first = self._next // WINDOW * WINDOW
        self._searched = -1  # the number of slots searched without a free one; -1: no map yet
        self._masters_with_free: set[int] = set()  # masters with a free slot in these maps
        self._no_common_free = False
        self._immediate_retries = 0

    def for_attempt(self, joins: bool = True) -> Self:
        return type(self)(self.key, self.permits, self._chance)

    @property
    def queue_key(self) -> bytes:
        return self.prefix

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        self.slot = b"%b%d" % (self.prefix, self._next)
        plain = self.held_kind().acquire_request(token, ttl, masters)
        if self._searched < 0:
            return plain
        where = (self.prefix, b"%d" % self._first, b"%d" % self._window)
        return Request(Verb.SLOT_ACQUIRE, (*plain.args, *where), masters)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        return self.held_kind().release_requests(token, masters, resend_for)

    def owner_keys(self, votes: Votes) -> list[bytes]:
        """The keys of the first slots."""
        return [b"%b%d" % (self.prefix, number) for number in range(min(self.permits, MAX_OWNERS))]

    def held_kind(self) -> LockKind:
        return LockKind(self.slot)

    def watch_request(self, masters: int) -> Request | None:
        """Watches all slots. None while masters have different free slots: a push would not help then."""
        if self._no_common_free:
            return None
        keys = [bulk(b"%b%d" % (self.prefix, number)) for number in range(self.permits)]
        args = self.prefix, b"*%d\r\n" % (len(keys) + 3), bulk(b"%d" % len(keys)) + b"".join(keys)
        return Request(Verb.SLOT_WATCH, args, masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        """Choose the next slot, and whether to try it at once."""
        if self.permits == 1:
            return
        free = [] if self._searched < 0 else self._free(votes, lists)
        if free:
            self._next = free[self._random(len(free))]
            self._searched = 0
            self._immediate_retries += 1
            self.retry_at_once = self._immediate_retries % MAX_IMMEDIATE_RETRIES != 0
            return
        if self._searched < 0:
            self._searched = 0
        else:
            self._searched += self._window
            self._first = (self._first + WINDOW) % (-(-self.permits // WINDOW) * WINDOW)
        self._next = self._first + self._random(self._window)
        self.retry_at_once = self._searched < self.permits
        if not self.retry_at_once:
            self._no_common_free = lists.is_quorum(mask_of(self._masters_with_free))
            self._masters_with_free.clear()
            self._searched = 0

    def _free(self, votes: Votes, lists: MasterLists) -> list[int]:
        """The slots of the window that are free on a quorum of masters."""
        maps = {n: abs(value) - (value > 0) for n, value in enumerate(votes.values) if value > FAULT}
        self._masters_with_free.update(master for master, bits in maps.items() if bits)
        free = [
            mask_of(master for master, bits in maps.items() if bits >> n & 1) for n in range(self._window)
        ]
        return [self._first + n for n, masters in enumerate(free) if lists.is_quorum(masters)]

    @property
    def _window(self) -> int:
        return min(WINDOW, self.permits - self._first)

    def _random(self, count: int) -> int:
        return min(count - 1, int(self._chance() * count))


def semaphore_kind(key: bytes, permits: int, policy: Policy) -> SemaphoreKind:
    """The kind of a semaphore with ``permits`` slots. Raises ConfigError."""
    return SemaphoreKind(key, check_integer("permits", permits, 1, MAX_PERMITS), policy.chance)
