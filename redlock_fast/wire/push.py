"""RESP3 pushes: the keys that an ``invalidate`` names. The twin of src/push.h.

Source: redis.io, client-side caching and the RESP3 specification.
"""

from __future__ import annotations

from collections.abc import Iterator

from .resp import MAX_PUSH, frame


def invalidated(push: bytes) -> Iterator[bytes] | None:
    """The keys that a whole push invalidates, parsed one by one; None if it invalidates every key.

    A push of another kind names no key.
    """
    at, items = _header(push, 0)
    if items != 2:
        return iter(())
    _, kind, at = _item(push, at)
    if kind != b"invalidate":
        return iter(())
    start, text, _ = _item(push, at)
    first = push[start : start + 1]
    if first == b"_" or (first == b"$" and text is None):
        return None
    if first != b"*":
        return iter(())
    at, items = _header(push, start)
    return None if items < 0 else _strings(push, at, items)


def _strings(push: bytes, at: int, items: int) -> Iterator[bytes]:
    """The items that are strings: an item of another type is no key."""
    for _ in range(items):
        _, text, at = _item(push, at)
        if text is not None:
            yield text


def _header(push: bytes, start: int) -> tuple[int, int]:
    """Where the first item of an array or a push starts, and the number of its items."""
    end = push.index(b"\r\n", start)
    return end + 2, int(push[start + 1 : end])


def _item(push: bytes, start: int) -> tuple[int, bytes | None, int]:
    """Where an item starts, behind its attributes; its text, None if it is no string; where it ends."""
    while push.startswith(b"|", start):
        start = frame(push, start, MAX_PUSH)
    end = frame(push, start, MAX_PUSH)
    if push[start : start + 1] != b"$" or push[start + 1 : start + 2] == b"-":
        return start, None, end
    return start, push[push.index(b"\r\n", start) + 2 : end - 2], end
