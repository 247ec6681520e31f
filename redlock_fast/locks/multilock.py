"""Multilock: each master grants all resources or none, in one round trip.

A waiting caller holds no resource, so overlapping sets cannot deadlock. After the grant each resource is a
lock of its own with the same token. The lease is held as long as each resource has a quorum of masters. The
quorums may differ.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Self

from ..algorithm.local_queue import QueueKey
from ..algorithm.lock_kind import ACQUIRE, EXTEND, RELEASE, WATCH, LockKind, turn_for, wire_ttl
from ..algorithm.master_lists import MasterLists
from ..engine.contract import Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb, bulk
from .client_core import ClientCore
from .many import check_resources
from .options import ListOf, Resource

#: The maximum number of resources, and of bytes of their keys: a script blocks its master.
MOST_RESOURCES, MOST_BYTES = 1_000, 1 << 20

ACQUIRE_ALL, RELEASE_ALL = map(int, (Verb.ACQUIRE_ALL, Verb.RELEASE_ALL))
#: The words of a command besides keys: EVALSHA, the script, the number of keys, token, ttl. A marker adds its
#: key and two words.
WORDS, MARKED_WORDS = 5, 8


def multi_lock_kind(core: ClientCore, resources: ListOf[Resource]) -> MultiLockKind:
    """The kind of a lock on all ``resources``. Raises ConfigError."""
    keys = sorted(check_resources(core, resources))
    size = sum(map(len, keys))
    if not 1 <= len(keys) <= MOST_RESOURCES:
        raise ConfigError(f"resources: 1 to {MOST_RESOURCES} can be locked at once, not {len(keys)}")
    if size > MOST_BYTES:
        raise ConfigError(f"resources: names of {MOST_BYTES} bytes can be locked at once, not of {size}")
    if not core.in_one_slot(keys):
        raise ConfigError(
            "resources: on a Cluster all resources of a multilock must belong to one slot, because one "
            "command locks all or none: give them one hash tag, as in '{orders}.1' and '{orders}.2', or take "
            "single locks in one order (acquire_many locks each by itself)"
        )
    return MultiLockKind(tuple(keys))


class MultiLockKind(LockKind):
    """A lock on all of ``keys``, which are sorted."""

    __slots__ = ("_taken", "_words", "keys")

    kind = "multilock"
    batchable = False
    refillable = False

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        super().__init__(keys[0] if len(keys) == 1 else b"%b and %d more" % (keys[0], len(keys) - 1))
        count = len(keys)
        self.keys: tuple[bytes, ...] = keys
        self._taken = keys[0]  # a key that another holder has
        self._words = (
            b"*%d\r\n" % (WORDS + count),
            b"*%d\r\n" % (MARKED_WORDS + count),
            b"%d" % count,
            b"%d" % (count + 1),
            b"".join(map(bulk, keys)),
        )

    @property
    def queue_key(self) -> QueueKey:
        """The queue of callers that want the same resources: they exclude each other."""
        return self.keys if len(self.keys) > 1 else self.key

    @property
    def turn_key(self) -> bytes:
        """Of this set of resources: callers that want another one may be granted meanwhile."""
        digest = hashlib.sha256(self._words[-1]).hexdigest()[:16]
        return turn_for(self.keys[0], b"%b:" % digest.encode())

    def for_attempt(self, joins: bool = True) -> Self:
        return type(self)(self.keys)

    def acquire_request(self, token: bytes, ttl: bytes, masters: int) -> Request:
        return Request(ACQUIRE_ALL, (*self._words, token, ttl), masters)

    def observe(self, votes: Votes, lists: MasterLists) -> None:
        """Choose the key to watch."""
        self._taken = self.refused_key(votes) or self._taken

    def owner_keys(self, votes: Votes) -> list[bytes]:
        return [self.refused_key(votes) or self.key]

    def refused_key(self, votes: Votes) -> bytes:
        """The key that most masters refused; b"" if none did.

        A refusal has the index of the first key that is taken. A master may say any number.
        """
        refused = Counter(-value - 1 for value in votes.values if -len(self.keys) <= value < 0)
        return self.keys[refused.most_common(1)[0][0]] if refused else b""

    def held_kind(self) -> LockKind:
        return MultiLeaseKind(self.key, self.keys, self.turn_key)

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        return [Request(RELEASE_ALL, (*self._words, token, wire_ttl(resend_for)), masters, resend_for)]

    def watch_request(self, masters: int) -> Request:
        return Request(WATCH, (self._taken,), masters)


class MultiLeaseKind(LockKind):
    """The keys of one lease, all with the same token. ``key``: their name in messages."""

    __slots__ = ("_turn_key", "keys", "request_count")

    batchable = False
    refillable = False

    def __init__(self, key: bytes, keys: tuple[bytes, ...], turn: bytes | None = None) -> None:
        super().__init__(key)
        self._turn_key: bytes | None = turn
        self.keys: tuple[bytes, ...] = keys
        self.request_count: int = len(keys)

    @property
    def turn_key(self) -> bytes | None:
        return self._turn_key

    @property
    def key_bytes(self) -> int:
        return sum(map(len, self.keys))

    def release_requests(self, token: bytes, masters: int, resend_for: float) -> list[Request]:
        return [Request(RELEASE, (key, token), masters, resend_for) for key in self.keys]

    def put_requests(self, token: bytes, ttl: bytes, masters: int, fencing: int | None) -> list[Request]:
        return [Request(ACQUIRE, (key, token, ttl), masters) for key in self.keys]

    def extend_requests(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        return [Request(EXTEND, (key, token, ttl), masters) for key in self.keys]
