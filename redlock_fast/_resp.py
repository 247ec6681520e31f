"""Any reply: where it ends, and what it says. The slow path, for what is not a fixed reply.

``frame`` finds the end of a reply without building it and is strict, so that a
stream that lost its place is noticed at once; ``decode`` builds the value, with
hiredis where it is installed. Source: redis.io, the RESP specification (2 and 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

#: A lock's replies are short; anything longer than this is a stream that lost its place.
MAX_FRAME = 1 << 20
#: Bytes of an array, which is scanned anew with each piece that comes.
MAX_ITEMS = 1 << 16
MAX_DEPTH = 8
MAX_LINE = 1 << 16

PARTIAL = -1

_RESP3_ONLY = frozenset(b"_,#(!=%~>|")
_INTEGERS = b":(" b"$!=" b"*~>%|"


class ProtocolError(Exception):
    """These bytes are not RESP: the connection that they came from cannot be trusted again."""


class ErrorReply(str):
    """An error that a server answered, such as ``OOM command not allowed``."""


def without_arguments(error: str) -> str:
    """The text of a server's error, without the arguments that it repeats: a password, or a lock's token."""
    return re.split(r",? with args beginning", error, maxsplit=1)[0]


def frame(data: bytes | bytearray, start: int, depth: int = 0) -> int:
    """Where the reply at ``start`` ends, or PARTIAL. An attribute (``|``) is one frame of its own."""
    if depth > MAX_DEPTH:
        raise ProtocolError("reply is nested too deep")
    end = data.find(b"\r\n", start, start + MAX_LINE)
    if end < 0:
        return _partial_line(data, start)
    kind = data[start : start + 1]
    if kind in b"+-,#_" and kind:
        _check_simple(kind, bytes(data[start + 1 : end]))
        return end + 2
    if kind not in b":($!=*~>%|" or not kind:
        raise ProtocolError(f"unknown reply type {bytes(kind)!r}")
    number = _integer(bytes(data[start + 1 : end]))
    if kind in b":(":
        return end + 2
    if number < 0:
        if number == -1 and kind in b"$*":
            return end + 2
        raise ProtocolError("negative length")
    if number > MAX_FRAME:
        raise ProtocolError("reply is too long")
    if kind in b"$!=":
        return _end_of_bulk(data, end + 2, number)
    return _end_of_items(data, end + 2, number * (2 if kind in b"%|" else 1), start, depth)


def _partial_line(data: bytes | bytearray, start: int) -> int:
    kind = data[start : start + 1]
    if kind and kind not in b"+-,#_:($!=*~>%|":
        raise ProtocolError(f"unknown reply type {bytes(kind)!r}")
    if len(data) - start >= MAX_LINE:
        raise ProtocolError("line is too long")
    return PARTIAL


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


def _end_of_bulk(data: bytes | bytearray, body: int, length: int) -> int:
    end = body + length
    tail = data[end : end + 2]
    if tail != b"\r\n"[: len(tail)]:
        raise ProtocolError("bulk string without its end")
    return end + 2 if len(tail) == 2 else PARTIAL


def _end_of_items(data: bytes | bytearray, at: int, items: int, start: int, depth: int) -> int:
    for _ in range(items):
        if at - start > MAX_ITEMS:
            raise ProtocolError("reply is too long")
        while True:
            attribute = data[at : at + 1] == b"|"
            at = frame(data, at, depth + 1)
            if at == PARTIAL:
                return PARTIAL
            if not attribute:
                break
    return at


@cache
def _reader() -> Callable[[], Any] | None:
    try:
        import hiredis
    except ImportError:
        return None

    def error(text: str) -> ErrorReply:
        return ErrorReply(text)

    return lambda: hiredis.Reader(replyError=error, errors="replace")  # type: ignore[arg-type]


def decode(reply: bytes) -> Any:
    """The value of one whole reply. Errors come back as :class:`ErrorReply`, not raised."""
    new_reader = _reader()
    # hiredis for what RESP2 has. Of RESP3 it lacks types, and its older versions crash on odd maps.
    if new_reader is not None and reply[:1] in b"+-:$*" and not _RESP3_ONLY.intersection(reply):
        reader = new_reader()
        try:
            reader.feed(reply)
            return reader.gets()
        except Exception as error:
            raise ProtocolError(str(error)) from None
    try:
        return _build(reply, 0)[0]
    except (ValueError, TypeError) as error:  # no number, or no key of a map
        raise ProtocolError(str(error)) from None


def _build(data: bytes, start: int) -> tuple[Any, int]:
    """What ``decode`` does where hiredis is missing: for a frame that ``frame`` has accepted."""
    end = data.index(b"\r\n", start)
    kind, text, after = data[start : start + 1], data[start + 1 : end], end + 2
    if kind == b"+":
        return text, after
    if kind == b"-":
        return ErrorReply(text.decode(errors="replace")), after
    if kind in b":(":
        return int(text), after
    if kind == b",":
        return float(text), after
    if kind == b"#":
        return text == b"t", after
    if kind == b"_" or text == b"-1":
        return None, after
    length = int(text)
    if kind in b"$!=":
        body = data[after : after + length]
        after += length + 2
        if kind == b"!":
            return ErrorReply(body.decode(errors="replace")), after
        return (body[4:] if kind == b"=" else body), after
    items = []
    for _ in range(length * (2 if kind in b"%|" else 1)):
        item, after = _build(data, after)
        items.append(item)
    if kind == b"|":
        return _build(data, after)
    if kind == b"%":
        return dict(zip(items[::2], items[1::2], strict=True)), after
    return items, after
