"""Keys on the masters: the client's prefix and the resource, checked and as bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..errors import ConfigError
from ..wire.text import quoted

#: Bytes of a resource, and of a client's prefix.
MAX_RESOURCE = 64 << 10

#: The maximum number of slots of a semaphore.
MAX_SLOTS = 1024
#: The suffixes after ``{name}:`` in the keys that this library derives from a name: fencing counter,
#: read-write lock (``n`` is a key that never exists), fair lock, slots of a semaphore. What a caller that
#: waits watches is ``b:`` and its place. The keys of a turn begin with ``t:``.
DERIVED = frozenset((b"f", b"w", b"r", b"i", b"n", b"q", b"e", *(b"%d" % slot for slot in range(MAX_SLOTS))))

#: The key of a turn (``algorithm/turn.py``).
TURN_KEY = re.compile(rb"\{.+\}:t:([0-9a-f]{16}:)?", re.DOTALL)

#: How the other keys of this library begin, after the prefix of whichever client wrote them: the record of
#: masters and its marks, the witness, the marker.
OWN = (b"redlock-fast:masters", b"redlock-fast:witness", b"redlock-fast:marker")


def prefix_of(key_prefix: str | bytes) -> bytes:
    """The option ``key_prefix`` as bytes. Raises ConfigError."""
    prefix = encoded("key_prefix", key_prefix)
    if len(prefix) > MAX_RESOURCE:
        raise ConfigError(f"key_prefix must have at most {MAX_RESOURCE} bytes, not {len(prefix)}")
    return prefix


def key_of(prefix: bytes, resource: str | bytes) -> bytes:
    """The key of ``resource``. Raises ConfigError, also for a key that the library itself uses."""
    name = encoded("resource", resource)
    if not 1 <= len(name) <= MAX_RESOURCE:
        raise ConfigError(f"resource must have 1 to {MAX_RESOURCE} bytes, not {len(name)}")
    key = prefix + name if prefix else name
    # 123 is an opening brace, 114 an r, 115 an s. A search in every name would take longer than all of this.
    last = key[-1]
    if key[0] == 123 or key[0] == 114 or name[0] == 114 or (114 <= last <= 115 and key.endswith(OWN)):
        _refuse_reserved(key, name)
    return key


def _refuse_reserved(key: bytes, name: bytes) -> None:
    first, _, use = key.rpartition(b":")
    # A client without a prefix can name such a key of any client, whatever its prefix is.
    own = key.endswith(OWN) or key.startswith(OWN) or name.startswith(OWN)
    derived = (len(first) > 2 and first.endswith(b"}") and use in DERIVED) or _begins_waiting(key)
    if own or derived:
        raise ConfigError(
            f"resource: {quoted(key)} is a key that this library uses itself: a lock there would block a "
            "semaphore, a read-write lock, a fair lock, a fencing counter, the marker or the list of masters"
        )


def _begins_waiting(key: bytes) -> bool:
    """Whether ``key`` is, or begins as, what a caller that waits writes."""
    return key.find(b"}:b:") > 1 or key.find(b"}:t:") > 1


def derived(key: bytes) -> bytes:
    """How the keys begin that this library derives from ``key``: a Cluster keeps all of them in one slot."""
    return key if TURN_KEY.fullmatch(key) else b"{%b}:" % key


def many_keys(prefix: bytes, resources: Iterable[str | bytes]) -> list[bytes]:
    """``key_of`` for each of ``resources``."""
    return [key_of(prefix, resource) for resource in resources]


def size_of(keys: Iterable[bytes]) -> int:
    """The total size of ``keys`` in bytes."""
    size = 0
    for key in keys:
        size += len(key)
    return size


def encoded(name: str, value: Any) -> bytes:
    """``value`` as bytes; str becomes UTF-8. A ConfigError calls it ``name``."""
    if type(value) is bytes:
        return value
    if not isinstance(value, (str, bytes)):
        raise ConfigError(f"{name} must be str or bytes, not {type(value).__name__}")
    try:
        return value.encode() if isinstance(value, str) else bytes(value)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} cannot be encoded as UTF-8: {error}") from None
