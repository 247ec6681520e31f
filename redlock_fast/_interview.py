"""What a server says about itself on a new connection, and what it can do: by trying that out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ._commands import Capabilities

#: Of what a server says about itself: a run_id has 40 characters.
MAX_FACT = 100


class CannotConnect(Exception):
    """Why a master is of no use now: for health() and QuorumUnavailable."""


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


def interview(connection: Any, protocol: int, key_prefix: bytes) -> Server:
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
