"""Any reply: where it ends, and that nonsense is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from redlock_fast.wire.resp import (
    MAX_DEPTH,
    MAX_PUSH,
    MAX_REPLY,
    NEW,
    PARTIAL,
    ProtocolError,
    frame,
    resume,
)

line = st.binary(max_size=12).filter(lambda text: b"\r" not in text and b"\n" not in text)
ascii_line = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
int64 = st.integers(-(2**63), 2**63 - 1)


def bulk(kind: bytes, body: bytes) -> bytes:
    return b"%b%d\r\n%b\r\n" % (kind, len(body), body)


def aggregate(kind: bytes, count: int, items: list[bytes]) -> bytes:
    return b"%b%d\r\n" % (kind, count) + b"".join(items)


simple = st.one_of(
    line.map(lambda text: b"+%b\r\n" % text),
    ascii_line.map(lambda text: b"-%b\r\n" % text.encode()),
    int64.map(lambda number: b":%d\r\n" % number),
    st.builds(bulk, st.sampled_from([b"$", b"=", b"!"]), st.binary(max_size=20)),
    st.floats().map(lambda number: b",%b\r\n" % repr(number).encode()),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b"#f\r\n"]),
)


def grouped(children: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    lists = st.lists(children, max_size=4)
    return st.one_of(
        st.builds(
            lambda kind, items: aggregate(kind, len(items), items), st.sampled_from([b"*", b"~", b">"]), lists
        ),
        lists.map(lambda items: aggregate(b"%", len(items), [item for item in items for _ in "kv"])),
    )


nested = st.one_of(simple, grouped(simple))
replies: st.SearchStrategy[bytes] = st.one_of(nested, grouped(nested))


def frame_or_error(data: bytes) -> int | None:
    try:
        return frame(data, 0)
    except ProtocolError:
        return None


@given(replies)
def test_frame_is_whole_only_when_it_is(reply: bytes) -> None:
    for cut in range(len(reply)):
        assert frame(reply[:cut], 0) == PARTIAL
        assert frame(bytearray(reply[:cut]), 0) == PARTIAL
    assert frame(reply, 0) == frame(bytearray(reply), 0) == len(reply)


@given(reply=replies, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_frame_depends_on_nothing_around_it(reply: bytes, before: bytes, after: bytes) -> None:
    assert frame(before + reply + after, len(before)) == len(before) + len(reply)


@cases("fill", [b"|1\r\n+k\r\n+v\r\n", b"|0\r\n"])
def test_attribute_is_a_frame_of_its_own(fill: bytes) -> None:
    assert frame(fill + b"+OK\r\n", 0) == len(fill)
    inside = b"*1\r\n" + fill + b"+OK\r\n"
    assert frame(inside, 0) == len(inside)
    assert [frame(inside[:cut], 0) for cut in range(len(inside))] == [PARTIAL] * len(inside)


@cases(
    "nonsense",
    [
        b"-\x9d", b"-ab\xff", b"|\x1d", b"%/", b"~x8", b":x", b"$a", b"!\xe7",
        b"\r\n", b"\n", b"OK\r\n", b"\x00", b" +OK\r\n", b"HTTP/1.1 200\r\n", b".\r\n", b"?",
        b":\r\n", b":x\r\n", b":1x\r\n", b": 1\r\n", b":1 \r\n", b":--1\r\n", b":+-1\r\n", b":1.0\r\n",
        b":1_000\r\n", b":\xb2\r\n", b":12345678901234567890\r\n", b"(\r\n", b"(x\r\n",
        b"$\r\n", b"$x\r\n", b"$-2\r\n", b"$ 1\r\n", b"$1_0\r\n", b"$3\r\nfooX", b"$3\r\nfoo\rX", b"$0\r\nX",
        b"*x\r\n", b"*-2\r\n", b"*1\r\nX", b"*2\r\n:1\r\n:x\r\n", b"%-1\r\n", b"~-1\r\n", b">-1\r\n",
        b"|-1\r\n", b"!-1\r\n", b"=-1\r\n", b"%1\r\n:1\r\nX", b"|1\r\n:1\r\nX", b"*1\r\n|1\r\n:1\r\nX",
        b"_x\r\n", b"#\r\n", b"#x\r\n", b"#tt\r\n", b"+a\rb\r\n", b"+a\nb\r\n", b"-a\nb\r\n", b"+\r\r\n",
        b"$?\r\n", b"*?\r\n", b"%?\r\n",
        b":" + b"1" * 21, b"$" + b"x" * 21, b"*1\r\n(" + b"1" * 21, b"_x", b"#tt",
        b"$%d\r\n" % MAX_REPLY, b"*%d\r\n" % MAX_REPLY, b"$999999999999999999\r\n", b"+a\rb", b"$1\rx",
    ],
)  # fmt: skip
def test_nonsense_is_noticed(nonsense: bytes) -> None:
    with pytest.raises(ProtocolError):
        frame(nonsense, 0)


@given(st.one_of(st.binary(max_size=30), st.text("+-:$*_#,(!=%~>|01\r\n", max_size=30).map(str.encode)))
def test_any_bytes_are_a_frame_or_partial_or_an_error(data: bytes) -> None:
    verdict: int | None = PARTIAL
    for cut in range(len(data) + 1):
        now = frame_or_error(data[:cut])
        assert now is None or now == PARTIAL or 0 < now <= cut
        # Once it is whole or wrong, what comes later does not change that.
        assert verdict == PARTIAL or now == verdict
        verdict = now


def in_pieces(data: bytes, size: int = 1) -> tuple[int | None, int]:
    """What ``frame`` says of the data when it comes in pieces of that size; how many bytes were looked at."""
    came, scan = bytearray(), NEW
    try:
        for at in range(0, len(data), size):
            came += data[at : at + size]
            end, scan = resume(came, scan)
            assert scan.looked <= 2 * len(came)
            if end != PARTIAL:
                return end, scan.looked
    except ProtocolError:
        return None, scan.looked
    return PARTIAL, scan.looked


PUSH = b">2\r\n$10\r\ninvalidate\r\n"


@cases(
    "dripped",
    [
        b"*1000\r\n" + b":1\r\n" * 1000,
        b"*300\r\n" + b"$3\r\nabc\r\n" * 300,
        b"%300\r\n" + b"+k\r\n:1\r\n" * 300,
        b"%1\r\n+k\r\n" * 7 + b"%200\r\n" + b"+k\r\n:1\r\n" * 200,
        b"*1\r\n" * 8 + b":1\r\n",
        b"|300\r\n" + b"+k\r\n:1\r\n" * 300,
        b"*200\r\n" + b"|1\r\n+a\r\n:1\r\n:1\r\n" * 200,
        b"$4000\r\n" + b"x" * 4000 + b"\r\n",
        b"$4000\r\n" + b"\r\n" * 2000 + b"\r\n",
        b"+" + b"x" * 4000 + b"\r\n",
        b":0" + b"1" * 4000,
        PUSH + b"*9000\r\n" + b"$2\r\nab\r\n" * 9000,
        PUSH + b"*1\r\n$100000\r\n" + b"y" * 100_000 + b"\r\n",
    ],
    ids=lambda data: repr(data[:20])[2:-1],
)
def test_no_byte_is_looked_at_more_than_twice(dripped: bytes) -> None:
    end, looked = in_pieces(dripped)
    assert end == (frame_or_error(dripped))
    assert 0 < looked <= 2 * len(dripped)
    for size in (2, 7, 1000):
        assert in_pieces(dripped, size)[0] == end


@given(st.one_of(replies, st.text("+-:$*_#,(!=%~>|019\r\n").map(str.encode)))
def test_pieces_make_no_difference(data: bytes) -> None:
    for size in (1, 2, 3, 5):
        assert in_pieces(data, size)[0] == frame_or_error(data)


@cases(
    "kind, most",
    [
        *((kind, MAX_REPLY - 2) for kind in (b"+", b"-", b",")),
        *((kind, 20) for kind in (b":", b"(", b"$", b"!", b"=", b"*", b"~", b"%", b"|", b">")),
        (b"#", 1),
        (b"_", 0),
    ],
)
def test_line_has_a_bound(kind: bytes, most: int) -> None:
    """Whatever follows: the rest of such a line would never come."""
    assert frame(kind + b"1" * most, 0) == PARTIAL
    with pytest.raises(ProtocolError):
        frame(kind + b"1" * (most + 1), 0)


@cases("more", [0, 1])
@cases(
    "before, most",
    [
        (b"", MAX_REPLY),
        (b"*2\r\n:1\r\n", MAX_REPLY),
        (b"%1\r\n+a\r\n*1\r\n", MAX_REPLY),
        (b"|1\r\n+a\r\n", MAX_REPLY),
        (b">1\r\n", MAX_PUSH),
        (PUSH + b"*1\r\n", MAX_PUSH),
    ],
)
def test_a_whole_reply_has_a_bound(before: bytes, most: int, more: int) -> None:
    """One for all of it, from where it starts."""
    for line in (b"+", b"$%d\r\n" % (most - 100)):
        if line == b"+":
            whole = before + line + b"x" * (most - len(before) - 3 + more) + b"\r\n"
        else:
            size = most - len(before) - len(b"$%d\r\n" % most) - 2 + more
            whole = before + b"$%d\r\n%b\r\n" % (size, b"x" * size)
        assert len(whole) == most + more
        assert frame_or_error(whole) == (None if more else most)
        assert in_pieces(whole, 4096 if most > MAX_REPLY else 1)[0] == frame_or_error(whole)


def test_a_length_beyond_the_bound_is_noticed_at_once() -> None:
    for announced in (b"$%d\r\n" % MAX_REPLY, b"*%d\r\n" % (MAX_REPLY // 3), b"%%%d\r\n" % (MAX_REPLY // 6)):
        with pytest.raises(ProtocolError):
            frame(announced, 0)


def test_array_of_many_has_a_bound() -> None:
    with pytest.raises(ProtocolError):
        frame(b"*1300\r\n" + b"*1\r\n:1\r\n" * 1300, 0)


@cases("kind", [b"*1\r\n", b"~1\r\n", b">1\r\n", b"%1\r\n:1\r\n"])
def test_depth_has_a_bound(kind: bytes) -> None:
    deepest = kind * MAX_DEPTH + b":1\r\n"
    assert frame(deepest, 0) == len(deepest)
    with pytest.raises(ProtocolError):
        frame(kind + deepest, 0)
    with pytest.raises(ProtocolError):
        frame(kind * 100_000, 0)
