"""What a master does at each command: the commands of clients, and those of broken variants."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

from redlock_fast.engine.contract import FAULT
from redlock_fast.wire import dialect as _dialect
from redlock_fast.wire.commands import Command, Dialect, Script, Verb
from redlock_fast.wire.dialect import Capabilities, RestartMarker

from .requests import ACQUIRES
from .scripts import SCRIPTS
from .server import Server

Args = tuple[bytes, ...]
#: The server, the request's arguments, and whether the connection was lost before it. Returns the vote, or
#: the text of a reply that is none.
Handler = Callable[[Server, Args, bool], int | bytes]

#: The kinds of servers.
KINDS = (
    Capabilities(),
    Capabilities(delifeq=True, expire_gt=True),
    Capabilities(delex=True, expire_gt=True),
)

GUARDED = b"-GUARDED it may have forgotten locks\r\n"


def acquire(server: Server, args: Args, orphaned: bool) -> int:
    """SET key token NX PX ttl."""
    key, token, ttl = args[:3]
    granted = server.owner(key) is None
    if granted:
        server.put(key, token, ttl)
    server.witness.asked(server.number, (key, token), granted, orphaned)
    return int(granted)


def fence(server: Server, args: Args, orphaned: bool) -> int:
    """Acquire, and count; a counter begins at the server's clock, and is at most a step behind it later."""
    counter, step = args[3], int(args[5]) * 1000
    if not acquire(server, args, orphaned):
        return 0
    clock = int(server.time() * 1e6)
    number = server.counters.get(counter, 0) + 1
    number = max(number, clock - clock % step if number > 1 else clock)
    server.counters[counter] = number
    return number


def refill(server: Server, args: Args, orphaned: bool) -> int:
    """SET key token NX PX ttl, of a token that was acquired before."""
    key, token, ttl = args
    granted = server.owner(key) is None
    if granted:
        server.put(key, token, ttl)
        server.world.counts["refilled"] += 1
        server.witness.stands(server.number, (key, token), orphaned)
    return int(granted)


def lift(server: Server, args: Args, orphaned: bool) -> int:
    """Lift the counter of a key that is held to a number."""
    key, token, number, counter, step = args[0], args[1], int(args[2]), args[3], int(args[5]) * 1000
    value = server.counters.get(counter, 0)
    if server.owner(key) != token or not value:
        return 0
    highest = int(server.time() * 1e6) + step
    if value > highest:
        highest = value + 100_000
    if value >= number or number > highest:
        return -value
    server.counters[counter] = number
    server.world.counts["counters lifted"] += 1
    return 1


def look(server: Server, mark: RestartMarker) -> int:
    """For how many milliseconds more the marker gives the master no vote."""
    now = server.milliseconds()
    writer, since = server.marker or ("", now)
    if server.marker is None or since > now or (mark.name and writer != mark.name):
        since = now
        server.marker = mark.name, since
    return max(0, since + mark.wait - now)


def marked(handler: Handler, mark: RestartMarker, server: Server, args: Args, orphaned: bool) -> int | bytes:
    if look(server, mark) > 0:
        server.world.counts["refused by the marker"] += 1
        return FAULT
    return handler(server, args, orphaned)


def compare_and_delete(server: Server, args: Args, orphaned: bool) -> int:
    key, token = args[:2]
    found = server.owner(key) == token
    if found:
        server.remove(key)
    server.witness.released(server.number, (key, token), token if found else None)
    return int(found)


def exists(server: Server, args: Args, orphaned: bool) -> int:
    return int(server.owner(args[0]) is not None)


def pttl(server: Server, args: Args, orphaned: bool) -> int:
    return server.left(args[0])


def watch(server: Server, args: Args, orphaned: bool) -> int:
    """CLIENT CACHING YES, PTTL key."""
    server.track(args[0])
    return pttl(server, args, orphaned)


def compare_and_extend(server: Server, args: Args, orphaned: bool) -> int:
    key, token, ttl = args
    found = server.owner(key) == token
    if found:
        server.prolong(key, ttl)
        server.witness.prolonged(server.number, (key, token))
    return int(found)


def report_token(server: Server, args: Args, orphaned: bool) -> bytes:
    """The token of the key; b"" without one."""
    return server.owner(args[0]) or b""


# --- what only broken variants send ---------------------------------------------------------------


def delete(server: Server, args: Args, orphaned: bool) -> int:
    """DEL key."""
    key, token = args[:2]
    owner = server.owner(key)
    if owner is not None:
        server.remove(key)
    server.witness.released(server.number, (key, token), owner)
    return int(owner is not None)


def overwrite(server: Server, args: Args, orphaned: bool) -> int:
    """SET key token PX ttl."""
    key, token, ttl = args
    owner = server.owner(key)
    if owner is not None and owner != token:
        server.witness.removed(server.number, (key, token), owner)
    server.put(key, token, ttl)
    server.witness.prolonged(server.number, (key, token))
    return 1


def extend_or_create(server: Server, args: Args, orphaned: bool) -> int:
    """Compare-and-extend, or SET key token NX PX ttl."""
    if server.owner(args[0]) not in (None, args[1]):
        return 0
    return overwrite(server, args, orphaned)


# --- how a master understands what it is sent -----------------------------------------------------


def evalsha(script: Script, words: str) -> str:
    return f"EVALSHA {script.sha1.decode()} {words}"


HANDLERS: dict[str, Handler] = {
    "SET 0 1 NX PX 2": acquire,
    evalsha(_dialect.COMPARE_AND_EXTEND, "1 0 1 2"): compare_and_extend,
    evalsha(_dialect.COMPARE_AND_EXTEND_6, "1 0 1 2"): compare_and_extend,
    "DELIFEQ 0 1": compare_and_delete,
    "DELEX 0 IFEQ 1": compare_and_delete,
    evalsha(_dialect.COMPARE_AND_DELETE, "1 0 1"): compare_and_delete,
    evalsha(_dialect.FENCE, "2 0 3 1 2 4 5"): fence,
    evalsha(_dialect.RAISE_FENCE, "2 0 3 1 2 4 5"): lift,
    "EXISTS 0": exists,
    "PTTL 0": pttl,
    evalsha(_dialect.OWNER, "1 0"): report_token,
    "CLIENT CACHING YES PTTL 0": watch,
    "SET 0 1 PX 2": overwrite,
    "DEL 0": delete,
    "EXTEND-OR-SET-NX 0 1 2": extend_or_create,
}
MARKED_HANDLERS: dict[str, Handler] = {
    evalsha(_dialect.MARKED_ACQUIRE, "2 0 redlock-fast:marker 1 2"): acquire,
    evalsha(_dialect.MARKED_FENCE, "3 0 3 redlock-fast:marker 1 2 4 5"): fence,
}


def words(command: Command) -> str:
    """A template as one line, slots as their numbers."""
    line: list[str] = []
    for part in command.parts:
        line += [str(part)] if isinstance(part, int) else re.findall(r"\$\d+\r\n(.*?)\r\n", part.decode())
    return " ".join(line)


def understood(server: Server, mark: RestartMarker | None) -> tuple[tuple[Handler, int | None], ...]:
    """What this server does at each verb of what clients would really send to it, and the verb's undo."""
    return _understood(_dialect.dialect, server.number % len(KINDS), server.push, mark)


@lru_cache
def _understood(
    dialect: Callable[..., Dialect], kind: int, push: bool, mark: RestartMarker | None
) -> tuple[tuple[Handler, int | None], ...]:
    can = KINDS[kind]._replace(push=push)
    commands = dialect(can, mark)
    found = [(_handler(Verb(verb), words(one), mark), one.rollback_verb) for verb, one in enumerate(commands)]
    assert found[Verb.REFILL] == (acquire, Verb.RELEASE)  # the same words, and not meant as such
    found[Verb.REFILL] = refill, Verb.RELEASE
    return tuple(found)


def _handler(verb: Verb, line: str, mark: RestartMarker | None) -> Handler:
    if verb in SCRIPTS:
        script: Handler = SCRIPTS[verb]
        return partial(marked, script, mark) if mark is not None and verb in ACQUIRES else script
    if mark is not None:
        ending = b" ".join((b"", *mark.words)).decode()
        if line.endswith(ending) and line.removesuffix(ending) in MARKED_HANDLERS:
            return partial(marked, MARKED_HANDLERS[line.removesuffix(ending)], mark)
    return HANDLERS.get(line, unknown)


def unknown(server: Server, args: Args, orphaned: bool) -> int:
    raise AssertionError("a command that the simulated masters do not know")
