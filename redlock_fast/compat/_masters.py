"""Masters in the forms that other libraries accept: keyword arguments, addresses, URLs, clients."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ..errors import ConfigError
from ..masters.address import redis_class

#: The connection settings that all clients of redis-py and valkey-py have, for threads and asyncio.
SETTINGS = ("host", "port", "path", "db", "username", "password", "credential_provider", "client_name")


@dataclass(frozen=True, slots=True)
class MasterSpec:
    """One master for FastRedlock. Two specs with the same settings are equal."""

    identity: Hashable = field(repr=False)
    master: Any = field(compare=False, repr=False)


def master_list(masters: Iterable[Any], argument: str = "masters") -> tuple[Any, ...]:
    """``masters`` as a tuple. Raises ConfigError for one master in place of a list."""
    if isinstance(masters, (str, bytes, Mapping)) or not isinstance(masters, Iterable):
        raise ConfigError(f"{argument} must be a list of URLs or clients, not {type(masters).__name__}")
    return tuple(masters)


def master_specs(masters: Iterable[Any], argument: str = "masters") -> tuple[MasterSpec, ...]:
    """The specs of ``masters``, sorted, because the caller may pass a set. Raises ConfigError."""
    found = [
        MasterSpec(master, master) if isinstance(master, str) else _of_client(_client_of(master))
        for master in master_list(masters, argument)
    ]
    return tuple(sorted(found, key=lambda spec: repr(spec.identity)))


def clients_of(masters: Iterable[Any]) -> list[Any]:
    """A redis.Redis client for each master, or the client that the caller passed. Raises ConfigError."""
    return [_client_of({"url": master} if isinstance(master, str) else master) for master in masters]


def _client_of(master: Any) -> Any:
    import redis

    if isinstance(master, tuple):
        master = dict(zip(("host", "port"), master, strict=False))
    if not isinstance(master, Mapping):
        return master
    settings = dict(master)
    url = settings.pop("url", None)
    try:
        return redis.Redis.from_url(url, **settings) if url else redis.Redis(**settings)
    except Exception as error:
        # Only the text of a TypeError is safe to show: it names an option. Other errors may quote a secret.
        why = f": {error}" if isinstance(error, TypeError) else ""
        raise ConfigError(f"masters: settings that redis-py refuses{why}") from None


def _of_client(client: Any) -> MasterSpec:
    pool = getattr(client, "connection_pool", None)
    kind = redis_class(getattr(pool, "connection_class", None))
    if pool is None or kind is None or hasattr(pool, "sentinel_manager"):
        return MasterSpec(id(client), client)  # FastRedlock refuses it and says why
    settings = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if (name in SETTINGS or name.startswith("ssl_")) and value is not None and (name, value) != ("db", 0)
    }
    identity = (kind.__name__, *sorted((name, repr(value)) for name, value in settings.items()))
    # In place of the client: what FastRedlock reads of it. It has no connection, so it needs no close.
    of_pool = SimpleNamespace(connection_class=kind, connection_kwargs=settings)
    return MasterSpec(identity, SimpleNamespace(connection_pool=of_pool))
