"""Bytes as they should be on the wire, and what they should mean: written apart from the engines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redlock_fast.engine.contract import FAULT
from redlock_fast.wire.commands import Command, bulk


def render(template: Command, args: tuple[bytes, ...]) -> bytes:
    """A command with its arguments."""

    def words() -> Iterator[bytes]:
        for part in template.parts:
            if isinstance(part, bytes):
                yield part
            else:
                yield bulk(args[part]) if part >= 0 else args[~part]

    return b"".join(words())


def meanings(reply: bytes) -> set[int]:
    """The votes that a whole reply may count as; more than one where the contract leaves it open."""
    if reply == b"+OK\r\n":
        return {1}
    if reply in (b"$-1\r\n", b"_\r\n"):
        return {0}
    if reply == b"*-1\r\n":
        return {0, FAULT}
    if not reply.startswith(b":"):
        return {FAULT}
    number = int(reply[1:])
    if re.fullmatch(rb":(0|-?[1-9][0-9]{0,17})\r\n", reply):
        return {number}
    return {number, FAULT}
