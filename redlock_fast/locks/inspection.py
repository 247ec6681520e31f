"""Which holders the masters report for locks: for clients and for the command line.

The questions go out over connections of their own (``masters/key_scan.py``), so no lock waits for them.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..algorithm.keys import MAX_SLOTS, encoded
from ..algorithm.tokens import owner_of
from ..errors import ConfigError, MasterError, QuorumUnavailable
from ..masters.marks import MARK_KEY
from ..masters.probe import WITNESS, ConnectError
from ..wire.dialect import MARKER
from ..wire.text import quoted
from .client_core import ClientCore
from .config import check_integer, number
from .options import Resource

if TYPE_CHECKING:
    from ..masters.address import Target
    from ..masters.key_scan import Found, Server, Servers

#: A key that is derived from the name of a lock, and what a token in it is (see ``algorithm/keys.py``).
DERIVED_KEY = re.compile(rb"\{(.+)\}:(w|r|i|e|\d{1,4})", re.DOTALL)
KINDS = {b"w": "writer", b"r": "reader", b"i": "waiting", b"e": "waiting"}
MAX_LIMIT = 100_000

#: Lists of masters that must agree: for each the bit mask of its masters, and the size of its quorum.
Quorums = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Holder:
    """One token that masters have for a lock. It may belong to another library that shares the masters.

    Attributes:
        name: The name of the lock, without the ``key_prefix``; bytes if it is no UTF-8.
        kind: "plain" (also of fair, fenced, reentrant and multiple locks, and of leaders), "writer",
            "reader", "slot" of a semaphore, or "waiting" for a caller that has a place before others.
        owner: The owner that the token names, "" if it names none. Any client can write any owner.
        held: Whether a quorum of the masters has the token. False: it is being acquired, or was left
            behind. None: that depends on masters that did not answer.
        remaining: Seconds until too few masters have the token for a quorum, if nothing extends it; without
            a quorum, until no master has it.
        ttls: For each master the seconds left there; None: it has not the token, or did not answer.
    """

    name: str | bytes
    kind: str
    owner: str
    held: bool | None
    remaining: float
    ttls: tuple[float | None, ...]
    #: The key on the masters, and the whole token: enough to release the lock, so it is not shown.
    key: bytes = field(repr=False)
    token: bytes = field(repr=False)

    @property
    def masters(self) -> int:
        """The number of masters that have the token."""
        return sum(ttl is not None for ttl in self.ttls)


# --- what a client asks ---------------------------------------------------------------------------


def list_holders(core: ClientCore, prefix: Resource, limit: int, timeout: float) -> list[Holder]:
    """``FastRedlock.holders``."""
    check_integer("limit", limit, 1, MAX_LIMIT)
    start = core.key_prefix + encoded("prefix", prefix)
    with _asking(core, prefix, timeout) as (servers, quorums, seconds):
        names, all_names = find_keys(servers, start, limit, seconds)
        _check_answers(servers, quorums, prefix)
        if not all_names:
            raise ConfigError(
                f"holders: there are more than limit={limit} locks, or timeout={timeout:g} s was too short "
                "to list them: use a longer prefix, or more of them"
            )
        strings = [key for key in names if not key.endswith(b"}:r")]
        sets = [key for key in names if key.endswith(b"}:r")]
        found = read(servers, strings, sets, core.key_prefix, quorums, seconds)
        _check_answers(servers, quorums, prefix)
        return found


def inspect_lock(core: ClientCore, resource: Resource, timeout: float) -> list[Holder]:
    """``FastRedlock.inspect``."""
    key = core.check_key(resource)
    with _asking(core, resource, timeout, key) as (servers, quorums, seconds):
        found = find(servers, key, core.key_prefix, quorums, seconds)
        _check_answers(servers, quorums, resource)
        return found


def break_lock(core: ClientCore, resource: Resource, timeout: float) -> list[Holder]:
    """``FastRedlock.break_lock``."""
    key = core.check_key(resource)
    with _asking(core, resource, timeout, key) as (servers, quorums, seconds):
        found = find(servers, key, core.key_prefix, quorums, seconds)
        _check_answers(servers, quorums, resource)
        left = delete(servers, key, found, quorums, seconds)
        _check_answers(servers, quorums, resource)
        if left:
            raise _unavailable(servers, resource, "it is not broken on a quorum")
        return found


@contextlib.contextmanager
def _asking(
    core: ClientCore, resource: Resource, timeout: float, key: bytes | None = None
) -> Iterator[tuple[Servers, Quorums, float]]:
    """The masters of a client to be asked, their quorums, and the checked ``timeout``.

    ``key``: of the lock that they are asked about; None: about all. Of a Cluster one shard has it.
    """
    from ..masters.key_scan import Servers  # late: few programs need it, and its threads

    seconds = number("timeout", timeout, above=0.0)
    core.check_open()
    lists = core.policy.voters.lists
    asked = core.masters.connector.roster.own(lists)
    quorums = [
        (sum(1 << place for place, master in enumerate(asked) if own >> master & 1), need)
        for own, need in lists.lists
    ]
    if lists.shards:
        targets = _shards(core, asked[0].target, resource, key)
        with Servers(targets, core.connect_timeout) as servers:
            yield servers, [(1 << place, 1) for place in range(len(targets))], seconds
        return
    with Servers([master.target for master in asked.values()], core.connect_timeout) as servers:
        yield servers, quorums, seconds


def _shards(core: ClientCore, cluster: Target, resource: Resource, key: bytes | None) -> list[Target]:
    """The shards of a Cluster to be asked. Raises QuorumUnavailable."""
    try:
        return cluster.shards(core.connect_timeout, key)
    except ConnectError as error:
        causes = [MasterError(cluster.name, str(error))]
        raise QuorumUnavailable(
            f"{quoted(resource)}: {error}", causes, resource=resource, reason="unavailable"
        ) from None


def _check_answers(servers: Servers, quorums: Quorums, resource: Resource) -> None:
    """Raise QuorumUnavailable unless a quorum of each list has answered everything so far."""
    answered = sum(1 << place for place, server in enumerate(servers.all) if not server.error)
    if any((own & answered).bit_count() < need for own, need in quorums):
        raise _unavailable(servers, resource, "too few masters answered")


def _unavailable(servers: Servers, resource: Resource, why: str) -> QuorumUnavailable:
    causes = [MasterError(server.name, server.error) for server in servers.all if server.error]
    return QuorumUnavailable(f"{quoted(resource)}: {why}", causes, resource=resource, reason="unavailable")


# --- what is asked --------------------------------------------------------------------------------


def find_keys(servers: Servers, start: bytes, limit: int, seconds: float) -> tuple[list[bytes], bool]:
    """Up to ``limit`` keys of holders of locks whose keys begin with ``start``; whether these are all."""
    from ..masters.key_scan import ALL_TYPES, escape_pattern

    pattern = escape_pattern(start)
    plain, all_plain = scan(servers, pattern + b"*", limit, seconds)
    derived, all_derived = scan(servers, b"{" + pattern + b"*}:*", limit, seconds, ALL_TYPES)
    keys = {key for key in plain if DERIVED_KEY.fullmatch(key) is None}
    for key in [*plain, *derived]:
        found = DERIVED_KEY.fullmatch(key)
        if found and found[1].startswith(start) and found[2] not in (b"i", b"e"):
            keys.add(key)
    return sorted(keys)[:limit], len(keys) <= limit and all_plain and all_derived


def scan(
    servers: Servers, pattern: bytes, limit: int, seconds: float, types: tuple[bytes, ...] | None = None
) -> tuple[list[bytes], bool]:
    """At most ``limit`` keys that match on any master, sorted; and whether these are all.

    Names on most masters are preferred, so the invented names of one master displace no other. ``types``: of
    keys; None: strings.
    """
    deadline = time.monotonic() + seconds
    each = servers.each(
        lambda server: server.names(pattern, limit, deadline, types), seconds + servers.timeout
    )
    counts = Counter(name for part in each if part for name in part if _may_be_lock(name))
    names = sorted(counts, key=lambda name: (-counts[name], name))[:limit]
    return sorted(names), len(counts) <= limit and all(server.complete for server in servers.all)


def _may_be_lock(key: bytes) -> bool:
    return not key.endswith((MARKER, WITNESS)) and MARK_KEY not in key


def find(servers: Servers, key: bytes, prefix: bytes, quorums: Quorums, seconds: float) -> list[Holder]:
    """What holds the lock ``key``, of any kind, and what waits for it on the masters.

    Tokens are those of a plain lock, of the writer of a read-write lock, and of the slots of a semaphore. The
    entries of sorted sets are those of readers, of waiting writers, and of the queue of a fair lock.
    """
    strings = [key, b"{%b}:w" % key, *(b"{%b}:%d" % (key, slot) for slot in range(MAX_SLOTS))]
    return read(servers, strings, _sets(key), prefix, quorums, seconds)


def read(
    servers: Servers,
    strings: Sequence[bytes],
    sets: Sequence[bytes],
    prefix: bytes,
    quorums: Quorums,
    seconds: float,
) -> list[Holder]:
    """The tokens in these keys. ``strings``: each is one token; ``sets``: each has tokens with their ends."""
    values = list(servers.each(lambda server: server.values(strings), seconds))
    found = holders_of(strings, values, prefix, quorums)
    if not sets:
        return found
    entries = list(servers.each(lambda server: server.entries(sets), seconds))
    pairs = sorted({pair for one in entries if one for pair in one})
    answers = [
        None if one is None else [(pair[1], one[pair]) if pair in one else None for pair in pairs]
        for one in entries
    ]
    return found + holders_of([key for key, _ in pairs], answers, prefix, quorums)


def holders_of(
    keys: Sequence[bytes], answers: Sequence[Found | None], prefix: bytes, quorums: Quorums
) -> list[Holder]:
    """The reported tokens by key; several tokens of a key begin with the most widely held.

    ``answers``: of each master, for each key the token and the milliseconds left; None: it failed.
    """
    silent = sum(1 << place for place, one in enumerate(answers) if one is None)
    found = []
    for place, key in enumerate(keys):
        votes = [None if one is None else one[place] for one in answers]
        for token in {vote[0] for vote in votes if vote}:
            ttls = tuple(vote[1] / 1000 if vote and vote[0] == token else None for vote in votes)
            have = sum(1 << master for master, ttl in enumerate(ttls) if ttl is not None)
            possible = any((own & (have | silent)).bit_count() >= need for own, need in quorums)
            remaining = [_rank(ttls, own, need) for own, need in quorums]
            held = True if any(remaining) else None if possible else False
            rest = max(remaining) or max(ttl for ttl in ttls if ttl is not None)
            name, kind = _described(key, prefix)
            found.append(Holder(name, kind, owner_of(token), held, rest, ttls, key, token))
    return sorted(found, key=lambda one: (one.key, not one.held, one.token))


def _rank(ttls: Sequence[float | None], own: int, need: int) -> float:
    """Seconds until fewer than ``need`` of the masters ``own`` have a token; 0.0: fewer have it now."""
    left = sorted(
        (ttl for place, ttl in enumerate(ttls) if ttl is not None and own >> place & 1), reverse=True
    )
    return left[need - 1] if len(left) >= need else 0.0


def _described(key: bytes, prefix: bytes) -> tuple[str | bytes, str]:
    """The name of the lock that has ``key``, and the kind of a token there."""
    derived = DERIVED_KEY.fullmatch(key)
    name = (derived[1] if derived else key).removeprefix(prefix)
    kind = KINDS.get(derived[2], "slot") if derived else "plain"
    try:
        return name.decode(), kind
    except UnicodeDecodeError:
        return name, kind


def delete(
    servers: Servers, key: bytes, found: Sequence[Holder], quorums: Quorums, seconds: float
) -> list[Holder]:
    """Delete these tokens of the lock ``key``, and no other; returns those that a quorum may still have."""
    tokens = {(one.key, one.token) for one in found}
    list(servers.each(lambda server: _delete(server, key, tokens), seconds))
    now = find(servers, key, b"", quorums, seconds)
    return [one for one in now if one.held is not False and (one.key, one.token) in tokens]


def _delete(server: Server, key: bytes, tokens: set[tuple[bytes, bytes]]) -> None:
    sets = _sets(key)
    server.delete_tokens([one for one in tokens if one[0] not in sets])
    entries = [one for one in tokens if one[0] in sets]
    places = [(b"{%b}:q" % key, token) for name, token in entries if name == sets[-1]]
    server.delete_entries(entries + places)


def _sets(key: bytes) -> list[bytes]:
    return [b"{%b}:%b" % (key, use) for use in (b"r", b"i", b"e")]
