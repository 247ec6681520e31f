"""What each verb looks like on the wire of each kind of server.

A command is a template: constant bytes, already in RESP, and slots that are
numbers of request arguments. Both engines compile templates; a new lock kind
is a new template and never new engine code.

Every reply means the same thing everywhere: ``+OK`` and a positive integer grant,
nil and ``:0`` refuse, anything else is a fault.

Sources: redis.io/commands/set, /delex, /evalsha; valkey.io/commands/set, /delifeq.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Verb(IntEnum):
    """What a request asks; its value is the command's place in a :class:`Dialect`."""

    ACQUIRE = 0
    RELEASE = 1
    EXTEND = 2
    EXISTS = 3


#: Slots: the places of a request's arguments.
KEY, TOKEN, TTL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a template.

    ``parts``: bytes as they go out, and ints for the request arguments, which go out as bulk strings.
    ``fallback``: sent once, with the same arguments, when a server answers NOSCRIPT.
    ``undo``: the verb that takes it back, with the same arguments.
    """

    parts: tuple[bytes | int, ...]
    fallback: Command | None = None
    undo: int | None = None


#: The commands of one server, by :class:`Verb`.
Dialect = tuple[Command, ...]


def bulk(word: bytes) -> bytes:
    """One RESP bulk string."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def command(
    *words: bytes | int, fallback: Command | None = None, undo: int | None = None
) -> Command:
    """A template from words; neighbouring constants are joined."""
    parts: list[bytes | int] = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, int):
            parts.append(word)
        elif isinstance(parts[-1], bytes):
            parts[-1] += bulk(word)
        else:
            parts.append(bulk(word))
    return Command(tuple(parts), fallback, undo)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua text and its SHA1, as EVALSHA wants it."""

    text: bytes

    @property
    def sha1(self) -> bytes:
        import hashlib  # it loads OpenSSL: not for everybody who imports this package

        return hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def template(self, *slots: int) -> Command:
        """EVALSHA on the first slot as key; EVAL where the server lost its scripts."""
        fallback = command(b"EVAL", self.text, b"1", *slots)
        return command(b"EVALSHA", self.sha1, b"1", *slots, fallback=fallback)


COMPARE_AND_DELETE = Script(
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
)
COMPARE_AND_EXTEND = Script(
    b"if redis.call('get',KEYS[1])==ARGV[1] then "
    b"return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0"
)
SCRIPTS = (COMPARE_AND_DELETE, COMPARE_AND_EXTEND)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one server can do natively, found out on each connection."""

    delifeq: bool = False
    delex: bool = False
    set_ifeq: bool = False

    @property
    def release_path(self) -> str:
        """The command that releases: DELIFEQ, DELEX or EVALSHA."""
        return "DELIFEQ" if self.delifeq else "DELEX" if self.delex else "EVALSHA"


def dialect(can: Capabilities) -> Dialect:
    """The commands for a server with these capabilities: native ones before scripts."""
    if can.delifeq:
        release = command(b"DELIFEQ", KEY, TOKEN)
    elif can.delex:
        release = command(b"DELEX", KEY, b"IFEQ", TOKEN)
    else:
        release = COMPARE_AND_DELETE.template(KEY, TOKEN)
    if can.set_ifeq:
        extend = command(b"SET", KEY, TOKEN, b"IFEQ", TOKEN, b"PX", TTL)
    else:
        extend = COMPARE_AND_EXTEND.template(KEY, TOKEN, TTL)
    by_verb = {
        Verb.ACQUIRE: command(b"SET", KEY, TOKEN, b"NX", b"PX", TTL, undo=Verb.RELEASE),
        Verb.RELEASE: release,
        Verb.EXTEND: extend,
        Verb.EXISTS: command(b"EXISTS", KEY),
    }
    return tuple(by_verb[verb] for verb in Verb)
