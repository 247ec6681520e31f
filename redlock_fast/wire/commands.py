"""Commands as templates: constant bytes, already in RESP, and slots for the arguments of a request.

Both engines compile templates. A new kind of lock is a new template and never new engine code.
``wire/dialect.py`` has the templates of each kind of server.

All replies have the same meaning: ``+OK`` and a positive integer grant, nil and ``:0`` refuse, any other
reply is a fault. A command gets either a status or an integer (``Command.reply``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Verb(IntEnum):
    """What a request does, independent of the server. The value is the command's index in a Dialect."""

    ACQUIRE = 0
    RELEASE = 1
    EXTEND = 2
    EXISTS = 3
    #: Acquire, and increment the fencing counter. The vote is the new fencing token.
    FENCE = 4
    #: Raise the fencing counter of a held key to a number.
    RAISE_FENCE = 5
    #: Report when the key is free, or may be free.
    WATCH = 6
    #: Read-write lock: acquire as a reader or as a writer.
    RW_READ = 7
    RW_WRITE = 8
    #: Give the vote back but keep the place among the waiting writers.
    RW_ROLLBACK = 9
    #: Release, or give the place up.
    RW_RELEASE = 10
    RW_EXTEND = 11
    #: The writer becomes a reader.
    RW_DOWNGRADE = 12
    #: Report when the lock can be acquired.
    RW_WATCH = 13
    #: Semaphore: acquire a slot and report which slots are free; report when a slot is free.
    SLOT_ACQUIRE = 14
    SLOT_WATCH = 15
    #: Several resources: acquire all or none; release those that this token holds.
    ACQUIRE_ALL = 16
    RELEASE_ALL = 17
    #: Acquire a lock that is held already on a master that lost its key. The marker is not checked, because
    #: a key that is put back only blocks other holders.
    REFILL = 18
    #: Fair lock: acquire or join the queue; release and leave the queue; write the ticket of a caller that
    #: has a place.
    FAIR = 19
    FAIR_LEAVE = 20
    FAIR_TICKET = 21
    #: Report the owner that the token of a key names. The reply is text, so each vote is a FAULT that has the
    #: reply as its detail. No other verb can have a bulk string as its reply.
    OWNER = 22
    #: Report how many replicas have all that this connection has written before. Sent by the engine only.
    WAIT = 23


#: What a command watches: the key that its first argument names, or all keys that begin with it.
WATCH_KEY, WATCH_PREFIX = 1, 2


class Reply(IntEnum):
    """The replies that a command can have, besides an error.

    STATUS: ``+OK`` or null. INTEGER: a 64-bit number. ANY: not checked.
    """

    ANY = 0
    STATUS = 1
    INTEGER = 2


class Command(NamedTuple):
    """One command as a template.

    ``parts``: bytes are sent as they are. An int n is replaced by argument n as a bulk string, ``~n`` by
    argument n as it is, already in RESP.
    ``fallback``: sent once, with the same arguments, when a server answers NOSCRIPT.
    ``rollback_verb``: the verb that takes the command back, with the same arguments.
    ``leading_replies``: the number of replies before the one that counts; their content is ignored.
    ``watch``: WATCH_KEY or WATCH_PREFIX, the same for a verb on all servers. The vote stays open until the
    key changes (rule 11 of an engine).
    ``reply``: a :class:`Reply`; any other reply breaks the connection (rule 5 of an engine).
    ``script``: the script that it executes by its SHA1.
    ``confirm_verb``: the verb after whose reply its grants count (rule 15 of an engine); None: at once.
    ``replicas``: it is that verb, and its reply is the number of replicas, of which so many are enough.
    """

    parts: tuple[bytes | int, ...]
    fallback: Command | None = None
    rollback_verb: int | None = None
    leading_replies: int = 0
    watch: int = 0
    reply: int = Reply.ANY
    script: Script | None = None
    confirm_verb: int | None = None
    replicas: int = 0


#: The commands of one server, by :class:`Verb`.
Dialect = tuple[Command, ...]
#: The largest number of arguments of a request: HUB_MAX_ARGS of the native engine.
MAX_ARGS = 8


def checked(dialect: Dialect) -> Dialect:
    """Return ``dialect``. Raise ValueError for too many arguments or an unknown verb."""
    for main in dialect:
        for command in filter(None, (main, main.fallback)):
            slots = [part if part >= 0 else ~part for part in command.parts if isinstance(part, int)]
            if any(slot >= MAX_ARGS for slot in slots):
                raise ValueError(f"a command needs argument {max(slots)}; a request has {MAX_ARGS} at most")
        if main.rollback_verb is not None and not 0 <= main.rollback_verb < len(dialect):
            raise ValueError(f"the rollback_verb of a command is {main.rollback_verb}: there is no such verb")
    confirming = {main.confirm_verb for main in dialect if main.confirm_verb is not None}
    if confirming and confirming != {verb for verb, main in enumerate(dialect) if main.replicas}:
        raise ValueError(f"one verb with replicas must confirm, not {sorted(confirming)}")
    return dialect


def bulk(word: bytes) -> bytes:
    """One RESP bulk string."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def command(
    *words: bytes | int,
    fallback: Command | None = None,
    rollback_verb: int | None = None,
    reply: int = Reply.ANY,
) -> Command:
    """A template from words; neighbouring constants are joined.

    A raw slot (``~n``) counts as one word. As the first word it is the array's header, with the word count.
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
    return Command(tuple(parts), fallback, rollback_verb, reply=reply)


def status(*words: bytes | int, rollback_verb: int | None = None) -> Command:
    """A template whose reply is ``+OK`` or null."""
    return command(*words, rollback_verb=rollback_verb, reply=Reply.STATUS)


def integer(
    *words: bytes | int, fallback: Command | None = None, rollback_verb: int | None = None
) -> Command:
    """A template whose reply is a number, as the reply of every script is."""
    return command(*words, fallback=fallback, rollback_verb=rollback_verb, reply=Reply.INTEGER)


class Script(NamedTuple):
    """A Lua text and its SHA1 for EVALSHA. ``keys``: the number of its arguments that are keys."""

    text: bytes
    keys: int = 1

    @property
    def sha1(self) -> bytes:
        import hashlib  # late, because it loads OpenSSL

        return hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def template(
        self, *words: bytes | int, rollback_verb: int | None = None, reply: int = Reply.INTEGER
    ) -> Command:
        """EVALSHA with these words, keys first; EVAL if the server has lost its scripts."""
        keys = b"%d" % self.keys
        fallback = command(b"EVAL", self.text, keys, *words, reply=reply)
        words = (b"EVALSHA", self.sha1, keys, *words)
        main = command(*words, fallback=fallback, rollback_verb=rollback_verb, reply=reply)
        return main._replace(script=self)

    def variadic(self, head: int, *words: bytes | int, rollback_verb: int | None = None) -> Command:
        """As ``template`` for a variable number of keys: argument ``head`` is the array's header."""
        fallback = integer(~head, b"EVAL", self.text, *words)
        main = integer(~head, b"EVALSHA", self.sha1, *words, fallback=fallback, rollback_verb=rollback_verb)
        return main._replace(script=self)


def scripts(dialect: Dialect) -> list[Script]:
    """The scripts that the commands of ``dialect`` need on the server."""
    return list(dict.fromkeys(command.script for command in dialect if command.script))


def script(keys: str, args: str, *parts: bytes) -> Script:
    """A script in which local variables with these names have the KEYS and ARGV."""
    names, values = keys.split(), args.split()
    where = [f"KEYS[{n + 1}]" for n in range(len(names))] + [f"ARGV[{n + 1}]" for n in range(len(values))]
    header = f"local {','.join(names + values)}={','.join(where)}\n".encode()
    return Script(header + b"\n".join(parts), len(names))
