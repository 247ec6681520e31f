"""The settings of one master, from a URL or a client of redis-py or valkey-py. No I/O; redis-py parses URLs.

redis-py is imported when the first client is made, not with this package.
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlsplit

from ..errors import ConfigError, needs
from ..wire.slots import slot_of
from ..wire.text import redacted
from .bounded_calls import BoundedCalls
from .probe import ConnectError
from .sentinel import (
    SENTINEL_SCHEMES,
    Discovery,
    NamedMaster,
    Service,
    WrongPart,
    parse_sentinel_url,
    port_of,
)
from .topology import CLUSTER_SCHEMES, Address, Topology, parse_cluster_url

#: Prefixes of settings that are of a pool of redis-py, or that such a pool adds for itself. One connection to
#: each master has no pool: a URL that other programs use, too, may have these, and they change nothing here.
_POOL_SETTINGS = (
    "max_connections",
    "timeout",
    "maint",
    "oss_cluster",
    "orig_",
    "himport",
    "retry",
    "health_check",
)
#: Prefixes of settings of valkey-py that redis-py does not have, or that name valkey-py to the master. Its
#: clients have a ``protocol`` of 2 by default.
_VALKEY_SETTINGS = ("valkey_", "cache_", "client_cache", "lib_", "protocol")

#: The classes of connections that redis-py and valkey-py have, each for threads and for asyncio.
_CONNECTION_CLASSES = ("Connection", "SSLConnection", "UnixDomainSocketConnection")

#: Options of TCP connections, unless the program sets its own. A NAT, a firewall or a load balancer forgets a
#: connection that is idle for some minutes (AWS 350 s, Azure 4 min), so the system sends a probe after half a
#: minute, and ends a connection that answers three of them with nothing, or does not take what is sent.
_TCP_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}
KEPT_ALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value for name, value in _TCP_OPTIONS.items() if hasattr(socket, name)
    },
}

_SERVER_SCHEMES = ("redis://", "rediss://", "unix://")
_SCHEMES = {
    "valkey://": "redis://",
    "valkeys://": "rediss://",
    "valkey+sentinel://": "redis+sentinel://",
    "valkeys+sentinel://": "rediss+sentinel://",
    "valkey+cluster://": "redis+cluster://",
    "valkeys+cluster://": "rediss+cluster://",
}


#: The most replicas that an option ``replicas`` may ask for: more is a mistake.
MAX_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class Target:
    """One configured master.

    ``name``: for people, without secrets. ``address``: equal for masters that are one server.
    ``replicas``: how many replicas must have a grant of it before that counts; None: as the client says.
    ``ask_sentinels``: returns what the master's Sentinels say, each asked for so many seconds. None: it has
    no Sentinels. ``calls``: runs what may hang on the way to a connection.
    ``topology``: of the Cluster that the master is a shard of. None: it is a server of its own. ``shard``:
    makes the target of a shard of that Cluster, by its number.
    """

    name: str
    address: tuple[Any, ...]
    # (timeout, protocol) -> redis-py Connection, not connected; behind Sentinels it has ``failed_over``
    connect: Callable[[float, int], Any]
    protocol: int | None
    ask_sentinels: Callable[[float], NamedMaster] | None = None
    replicas: int | None = None
    calls: BoundedCalls = field(default_factory=BoundedCalls, compare=False)
    topology: Topology | None = field(default=None, compare=False)
    shard: Callable[[int], Target] | None = field(default=None, compare=False)
    number: int = 0

    @property
    def fails_over(self) -> bool:
        """Whether another server may take its place: what Sentinels name, or the nodes of a Cluster."""
        return self.ask_sentinels is not None or self.topology is not None

    def shards(self, timeout: float, key: bytes | None = None) -> list[Target]:
        """The shards of the Cluster now, or the one that serves ``key``. Raises ConnectError.

        ``timeout``: seconds for each node's reply.
        """
        topology, make = self.topology, self.shard
        assert topology is not None
        assert make is not None
        topology.read(timeout)
        every = [number for number, one in enumerate(topology.shards) if one.where]
        if key is not None:
            every = [number for number in every if topology.owned(number, slot_of(key))]
            if not every:
                raise ConnectError(f"no primary serves slot {slot_of(key)}")
        return [make(number) for number in every]

    @property
    def database(self) -> str:
        """The number of its database."""
        return self.name.rpartition("/")[2]


def target(master: Any) -> Target:
    """The settings of ``master``, a URL or a client. Raises ConfigError for anything else."""
    service, nodes = None, None
    if isinstance(master, str):
        connection_class, settings, service, nodes = _from_url(master)
    else:
        connection_class, settings = _from_client(master)
    settings = {k: v for k, v in settings.items() if not k.startswith(_POOL_SETTINGS)}
    replicas = _replicas(master, settings.pop("replicas", None))
    protocol = settings.pop("protocol", None)
    if protocol is not None:
        if str(protocol) not in ("2", "3"):
            raise ConfigError(f"masters: {_shown(master)} asks for protocol {str(protocol)!r}, not 2 or 3")
        protocol = int(protocol)  # older versions of redis-py leave it as text

    kept_alive = {} if "path" in settings else KEPT_ALIVE

    def connect(timeout: float, protocol: int, make: Any = connection_class, **address: Any) -> Any:
        ours: dict[str, Any] = {
            "decode_responses": False,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
        }
        return make(**{**kept_alive, **settings, **address, **ours, "protocol": protocol})

    try:
        connection = connect(1.0, 2)
    except Exception as error:
        # Only a TypeError's text is safe to show: it names an option. Other texts may quote a secret. If a
        # password is among the options, or may reach into them, an option's name may be part of it.
        named = isinstance(error, TypeError) and not _secret_options(master)
        why = f": {error}" if named else ""
        raise ConfigError(f"masters: {_shown(master)} has settings that redis-py refuses{why}") from None
    if getattr(connection, "driver_info", None):  # otherwise redis-py reads a file for each connection
        settings["driver_info"] = connection.driver_info
    path = getattr(connection, "path", None)
    db = getattr(connection, "db", 0)
    if path is not None:
        return Target(f"unix:{path}/{db}", (path,), connect, protocol, replicas=replicas)
    if service is not None:
        discovery = Discovery(service, connection_class, settings)
        address = (service.name, *sorted(service.sentinels))

        def discover(timeout: float, protocol: int) -> Any:
            named = discovery.master(timeout)
            connection = connect(timeout, protocol, host=named.host, port=named.port)
            connection.failed_over = named.failed_over
            return connection

        return Target(f"{service}/{db}", address, discover, protocol, discovery.master, replicas)
    if nodes is not None:
        if db:
            raise ConfigError(f"masters: {_shown(master)} asks for a database: a Cluster has one, 0")
        return _shard(Topology(nodes, connect, connection_class), nodes, connect, protocol, replicas, 0)
    host, port = connection.host, connection.port
    return Target(f"{host}:{port}/{db}", (host, port), connect, protocol, replicas=replicas)


def _shard(
    topology: Topology,
    nodes: tuple[Address, ...],
    connect: Callable[..., Any],
    protocol: int | None,
    replicas: int | None,
    number: int,
) -> Target:
    """The shard of a Cluster with this number. ``nodes``: that the URL names."""

    def discover(timeout: float, protocol: int) -> Any:
        host, port = topology.primary(number, timeout)
        connection = connect(timeout, protocol, host=host, port=port)
        connection.failed_over = False  # a primary that was promoted with data shows that by itself
        return connection

    return Target(
        f"shard {number} of {nodes[0][0]}:{nodes[0][1]}/0",
        ("cluster", *sorted(nodes), number),
        discover,
        protocol,
        replicas=replicas,
        topology=topology,
        shard=functools.partial(_shard, topology, nodes, connect, protocol, replicas),
        number=number,
    )


def _replicas(master: Any, value: Any) -> int | None:
    """The option ``replicas`` of a URL, or of a client that was made from one. Raises ConfigError."""
    if value is None:
        return None
    if not re.fullmatch("[0-9]{1,3}", str(value)) or int(value) > MAX_REPLICAS:
        what = f"has an option replicas that is no number from 0 to {MAX_REPLICAS}"
        raise ConfigError(f"masters: {_shown(master)} {what}")
    return int(value)


def numbered(
    known: Sequence[Target | None], lists: Sequence[Sequence[Target]]
) -> tuple[list[Target | None], list[int]]:
    """The masters of ``lists`` by number, and the bit mask of each list.

    A master of ``known`` keeps its number. None there is a number that a new master may get.
    """
    every = list(known)
    numbers = {one.address: number for number, one in enumerate(every) if one is not None}
    for one in (one for masters in lists for one in masters):
        if one.address not in numbers:
            number = every.index(None) if None in every else len(every)
            every[number : number + 1] = [one]
            numbers[one.address] = number
    return every, [sum(1 << numbers[one.address] for one in masters) for masters in lists]


def _from_url(url: str) -> tuple[Any, dict[str, Any], Service | None, tuple[Address, ...] | None]:
    with needs("redis", "redis>=5.1"):
        from redis.connection import Connection, SSLConnection, parse_url

    for scheme, same in _SCHEMES.items():
        if url.startswith(scheme):
            url = same + url.removeprefix(scheme)
    try:
        if not url.startswith((*_SERVER_SCHEMES, *SENTINEL_SCHEMES, *CLUSTER_SCHEMES)):
            raise WrongPart("it begins with a space" if url[:1].isspace() else "its scheme is unknown")
        parts = urlsplit(url)
        if "@" in parts.path + parts.fragment or "@" in parts.query.partition("=")[0]:
            raise WrongPart("its password has a character that is not escaped")
        service = parse_sentinel_url(url) if url.startswith(SENTINEL_SCHEMES) else None
        nodes, plain = None, service.url if service else url
        if url.startswith(CLUSTER_SCHEMES):
            nodes, plain = parse_cluster_url(url)
        elif service is None:
            _check_address(parts)
        _check_options(parts, service is None and nodes is None)
        settings = dict(parse_url(plain))  # type: ignore[no-untyped-call]
        if "replicas" in parse_qs(parts.query, keep_blank_values=True):
            settings.setdefault("replicas", "")  # redis-py leaves an empty value out
    except ValueError as error:
        raise ConfigError(
            f"masters: {_shown(url)} is no URL of a master{_wrong_part(error)}: use redis://host:port/db, "
            "rediss://host:port/db (TLS), unix:///path, redis+sentinel://host:port/service/db "
            "or redis+cluster://host:port; "
            "write special characters in a password as %XX"
        ) from None
    connection_class = settings.pop("connection_class", Connection)
    if not {"lib_name", "lib_version"} & settings.keys() and (driver_info := _driver_info()):
        settings["driver_info"] = driver_info
    if issubclass(connection_class, SSLConnection):  # redis-py before 6 accepts the certificate of any host
        settings.setdefault("ssl_check_hostname", settings.get("ssl_cert_reqs") != "none")
    return connection_class, settings, service, nodes


@functools.cache
def _driver_info() -> Any:
    """The name and version that redis-py sends, read once from a file. None in older versions."""
    from redis.connection import Connection

    connection: Any = Connection
    return getattr(connection(), "driver_info", None)


def _wrong_part(error: ValueError) -> str:
    """The part of a URL that is wrong, in parentheses; "" for an error whose text may quote the password."""
    if isinstance(error, WrongPart):
        return f" ({error})"
    # redis-py says this only of options that it knows, so the name is no part of a password.
    option = re.match(r"Invalid value for [`'](\w+)", str(error))
    return f" (its option {option[1]} has a bad value)" if option else ""


def _check_options(parts: SplitResult, of_server: bool) -> None:
    """Raise WrongPart for an option given twice, of which redis-py uses one, or one that no URL may have.

    ``of_server``: the URL has the address of the server, so the options must not.
    """
    options = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if of_server:
        address = {"host": parts.hostname, "port": parts.port, "db": parts.path.strip("/")}
        options += [name for name, value in address.items() if value and parts.scheme != "unix"]
    if "connection_class" in options or len(set(options)) < len(options):
        raise WrongPart("an option is given twice, or chooses the class of connections")


def _check_address(parts: SplitResult) -> None:
    """Raise WrongPart for an address that no server has, or of which redis-py leaves out a part."""
    host, path = unquote(parts.hostname or ""), parts.path.strip("/")
    if parts.scheme == "unix":
        if host or not path:
            raise WrongPart("the path of a Unix socket begins after unix://, and there is no host")
        return
    port_of(parts)
    if " " in host or not host.isprintable():
        raise WrongPart("its host has a space or a control character")
    if not (path or "0").isdecimal():
        raise WrongPart("its database is no number")


def _from_client(client: Any) -> tuple[Any, dict[str, Any]]:
    pool = getattr(client, "connection_pool", None)
    connection_class = getattr(pool, "connection_class", None)
    if pool is None or connection_class is None or ".asyncio" in connection_class.__module__:
        raise ConfigError(
            f"masters: each must be a URL or a (blocking) redis.Redis client, not {type(client).__name__}"
        )
    if connection_class.__module__.startswith("fakeredis"):
        raise ConfigError(
            "masters: a client of fakeredis has no server, and so no votes: "
            "tests have masters in memory with redlock_fast.testing.MemoryMasters, or real servers with "
            "redlock_fast.embedded.Masters (docs/recipes/fault-tests.md)"
        )
    if hasattr(pool, "sentinel_manager"):
        raise ConfigError(
            "masters: a Sentinel's client names a service: use a URL, redis+sentinel://host:port/service"
        )
    settings = dict(pool.connection_kwargs)
    own = redis_class(connection_class)
    if own is not None and not issubclass(connection_class, own):  # of valkey-py: other exceptions
        connection_class = own
        settings = {name: value for name, value in settings.items() if not name.startswith(_VALKEY_SETTINGS)}
    return connection_class, settings


def redis_class(connection_class: Any) -> Any:
    """redis-py's class for threads with the name of ``connection_class``, or of a base. None: it has none."""
    from redis import connection

    names = (one.__name__ for one in getattr(connection_class, "__mro__", ()))
    name = next((name for name in names if name in _CONNECTION_CLASSES), None)
    return None if name is None else getattr(connection, name)


def _secret_options(master: Any) -> bool:
    options = master.partition("?")[2] if isinstance(master, str) else ""
    return "password=" in options or "@" in options


def _shown(master: Any) -> str:
    """A configured master as text for an error, without secrets."""
    return repr(redacted(master)) if isinstance(master, str) else type(master).__name__
