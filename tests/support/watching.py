"""Commands that watch, masters that answer them, and what such masters push."""

from __future__ import annotations

from support.scripted import Answer, Words

from redlock_fast.engine.contract import Request
from redlock_fast.wire.commands import WATCH_KEY, WATCH_PREFIX, Command, Dialect, command

WATCH, WATCH_ALL, GET = range(3)

_CACHING = command(b"CLIENT", b"CACHING", b"YES")


def armed(read: Command, watch: int) -> Command:
    """CLIENT CACHING YES and ``read``, as one command."""
    return read._replace(parts=(*_CACHING.parts, *read.parts), leading_replies=1, watch=watch)


#: By verb: what watches a key, what watches a prefix, and what does not watch.
WATCHING: Dialect = (
    armed(command(b"PTTL", 0), WATCH_KEY),
    armed(command(b"PTTL", 0), WATCH_PREFIX),
    command(b"GET", 0),
)
FREE, FOR_EVER = -2, -1


def watch(key: bytes, masters: int, resend_for: float = 0.0) -> Request:
    return Request(WATCH, (key,), masters, resend_for)


def watch_all(prefix: bytes, masters: int) -> Request:
    return Request(WATCH_ALL, (prefix,), masters)


def get(key: bytes, masters: int) -> Request:
    return Request(GET, (key,), masters)


def expiring(milliseconds: int) -> Answer:
    """Every key has that PTTL; a GET is granted."""

    def answer(words: Words) -> bytes:
        if words[0] == b"PTTL":
            return b":%d\r\n" % milliseconds
        return b"+OK\r\n"

    return answer


free, busy = expiring(FREE), expiring(FOR_EVER)


def free_with(number: int) -> Answer:
    """Every key is free, and a GET gives this number."""
    return lambda words: b":%d\r\n" % number if words[0] == b"GET" else free(words)


def invalidate(*keys: bytes) -> bytes:
    """The push of a master on which these have changed."""
    items = b"".join(b"$%d\r\n%b\r\n" % (len(key), key) for key in keys)
    return b">2\r\n$10\r\ninvalidate\r\n*%d\r\n%b" % (len(keys), items)


EVERYTHING = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
