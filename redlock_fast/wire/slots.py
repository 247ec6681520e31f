"""The slots of a Cluster: which of its 16,384 parts a key belongs to.

Source: "Redis cluster specification", redis.io, "Key distribution model" and "Hash tags".
"""

from __future__ import annotations

import itertools
from binascii import crc_hqx
from collections.abc import Callable, Iterable

SLOTS = 16_384


def slot_of(key: bytes) -> int:
    """The slot of ``key``: of its hash tag, if it has one.

    A hash tag is what stands between the first ``{`` and the first ``}`` behind it, unless that is empty. The
    CRC16 of a Cluster is the one of XMODEM, which Python has for the format BinHex.
    """
    begin = key.find(b"{") + 1
    if begin:
        end = key.find(b"}", begin)
        if end > begin:
            key = key[begin:end]
    return crc_hqx(key, 0) & (SLOTS - 1)


def share_slot(keys: Iterable[bytes]) -> bool:
    """Whether all ``keys`` belong to one slot, so that one command may use them."""
    return len(set(map(slot_of, keys))) <= 1


def tag_in(is_owned: Callable[[int], object]) -> bytes:
    """The first number whose slot is owned: as a hash tag it makes a key that belongs there."""
    numbers = (b"%d" % number for number in itertools.count())
    return next(number for number in numbers if is_owned(slot_of(number)))
