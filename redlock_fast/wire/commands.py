"""What each verb looks like on the wire of each kind of server.

A command is a template: constant bytes, already in RESP, and slots that are
numbers of request arguments. Both engines compile templates; a new lock kind
is a new template and never new engine code.

Every reply means the same thing everywhere: ``+OK`` and a positive integer grant,
nil and ``:0`` refuse, anything else is a fault. Each command has either of the two (``Command.reply``).

Sources: redis.io/commands/set, /delex, /evalsha; valkey.io/commands/set, /delifeq.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from . import scripts as lua


class Verb(IntEnum):
    """What a request asks; its value is the command's place in a :class:`Dialect`."""

    ACQUIRE = 0
    RELEASE = 1
    EXTEND = 2
    EXISTS = 3
    #: Acquire, and count: the vote is this grant's number.
    FENCE = 4
    #: Lift the counter of a key that is held to a number.
    RAISE_FENCE = 5
    #: Tell when the key is free, or may be.
    WATCH = 6
    #: Read-write lock: enter as a reader, as a writer; give back, but keep the place; release or give up;
    #: extend; become a reader; tell when one may enter.
    RW_READ = 7
    RW_WRITE = 8
    RW_ROLLBACK = 9
    RW_RELEASE = 10
    RW_EXTEND = 11
    RW_DOWNGRADE = 12
    RW_WATCH = 13
    #: Semaphore: acquire a slot, and look which are free; tell when one is.
    SLOT_ACQUIRE = 14
    SLOT_WATCH = 15
    #: Several resources: acquire all of them or none; take back those that are ours.
    ACQUIRE_ALL = 16
    RELEASE_ALL = 17
    #: Acquire what is held already, on a master that lost it: whatever its marker says, for it blocks others.
    REFILL = 18
    #: Fair lock: acquire or queue up; release and leave the queue; tell when it may be our turn.
    FAIR = 19
    FAIR_LEAVE = 20
    FAIR_WATCH = 21


#: What a command watches: the key that its first argument names, or all keys that begin with it.
WATCH_KEY, WATCH_PREFIX = 1, 2


class Reply(IntEnum):
    """The replies that a command can have, besides an error.

    STATUS: ``+OK`` or null. INTEGER: a 64-bit number. ANY: not checked.
    """

    ANY = 0
    STATUS = 1
    INTEGER = 2


#: Slots: the places of a request's arguments. COUNTER is a key; NUMBER takes the place of the TTL.
KEY, TOKEN, TTL, COUNTER, RETENTION, STEP = range(6)
NUMBER = TTL
#: Those of a semaphore, after KEY, TOKEN, TTL: what all slots' keys begin with, where to look.
NAME, FIRST, COUNT = range(3, 6)
#: Those of a read-write lock: three keys, who holds, whose place it is. SPAN: the TTL, or that of the place.
WRITER, READERS, INTENTS, HOLDER, PLACE, SPAN = range(6)
#: Those of several resources, of which the scripts' keys are as many, or with the marker one more: how many
#: words the command has, and keys, each without and with a marker; and the keys, already in RESP.
WORDS, MARKED_WORDS, NUMKEYS, MARKED_NUMKEYS, KEYS, ALL_TOKEN, ALL_TTL = range(7)
#: Those of a fair lock after KEY, TOKEN, TTL: two keys; whose place it is, how long it stays, its number.
QUEUE, ENTRIES, QUEUE_TOKEN, ENTRY_TTL, TICKET = range(3, 8)


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a template.

    ``parts``: bytes as they go out, and ints for the request arguments, which go out as bulk strings;
    ``~n`` sends argument n as it is, already in RESP.
    ``fallback``: sent once, with the same arguments, when a server answers NOSCRIPT.
    ``rollback_verb``: the verb that undoes the command, with the same arguments.
    ``leading_replies``: how many replies precede the one that counts. Their content is ignored.
    ``watch``: WATCH_KEY or WATCH_PREFIX, the same wherever the verb watches: its vote stays open
    until something changes (see rule 11 of an engine).
    ``reply``: a :class:`Reply`; any other reply breaks the connection (see rule 5 of an engine).
    """

    parts: tuple[bytes | int, ...]
    fallback: Command | None = None
    rollback_verb: int | None = None
    leading_replies: int = 0
    watch: int = 0
    reply: int = Reply.ANY


#: The commands of one server, by :class:`Verb`.
Dialect = tuple[Command, ...]
#: A request has so many arguments at most: HUB_MAX_ARGS of the native engine.
MAX_ARGS = 8


def checked(dialect: Dialect) -> Dialect:
    """Raises ValueError for a command with an argument that no request has, or an unknown rollback_verb."""
    for one in dialect:
        for command in filter(None, (one, one.fallback)):
            slots = [part if part >= 0 else ~part for part in command.parts if isinstance(part, int)]
            if any(slot >= MAX_ARGS for slot in slots):
                raise ValueError(f"a command needs argument {max(slots)}; a request has {MAX_ARGS} at most")
        if one.rollback_verb is not None and not 0 <= one.rollback_verb < len(dialect):
            raise ValueError(f"the rollback_verb of a command is {one.rollback_verb}: there is no such verb")
    return dialect


def bulk(word: bytes) -> bytes:
    """One RESP bulk string."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def command(
    *words: bytes | int,
    fallback: Command | None = None,
    rollback_verb: int | None = None,
    leading_replies: int = 0,
    watch: int = 0,
    reply: int = Reply.ANY,
) -> Command:
    """A template from words; neighbouring constants are joined.

    A raw slot counts as one word; as the first one it brings the array's header, and with it the number
    of words.
    """
    headed = bool(words) and isinstance(words[0], int) and words[0] < 0
    parts: list[bytes | int] = [] if headed else [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, int):
            parts.append(word)
        elif isinstance(parts[-1], bytes):
            parts[-1] += bulk(word)
        else:
            parts.append(bulk(word))
    return Command(tuple(parts), fallback, rollback_verb, leading_replies, watch, reply)


def status(*words: bytes | int, rollback_verb: int | None = None) -> Command:
    """A template whose reply is ``+OK`` or null."""
    return command(*words, rollback_verb=rollback_verb, reply=Reply.STATUS)


def integer(
    *words: bytes | int, fallback: Command | None = None, rollback_verb: int | None = None
) -> Command:
    """A template whose reply is a number: so is that of every script here."""
    return command(*words, fallback=fallback, rollback_verb=rollback_verb, reply=Reply.INTEGER)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua text and its SHA1, as EVALSHA wants it. ``keys``: how many of its arguments are keys."""

    text: bytes
    keys: int = 1

    @property
    def sha1(self) -> bytes:
        import hashlib  # it loads OpenSSL: not for everybody who imports this package

        return hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def template(self, *words: bytes | int, rollback_verb: int | None = None) -> Command:
        """EVALSHA with these words, keys first; EVAL where the server lost its scripts."""
        keys = b"%d" % self.keys
        fallback = integer(b"EVAL", self.text, keys, *words)
        return integer(b"EVALSHA", self.sha1, keys, *words, fallback=fallback, rollback_verb=rollback_verb)

    def variadic(self, head: int, *words: bytes | int, rollback_verb: int | None = None) -> Command:
        """As ``template``, with a number of keys that each request says: it has the array's header, too."""
        fallback = integer(~head, b"EVAL", self.text, *words)
        return integer(~head, b"EVALSHA", self.sha1, *words, fallback=fallback, rollback_verb=rollback_verb)


def script(keys: str, args: str, *parts: bytes) -> Script:
    """A script that calls its KEYS and ARGV by these names."""
    names, values = keys.split(), args.split()
    where = [f"KEYS[{n + 1}]" for n in range(len(names))] + [f"ARGV[{n + 1}]" for n in range(len(values))]
    header = f"local {','.join(names + values)}={','.join(where)}\n".encode()
    return Script(header + b"\n".join(parts), len(names))


_CACHING = command(b"CLIENT", b"CACHING", b"YES").parts[0]


def watching(read: Command, can: Capabilities, watch: int = WATCH_KEY, arm: Command | None = None) -> Command:
    """``read``, which says when a lock may be free, and to be told by a push when that changes.

    ``arm``: what reads only that of which a change is to be told, where ``read`` reads more. A server that
    cannot push is only asked.
    """
    fallback = watching(read.fallback, can, watch, arm) if read.fallback else None
    if not can.push:
        return replace(read, fallback=fallback, watch=watch)
    assert isinstance(_CACHING, bytes)
    first, *others = (*arm.parts, *read.parts) if arm else read.parts
    parts = (_CACHING + first, *others) if isinstance(first, bytes) else (_CACHING, first, *others)
    return Command(parts, fallback, leading_replies=2 if arm else 1, watch=watch, reply=read.reply)


COMPARE_AND_DELETE = Script(
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
)
#: They never shorten: a request may be executed after a longer one, which a quorum has confirmed since.
#: They need no memory, as SET does: a held lock can be extended under maxmemory. GT: from Redis 7.0 on.
COMPARE_AND_EXTEND = Script(
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"redis.call('pexpire',KEYS[1],ARGV[2],'gt') return 1"
)
COMPARE_AND_EXTEND_6 = Script(
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"if redis.call('pttl',KEYS[1])<tonumber(ARGV[2]) then redis.call('pexpire',KEYS[1],ARGV[2]) end return 1"
)


def voting(keys: str, args: str, *parts: bytes) -> tuple[Script, Script]:
    """A script that casts a vote, and the one for masters with a marker: it looks at that first."""
    marked = script(f"{keys} marker", f"{args} process max_ttl", lua.CHECK_MARKER, lua.REJECT_GUARDED, *parts)
    return script(keys, args, *parts), marked


FENCE, MARKED_FENCE = voting("key counter", "token ttl retention step", lua.ACQUIRE_KEY, lua.NEXT_FENCE)
MARKED_ACQUIRE = voting("key", "token ttl", lua.ACQUIRE_KEY, b"return 1")[1]
#: For how many milliseconds more the master casts no vote.
CHECK_MARKER = script("marker", "process max_ttl", lua.CHECK_MARKER, b"return math.max(left,0)")
RAISE_FENCE = script("key counter", "token number retention", lua.RAISE_FENCE)
FAIR_LEAVE = script("key queue entries", "token place", lua.FAIR_LEAVE)
FAIR_TIME_TO_TURN = script("key queue entries", "place", lua.SERVER_TIME, lua.FAIR_TIME_TO_TURN)

_RW_READ = voting("w r i", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_READ)
_RW_WRITE = voting("w r", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_WRITE)
_RW_ROLLBACK = script("w i", "mine place intent", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_ROLLBACK)
_RW_RELEASE = script("w r i", "mine place", lua.SERVER_TIME, lua.RW_RELEASE)
_RW_EXTEND = script("w r", "mine ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_EXTEND)
_FAIR = voting("key queue entries", "token ttl place stay ticket", lua.SERVER_TIME, lua.FAIR_ACQUIRE)
_SLOT_ACQUIRE = voting("key name", "token ttl first count", lua.ACQUIRE_SLOT)
_EARLIEST_EXPIRY = Script(lua.EARLIEST_EXPIRY, 0)
_RW_TIME_TO_ENTER = script("w others", "", lua.SERVER_TIME, lua.RW_TIME_TO_ENTER)
_DOWNGRADE = script("w r i", "mine place ttl", lua.SERVER_TIME, lua.EXTEND_EXPIRY, lua.RW_DOWNGRADE)
ACQUIRE_ALL = Script(b"local count,token,ttl=#KEYS,ARGV[1],ARGV[2]\n" + lua.ACQUIRE_ALL)
MARKED_ACQUIRE_ALL = Script(
    b"""local count,marker=#KEYS-1,KEYS[#KEYS]
local token,ttl,process,max_ttl=unpack(ARGV)
"""
    + b"\n".join((lua.CHECK_MARKER, lua.REJECT_GUARDED, lua.ACQUIRE_ALL))
)
RELEASE_ALL = Script(lua.RELEASE_ALL)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one server can do natively, found out on each connection."""

    delifeq: bool = False
    delex: bool = False
    #: PEXPIRE knows GT.
    expire_gt: bool = False
    #: It tells when a watched key changes: RESP3 client tracking.
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
    """What identifies a master: process, history of its data, role; "" where it may not be asked."""

    run_id: str
    replid: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class RestartMarker:
    """What every acquire on a master compares its marker with.

    ``name``: of the master as it is now; "" where it may not be asked. ``max_ttl``: milliseconds.
    """

    name: str
    max_ttl: int

    @property
    def words(self) -> tuple[bytes, ...]:
        """As the scripts take it."""
        return self.name.encode(), b"%d" % self.max_ttl

    @property
    def trusted(self) -> bytes:
        """The marker of a master that has nothing to forget."""
        return b"%b 0" % self.name.encode()


#: The key that a master keeps its marker in, the same for all clients.
MARKER = b"redlock:boot"


def scripts(can: Capabilities, marker: RestartMarker | None) -> list[Script]:
    """What to load so that the commands of the dialect find it."""
    needed = [] if can.delifeq or can.delex else [COMPARE_AND_DELETE]
    needed += [can.extend]
    needed += [] if marker is None else [MARKED_ACQUIRE]
    pairs = (
        (FENCE, MARKED_FENCE),
        _RW_READ,
        _RW_WRITE,
        _SLOT_ACQUIRE,
        (ACQUIRE_ALL, MARKED_ACQUIRE_ALL),
        _FAIR,
    )
    needed += [pair[marker is not None] for pair in pairs]
    needed += [
        RAISE_FENCE,
        _RW_ROLLBACK,
        _RW_RELEASE,
        _RW_EXTEND,
        _DOWNGRADE,
        _RW_TIME_TO_ENTER,
        _EARLIEST_EXPIRY,
    ]
    return [*needed, RELEASE_ALL, FAIR_LEAVE, FAIR_TIME_TO_TURN]


def dialect(can: Capabilities, marker: RestartMarker | None = None) -> Dialect:
    """The commands for a server with these capabilities: native ones before scripts.

    ``marker``: acquire only where the master's marker says that it has forgotten nothing.
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
        acquire = MARKED_ACQUIRE.template(KEY, MARKER, TOKEN, TTL, *marker.words, rollback_verb=Verb.RELEASE)
    queue = (KEY, QUEUE, ENTRIES)
    fenced = (TOKEN, TTL, RETENTION, STEP)
    by_verb = {
        Verb.ACQUIRE: acquire,
        Verb.RELEASE: release,
        Verb.EXTEND: can.extend.template(KEY, TOKEN, TTL),
        Verb.EXISTS: integer(b"EXISTS", KEY),
        Verb.FENCE: _vote((FENCE, MARKED_FENCE), marker, (KEY, COUNTER), fenced, Verb.RELEASE),
        Verb.RAISE_FENCE: RAISE_FENCE.template(KEY, COUNTER, TOKEN, NUMBER, RETENTION),
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
        Verb.FAIR: _vote(_FAIR, marker, queue, (TOKEN, TTL, QUEUE_TOKEN, ENTRY_TTL, TICKET), Verb.FAIR_LEAVE),
        Verb.FAIR_LEAVE: FAIR_LEAVE.template(*queue, TOKEN, QUEUE_TOKEN),
        Verb.FAIR_WATCH: watching(FAIR_TIME_TO_TURN.template(*range(4)), can, arm=command(b"PTTL", KEY)),
    }
    return tuple(by_verb[verb] for verb in Verb)


def _vote(
    pair: tuple[Script, Script],
    marker: RestartMarker | None,
    keys: tuple[int, ...],
    args: tuple[int, ...],
    rollback_verb: Verb,
) -> Command:
    """The template for one of what ``voting`` made."""
    if marker is None:
        return pair[0].template(*keys, *args, rollback_verb=rollback_verb)
    return pair[1].template(*keys, MARKER, *args, *marker.words, rollback_verb=rollback_verb)


def _acquire_all(marker: RestartMarker | None) -> Command:
    rollback_verb = Verb.RELEASE_ALL
    if marker is None:
        return ACQUIRE_ALL.variadic(WORDS, NUMKEYS, ~KEYS, ALL_TOKEN, ALL_TTL, rollback_verb=rollback_verb)
    words: tuple[bytes | int, ...] = (MARKED_NUMKEYS, ~KEYS, MARKER, ALL_TOKEN, ALL_TTL, *marker.words)
    return MARKED_ACQUIRE_ALL.variadic(MARKED_WORDS, *words, rollback_verb=rollback_verb)
