"""Tokens: each identifies one holder by random bits, and names it by its owner for people.

A token is 20 random bytes and, unless the owner is "", the owner between two marks. Masters compare the whole
token. The random bytes alone make tokens unique. They never come from a seeded generator.

A system call for each token would cost more than the rest of an acquire, and would release the GIL. So the
random bits are drawn ahead. A child of fork discards the bits of its parent. A process that is cloned in
another way (a snapshot of its machine, CRIU, fork in C) cannot detect it. So each token also contains the
time since boot in nanoseconds, mixed in when it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import Struct, iter_unpack

from ..engine.fork import in_child_of_fork
from ..wire.text import clean
from . import machine

TOKEN_SIZE = 20
DRAWN_AT_ONCE = 64

#: The marks around an owner. No text in UTF-8 has the byte 0xFF, and the tokens of other libraries are text.
#: Random bytes have both marks by chance once in 2^40 tokens.
OWNER_BEGINS: bytes = b"\xffby="
OWNER_ENDS: bytes = b"\xff"
#: The largest owner, in bytes of UTF-8.
MAX_OWNER = 64

#: For each token its first 12 bytes, and the number that becomes the other 8.
_drawn: list[tuple[bytes, int]] = []

_drawn_token = Struct("=12sQ")


def new_token(owner: bytes = b"") -> bytes:
    """A token: 160 random bits, and ``owner``, which ``owner_part`` returned."""
    while True:
        try:
            head, number = _drawn.pop()
        except IndexError:  # also after a draw, where other threads used all of it
            _drawn.extend(_drawn_token.iter_unpack(os.urandom(TOKEN_SIZE * DRAWN_AT_ONCE)))
        else:
            break
    return machine.joined(head, number ^ machine.boot_time_ns(), owner)


def new_tokens(count: int, owner: bytes = b"") -> list[bytes]:
    """``count`` tokens of one ``owner``, drawn with one system call."""
    return [token + owner for (token,) in iter_unpack(f"{TOKEN_SIZE}s", os.urandom(TOKEN_SIZE * count))]


def tokens_of(
    owner: Callable[[], bytes],
) -> tuple[Callable[[], bytes], Callable[[int], list[bytes]]]:
    """``new_token`` and ``new_tokens`` for the owner that ``owner`` returns at each call."""

    def token() -> bytes:
        return new_token(owner())

    def tokens(count: int) -> list[bytes]:
        return new_tokens(count, owner())

    return token, tokens


def owner_part(owner: str) -> bytes:
    """What follows the random bytes in a token of ``owner``: nothing for ""."""
    return OWNER_BEGINS + owner.encode() + OWNER_ENDS if owner else b""


def owner_of(token: bytes) -> str:
    """The owner that ``token`` names, as printable text. "" if the token names none; never raises.

    A master or another client can write any owner: use it for display, never for a decision. Read-write locks
    write a number behind the token.

    Examples:
        >>> owner_of(lock.token)
        'web-1:4711:MainThread'
    """
    begin, end = TOKEN_SIZE + len(OWNER_BEGINS), token.rfind(OWNER_ENDS)
    behind = token[end + 1 :]
    if token[TOKEN_SIZE:begin] != OWNER_BEGINS or not begin < end <= begin + MAX_OWNER:
        return ""
    if behind and not behind.isdigit():
        return ""
    try:
        return clean(token[begin:end].decode())
    except UnicodeDecodeError:
        return ""


in_child_of_fork(_drawn.clear)
