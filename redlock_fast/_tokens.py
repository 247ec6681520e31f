"""Random tokens: what tells a holder from all others, ever. Never from a seeded generator.

Asking the system for each would cost more than all else that an acquire does, and let go of the GIL; so
they are drawn in advance, and a child of fork throws away what its parent had drawn.
"""

from __future__ import annotations

import os
from struct import iter_unpack

TOKEN_SIZE = 20
DRAWN_AT_ONCE = 64

_drawn: list[bytes] = []


def new_token() -> bytes:
    """160 random bits."""
    try:
        return _drawn.pop()
    except IndexError:
        fresh = new_tokens(DRAWN_AT_ONCE)
        token = fresh.pop()
        _drawn.extend(fresh)
        return token


def new_tokens(count: int) -> list[bytes]:
    """So many, with one system call."""
    return [token for (token,) in iter_unpack(f"{TOKEN_SIZE}s", os.urandom(TOKEN_SIZE * count))]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
