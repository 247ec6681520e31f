"""Names as they stand on the masters: checked, as bytes, behind the client's prefix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ConfigError
from ..wire.dialect import MARKER
from ..wire.text import quoted

MAX_RESOURCE = 64 << 10

#: A semaphore has so many slots at most.
MAX_SLOTS = 1024
#: What stands behind ``{name}:`` in the keys that this library derives from a name: the counter of fencing
#: tokens, read-write locks, fair locks, the slots of semaphores.
DERIVED = frozenset((b"f", b"w", b"r", b"i", b"q", b"e", *(b"%d" % slot for slot in range(MAX_SLOTS))))


def key_of(prefix: bytes, resource: str | bytes) -> bytes:
    """Raises ConfigError, also for a key that the library uses itself."""
    name = encoded("resource", resource)
    if not 1 <= len(name) <= MAX_RESOURCE:
        raise ConfigError(f"resource must have 1 to {MAX_RESOURCE} bytes, not {len(name)}")
    key = prefix + name if prefix else name
    if key[0] == 123 or key == MARKER:  # 123: an opening brace
        _refuse_reserved(key)
    return key


def _refuse_reserved(key: bytes) -> None:
    name, _, use = key.rpartition(b":")
    if key == MARKER or (len(name) > 2 and name.endswith(b"}") and use in DERIVED):
        raise ConfigError(
            f"resource: {quoted(key)} is a key that this library uses itself: a lock there would block "
            "a semaphore, a read-write lock, a fair lock, a fencing counter or the marker"
        )


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
