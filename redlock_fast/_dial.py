"""From a URL to a connected, authenticated socket and what the server at its end can do.

Connecting is redis-py's: TCP, TLS, unix sockets, AUTH and ACL users, SELECT, HELLO 3, credential
providers. redis-py is imported when the first client is made, not with this package.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._commands import SCRIPTS, Capabilities, Dialect, dialect
from .errors import ConfigError

#: redis-py's pools put these into connection settings; they belong to the pool, not to us.
_POOL_SETTINGS = ("maint", "oss_cluster", "orig_", "himport", "retry", "health_check")

_SCHEMES = {"valkey://": "redis://", "valkeys://": "rediss://"}


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
    """What a master said about itself when it was connected; "" and 0 where it may not tell."""

    kind: str = ""
    version: str = ""
    run_id: str = ""
    uptime: int = 0
    role: str = ""
    protocol: int = 0
    can: Capabilities = field(default_factory=Capabilities)


# --- settings ------------------------------------------------------------------------------------


def target(master: Any) -> Target:
    """Settings from a URL, or from a redis.Redis client. ConfigError for anything else; no I/O."""
    if isinstance(master, str):
        connection_class, settings = _from_url(master)
    else:
        connection_class, settings = _from_client(master)
    settings = {k: v for k, v in settings.items() if not k.startswith(_POOL_SETTINGS)}
    protocol = settings.pop("protocol", None)
    if protocol is not None:
        if str(protocol) not in ("2", "3"):
            raise ConfigError(f"masters: {_redacted(master)} asks for protocol {protocol!r}, not 2 or 3")
        protocol = int(protocol)  # older versions of redis-py leave it as text

    def connect(timeout: float, protocol: int) -> Any:
        return connection_class(
            **{
                **settings,
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
    host, port = connection.host, connection.port
    return Target(f"{host}:{port}/{db}", (host, port), connect, protocol)


def _from_url(url: str) -> tuple[Any, dict[str, Any]]:
    from redis.connection import Connection, parse_url

    for scheme, same in _SCHEMES.items():
        if url.startswith(scheme):
            url = same + url.removeprefix(scheme)
    try:
        settings = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError:  # its text may quote the password
        raise ConfigError(
            f"masters: {_redacted(url)} is no URL of a master: use redis://host:port/db, "
            "rediss://host:port/db (TLS) or unix:///path; write special characters in a password as %XX"
        ) from None
    return settings.pop("connection_class", Connection), settings


def _from_client(client: Any) -> tuple[Any, dict[str, Any]]:
    pool = getattr(client, "connection_pool", None)
    connection_class = getattr(pool, "connection_class", None)
    if pool is None or connection_class is None or ".asyncio" in connection_class.__module__:
        raise ConfigError(
            f"masters: each must be a URL or a (blocking) redis.Redis client, not {type(client).__name__}"
        )
    if hasattr(pool, "sentinel_manager"):
        raise ConfigError(
            "masters: a Sentinel's client names a service, not a server; give the masters' own addresses"
        )
    return connection_class, dict(pool.connection_kwargs)


def _redacted(master: Any) -> str:
    """What of a URL, even of a broken one, is no secret: its host, port and path."""
    if not isinstance(master, str):
        return type(master).__name__
    before, at, rest = master.rpartition("@")
    scheme = re.match(r"\w+://", before)
    start = (scheme.group() if scheme else "") + "***@" if at else ""
    return repr(start + re.split("[?#]", rest)[0])


# --- connecting ----------------------------------------------------------------------------------


def dial(to: Target, timeout: float, key_prefix: bytes) -> tuple[socket.socket, Server, Dialect]:
    """Connect, authenticate, ask what the server can do. CannotConnect says why not.

    ``timeout``: seconds, for the connection and for each reply.
    """
    connection = None
    try:
        connection, protocol = _connected(to, timeout)
        server = _interview(connection, protocol, key_prefix)
        sock: socket.socket = connection._sock
        connection._sock = None  # it is ours now: redis-py must not close it
        return sock, server, dialect(server.can)
    except CannotConnect:
        raise
    except Exception as error:  # whatever redis-py or a credential provider makes of it
        raise CannotConnect(str(error) or type(error).__name__) from error
    finally:
        if connection is not None:
            connection.disconnect()


def _connected(to: Target, timeout: float) -> tuple[Any, int]:
    """RESP3; RESP2 where the server has no HELLO."""
    from redis.exceptions import ResponseError

    protocol = to.protocol or 3
    connection = to.connect(timeout, protocol)
    try:
        connection.connect()
    except ResponseError:
        connection.disconnect()
        if to.protocol is not None:
            raise
        protocol = 2
        connection = to.connect(timeout, protocol)
        connection.connect()
    return connection, protocol


def _ask(connection: Any, *words: bytes | str) -> Any:
    """One command; an error reply comes back as the exception."""
    from redis.exceptions import ResponseError

    connection.send_command(*words)
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _interview(connection: Any, protocol: int, key_prefix: bytes) -> Server:
    facts = _info(_ask(connection, "INFO", "server"))
    role = _role(connection)
    if role not in ("master", ""):
        raise CannotConnect(f"it is a {role}, not a master: a lock there could vanish with the next write")
    kind = "valkey" if "valkey_version" in facts else "redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    can = _capabilities(connection, kind, version, key_prefix)
    if not (can.delifeq or can.delex) or not can.set_ifeq:
        for script in SCRIPTS:
            _ask(connection, "SCRIPT", "LOAD", script.text)  # where forbidden, EVAL does it
    return Server(
        kind=kind if version else "",
        version=version,
        run_id=facts.get("run_id", ""),
        uptime=int(facts.get("uptime_in_seconds", 0)),
        role=role,
        protocol=protocol,
        can=can,
    )


def _info(reply: Any) -> dict[str, str]:
    if not isinstance(reply, (bytes, str)):
        return {}
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _role(connection: Any) -> str:
    reply = _ask(connection, "ROLE")
    if isinstance(reply, list) and reply:
        first = reply[0]
        return first.decode(errors="replace") if isinstance(first, bytes) else str(first)
    return _info(_ask(connection, "INFO", "replication")).get("role", "")


def _capabilities(connection: Any, kind: str, version: str, key_prefix: bytes) -> Capabilities:
    """Tried out on a key that nobody has; where that says nothing, by version.

    Servers with a native compare-and-delete have ``SET IFEQ`` too: it came with or before it.
    """
    key, value = key_prefix + b"redlock-fast:" + os.urandom(16).hex().encode(), b"probe"
    since = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    valkey = kind == "valkey"
    reply = _ask(connection, b"DELIFEQ", key, value)
    delifeq = _supports(reply, (valkey and since >= (9, 0)) or _key_refused(reply))
    reply = None if delifeq else _ask(connection, b"DELEX", key, b"IFEQ", value)
    delex = not delifeq and _supports(reply, (not valkey and since >= (8, 4)) or _key_refused(reply))
    set_ifeq = (delifeq or delex) or _supports(
        _ask(connection, b"SET", key, value, b"IFEQ", value, b"PX", b"1000"),
        valkey and since >= (8, 1),
    )
    return Capabilities(delifeq, delex, set_ifeq)


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
