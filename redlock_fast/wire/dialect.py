"""The commands of each kind of server: native commands before scripts.

Sources: redis.io/commands/set, /delex, /evalsha; valkey.io/commands/set, /delifeq.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from . import scripts as lua
from .commands import (
    WATCH_KEY,
    WATCH_PREFIX,
    Command,
    Dialect,
    Reply,
    Script,
    Verb,
    command,
    integer,
    script,
    status,
)

#: Slots: the indexes of a request's arguments. COUNTER is a key; NUMBER has the index of TTL.
KEY, TOKEN, TTL, COUNTER, RETENTION, STEP = range(6)
NUMBER = TTL
#: Semaphore, after KEY, TOKEN, TTL: the prefix of all slots' keys, the first slot and the number to look at.
NAME, FIRST, COUNT = range(3, 6)
#: Read-write lock: three keys, the holder, its place. SPAN: the milliseconds of the lease or of the place.
WRITER, READERS, INTENTS, HOLDER, PLACE, SPAN = range(6)
#: Several resources. WORDS: the number of words of the command. NUMKEYS: the number of keys. MARKED_WORDS and
#: MARKED_NUMKEYS are the same with the marker as one more key. KEYS: the keys, already in RESP.
WORDS, MARKED_WORDS, NUMKEYS, MARKED_NUMKEYS, KEYS, ALL_TOKEN, ALL_TTL = range(7)
#: Fair lock, after KEY, TOKEN, TTL: two keys; the token of the queue entry, its milliseconds, its ticket.
QUEUE, ENTRIES, QUEUE_TOKEN, ENTRY_TTL, TICKET = range(3, 8)


class Capabilities(NamedTuple):
    """What one server executes natively; probed on each connection."""

    delifeq: bool = False
    delex: bool = False
    #: PEXPIRE has the option GT.
    expire_gt: bool = False
    #: The server pushes changes of watched keys (RESP3 client tracking).
    push: bool = False

    @property
    def release_path(self) -> str:
        """The command that releases: DELIFEQ, DELEX or EVALSHA."""
        return "DELIFEQ" if self.delifeq else "DELEX" if self.delex else "EVALSHA"

    @property
    def extend(self) -> Script:
        """The script that extends."""
        return COMPARE_AND_EXTEND if self.expire_gt else COMPARE_AND_EXTEND_6


class Identity(NamedTuple):
    """What identifies a master: process, history of its data, role. "": the client may not ask for it."""

    run_id: str
    replid: str = ""
    role: str = ""


#: The key of the marker on a master, after the key prefix: clients that share a prefix share ``max_ttl``, and
#: also what ``assume_fresh`` says.
MARKER = b"redlock-fast:marker"


class RestartMarker(NamedTuple):
    """What a client compares the marker of a master with.

    ``name``: the master's present process; "": the client may not ask for it. ``wait``: milliseconds for
    which this client counts no vote of a process, from the moment that a client saw it first. ``key``: of the
    marker.
    """

    name: str
    wait: int
    key: bytes = MARKER

    @property
    def words(self) -> tuple[bytes, ...]:
        """The arguments ``process`` and ``wait`` of the scripts."""
        return self.name.encode(), b"%d" % self.wait

    @property
    def trusted(self) -> bytes:
        """The marker of a master that has nothing to forget: seen first so long ago that all leases ended."""
        return b"%b 0" % self.name.encode()

class Acknowledgement(NamedTuple):
    """How many replicas must have a grant before it counts. 0: none.

    ``wait``: milliseconds for which a master waits for them. It executes no later command of the connection
    meanwhile. ``key``: written before each WAIT.
    """

    replicas: int = 0
    wait: int = 1
    key: bytes = b""


NO_ACKNOWLEDGEMENT = Acknowledgement()
#: The verbs whose grants are or lengthen no lease. A grant of any other verb counts when replicas have it.
_NO_LEASE = frozenset(
    (
        *(Verb.RELEASE, Verb.RELEASE_ALL, Verb.RW_RELEASE, Verb.RW_ROLLBACK, Verb.FAIR_LEAVE),
        *(Verb.FAIR_TICKET, Verb.EXISTS, Verb.OWNER, Verb.WATCH, Verb.RW_WATCH, Verb.SLOT_WATCH, Verb.WAIT),
    )
)

#: The end of the key that is written before WAIT, and how long the key stays, in milliseconds.
WRITTEN, WRITTEN_TTL = b"redlock-fast:wait", 86_400_000
#: A write that is always replicated, and that needs no memory where the key exists: a held lock can be
#: extended under ``maxmemory``.
WRITE = Script(
    b"if redis.call('pexpire',KEYS[1],ARGV[1])==0 then redis.call('set',KEYS[1],1,'px',ARGV[1]) end return 1"
)

_CACHING = command(b"CLIENT", b"CACHING", b"YES").parts[0]
_ASKING = command(b"ASKING").parts[0]
#: What is added to a verb for the command that follows ASKING: see ``with_asking``.
ASKING = len(Verb)


def watching(read: Command, can: Capabilities, watch: int = WATCH_KEY) -> Command:
    """``read``, preceded by the command that makes the server push the next change of the keys it reads.

    ``read``: reports when a lock may be free. A server without push only executes ``read``.
    """
    fallback = watching(read.fallback, can, watch) if read.fallback else None
    if not can.push:
        return read._replace(fallback=fallback, watch=watch)
    return _preceded(read, _CACHING)._replace(fallback=fallback, watch=watch)


def _preceded(one: Command, by: bytes | int) -> Command:
    """``one`` after another command, whose reply is ignored."""
    assert isinstance(by, bytes)
    first, *others = one.parts
    parts = (by + first, *others) if isinstance(first, bytes) else (by, first, *others)
    return one._replace(parts=parts, leading_replies=one.leading_replies + 1)


@functools.lru_cache(maxsize=64)
def with_asking(dialect: Dialect) -> Dialect:
    """``dialect`` for a node of a Cluster: each verb once more, as the verb and ``ASKING``, after ASKING.

    While a slot moves, its former primary sends requests for keys that it lacks to the next one, which
    executes them only after ASKING. (A watch cannot follow it: CLIENT CACHING must be the command before.)
    """

    def asking(one: Command) -> Command:
        if one.replicas or one.watch:
            return one._replace(replicas=0)
        fallback = asking(one.fallback) if one.fallback else None
        rollback = None if one.rollback_verb is None else one.rollback_verb + ASKING
        return _preceded(one, _ASKING)._replace(fallback=fallback, rollback_verb=rollback)

    return dialect + tuple(map(asking, dialect))


COMPARE_AND_DELETE = Script(
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
)
#: Extensions never shorten: a request may be executed after a longer one that a quorum has confirmed.
#: They need no memory, unlike SET: a held lock can be extended under maxmemory. GT: Redis 7.0 and later.
COMPARE_AND_EXTEND = Script(
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"redis.call('pexpire',KEYS[1],ARGV[2],'gt') return 1"
)
COMPARE_AND_EXTEND_6 = Script(
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"if redis.call('pttl',KEYS[1])<tonumber(ARGV[2]) then redis.call('pexpire',KEYS[1],ARGV[2]) end return 1"
)


def voting(keys: str, args: str, *parts: bytes) -> tuple[Script, Script]:
    """A script that casts a vote, and the same for masters with a marker, which checks the marker first."""
    marked = script(f"{keys} marker", f"{args} process wait", lua.CHECK_MARKER, lua.REJECT_GUARDED, *parts)
    return script(keys, args, *parts), marked


FENCE, MARKED_FENCE = voting("key counter", "token ttl retention step", lua.ACQUIRE_KEY, lua.NEXT_FENCE)
MARKED_ACQUIRE = voting("key", "token ttl", lua.ACQUIRE_KEY, b"return 1")[1]
#: Returns the milliseconds for which the master still casts no vote.
CHECK_MARKER = script("marker", "process wait", lua.CHECK_MARKER, b"return math.max(left,0)")
RAISE_FENCE = script("key counter", "token number retention step", lua.RAISE_FENCE)
FAIR_LEAVE = script("key queue entries", "token place", lua.WAIT_KEY, lua.FAIR_LEAVE)

_RW_READ = voting("w r i", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_READ)
_RW_WRITE = voting("w r", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_WRITE)
_RW_ROLLBACK = script("w i", "mine place intent", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_ROLLBACK)
_RW_RELEASE = script("w r i", "mine place", lua.SERVER_TIME, lua.RW_RELEASE)
_RW_EXTEND = script("w r", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_EXTEND)
_FAIR_ARGS = "key queue entries", "token ttl place stay ticket"
_FAIR = voting(
    *_FAIR_ARGS, lua.FAIR_TURN, lua.SERVER_TIME, lua.WAIT_KEY, lua.FAIR_HEAD, lua.FAIR_ACQUIRE, lua.FAIR_JOIN
)
_FAIR_TICKET = script(*_FAIR_ARGS, lua.FAIR_OTHER_TICKET, lua.SERVER_TIME, lua.WAIT_KEY, lua.FAIR_JOIN)
_SLOT_ACQUIRE = voting("key name", "token ttl first count", lua.ACQUIRE_SLOT)
_EARLIEST_EXPIRY = Script(lua.EARLIEST_EXPIRY, 0)
_RW_TIME_TO_ENTER = script("w others", "", lua.SERVER_TIME, lua.RW_TIME_TO_ENTER)
_DOWNGRADE = script("w r i", "mine place ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_DOWNGRADE)
ACQUIRE_ALL = Script(b"local count,token,ttl=#KEYS,ARGV[1],ARGV[2]\n" + lua.ACQUIRE_ALL)
MARKED_ACQUIRE_ALL = Script(
    b"""local count,marker=#KEYS-1,KEYS[#KEYS]
local token,ttl,process,wait=unpack(ARGV)
"""
    + b"\n".join((lua.CHECK_MARKER, lua.REJECT_GUARDED, lua.ACQUIRE_ALL))
)
RELEASE_ALL = Script(lua.RELEASE_ALL)
OWNER = Script(lua.OWNER)


@functools.lru_cache(maxsize=64)  # masters of one kind have the same, and a client connects to several
def dialect(
    can: Capabilities,
    marker: RestartMarker | None = None,
    acknowledgement: Acknowledgement = NO_ACKNOWLEDGEMENT,
) -> Dialect:
    """The commands for a server with these capabilities: native ones before scripts.

    ``marker``: acquire only if the master's marker says that the master has forgotten nothing.
    ``acknowledgement``: grants count when so many replicas have them.
    """
    if can.delifeq:
        release = integer(b"DELIFEQ", KEY, TOKEN)
    elif can.delex:
        release = integer(b"DELEX", KEY, b"IFEQ", TOKEN)
    else:
        release = COMPARE_AND_DELETE.template(KEY, TOKEN)
    plain = status(b"SET", KEY, TOKEN, b"NX", b"PX", TTL, rollback_verb=Verb.RELEASE)
    acquire = plain
    if marker is not None:
        words: tuple[bytes | int, ...] = (TOKEN, TTL, *marker.words)
        acquire = MARKED_ACQUIRE.template(KEY, marker.key, *words, rollback_verb=Verb.RELEASE)
    queue, in_queue = (KEY, QUEUE, ENTRIES), (TOKEN, TTL, QUEUE_TOKEN, ENTRY_TTL, TICKET)
    fenced = (TOKEN, TTL, RETENTION, STEP)
    by_verb = {
        Verb.ACQUIRE: acquire,
        Verb.RELEASE: release,
        Verb.EXTEND: can.extend.template(KEY, TOKEN, TTL),
        Verb.EXISTS: integer(b"EXISTS", KEY),
        Verb.FENCE: _vote((FENCE, MARKED_FENCE), marker, (KEY, COUNTER), fenced, Verb.RELEASE),
        Verb.RAISE_FENCE: RAISE_FENCE.template(KEY, COUNTER, TOKEN, NUMBER, RETENTION, STEP),
        Verb.WATCH: watching(integer(b"PTTL", KEY), can),
        Verb.RW_READ: _vote(_RW_READ, marker, (WRITER, READERS, INTENTS), (HOLDER, SPAN), Verb.RW_RELEASE),
        Verb.RW_WRITE: _vote(_RW_WRITE, marker, (WRITER, READERS), (HOLDER, SPAN), Verb.RW_RELEASE),
        Verb.RW_ROLLBACK: _RW_ROLLBACK.template(
            WRITER, INTENTS, HOLDER, PLACE, SPAN, rollback_verb=Verb.RW_RELEASE
        ),
        Verb.RW_RELEASE: _RW_RELEASE.template(WRITER, READERS, INTENTS, HOLDER, PLACE),
        Verb.RW_EXTEND: _RW_EXTEND.template(WRITER, READERS, HOLDER, SPAN),
        Verb.RW_DOWNGRADE: _DOWNGRADE.template(WRITER, READERS, INTENTS, HOLDER, PLACE, SPAN),
        Verb.RW_WATCH: watching(_RW_TIME_TO_ENTER.template(1, 2), can, WATCH_PREFIX),
        Verb.SLOT_ACQUIRE: _vote(
            _SLOT_ACQUIRE, marker, (KEY, NAME), (TOKEN, TTL, FIRST, COUNT), Verb.RELEASE
        ),
        Verb.SLOT_WATCH: watching(_EARLIEST_EXPIRY.variadic(1, ~2), can, WATCH_PREFIX),
        Verb.ACQUIRE_ALL: _acquire_all(marker),
        Verb.RELEASE_ALL: RELEASE_ALL.variadic(WORDS, NUMKEYS, ~KEYS, ALL_TOKEN, ALL_TTL),
        Verb.REFILL: plain,
        Verb.FAIR: _vote(_FAIR, marker, queue, in_queue, Verb.FAIR_LEAVE),
        Verb.FAIR_TICKET: _FAIR_TICKET.template(*queue, *in_queue),
        Verb.FAIR_LEAVE: FAIR_LEAVE.template(*queue, TOKEN, QUEUE_TOKEN),
        Verb.OWNER: OWNER.template(KEY, reply=Reply.ANY),
        Verb.WAIT: _waiting(acknowledgement),
    }
    if acknowledgement.replicas:
        by_verb = {verb: one if verb in _NO_LEASE else _confirmed(one) for verb, one in by_verb.items()}
    return tuple(by_verb[verb] for verb in Verb)


def _waiting(acknowledgement: Acknowledgement) -> Command:
    """WAIT, which waits for what its own connection wrote last, after a write.

    A script may grant without a write, because the key lasts long enough already. Another connection may have
    written that, so WAIT alone would not wait for it. Replicas execute all writes of a master in one order.
    """
    replicas, wait, key = acknowledgement
    write = command(b"EVAL", WRITE.text, b"1", key, b"%d" % WRITTEN_TTL)
    end = integer(b"WAIT", b"%d" % replicas, b"%d" % wait)
    both = b"".join(part for part in write.parts + end.parts if isinstance(part, bytes))
    return end._replace(parts=(both,), leading_replies=1, replicas=replicas)


def _confirmed(one: Command) -> Command:
    """The same command, whose grants count after the reply to WAIT."""
    fallback = _confirmed(one.fallback) if one.fallback else None
    return one._replace(fallback=fallback, confirm_verb=Verb.WAIT)


def _vote(
    pair: tuple[Script, Script],
    marker: RestartMarker | None,
    keys: tuple[int, ...],
    args: tuple[int, ...],
    rollback_verb: Verb,
) -> Command:
    """The template for a pair of ``voting``: the first script without a marker, the second with one."""
    if marker is None:
        return pair[0].template(*keys, *args, rollback_verb=rollback_verb)
    return pair[1].template(*keys, marker.key, *args, *marker.words, rollback_verb=rollback_verb)


def _acquire_all(marker: RestartMarker | None) -> Command:
    rollback_verb = Verb.RELEASE_ALL
    if marker is None:
        return ACQUIRE_ALL.variadic(WORDS, NUMKEYS, ~KEYS, ALL_TOKEN, ALL_TTL, rollback_verb=rollback_verb)
    words: tuple[bytes | int, ...] = (MARKED_NUMKEYS, ~KEYS, marker.key, ALL_TOKEN, ALL_TTL, *marker.words)
    return MARKED_ACQUIRE_ALL.variadic(MARKED_WORDS, *words, rollback_verb=rollback_verb)
