"""Random tokens: each identifies one holder. Never from a seeded generator.

A system call for each token would cost more than the rest of an acquire, and would release the GIL. So the
random bits are drawn ahead. A child of fork discards the bits of its parent. A process that is cloned in
another way (a snapshot of its machine, CRIU, fork in C) cannot detect it. So each token also contains the
time since boot in nanoseconds, mixed in when it is used.
"""

from __future__ import annotations

import os
import time
from struct import iter_unpack, pack

TOKEN_SIZE = 20
DRAWN_AT_ONCE = 64

#: For each token its first 12 bytes, and the number that becomes the other 8.
_drawn: list[tuple[bytes, int]] = []

_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_now = time.clock_gettime_ns


def new_token() -> bytes:
    """A token: 160 random bits."""
    try:
        head, number = _drawn.pop()
    except IndexError:
        _drawn.extend(iter_unpack("=12sQ", os.urandom(TOKEN_SIZE * DRAWN_AT_ONCE)))
        head, number = _drawn.pop()
    return head + pack("=Q", number ^ _now(_clock))


def new_tokens(count: int) -> list[bytes]:
    """``count`` tokens, drawn with one system call."""
    return [token for (token,) in iter_unpack(f"{TOKEN_SIZE}s", os.urandom(TOKEN_SIZE * count))]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
