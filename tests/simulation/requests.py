"""What a request is about: which keys, which token, for how long."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from redlock_fast.engine.contract import Request
from redlock_fast.wire.commands import WATCH_KEY, WATCH_PREFIX, Verb

#: A key and the token that holds it.
Place = tuple[bytes, bytes]

PLAIN = frozenset(
    {
        *(Verb.ACQUIRE, Verb.RELEASE, Verb.EXTEND, Verb.FENCE, Verb.RAISE_FENCE, Verb.REFILL),
        *(Verb.SLOT_ACQUIRE, Verb.FAIR, Verb.FAIR_LEAVE),
    }
)
READ_WRITE = frozenset(
    {Verb.RW_READ, Verb.RW_WRITE, Verb.RW_ROLLBACK, Verb.RW_RELEASE, Verb.RW_EXTEND, Verb.RW_DOWNGRADE}
)
ALL = frozenset({Verb.ACQUIRE_ALL, Verb.RELEASE_ALL})
#: The verbs that draw a token for a round.
ACQUIRES = frozenset(
    {Verb.ACQUIRE, Verb.FENCE, Verb.SLOT_ACQUIRE, Verb.FAIR, Verb.RW_READ, Verb.RW_WRITE, Verb.ACQUIRE_ALL}
)
#: The verbs that take back what was acquired.
RELEASES = frozenset({Verb.RELEASE, Verb.RW_ROLLBACK, Verb.RW_RELEASE, Verb.RELEASE_ALL, Verb.FAIR_LEAVE})
#: The verbs whose grants are counted for a lease.
VOTES = ACQUIRES | {Verb.EXTEND, Verb.RW_EXTEND, Verb.RW_DOWNGRADE}
#: The verbs that watch, and what: a key, or all keys that begin with it.
WATCHES = {
    Verb.WATCH: WATCH_KEY,
    Verb.RW_WATCH: WATCH_PREFIX,
    Verb.SLOT_WATCH: WATCH_PREFIX,
}


def places(request: Request) -> tuple[Place, ...]:
    """What the request acquires, extends or releases."""
    verb, args = request.verb, request.args
    if verb in PLAIN:
        return ((args[0], args[1]),)
    if verb in READ_WRITE:
        return ((args[0][1:-3], args[3]),)
    if verb in ALL:
        return tuple((key, args[5]) for key in words_of(args[4]))
    return ()


def ttl(request: Request) -> float:
    """For how many seconds a vote is asked for."""
    verb, args = request.verb, request.args
    return int(args[5] if verb in READ_WRITE else args[6] if verb in ALL else args[2]) / 1000


def held_by(requests: Iterable[Request]) -> tuple[Place, ...]:
    """What the requests that release a lease release."""
    return tuple(place for request in requests for place in places(request))


@lru_cache
def words_of(resp: bytes) -> list[bytes]:
    """The bulk strings in it."""
    return re.findall(rb"\$\d+\r\n(.*?)\r\n", resp, re.DOTALL)
