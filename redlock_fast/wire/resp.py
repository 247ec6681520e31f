"""Finds the end of any RESP reply. The slow path, for replies that are not in the table of fixed replies.

``resume`` finds the end without building the value, and continues where it stopped: it reads no byte more
than twice, however many pieces a reply comes in. It is strict, so that bytes that are no reply are found at
once. Source: redis.io, the RESP specification (2 and 3).

``hiredis.Reader`` does not take the place of this module, because it cannot bound what a hostile or broken
server sends. With hiredis 3.5, ``len(reader)`` counts everything in its buffer and not the bytes that are
pending, a reply that announces a gigabyte just waits for it, and a line that never ends is not refused. An
attribute (``|n``) comes out as a reply of its own that cannot be told from an array, so it would be taken for
the reply to a request.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Largest reply to a lock's command, in bytes: a number, +OK, null or an error. Servers cut the arguments
#: that an error repeats to about 128 bytes.
MAX_REPLY = 4 << 10
#: Largest push, in bytes. It contains a key, of which a resource's name may have 64 KiB.
MAX_PUSH = 128 << 10
MAX_DEPTH = 8

#: Largest number of bytes of a line after its type; a number has a sign and 19 digits.
_LONGEST = dict.fromkeys(b":($!=*~>%|", 20) | {ord("#"): 1, ord("_"): 0}

#: The types whose line is a number, and the characters that a number begins with.
_NUMBERS, _SIGNS = b":($!=*~>%|", b"0123456789+-"
#: The number of bytes of a line that are checked before its end has arrived.
_HEAD = 4

#: The fewest bytes of an array item.
_LEAST = len(b"_\r\n")

PARTIAL = -1
SCRIPT_FAILED = b"-ERR Error running script "

_TYPES = b"+-,#_:($!=*~>%|"


class ProtocolError(Exception):
    """These bytes are not RESP. Their connection must be closed."""


def error_code(reply: bytes) -> bytes:
    """The code of an error, such as ``OOM``; b"" if the reply is no error. src/io_round.c does the same.

    Redis 6.2 wraps an error inside a script: ``-ERR Error running script (...): -OOM ...``.
    """
    inner = reply.partition(b": -")[2] if reply.startswith(SCRIPT_FAILED) else b""
    code = inner or (reply[1:] if reply.startswith(b"-") else b"")
    return code.rstrip(b"\r\n").split(b" ", 1)[0]


def without_arguments(error: str) -> str:
    """A server's error without the arguments that it repeats, which may be a password or a token."""
    return re.split(r",? with args beginning", error, maxsplit=1)[0]


class TooLong(ProtocolError):
    """A reply is, or will be, longer than the caller allows."""


class Scan(NamedTuple):
    """The state of a partial scan. All fields but ``looked`` and ``open`` are offsets in the data.

    ``start``: the reply. ``at``: the line that is not complete. ``searched``: the line has no end before this
    offset. ``tail``: the end of the bulk string that is not complete, or 0. ``open``: for each open array,
    twice the number of missing items, plus 1 for an attribute. ``looked``: how many bytes were read, with
    repetitions.
    """

    start: int = 0
    at: int = 0
    searched: int = 0
    tail: int = 0
    open: tuple[int, ...] = ()
    looked: int = 0


NEW = Scan()


def frame(data: bytes | bytearray, start: int, most: int = MAX_REPLY) -> int:
    """The offset after the reply at ``start``, or PARTIAL. An attribute (``|``) is a reply here."""
    return resume(data, Scan(start, start, start), most)[0]


def resume(
    data: bytes | bytearray, scan: Scan, most: int = MAX_REPLY, most_pushed: int = MAX_PUSH
) -> tuple[int, Scan]:
    """The offset after the reply, or PARTIAL; and the state to continue with when more bytes have arrived.

    ``most``: the largest number of bytes of a reply. ``most_pushed``: of a push. Raises ProtocolError.
    """
    start, at, searched, tail, levels, looked = scan
    limit = start + (most_pushed if data[start : start + 1] == b">" else most)
    stop = min(len(data), limit)
    open_arrays = list(levels)
    while True:
        kind = data[at : at + 1]
        if not tail:
            if searched == at and kind and kind not in _TYPES:
                raise ProtocolError(f"unknown reply type {bytes(kind)!r}")
            end = data.find(b"\r", searched, stop)
            looked += (stop if end < 0 else end + 1) - searched
            known = stop if end < 0 else end
            if kind and known - at - 1 > _LONGEST.get(kind[0], MAX_PUSH):
                raise ProtocolError("a line is too long for its type")
            if searched - at <= _HEAD and not _begins(kind, data[at + 1 : min(known, at + 1 + _HEAD)]):
                raise ProtocolError("no line of its type begins like this")
            if end < 0 or end + 1 >= stop:
                searched = stop if end < 0 else end
                break
            if data[end + 1 : end + 2] != b"\n":
                raise ProtocolError("stray line end")
            looked += end - at
            tail, items = _line(kind, bytes(data[at + 1 : end]), end + 2)
            if tail + 2 > limit or end + 2 + _LEAST * items > limit:
                raise TooLong("reply is too long")
            if not tail:
                at = searched = end + 2
            if items:
                if len(open_arrays) == MAX_DEPTH:
                    raise ProtocolError("reply is nested too deep")
                open_arrays.append(2 * items + (kind == b"|"))
                continue
        if tail:
            ending = data[tail : min(tail + 2, stop)]
            looked += len(ending)
            if ending != b"\r\n"[: len(ending)]:
                raise ProtocolError("bulk string without its end")
            if len(ending) < 2:
                break
            at = searched = tail + 2
            tail = 0
        attribute = kind == b"|"  # an attribute belongs to the item after it
        while open_arrays and not attribute:
            open_arrays[-1] -= 2
            if open_arrays[-1] > 1:
                break
            attribute = open_arrays.pop() == 1
        if not open_arrays:
            return at, Scan(looked=looked)
    if stop == limit:
        raise TooLong("reply is too long")
    return PARTIAL, Scan(start, at, searched, tail, tuple(open_arrays), looked)


def _begins(kind: bytes | bytearray, head: bytes | bytearray) -> bool:
    """Whether a line of this type can begin with these bytes.

    Without this check, the parser would wait for the end of random bytes and read the next replies as a part
    of their line.
    """
    if kind == b"-":
        return all(32 <= byte < 127 for byte in head)
    return kind not in _NUMBERS or head[:1] in _SIGNS


def _line(kind: bytes | bytearray, text: bytes, after: int) -> tuple[int, int]:
    """For a complete line: the end of its bulk string, or 0; and the number of items that follow."""
    if kind in b"+-,#_":
        _check_simple(kind, text)
        return 0, 0
    number = _integer(text)
    if kind in b":(":
        return 0, 0
    if number < 0:
        if number == -1 and kind in b"$*":
            return 0, 0
        raise ProtocolError("negative length")
    if kind in b"$!=":
        return after + number, 0
    return 0, number * (2 if kind in b"%|" else 1)


def _check_simple(kind: bytes | bytearray, text: bytes) -> None:
    if b"\r" in text or b"\n" in text:
        raise ProtocolError("stray line end")
    if (kind == b"_" and text) or (kind == b"#" and text not in (b"t", b"f")):
        raise ProtocolError("malformed reply")


def _integer(text: bytes) -> int:
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) > 19:
        raise ProtocolError(f"not a number: {text[:32]!r}")
    return int(text)
