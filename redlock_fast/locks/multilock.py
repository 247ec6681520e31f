"""Several resources at once: all or none of them on each master, in one round trip.

Whoever waits keeps nothing meanwhile, so sets that overlap cannot wait for each other in a circle. Once
granted, each resource is a lock of its own with the same token: the lease is held as long as each of them has
a quorum of masters, though not all of them the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from ..algorithm.lock_kind import EXTEND, RELEASE, WATCH, Claim, wire_ttl
from ..engine.contract import FAULT, Request, Votes
from ..errors import ConfigError
from ..wire.commands import Verb, bulk
from .client_base import Core
from .many import check_resources

#: So many resources, and bytes of their keys: a master does nothing else while it looks at all of them.
MOST_RESOURCES, MOST_BYTES = 1_000, 1 << 20

ACQUIRE_ALL, RELEASE_ALL = map(int, (Verb.ACQUIRE_ALL, Verb.RELEASE_ALL))
#: What the commands have besides keys: EVALSHA, the script, how many keys, token, ttl. With a marker also its
#: key, and two words for it.
WORDS, MARKED_WORDS = 5, 8


def claim_all(core: Core, resources: Sequence[str | bytes]) -> All:
    """Raises ConfigError."""
    keys = sorted(check_resources(core, resources))
    size = sum(map(len, keys))
    if not 1 <= len(keys) <= MOST_RESOURCES:
        raise ConfigError(f"resources: 1 to {MOST_RESOURCES} can be locked at once, not {len(keys)}")
    if size > MOST_BYTES:
        raise ConfigError(f"resources: names of {MOST_BYTES} bytes can be locked at once, not of {size}")
    return All(tuple(keys))


class All(Claim):
    """All of ``keys``, which are sorted, or none."""

    __slots__ = ("_taken", "_words", "keys")

    plain = False

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        super().__init__(keys[0] if len(keys) == 1 else b"%b and %d more" % (keys[0], len(keys) - 1))
        count = len(keys)
        self.keys = keys
        self._taken = 0  # which of them somebody else has
        self._words = (
            b"*%d\r\n" % (WORDS + count),
            b"*%d\r\n" % (MARKED_WORDS + count),
            b"%d" % count,
            b"%d" % (count + 1),
            b"".join(map(bulk, keys)),
        )

    @property
    def line(self) -> None:
        """It waits for now this resource, now that one."""
        return None

    def begin(self) -> Self:
        return type(self)(self.keys)

    def ask(self, token: bytes, ttl: bytes, masters: int) -> Request:
        return Request(ACQUIRE_ALL, (*self._words, token, ttl), masters)

    def learn(self, votes: Votes) -> None:
        """Each master that refused says which resource was the first that was taken."""
        refused = Counter(-value - 1 for value in votes.values if FAULT < value < 0)
        if refused:
            self._taken = refused.most_common(1)[0][0]

    def granted(self) -> Claim:
        return Each(self.key, self.keys)

    def undo(self, token: bytes, masters: int, keep: float) -> list[Request]:
        return [Request(RELEASE_ALL, (*self._words, token, wire_ttl(keep)), masters, keep)]

    def watch(self, masters: int) -> Request:
        return Request(WATCH, (self.keys[self._taken],), masters)


class Each(Claim):
    """Several keys that one token has: the parts of one lease. ``key``: what to call them."""

    __slots__ = ("keys", "parts")

    plain = False

    def __init__(self, key: bytes, keys: tuple[bytes, ...]) -> None:
        super().__init__(key)
        self.keys = keys
        self.parts = len(keys)

    @property
    def size(self) -> int:
        return sum(map(len, self.keys))

    def undo(self, token: bytes, masters: int, keep: float) -> list[Request]:
        return [Request(RELEASE, (key, token), masters, keep) for key in self.keys]

    def more(self, token: bytes, ttl: bytes, masters: int) -> list[Request]:
        return [Request(EXTEND, (key, token, ttl), masters) for key in self.keys]
