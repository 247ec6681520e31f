"""Names as they stand on the masters: checked, as bytes, behind the client's prefix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .errors import ConfigError

MAX_RESOURCE = 64 << 10


def key_of(prefix: bytes, resource: str | bytes) -> bytes:
    """Raises ConfigError."""
    name = encoded("resource", resource)
    if not 1 <= len(name) <= MAX_RESOURCE:
        raise ConfigError(f"resource must have 1 to {MAX_RESOURCE} bytes, not {len(name)}")
    return prefix + name if prefix else name


def many_keys(prefix: bytes, resources: Iterable[str | bytes]) -> list[bytes]:
    """The same of many."""
    return [key_of(prefix, resource) for resource in resources]


def size_of(keys: Iterable[bytes]) -> int:
    """Of all together, in bytes."""
    size = 0
    for key in keys:
        size += len(key)
    return size


def encoded(name: str, value: Any) -> bytes:
    """``value`` as it stands in a key: str as UTF-8. ``name``: what a ConfigError calls it."""
    if type(value) is bytes:
        return value
    if not isinstance(value, (str, bytes)):
        raise ConfigError(f"{name} must be str or bytes, not {type(value).__name__}")
    try:
        return value.encode() if isinstance(value, str) else bytes(value)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} cannot be encoded as UTF-8: {error}") from None
