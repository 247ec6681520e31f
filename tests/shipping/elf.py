"""Whether a shared object of 64-bit Linux was hardened, by its own bytes. Source: elf(5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
FLAGS, FLAGS_1, BIND_NOW, NOW = 30, 0x6FFFFFFB, 8, 1
DYNSYM, EXECUTABLE = 11, 1


def weaknesses(data: bytes, *, guarded: bool) -> list[str]:
    """What is missing. ``guarded``: the object has functions with arrays on the stack."""
    found = []
    segments = {kind: (flags, at, size) for kind, flags, at, size in _segments(data)}
    if RELRO not in segments:
        found.append("no RELRO")
    if segments.get(STACK, (EXECUTABLE,))[0] & EXECUTABLE:
        found.append("an executable stack")
    _, at, size = segments[DYNAMIC]
    tags = dict(struct.iter_unpack("<QQ", data[at : at + size]))
    if not (tags.get(FLAGS, 0) & BIND_NOW or tags.get(FLAGS_1, 0) & NOW):
        found.append("symbols are bound late")
    symbols = dict(_symbols(data))
    visible = [name for name, defined in symbols.items() if defined and not name.startswith("PyInit_")]
    if visible:
        found.append(f"visible symbols: {visible[:5]}")
    if guarded and "__stack_chk_fail" not in symbols:
        found.append("no stack protector")
    return found


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Kind, flags, offset and size of each."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF of 64 bits")
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    for number in range(count):
        kind, flags, at, _, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        yield kind, flags, at, length


def _symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    """Names of the dynamic symbols, and whether they are defined here for all to see."""
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + n * size) for n in range(count)]
    for _, kind, _, _, at, length, link, _, _, one in sections:
        if kind != DYNSYM:
            continue
        names = sections[link][4]
        for place in range(at + one, at + length, one):
            name, info, _, section = struct.unpack_from("<IBBH", data, place)
            text = data[names + name : data.index(b"\0", names + name)].decode()
            yield text, section != 0 and info >> 4 != 0
