"""The record of masters, and which clients it allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from redlock_fast.masters.membership import (
    KEY,
    MAX_RECORD,
    PHASE_1,
    STEADY,
    Record,
    Unreadable,
    decode,
    encode,
    members,
    new_id,
    record_key,
    replace_command,
)

TTL = 60_000
IDS = [f"{number:032x}" for number in range(7)]
OLD_LIST = members({one: f"host{one[-1]}:6379/0" for one in IDS[:3]})
NEW_LIST = members({one: f"host{one[-1]}:6379/0" for one in IDS[:5]})
STEADY_RECORD = Record(IDS[0], 1, TTL, STEADY, (), OLD_LIST, True)
CHANGING = Record(IDS[0], 2, TTL, PHASE_1, OLD_LIST, NEW_LIST, True)


def test_what_was_encoded_is_decoded() -> None:
    for record in (STEADY_RECORD, CHANGING, Record(new_id()), CHANGING.of(IDS[6])):
        assert decode(encode(record)) == record


def test_a_key_for_each_prefix() -> None:
    assert record_key(b"team:") == b"team:" + KEY
    assert replace_command(b"team:", b"", STEADY_RECORD)[3:] == (
        b"team:redlock-fast:masters",
        b"",
        encode(STEADY_RECORD),
    )


def test_addresses_do_not_count() -> None:
    other = members(dict.fromkeys(IDS[:3], "another name"))
    assert Record(IDS[1], 1, TTL, STEADY, (), other).terms == STEADY_RECORD.terms
    assert CHANGING.addresses == dict(NEW_LIST)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(STEADY_RECORD)), **fields}).encode()


@cases(
    "data",
    [
        b"",
        b"x",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * MAX_RECORD,
        b" " * MAX_RECORD + encode(STEADY_RECORD),
        *(
            changed(**{name: value})
            for name in json.loads(encode(STEADY_RECORD))
            for value in (None, [[]], -1)
        ),
        changed(id="../../etc"),
        changed(id="é" * 32),
        changed(epoch=True),
        changed(epoch=0),
        changed(epoch=1.5),
        changed(epoch=10**30),
        changed(steps=["new", "new"]),
        changed(steps=["old", "new", "joint"]),
        changed(steps=["joint", "new"]),
        changed(steps=[]),
        changed(new={}),
        changed(new={IDS[0]: 6379}),
        changed(new={f"{number:032x}": "" for number in range(64)}),
    ],
)
def test_what_is_no_record(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(data)


def test_a_later_version() -> None:
    with pytest.raises(Unreadable, match="later version"):
        decode(changed(version=2, id=None))


def test_addresses_are_fit_to_be_shown() -> None:
    record = decode(changed(new={IDS[0]: "\x1b[2J" + "x" * 1000}))
    assert len(record.new[0][1]) == 200
    assert record.new[0][1].isprintable()


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_anything_else_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(data)
