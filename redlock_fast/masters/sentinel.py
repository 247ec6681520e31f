"""Masters behind Sentinels: before each connection, a Sentinel is asked for the master of the service.

``redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db][?option=value]``, and
``rediss+sentinel`` for TLS, also to the Sentinels. User and password are for the master; the options
``sentinel_username`` and ``sentinel_password`` are for the Sentinels.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from ..wire.resp import without_arguments
from ..wire.text import clean
from .bounded_socket import BoundedSocket, connect_bounded

SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
DEFAULT_PORT = 26379
#: Characters of the error of one Sentinel.
MAX_SENTINEL_TEXT = 150
#: Options for the Sentinels instead of the master.
FOR_SENTINELS = {"sentinel_username": "username", "sentinel_password": "password"}


class WrongPart(ValueError):
    """A part of a URL is wrong. The text names the part, without its value, which may be a secret."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service of Sentinels. ``name``: as they know it. ``url``: of its master, without its address."""

    name: str
    sentinels: tuple[tuple[str, int], ...]
    url: str = field(repr=False)
    login: dict[str, str] = field(repr=False)

    def __str__(self) -> str:
        host, port = self.sentinels[0]
        return f"{self.name}@{host}:{port}"


def parse_sentinel_url(url: str) -> Service:
    """The parts of a Sentinel's URL. Raises WrongPart, and ValueError, whose text may hold a secret."""
    parts = urlsplit(url)
    name, _, db = parts.path.strip("/").partition("/")
    login, at, where = parts.netloc.rpartition("@")
    if not name or not where or parts.fragment or not (db or "0").isdecimal():
        raise WrongPart("it needs the address of a Sentinel and a service, and a database is a number")
    addresses = tuple(address_of(text, DEFAULT_PORT) for text in where.split(","))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    sentinel_login = {FOR_SENTINELS[key]: options.pop(key) for key in list(options) if key in FOR_SENTINELS}
    query = f"?{urlencode(options)}" if options else ""
    scheme = parts.scheme.removesuffix("+sentinel")
    return Service(unquote(name), addresses, f"{scheme}://{login}{at}localhost/{db}{query}", sentinel_login)


def address_of(text: str, default_port: int) -> tuple[str, int]:
    """The host and port in ``text``, a part of a URL. Raises WrongPart."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise WrongPart("an address is empty")
    return parts.hostname, port_of(parts) or default_port


def port_of(parts: SplitResult) -> int | None:
    """The port of a URL. Raises WrongPart."""
    with contextlib.suppress(ValueError):
        if parts.port != 0:
            return parts.port
    raise WrongPart("its port is no number from 1 to 65535")


class NamedMaster(NamedTuple):
    """The master that a Sentinel names.

    ``failed_over``: its Sentinels have promoted a server of this service before, perhaps this one. They count
    their failovers in ``config-epoch``, and tell each other.
    """

    host: str
    port: int
    failed_over: bool = False

    @property
    def where(self) -> tuple[str, int]:
        return self.host, self.port


class Unknown(Exception):
    """No Sentinel named a master. The text has the reason of each."""


class Discovery:
    """Asks the Sentinels of a ``service`` for its master.

    Each time it begins with the next Sentinel, because one of them may have old information.
    ``connection_class`` and ``settings`` are those of the master. Connections to Sentinels use the same TLS.
    """

    def __init__(self, service: Service, connection_class: Any, settings: dict[str, Any]) -> None:
        self._service = service
        self._class = connection_class
        self._tls = {name: value for name, value in settings.items() if name.startswith("ssl_")}
        self._asked = 0

    def master(self, timeout: float) -> NamedMaster:
        """The master, from the first Sentinel that knows a healthy one.

        ``timeout``: seconds for each Sentinel's reply. Raises Unknown.
        """
        sentinels = self._service.sentinels
        first, self._asked = self._asked % len(sentinels), self._asked + 1
        errors = []
        for host, port in sentinels[first:] + sentinels[:first]:
            try:
                return self._ask(host, port, timeout)
            except Exception as error:  # redis-py raises many kinds for replies that it does not expect
                text = clean(without_arguments(str(error)), MAX_SENTINEL_TEXT)
                errors.append(f"{host}:{port}: {text or type(error).__name__}")
        raise Unknown(f"no Sentinel has a master for {self._service.name!r}: {'; '.join(errors)}")

    def _ask(self, host: str, port: int, timeout: float) -> NamedMaster:
        from redis import ConnectionPool, Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        settings: dict[str, Any] = {**self._tls, **self._service.login, "retry": Retry(NoBackoff(), 0)}
        settings |= {"socket_timeout": timeout, "socket_connect_timeout": timeout, "protocol": 2}
        pool = ConnectionPool(bounded(self._class, timeout), host=host, port=port, **settings)
        name = self._service.name
        asked: Any = Redis(connection_pool=pool)
        finder: Any = Sentinel([])  # type: ignore[no-untyped-call]
        try:
            # Not SENTINEL MASTERS: with many services that is longer than MAX_ANSWER.
            state = asked.execute_command("SENTINEL MASTER", name)
            if not finder.check_master_state(state, name):
                raise Unknown(f"{state['ip']}:{state['port']} is down, it says")
            return NamedMaster(str(state["ip"]), int(state["port"]), int(state.get("config-epoch", 1)) != 0)
        finally:
            pool.disconnect()


def bounded(connection_class: Any, timeout: float) -> Any:
    """``connection_class`` on a bounded socket."""

    class Bounded(connection_class):  # type: ignore[misc]
        def _connect(self) -> BoundedSocket:
            return connect_bounded(self, super()._connect, timeout)

    return Bounded
