"""Marks of clients: their encoding, and when they are written."""

from __future__ import annotations

from typing import Any

from redlock_fast.engine.contract import Request
from redlock_fast.masters.address import target
from redlock_fast.masters.marks import MARK_INTERVAL, Mark, Marks, decode_mark, encode_mark
from redlock_fast.masters.master import Master
from redlock_fast.wire.commands import Verb

TAKES_BACK, SETS, LASTS = Verb.RELEASE, Verb.REFILL, Verb.EXTEND


class Recording:
    """An engine that records the verbs, the values and the masters of what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes, int]] = []

    def exchange(self, requests: list[Request], need: int, timeout: float) -> None:
        assert (need, timeout) == (0, 0.0), "no caller waits for a mark"
        self.sent += [(request.verb, request.args[1], request.masters) for request in requests]

    def taken(self) -> list[tuple[int, bytes, int]]:
        sent, self.sent = self.sent, []
        return sent


def states(*connections: int) -> list[Master]:
    """Masters with so many connections so far; 0: it was never connected."""
    made = [Master(target(f"redis://m{n}")) for n in range(len(connections))]
    for state, number in zip(made, connections, strict=True):
        state.link.attached, state.link.connections = number > 0, number
    return made


def steps(sent: list[tuple[int, bytes, int]]) -> list[tuple[int, str, int]]:
    return [(verb, mark.step, masters) for verb, value, masters in sent if (mark := decode_mark(value))]


def test_a_mark_is_decoded_as_it_was_encoded() -> None:
    mark = Mark(7, "joint", "host:4711 with spaces")
    assert decode_mark(encode_mark(mark)) == mark


def test_what_is_no_mark() -> None:
    """Any program can write the key."""
    for value in (
        b"",
        b"1 2",
        b"2 1 new host:1",
        b"1 x new host:1",
        "1 \N{SUPERSCRIPT TWO} new host:1".encode(),
        b"1 -1 new h",
        b"1 " + b"9" * 99 + b" new h",
        b"\xff" * 50,
    ):
        assert decode_mark(value) is None
    shown = decode_mark(b"1 1 joint\x1b[2J \x1b]0;" + b"o" * 1000)
    assert shown is not None
    assert "\x1b" not in shown.step + shown.owner
    assert len(shown.owner) <= 100


def test_each_connection_gets_the_mark_once_for_an_interval() -> None:
    engine: Any = Recording()
    marks, masters = Marks(b""), states(1, 0, 1)
    marks.refresh(engine, masters, 3, "old", now=100.0)
    assert steps(engine.taken()) == [(SETS, "old", 0b101), (LASTS, "old", 0b101)]
    marks.refresh(engine, masters, 3, "old", now=101.0)
    assert engine.taken() == []
    masters[0].link.connections = 2
    masters[1].link.attached, masters[1].link.connections = True, 1
    marks.refresh(engine, masters, 3, "old", now=102.0)
    assert steps(engine.taken()) == [(SETS, "old", 0b011), (LASTS, "old", 0b011)]
    marks.refresh(engine, masters, 3, "old", now=100.0 + MARK_INTERVAL)
    assert steps(engine.taken()) == [(SETS, "old", 0b111), (LASTS, "old", 0b111)]


def test_another_step_replaces_the_mark() -> None:
    engine: Any = Recording()
    marks, masters = Marks(b"app:"), states(1, 1, 1)
    marks.refresh(engine, masters, 3, "old", now=100.0)
    engine.taken()
    marks.refresh(engine, masters, 4, "joint", now=101.0)
    released = [(TAKES_BACK, "old", 1 << n) for n in range(3)]
    assert steps(engine.taken()) == [*released, (SETS, "joint", 0b111), (LASTS, "joint", 0b111)]
    marks.remove(engine)
    assert steps(engine.taken()) == [(TAKES_BACK, "joint", 1 << n) for n in range(3)]


def test_a_master_that_was_away_loses_its_former_mark() -> None:
    engine: Any = Recording()
    marks, masters = Marks(b""), states(1, 1)
    marks.refresh(engine, masters, 1, "new", now=100.0)
    masters[1].link.attached = False
    marks.refresh(engine, masters, 2, "old", now=101.0)
    masters[1].link.attached, masters[1].link.connections = True, 2
    engine.taken()
    marks.refresh(engine, masters, 2, "old", now=102.0)
    assert steps(engine.taken()) == [(TAKES_BACK, "new", 0b10), (SETS, "old", 0b10), (LASTS, "old", 0b10)]


def test_two_clients_have_two_marks() -> None:
    assert Marks(b"")._key != Marks(b"")._key
