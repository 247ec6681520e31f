"""From a URL to a connected, authenticated socket and what the server at its end can do.

Connecting is redis-py's: TCP, TLS, unix sockets, AUTH and ACL users, SELECT, HELLO 3, credential
providers. redis-py is imported when the first client is made, not with this package.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ._bounded import BoundedSocket
from ._commands import LOOK, MARKER, Capabilities, Dialect, Mark, dialect, scripts
from ._guard import Guard
from ._resp import ProtocolError, without_arguments
from ._sentinel import SENTINEL_SCHEMES, Discovery, Service, parse_sentinel_url
from .errors import ConfigError

#: redis-py's pools put these into connection settings; they belong to the pool, not to us.
_POOL_SETTINGS = ("maint", "oss_cluster", "orig_", "himport", "retry", "health_check")

#: Of an error, for people.
MAX_TEXT = 500
#: Of what a server says about itself: a run_id has 40 characters.
MAX_FACT = 100

_SCHEMES = {
    "valkey://": "redis://",
    "valkeys://": "rediss://",
    "valkey+sentinel://": "redis+sentinel://",
    "valkeys+sentinel://": "rediss+sentinel://",
}


class CannotConnect(Exception):
    """Why a master is of no use now: for health() and QuorumUnavailable."""


@dataclass(frozen=True, slots=True)
class Target:
    """One configured master. ``name`` is for people and holds no secrets; ``address`` tells servers apart."""

    name: str
    address: tuple[Any, ...]
    connect: Callable[[float, int], Any]  # (timeout, protocol) -> redis-py Connection, not connected
    protocol: int | None


@dataclass(frozen=True, slots=True)
class Server:
    """What a master said about itself when it was connected; "" and 0 where it may not tell.

    ``persistence``: "aof always", "aof everysec", "aof no" or "no aof". ``eviction``: the policy; also
    "noeviction" where memory has no bound. ``promoted``: it was a replica once, so what its master
    had promised it may never have heard. ``guarded``: for how many seconds its marker gives it no vote.
    """

    kind: str = ""
    version: str = ""
    run_id: str = ""
    uptime: int = 0
    role: str = ""
    protocol: int = 0
    can: Capabilities = field(default_factory=Capabilities)
    persistence: str = ""
    eviction: str = ""
    promoted: bool = False
    guarded: float = 0.0

    @property
    def durable(self) -> bool:
        """Whether it remembers after a restart all that it has ever answered."""
        return self.persistence == "aof always" and not self.promoted

    @property
    def evicts(self) -> bool:
        return self.eviction not in ("", "noeviction")


# --- settings ------------------------------------------------------------------------------------


def target(master: Any) -> Target:
    """Settings from a URL, or from a redis.Redis client. ConfigError for anything else; no I/O."""
    service = None
    if isinstance(master, str):
        connection_class, settings, service = _from_url(master)
    else:
        connection_class, settings = _from_client(master)
    settings = {k: v for k, v in settings.items() if not k.startswith(_POOL_SETTINGS)}
    protocol = settings.pop("protocol", None)
    if protocol is not None:
        if str(protocol) not in ("2", "3"):
            raise ConfigError(f"masters: {_redacted(master)} asks for protocol {protocol!r}, not 2 or 3")
        protocol = int(protocol)  # older versions of redis-py leave it as text

    def connect(timeout: float, protocol: int, **address: Any) -> Any:
        return connection_class(
            **{
                **settings,
                **address,
                "decode_responses": False,
                "socket_timeout": timeout,
                "socket_connect_timeout": timeout,
                "protocol": protocol,
            }
        )

    try:
        connection = connect(1.0, 2)
    except Exception as error:
        # Only a TypeError's text is safe to show: it names an option. Others may quote a secret.
        why = f": {error}" if isinstance(error, TypeError) else ""
        raise ConfigError(f"masters: {_redacted(master)} has settings that redis-py refuses{why}") from None
    path = getattr(connection, "path", None)
    db = getattr(connection, "db", 0)
    if path is not None:
        return Target(f"unix:{path}/{db}", (path,), connect, protocol)
    if service is not None:
        discovery = Discovery(service, connection_class, settings)
        address = (service.name, *sorted(service.sentinels))
        return Target(
            f"{service}/{db}", address, lambda t, p: connect(t, p, **discovery.master(t)), protocol
        )
    host, port = connection.host, connection.port
    return Target(f"{host}:{port}/{db}", (host, port), connect, protocol)


def _from_url(url: str) -> tuple[Any, dict[str, Any], Service | None]:
    from redis.connection import Connection, SSLConnection, parse_url

    for scheme, same in _SCHEMES.items():
        if url.startswith(scheme):
            url = same + url.removeprefix(scheme)
    try:
        service = parse_sentinel_url(url) if url.startswith(SENTINEL_SCHEMES) else None
        settings = dict(parse_url(service.url if service else url))  # type: ignore[no-untyped-call]
    except ValueError:  # its text may quote the password
        raise ConfigError(
            f"masters: {_redacted(url)} is no URL of a master: use redis://host:port/db, "
            "rediss://host:port/db (TLS), unix:///path or redis+sentinel://host:port/service/db; "
            "write special characters in a password as %XX"
        ) from None
    connection_class = settings.pop("connection_class", Connection)
    if issubclass(connection_class, SSLConnection):  # redis-py before 6 takes the certificate of any host
        settings.setdefault("ssl_check_hostname", settings.get("ssl_cert_reqs") != "none")
    return connection_class, settings, service


def _from_client(client: Any) -> tuple[Any, dict[str, Any]]:
    pool = getattr(client, "connection_pool", None)
    connection_class = getattr(pool, "connection_class", None)
    if pool is None or connection_class is None or ".asyncio" in connection_class.__module__:
        raise ConfigError(
            f"masters: each must be a URL or a (blocking) redis.Redis client, not {type(client).__name__}"
        )
    if hasattr(pool, "sentinel_manager"):
        raise ConfigError(
            "masters: a Sentinel's client names a service: use a URL, redis+sentinel://host:port/service"
        )
    return connection_class, dict(pool.connection_kwargs)


def _redacted(master: Any) -> str:
    """What of a URL, even of a broken one, is no secret: its host, port and path."""
    if not isinstance(master, str):
        return type(master).__name__
    before, at, rest = master.rpartition("@")
    scheme = re.match(r"[\w+]+://", before)
    start = (scheme.group() if scheme else "") + "***@" if at else ""
    return repr(start + re.split("[?#]", rest)[0])


# --- connecting ----------------------------------------------------------------------------------


def dial(
    to: Target, timeout: float, key_prefix: bytes, guard: Guard, *, known: bool, push: bool
) -> tuple[socket.socket, Server, Dialect]:
    """Connect, authenticate, ask what the server can do. CannotConnect says why not.

    ``timeout``: seconds, for the connection and for each reply. ``known``: it is not the first contact.
    ``push``: have it tell when watched keys change, where it can.
    """
    connection = None
    try:
        connection, protocol = _connected(to, timeout)
        server = _interview(connection, protocol, key_prefix)
        mark = guard.mark(server.run_id, server.durable)
        server = _prepared(connection, server, mark, guard.assume_fresh and not known)
        if push and protocol == 3:
            server = _tracking(connection, server)
        sock: socket.socket = connection._sock.release()
        connection._sock = None  # it is ours now: redis-py must not close it
        return sock, server, dialect(server.can, mark)
    except CannotConnect:
        raise
    except ProtocolError as error:
        raise CannotConnect(f"protocol error: {error}") from None
    except Exception as error:  # whatever redis-py or a credential provider makes of it
        text = without_arguments(str(error))[:MAX_TEXT]
        raise CannotConnect(text or type(error).__name__) from None
    finally:
        if connection is not None:
            connection.disconnect()


def _connected(to: Target, timeout: float) -> tuple[Any, int]:
    """RESP3; RESP2 where the server has no HELLO."""
    from redis.exceptions import ResponseError

    try:
        return _connection(to, timeout, to.protocol or 3), to.protocol or 3
    except ResponseError:
        if to.protocol is not None:
            raise
    return _connection(to, timeout, 2), 2


def _connection(to: Target, timeout: float, protocol: int) -> Any:
    connection = to.connect(timeout, protocol)
    connect = connection._connect
    connection._connect = lambda: BoundedSocket(connect(), timeout)
    try:
        connection.connect()
    except BaseException:
        connection.disconnect()
        raise
    return connection


def ask(connection: Any, commands: list[tuple[bytes | str, ...]]) -> list[Any]:
    """Commands in one round trip; an error reply comes back as the exception."""
    from redis.exceptions import ResponseError

    replies: list[Any] = []
    connection.send_packed_command(connection.pack_commands(commands))
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _interview(connection: Any, protocol: int, key_prefix: bytes) -> Server:
    key, value = key_prefix + b"redlock-fast:" + os.urandom(16).hex().encode(), b"probe"
    facts, replication, role, append, memory, *probes = ask(
        connection,
        [
            ("INFO", "server"),
            ("INFO", "replication"),
            ("ROLE",),
            ("CONFIG", "GET", "append*"),
            ("CONFIG", "GET", "maxmemory*"),
            # Tried out on a key that nobody has.
            (b"DELIFEQ", key, value),
            (b"DELEX", key, b"IFEQ", value),
            (b"SET", key, value, b"IFEQ", value, b"PX", b"1000"),
        ],
    )
    facts, replication = _info(facts), _info(replication)
    if "cluster" in (facts.get("redis_mode"), facts.get("server_mode")):
        raise CannotConnect(
            "it is a node of a Cluster, which serves some keys only and may fail over without a word; "
            "a master must be a server of its own, or one that Sentinels look after"
        )
    role = _role(role) or replication.get("role", "")
    if role not in ("master", ""):
        raise CannotConnect(f"it is a {role}, not a master: a lock there could vanish with the next write")
    kind = "valkey" if "valkey_version" in facts else "redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    return Server(
        kind=kind if version else "",
        version=version,
        run_id=facts.get("run_id", ""),
        uptime=int(facts.get("uptime_in_seconds", 0)),
        role=role,
        protocol=protocol,
        can=_capabilities(kind, version, *probes),
        persistence=_persistence(_pairs(append)),
        eviction=_eviction(_pairs(memory)),
        promoted=replication.get("master_replid2", "").strip("0") != "",
    )


def _prepared(connection: Any, server: Server, mark: Mark | None, fresh: bool) -> Server:
    """Load scripts (where that is forbidden, EVAL does it), look at the marker."""
    commands: list[tuple[bytes | str, ...]] = [
        ("SCRIPT", "LOAD", script.text) for script in scripts(server.can, mark)
    ]
    if mark is not None:
        if fresh:
            commands.append((b"SET", MARKER, mark.trusted, b"NX"))
        commands.append((b"EVAL", LOOK.text, b"1", MARKER, *mark.words))
    replies = ask(connection, commands)
    if mark is None:
        return server
    left = replies[-1]
    if isinstance(left, Exception):
        raise CannotConnect(f"restart_guard='marker' cannot use its key {MARKER.decode()!r} there: {left}")
    return replace(server, guarded=left / 1000)


def _tracking(connection: Any, server: Server) -> Server:
    """Have the server remember which keys this connection watches: each only where it is asked to."""
    (reply,) = ask(connection, [("CLIENT", "TRACKING", "ON", "OPTIN")])
    return replace(server, can=replace(server.can, push=not isinstance(reply, Exception)))


def _info(reply: Any) -> dict[str, str]:
    if not isinstance(reply, (bytes, str)):
        return {}
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value[:MAX_FACT] for name, colon, value in pairs if colon}


def _pairs(reply: Any) -> dict[str, str]:
    """What CONFIG GET said; nothing where it is forbidden."""
    if isinstance(reply, list):
        reply = dict(zip(reply[::2], reply[1::2], strict=False))
    if not isinstance(reply, dict):
        return {}
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(word: Any) -> str:
    text = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
    return text[:MAX_FACT]


def _role(reply: Any) -> str:
    return _text(reply[0]) if isinstance(reply, list) and reply else ""


def _persistence(config: dict[str, str]) -> str:
    if "appendonly" not in config:
        return ""
    return f"aof {config.get('appendfsync', '')}" if config["appendonly"] == "yes" else "no aof"


def _eviction(config: dict[str, str]) -> str:
    return "noeviction" if config.get("maxmemory") == "0" else config.get("maxmemory-policy", "")


def _capabilities(kind: str, version: str, delifeq: Any, delex: Any, set_ifeq: Any) -> Capabilities:
    """By the replies to what was tried out; where these say nothing, by version.

    Servers with a native compare-and-delete have ``SET IFEQ`` too: it came with or before it.
    """
    since = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    valkey = kind == "valkey"
    has_delifeq = _supports(delifeq, (valkey and since >= (9, 0)) or _key_refused(delifeq))
    has_delex = not has_delifeq and _supports(
        delex, (not valkey and since >= (8, 4)) or _key_refused(delex)
    )
    has_ifeq = has_delifeq or has_delex or _supports(set_ifeq, valkey and since >= (8, 1))
    return Capabilities(has_delifeq, has_delex, has_ifeq)


def _supports(reply: Any, otherwise: bool) -> bool:
    if not isinstance(reply, Exception):
        return True
    text = str(reply).lower()
    if "unknown" in text or "syntax" in text or "number of arguments" in text:
        return False
    if "no permissions to run" in text:
        return False  # the command itself is forbidden to this user
    return otherwise


def _key_refused(reply: Any) -> bool:
    """An ACL that refuses the key: servers look the command up first, so there is one."""
    return isinstance(reply, Exception) and "permission" in str(reply).lower() and "key" in str(reply).lower()
