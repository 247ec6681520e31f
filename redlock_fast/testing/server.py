"""One master in memory: what it says of itself, and its connections. It runs in one event loop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ..wire.commands import bulk
from .database import OK, Database, ErrorReply, Status, matches
from .lua import Scripts

#: What it says of itself. It has the commands of this Valkey that redlock-fast uses.
VERSION = b"9.0.0"
SETTINGS = {
    b"appendonly": b"no", b"appendfsync": b"everysec", b"maxmemory": b"0", b"maxmemory-policy": b"noeviction",
    b"min-replicas-to-write": b"0", b"min-replicas-max-lag": b"10",
}  # fmt: skip
#: Commands that are counted with their first argument.
WITH_SUBCOMMAND = (b"client", b"config", b"script")


class MasterTime:
    """The time of masters: that of ``clock``, in seconds, and ``ahead`` of it as far as it was advanced."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ahead: float = 0.0
        self._clock = clock
        self._start = time.time() - clock()

    def __call__(self) -> float:
        return self._clock() + self.ahead

    def since_1970(self) -> float:
        return self._start + self()


class Server:
    """A master that listens at the unix socket ``path``.

    ``clock``: seconds since 1970. ``delay``: seconds from the arrival of a request to its execution.
    """

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.delay: float = 0.0
        self.sessions: set[Session] = set()
        self.path = path
        self._clock = clock
        self._listener: asyncio.Server | None = None
        self.forget()

    def forget(self) -> None:
        """Become a new process, without keys and scripts."""
        self.database: Database = Database(self._clock, self._changed)
        self.scripts: Scripts = Scripts(self.database.execute)
        #: By key, the sessions that get a push when it changes, once.
        self.watching: dict[bytes, set[Session]] = {}
        self._run_id, self._replid = secrets.token_hex(20), secrets.token_hex(20)
        self._started = self._clock()
        self._calls = Counter[str]()

    async def start(self) -> None:
        if self._listener is None:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_unix_server(lambda: Session(self), self.path)

    async def stop(self) -> None:
        """Close all connections and refuse new ones."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for session in [*self.sessions]:
            session.abort()

    def resume(self) -> None:
        """Execute what has waited for long enough, after a change of ``delay``."""
        for session in [*self.sessions]:
            session.run()

    def reply(self, words: list[bytes]) -> Any:
        """The reply to a command that does not concern the connection."""
        try:
            return self._execute(*words)
        except ErrorReply as error:
            return error

    def count(self, words: list[bytes]) -> None:
        """Count a call of the command, for INFO."""
        name = words[0].lower()
        named = words[:2] if name in WITH_SUBCOMMAND else words[:1]
        self._calls[b"|".join(named).decode(errors="replace").lower()] += 1

    def _execute(self, name: bytes, *args: bytes) -> Any:
        match name.upper(), *map(bytes.upper, args[:1]):
            case [b"INFO", *section]:
                return self._info(b"".join(section).lower())
            case [b"PING", *text]:
                return args[0] if text else Status(b"PONG")
            case [b"ROLE"]:
                return [b"master", 0, []]
            case [b"CONFIG", b"RESETSTAT"]:
                self._calls.clear()
                return OK
            case [b"CONFIG", b"GET"] if len(args) == 2:
                return {name: text for name, text in SETTINGS.items() if matches(args[1], name)}
            case [b"SCRIPT", b"LOAD"] if len(args) == 2:
                return self.scripts.load(args[1])
            case [b"EVAL", _] if len(args) > 1:
                return self.scripts.run(self.scripts.load(args[0]), *args[1:])
            case [b"EVALSHA", _] if len(args) > 1:
                return self.scripts.run(*args)
        return self.database.execute(name, *args)

    def _info(self, section: bytes) -> bytes:
        """The facts of a section, or of all."""
        facts: dict[bytes, dict[str, Any]] = {
            b"server": {
                "redis_version": "7.2.4", "server_name": "valkey", "valkey_version": VERSION.decode(),
                "server_mode": "standalone", "run_id": self._run_id,
                "uptime_in_seconds": int(self._clock() - self._started),
            },
            b"replication": {
                "role": "master", "master_replid": self._replid, "master_replid2": "0" * 40,
            },
            b"keyspace": {"db0": f"keys={self.database.dbsize()}"},
            b"commandstats": {f"cmdstat_{name}": f"calls={n},usec=0" for name, n in self._calls.items()},
        }  # fmt: skip
        shown = [facts.get(section, {})] if section else facts.values()
        return "".join(f"{name}:{value}\r\n" for part in shown for name, value in part.items()).encode()

    def _changed(self, key: bytes | None) -> None:
        """Push the change to those that watch the key; of a removal of all keys to all that may watch."""
        if key is None:
            self.watching.clear()
        for session in [*self.sessions] if key is None else self.watching.pop(key, ()):
            session.push(key)


class Session(asyncio.Protocol):
    """One connection. It executes its commands in their order."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._resp3 = False
        self._tracking = False  # CLIENT TRACKING ON OPTIN
        self._caching = False  # CLIENT CACHING YES came just before
        self._arrived: deque[tuple[float, bytes]] = deque()
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.sessions.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.run()

    def abort(self) -> None:
        """Close the connection. What has arrived and is not executed is lost."""
        self._arrived.clear()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._arrived.append((asyncio.get_running_loop().time(), data))
        self.run()

    def run(self) -> None:
        """Execute what arrived ``delay`` seconds ago or earlier, and the rest in its time.

        As on a server that was stopped, also what arrived before the client has closed the connection.
        """
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        while self._arrived and self._arrived[0][0] + self._server.delay <= loop.time():
            self._received += self._arrived.popleft()[1]
        if self._arrived:
            self._timer = loop.call_at(self._arrived[0][0] + self._server.delay, self.run)
        elif self.transport.is_closing():
            self._server.sessions.discard(self)
        try:
            while (words := take_command(self._received)) is not None:
                self._write(encode(self._reply(words), self._resp3))
        except ValueError:  # no RESP
            self.abort()

    def push(self, key: bytes | None) -> None:
        if self._tracking:
            keys = encode(None if key is None else [key], True)
            self._write(b">2\r\n" + bulk(b"invalidate") + keys)

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def _reply(self, words: list[bytes]) -> Any:
        caching, self._caching = self._caching, False
        if caching:
            self._watch(words)
        self._server.count(words)
        name, *args = words
        match name.upper(), *map(bytes.upper, args[:2]):
            case [b"HELLO", b"2" | b"3", *_]:
                self._resp3 = args[0] == b"3"
                return {b"server": b"valkey", b"version": VERSION, b"proto": int(args[0]), b"role": b"master"}
            case [b"SELECT", b"0"]:
                return OK
            case [b"CLIENT", b"TRACKING", word]:
                self._tracking = self._resp3 and word == b"ON"
                return OK
            case [b"CLIENT", b"CACHING", b"YES"]:
                self._caching = True
                return OK
            case [b"CLIENT", b"SETINFO" | b"SETNAME", *_]:
                return OK
        return self._server.reply(words)

    def _watch(self, words: list[bytes]) -> None:
        """Push the next change of each key that this command reads."""
        script = words[0].upper() in (b"EVAL", b"EVALSHA")
        for key in words[3 : 3 + int(words[2])] if script else words[1:2]:
            self._server.watching.setdefault(key, set()).add(self)


def take_command(data: bytearray) -> list[bytes] | None:
    """Remove the first command from ``data``, and return its words; None: it is not complete.

    Raises ValueError if it is no command in RESP.
    """
    end = data.find(b"\r\n")
    if end < 0:
        return None
    if data[:1] != b"*":
        raise ValueError("no array")
    words = []
    for _ in range(int(data[1:end])):
        start, end = end + 2, data.find(b"\r\n", end + 2)
        if end < 0:
            return None
        start, end = end + 2, end + 2 + int(data[start + 1 : end])
        if len(data) < end + 2:
            return None
        words.append(bytes(data[start:end]))
    del data[: end + 2]
    return words


def encode(reply: Any, resp3: bool) -> bytes:
    """A reply in RESP."""
    match reply:
        case None:
            return b"_\r\n" if resp3 else b"$-1\r\n"
        case ErrorReply():
            return b"-%b\r\n" % " ".join(str(reply).split()).encode()
        case Status():
            return b"+%b\r\n" % reply
        case int():
            return b":%d\r\n" % reply
        case bytes():
            return bulk(reply)
        case dict():
            head = b"%%%d\r\n" % len(reply) if resp3 else b"*%d\r\n" % (2 * len(reply))
            return head + b"".join(encode(one, resp3) for pair in reply.items() for one in pair)
    return b"*%d\r\n" % len(reply) + b"".join(encode(one, resp3) for one in reply)
