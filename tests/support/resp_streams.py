"""Random streams of RESP2 and RESP3, whole and damaged: the counterpart of fuzz/streams.h.

All choices come from one ``random.Random``, so that a seed, or hypothesis, can make them again.
"""

from __future__ import annotations

import itertools
from random import Random

FIXED = [b"+OK\r\n", b"$-1\r\n", b"_\r\n", b":0\r\n", b":1\r\n", b":42\r\n"]
ERRORS = [b"-NOSCRIPT No matching script.\r\n", b"-OOM\r\n", b"!7\r\nERR bad\r\n", b"-\r\n"]
#: One of each kind, and what is at the edge of being allowed.
EVERY = [
    *FIXED, *ERRORS, b"+\r\n", b"+OKAY\r\n", b":+1\r\n", b":01\r\n", b":-0\r\n", b":-3\r\n",
    b":9223372036854775807\r\n", b":9223372036854775808\r\n", b":-9223372036854775806\r\n",
    b":-9223372036854775807\r\n", b":-9223372036854775808\r\n", b":9999999999999999999\r\n",
    b"$0\r\n\r\n", b"$+2\r\nOK\r\n", b"$-0\r\n\r\n", b"$5\r\n+OK\r\n\r\n", b"=6\r\ntxt:OK\r\n", b"#t\r\n",
    b"#f\r\n", b",1.5\r\n", b",inf\r\n", b",\r\n", b"(99\r\n",
    b"(-3492890328409238509324850943850943825024385\r\n", b"*0\r\n", b"*-1\r\n", b"*2\r\n+OK\r\n:1\r\n",
    b"*2\r\n*1\r\n_\r\n>1\r\n:1\r\n", b"~1\r\n+OK\r\n", b"~-1\r\n", b"%0\r\n", b"%1\r\n+a\r\n+OK\r\n",
    b"%1\r\n%1\r\n:1\r\n:2\r\n:3\r\n", b">0\r\n", b">2\r\n+invalidate\r\n_\r\n",
    b"|1\r\n+a\r\n:1\r\n:7\r\n", b"*1\r\n|1\r\n+a\r\n:1\r\n:7\r\n", b"|0\r\n|0\r\n+OK\r\n",
    b"*1\r\n" * 8 + b":1\r\n", b"*1\r\n" * 9 + b":1\r\n", b"$1025\r\n" + b"x" * 1025 + b"\r\n", b"_x\r\n",
    b"#\r\n", b"#true\r\n", b":\r\n", b":-\r\n", b"$1\r\nxx\r\n", b"$-2\r\n", b"$4088\r\n",
    b"$4087\r\n" + b"x" * 4087 + b"\r\n", b"+" + b"x" * 4093 + b"\r\n", b"+" + b"x" * 4094 + b"\r\n",
    b"*1364\r\n", b"*1362\r\n" + b"_\r\n" * 1362, b">1\r\n$5000\r\n" + b"x" * 5000 + b"\r\n",
    b"+a\rb", b":1\rx",
    b"$2147483647\r\n", b"*4294967296\r\n", b"*99999999999999999999\r\n", b"?\r\n", b"\r\n", b"\x00",
    b"+a\rb\r\n",
]  # fmt: skip

LIKELY = b"\r\n\r\n:$*+-_%~>|!=(,#0123456789OKtf"
NUMBERS = [
    *b"0 1 -1 7 +3 00 -0 - + 1.5 65536 1048576 1048577 2147483647 2147483648 4294967296 -2 x".split(), b"",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775807", b"99999999999999999999",
]  # fmt: skip


def noise(chance: Random, size: int) -> bytes:
    """Bytes, most of them such as stand in replies."""
    return bytes(chance.choice(LIKELY) if chance.randrange(4) else chance.randrange(256) for _ in range(size))


def number(chance: Random, sane: int) -> bytes:
    return b"%d" % sane if chance.randrange(24) else chance.choice(NUMBERS)


def reply(chance: Random, depth: int = 0) -> bytes:
    """One reply of any type, most of them valid."""
    if chance.randrange(3) == 0:
        return chance.choice(FIXED + ERRORS)
    kind = chance.choice("+-,#_:($!=*~>%|")
    if kind in "+-,":
        size = chance.randrange(30) if chance.randrange(200) else chance.randrange(4_060, 4_110)
        text = bytes(chance.randrange(32, 122) for _ in range(min(size, 30))).ljust(size, b"x")
    elif kind == "#":
        text = b"t"
    elif kind in ":(":
        text = number(chance, chance.getrandbits(chance.randrange(1, 65)))
    elif kind == "_":
        text = b""
    elif kind in "$!=":
        size = chance.randrange(20) if chance.randrange(300) else chance.randrange(4_200)
        text = number(chance, size) + b"\r\n" + noise(chance, min(size, 30)).ljust(size, b"x")
    else:
        return kind.encode() + _items(chance, kind, depth)
    return kind.encode() + text + b"\r\n"


def _items(chance: Random, kind: str, depth: int) -> bytes:
    items = 0 if depth > 9 else chance.randrange(4) if chance.randrange(60) else chance.randrange(300)
    length = number(chance, items)
    items = items * (2 if kind in "%|" else 1) + (kind == "|")
    return length + b"\r\n" + b"".join(reply(chance, depth + 1) for _ in range(items))


def damage(chance: Random, data: bytes) -> bytes:
    """A few bytes changed, lost, doubled or put in; sometimes the end is missing."""
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + noise(chance, chance.randrange(5)) + data[at + chance.randrange(5) :]
    return data if chance.randrange(8) else data[: chance.randrange(len(data) + 1)]


def stream(chance: Random) -> bytes:
    """What one master says."""
    if chance.randrange(16) == 0:
        return noise(chance, chance.randrange(40))
    data = b"".join(reply(chance) for _ in range(chance.randrange(6)))
    if chance.randrange(40) == 0:
        data += b"".join(chance.choice((b"*1\r\n", b"|1\r\n+a\r\n")) for _ in range(chance.randrange(20)))
    return damage(chance, data) if chance.randrange(2) else data


def pieces(chance: Random, data: bytes) -> list[bytes]:
    """The same in up to four pieces, or byte by byte."""
    if len(data) < 60 and chance.randrange(10) == 0:
        return cut(data, *range(len(data)))
    return cut(data, *(chance.randrange(len(data) + 1) for _ in range(chance.randrange(4))))


def cut(data: bytes, *places: int) -> list[bytes]:
    """``data`` cut at these places."""
    edges = sorted({0, len(data), *places})
    return [data[a:b] for a, b in itertools.pairwise(edges)]
