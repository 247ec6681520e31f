"""The slot of a key, as the specification of Redis Cluster has it."""

from __future__ import annotations

import pytest

from redlock_fast.wire.slots import SLOTS, share_slot, slot_of, tag_in


@pytest.mark.parametrize(
    ("key", "slot"),
    [(b"123456789", 0x31C3), (b"foo", 12182), (b"bar", 5061), (b"", 0)],
)
def test_published_slots(key: bytes, slot: int) -> None:
    """The first is the specification's check of CRC16; the next two are of its documentation."""
    assert slot_of(key) == slot


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        (b"{user1000}.following", b"user1000"),
        (b"foo{bar}{zap}", b"bar"),
        (b"foo{{bar}}zap", b"{bar"),
        (b"foo{}{bar}", b"foo{}{bar}"),
        (b"foo{bar", b"foo{bar"),
        (b"}{bar}", b"bar"),
    ],
)
def test_hash_tags(key: bytes, tag: bytes) -> None:
    """The examples of the specification. A tag of its own has no braces, or none that are closed."""
    whole = tag if b"{" in tag else b"{%b}" % tag
    assert slot_of(key) == slot_of(tag if whole == tag else whole)


def test_keys_of_one_slot() -> None:
    assert share_slot([b"{a}1", b"{a}2", b"a"])
    assert share_slot([])
    assert not share_slot([b"a", b"b"])


@pytest.mark.parametrize("slot", [0, 7000, SLOTS - 1])
def test_a_tag_for_one_slot(slot: int) -> None:
    assert slot_of(b"prefix{%b}rest" % tag_in(lambda one: one == slot)) == slot
