"""Probes a server on a new connection: what it says of itself, and which commands it executes."""

from __future__ import annotations

import math
import os
import re
from typing import Any, NamedTuple

from ..wire.dialect import Capabilities, Identity
from ..wire.text import clean
from .membership import Seen

#: Characters of one fact that a server states; a run_id has 40.
MAX_FACT = 100
#: A key that shows whether a flush was of this database, on servers with several; its ttl in milliseconds.
WITNESS, WITNESS_TTL = b"redlock-fast:witness", 30 * 86_400_000
#: The default of ``cluster-node-timeout``, in milliseconds, for a user that may not ask.
DEFAULT_NODE_TIMEOUT = 15_000
#: How often a process executed the commands that remove all keys, in the reply to INFO.
FLUSHES = re.compile(r"^cmdstat_(?:flushall|flushdb|swapdb):calls=(\d{1,19}),", re.MULTILINE)


class ConnectError(Exception):
    """A master cannot be used now. The text appears in health() and QuorumUnavailable."""


class Refused(ConnectError):
    """The server refused this user. The text begins with the code: WRONGPASS, NOAUTH or NOPERM."""


class Loading(ConnectError):
    """The server was started a while ago, and still reads its data from disk."""


class Flushed(ConnectError):
    """The keys of a master were flushed while it was probed."""


class Server(NamedTuple):
    """What a server said of itself when it was connected; "" or 0 where this user may not ask.

    ``persistence``: "aof always", "aof not on rewrite", "aof everysec", "aof no" or "no aof". ``eviction``:
    the policy, or "noeviction" where memory has no bound. ``promoted``: it was a replica, so it may lack
    locks of its former master. ``guarded``: seconds for which its marker gives it no vote. ``replid``: the id
    of its data's history; a demotion changes it. ``witness``: it reports a flush of its keys. ``shared``:
    other databases of the server have keys, too. ``data``: the value of its witness key, if there is one.
    ``flushes``: how often its process removed all keys of a database.
    ``min_replicas``, ``max_lag``: it refuses writes unless so many replicas replied within so many seconds.
    ``where``: its host and port. ``seen``: its record of masters, None if it is not compared.
    ``read_at``: ``boot_time`` before that was read.
    """

    kind: str = ""
    version: str = ""
    run_id: str = ""
    uptime: int = 0
    role: str = ""
    protocol: int = 0
    can: Capabilities = Capabilities()
    persistence: str = ""
    eviction: str = ""
    promoted: bool = False
    guarded: float = 0.0
    replid: str = ""
    witness: bool = False
    shared: bool = False
    data: bytes = b""
    flushes: int = 0
    min_replicas: int = 0
    max_lag: float = 0.0
    where: tuple[str, int] = ("", 0)
    seen: Seen | None = None
    read_at: float = 0.0

    @property
    def identity(self) -> Identity:
        return Identity(self.run_id, self.replid, self.role)

    @property
    def durable(self) -> bool:
        """Whether a restart on the same disk keeps everything that the server has confirmed."""
        return self.persistence == "aof always" and not self.promoted

    @property
    def lag(self) -> float:
        """``max_lag`` where the server refuses writes without replicas; 0.0: it does not."""
        return self.max_lag if self.min_replicas else 0.0

    @property
    def evicts(self) -> bool:
        return self.eviction not in ("", "noeviction")


def send_commands(connection: Any, commands: list[tuple[bytes | str, ...]]) -> list[Any]:
    """The replies to ``commands``, sent in one round trip. An error reply is returned as the exception."""
    from redis.exceptions import ResponseError

    replies: list[Any] = []
    # No health check of redis-py: if it fails, redis-py connects again, and a command must not go out on
    # another connection than the one before (see RecordConnections.write_back).
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def probe(connection: Any, protocol: int, key_prefix: bytes, of_cluster: bool = False) -> Server:
    """Ask a server what it is, and try out commands. Raises ConnectError if it cannot be a master.

    ``of_cluster``: it is a primary of a Cluster, which a server of its own must not be.

    Raises redis-py's NoPermissionError if this user may not execute SET, because then it can acquire no lock.
    With RESP3, the server notifies of changed watched keys and of flushes from now on.
    """
    key, value = key_prefix + b"redlock-fast:" + os.urandom(16).hex().encode(), b"probe"
    replies = send_commands(
        connection,
        [
            # First, so that a flush after any of the other replies is reported.
            ("CLIENT", "TRACKING", "ON", "OPTIN") if protocol == 3 else ("PING",),
            ("INFO", "server"),
            ("INFO", "replication"),
            ("ROLE",),
            ("INFO", "keyspace"),
            ("INFO", "commandstats"),
            ("CONFIG", "GET", "*append*"),
            ("INFO", "memory"),  # managed services refuse CONFIG, and answer this
            ("CONFIG", "GET", "cluster-node-timeout" if of_cluster else "min-replicas*"),
            # Tried out on a random key. XX: it is not set.
            (b"SET", key, value, b"XX", b"PX", b"1"),
            (b"DELIFEQ", key, value),
            (b"DELEX", key, b"IFEQ", value),
            (b"PEXPIRE", key, b"1", b"GT"),
        ],
    )
    tracking, facts, replication, role, keyspace, stats, append, memory, replicas, set_key, *probes = replies
    if _command_refused(set_key):
        raise set_key
    facts, replication, memory = info_of(facts), info_of(replication), info_of(memory)
    replicas = pairs_of(replicas)
    if "cluster" in (facts.get("redis_mode"), facts.get("server_mode")) and not of_cluster:
        raise ConnectError(
            "it is a node of a Cluster, which serves some keys only and may fail over without notice; "
            "a master must be a server of its own, or behind Sentinels; a Cluster as the only master has the "
            "URL redis+cluster://host:port"
        )
    if of_cluster:
        # A primary that a partition cuts off from most of the others takes no writes after this time.
        timeout = _number(replicas.get("cluster-node-timeout", "")) or DEFAULT_NODE_TIMEOUT
        replicas = {"min-replicas-to-write": "1", "min-replicas-max-lag": str(math.ceil(timeout / 1000))}
    role = (_text(role[0]) if isinstance(role, list) and role else "") or replication.get("role", "")
    if role not in ("master", ""):
        raise ConnectError(f"it is a {role}, not a master: a lock there could vanish with the next write")
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
        persistence=_persistence(pairs_of(append)),
        eviction="noeviction" if memory.get("maxmemory") == "0" else memory.get("maxmemory_policy", ""),
        promoted=replication.get("master_replid2", "").strip("0") != "",
        replid=replication.get("master_replid", ""),
        witness=protocol == 3 and not isinstance(tracking, Exception),
        shared=any(
            re.fullmatch(r"db\d+", name) and name != f"db{connection.db}" for name in info_of(keyspace)
        ),
        flushes=sum(map(int, FLUSHES.findall(_decoded(stats)))),
        min_replicas=_number(replicas.get("min-replicas-to-write", "")),
        max_lag=_number(replicas.get("min-replicas-max-lag", "")),
    )


def with_witness(connection: Any, server: Server, key_prefix: bytes) -> Server:
    """``server`` with the value of the witness key. Any client sets it; it stays until a flush."""
    key = key_prefix + WITNESS
    commands: list[tuple[bytes | str, ...]] = [
        (b"SET", key, os.urandom(16).hex().encode(), b"NX", b"PX", b"%d" % WITNESS_TTL),
        (b"PEXPIRE", key, b"%d" % WITNESS_TTL),
        (b"GET", key),
    ]
    data = send_commands(connection, commands)[-1]
    return server._replace(data=data if isinstance(data, bytes) else b"")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def info_of(reply: Any) -> dict[str, str]:
    """The fields of a reply to INFO; empty where it is forbidden."""
    pairs = (line.partition(":") for line in _decoded(reply).splitlines())
    return {name: clean(value, MAX_FACT) for name, colon, value in pairs if colon}


def _decoded(reply: Any) -> str:
    """The text of a reply to INFO; "" where it is forbidden."""
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return reply if isinstance(reply, str) else ""


def pairs_of(reply: Any) -> dict[str, str]:
    """The reply to CONFIG GET; empty where it is forbidden."""
    if isinstance(reply, list):
        reply = dict(zip(reply[::2], reply[1::2], strict=False))
    if not isinstance(reply, dict):
        return {}
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(word: Any) -> str:
    return clean(word if isinstance(word, bytes) else str(word), MAX_FACT)


def _persistence(config: dict[str, str]) -> str:
    if "appendonly" not in config:
        return ""
    if config["appendonly"] != "yes":
        return "no aof"
    when = config.get("appendfsync", "")
    late = when == "always" and config.get("no-appendfsync-on-rewrite") != "no"
    return "aof not on rewrite" if late else f"aof {when}"


def _capabilities(kind: str, version: str, delifeq: Any, delex: Any, expire_gt: Any) -> Capabilities:
    """The capabilities: by the replies to the tried commands, or by version where these are unclear."""
    since = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    valkey = kind == "valkey"
    has_delifeq = _supports(delifeq, (valkey and since >= (9, 0)) or _key_refused(delifeq))
    has_delex = not has_delifeq and _supports(delex, (not valkey and since >= (8, 4)) or _key_refused(delex))
    has_gt = _supports(expire_gt, since >= (7, 0) or _key_refused(expire_gt))
    return Capabilities(has_delifeq, has_delex, has_gt)


def _supports(reply: Any, otherwise: bool) -> bool:
    if not isinstance(reply, Exception):
        return True
    text = str(reply).lower()
    no = ("unknown", "syntax", "number of arguments")
    return False if _command_refused(reply) or any(words in text for words in no) else otherwise


def _command_refused(reply: Any) -> bool:
    """Whether this user may not execute the command at all."""
    return isinstance(reply, Exception) and "no permissions to run" in str(reply).lower()


def _key_refused(reply: Any) -> bool:
    """Whether an ACL refused the key. A server checks before that whether it has the command."""
    return isinstance(reply, Exception) and "permission" in str(reply).lower() and "key" in str(reply).lower()
