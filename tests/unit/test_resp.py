"""Any reply: where it ends and what it says, and that nonsense is noticed."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlock_fast.wire import resp as _resp
from redlock_fast.wire.resp import (
    MAX_DEPTH,
    MAX_PUSH,
    MAX_REPLY,
    NEW,
    PARTIAL,
    ErrorReply,
    ProtocolError,
    decode,
    frame,
    resume,
)

#: A reply and its value.
Sample = tuple[bytes, Any]

line = st.binary(max_size=12).filter(lambda text: b"\r" not in text and b"\n" not in text)
ascii_line = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
int64 = st.integers(-(2**63), 2**63 - 1)


def bulk(kind: bytes, body: bytes) -> bytes:
    return b"%b%d\r\n%b\r\n" % (kind, len(body), body)


def aggregate(kind: bytes, count: int, items: list[bytes]) -> bytes:
    return b"%b%d\r\n" % (kind, count) + b"".join(items)


simple = st.one_of(
    line.map(lambda text: (b"+%b\r\n" % text, text)),
    ascii_line.map(lambda text: (b"-%b\r\n" % text.encode(), ErrorReply(text))),
    int64.map(lambda number: (b":%d\r\n" % number, number)),
    st.binary(max_size=20).map(lambda body: (bulk(b"$", body), body)),
    st.binary(max_size=20).map(lambda body: (bulk(b"=", b"txt:" + body), body)),
    st.floats(allow_nan=False).map(lambda number: (b",%b\r\n" % repr(number).encode(), number)),
    st.sampled_from([(b"$-1\r\n", None), (b"*-1\r\n", None), (b"_\r\n", None)]),
    st.sampled_from([(b"#t\r\n", True), (b"#f\r\n", False)]),
)
keys = st.one_of(
    st.binary(max_size=6).map(lambda body: (bulk(b"$", body), body)),
    int64.map(lambda number: (b":%d\r\n" % number, number)),
)


def grouped(children: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    def as_list(items: list[Sample], kind: bytes) -> Sample:
        return aggregate(kind, len(items), [wire for wire, _ in items]), [value for _, value in items]

    def as_map(items: list[tuple[Sample, Sample]]) -> Sample:
        wires = [wire for pair in items for wire, _ in pair]
        return aggregate(b"%", len(items), wires), {key: value for (_, key), (_, value) in items}

    return st.one_of(
        st.builds(as_list, st.lists(children, max_size=4), st.sampled_from([b"*", b"~", b">"])),
        st.lists(st.tuples(keys, children), max_size=3, unique_by=lambda pair: pair[0][0]).map(as_map),
    )


nested = st.one_of(simple, grouped(simple))
samples: st.SearchStrategy[Sample] = st.one_of(nested, grouped(nested))


@pytest.fixture(params=["hiredis", "own"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode with hiredis, or as where it is not installed."""
    if request.param == "hiredis":
        pytest.importorskip("hiredis")
    else:
        monkeypatch.setattr(_resp, "_reader", lambda: None)
    return str(request.param)


def own(reply: bytes) -> Any:
    """What decode says where hiredis is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_resp, "_reader", lambda: None)
        return decode(reply)


def frame_or_error(data: bytes) -> int | None:
    try:
        return frame(data, 0)
    except ProtocolError:
        return None


@given(samples)
def test_frame_is_whole_only_when_it_is(sample: Sample) -> None:
    reply, _ = sample
    for cut in range(len(reply)):
        assert frame(reply[:cut], 0) == PARTIAL
        assert frame(bytearray(reply[:cut]), 0) == PARTIAL
    assert frame(reply, 0) == frame(bytearray(reply), 0) == len(reply)


@given(sample=samples, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_frame_depends_on_nothing_around_it(sample: Sample, before: bytes, after: bytes) -> None:
    reply, _ = sample
    assert frame(before + reply + after, len(before)) == len(before) + len(reply)


@given(samples)
def test_value(sample: Sample) -> None:
    reply, value = sample
    pytest.importorskip("hiredis")
    assert decode(reply) == value
    assert own(reply) == value
    assert (
        isinstance(decode(reply), ErrorReply) == isinstance(own(reply), ErrorReply) == reply.startswith(b"-")
    )


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (b"!9\r\nERR first\r\n", ErrorReply("ERR first")),
        (b"-\xff\xfe\r\n", ErrorReply("\ufffd\ufffd")),
        (b"(-123\r\n", -123),
        (b",inf\r\n", math.inf),
        (b",-inf\r\n", -math.inf),
        (b"*2\r\n-ERR x\r\n:1\r\n", [ErrorReply("ERR x"), 1]),
        (b"|1\r\n+ttl\r\n:1\r\n+OK\r\n", b"OK"),
        (b"|1\r\n+ttl\r\n:1\r\n|1\r\n+a\r\n*0\r\n$-1\r\n", None),
        (b"*2\r\n|1\r\n+ttl\r\n:1\r\n+OK\r\n:2\r\n", [b"OK", 2]),
        (b"*0\r\n", []),
        (b"%0\r\n", {}),
        (b"$0\r\n\r\n", b""),
    ],
)
def test_values_of_rare_replies(decoder: str, reply: bytes, value: object) -> None:
    assert decode(reply) == value
    assert isinstance(decode(reply), type(value))


def test_nan_is_a_number(decoder: str) -> None:
    assert math.isnan(decode(b",nan\r\n"))


def test_errors_are_told_from_text(decoder: str) -> None:
    assert isinstance(decode(b"-OOM no\r\n"), ErrorReply)
    assert not isinstance(decode(b"+OOM no\r\n"), ErrorReply)


@pytest.mark.parametrize("fill", [b"|1\r\n+k\r\n+v\r\n", b"|0\r\n"])
def test_attribute_is_a_frame_of_its_own(fill: bytes) -> None:
    assert frame(fill + b"+OK\r\n", 0) == len(fill)
    inside = b"*1\r\n" + fill + b"+OK\r\n"
    assert frame(inside, 0) == len(inside)
    assert [frame(inside[:cut], 0) for cut in range(len(inside))] == [PARTIAL] * len(inside)


@pytest.mark.parametrize(
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


@given(st.one_of(samples.map(lambda sample: sample[0]), st.text("+-:$*_#,(!=%~>|01\r\n").map(str.encode)))
def test_every_frame_decodes_or_is_a_protocol_error(data: bytes) -> None:
    end = frame_or_error(data)
    if end is None or end == PARTIAL or data.startswith(b"|"):
        return
    for read in (decode, own):
        with contextlib.suppress(ProtocolError):
            read(data[:end])


@pytest.mark.parametrize(
    "reply",
    [
        b",x\r\n",
        b",\r\n",
        b"%1\r\n*0\r\n:1\r\n",
        b"%1\r\n%0\r\n:1\r\n",
        b"=1\r\nx\r\n",
        b"*1\r\n%1\r\n~0\r\n_\r\n",
    ],
)
def test_what_has_no_value_is_a_protocol_error_and_nothing_else(decoder: str, reply: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(reply)


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


@pytest.mark.parametrize(
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


@given(st.one_of(samples.map(lambda sample: sample[0]), st.text("+-:$*_#,(!=%~>|019\r\n").map(str.encode)))
def test_pieces_make_no_difference(data: bytes) -> None:
    for size in (1, 2, 3, 5):
        assert in_pieces(data, size)[0] == frame_or_error(data)


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        *((kind, MAX_REPLY - 2) for kind in (b"+", b"-", b",")),
        *((kind, 20) for kind in (b":", b"(", b"$", b"!", b"=", b"*", b"~", b"%", b"|", b">")),
        (b"#", 1),
        (b"_", 0),
    ],
)
def test_line_has_a_bound(kind: bytes, most: int) -> None:
    """Whatever follows: who waits for the rest of what is none waits in vain."""
    assert frame(kind + b"1" * most, 0) == PARTIAL
    with pytest.raises(ProtocolError):
        frame(kind + b"1" * (most + 1), 0)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("before", "most"),
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


@pytest.mark.parametrize("kind", [b"*1\r\n", b"~1\r\n", b">1\r\n", b"%1\r\n:1\r\n"])
def test_depth_has_a_bound(kind: bytes) -> None:
    deepest = kind * MAX_DEPTH + b":1\r\n"
    assert frame(deepest, 0) == len(deepest)
    with pytest.raises(ProtocolError):
        frame(kind + deepest, 0)
    with pytest.raises(ProtocolError):
        frame(kind * 100_000, 0)
