"""Random and damaged replies against a model: never a grant that is none, never a crash or a hang."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from support.cases import cases
from support.engine_trace import observe
from support.fleet import SOON, Fleet, Stopwatch, acquire
from support.resp_streams import EVERY, cut, pieces, stream
from support.scripted import Words
from support.thorough import amount
from support.wire import meanings

from redlock_fast.engine import load
from redlock_fast.engine.contract import FAULT, NO_REPLY, Engine, Votes, Wait
from redlock_fast.wire.resp import PARTIAL, ProtocolError, frame

OTHERS_VOTE = 4242
GOOD = [b"+OK\r\n", b":1\r\n", b":77\r\n", b"$-1\r\n", b"_\r\n", b":0\r\n"]
ODD = [
    b"-ERR no\r\n", b"-NOSCRIPT x\r\n", b"!3\r\nERR\r\n",
    b"$3\r\nfoo\r\n", b"$5\r\n+OK\r\n\r\n", b"=6\r\ntxt:OK\r\n", b"#t\r\n", b",1.5\r\n", b"(99\r\n",
    b":-3\r\n", b":+1\r\n", b":01\r\n", b":-0\r\n",
    b"*0\r\n", b"*-1\r\n", b"*2\r\n+OK\r\n:1\r\n", b"~1\r\n+OK\r\n", b"%1\r\n+a\r\n+OK\r\n",
    b">2\r\n+invalidate\r\n_\r\n", b">1\r\n+OK\r\n", b"|1\r\n+a\r\n:1\r\n",
]  # fmt: skip
BROKEN = [
    b"\r\n",
    b"OK",
    b"+",
    b":",
    b"$",
    b"*1\r\n",
    b"|",
    b">",
    b"\x00",
    b"$1\r\n",
    b":9999999999999999999\r\n",
]

frames = st.one_of(st.sampled_from(GOOD), st.sampled_from(ODD))
streams = st.lists(frames, max_size=8).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stream with a few bytes changed, lost, doubled or put in."""
    data = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 3))
        data[at : at + cut] = draw(st.one_of(st.binary(max_size=3), st.sampled_from(BROKEN)))
    return bytes(data)


def model(stream: bytes, requests: int) -> list[set[int]]:
    """The values that each request's vote may have when ``stream`` is all that is ever received."""
    at = 0
    allowed: list[set[int]] = []
    while len(allowed) < requests and at < len(stream):
        try:
            end = frame(stream, at)
        except ProtocolError:
            break
        if end == PARTIAL:
            break
        reply = stream[at:end]
        if reply[:1] not in b">|":
            allowed.append(meanings(reply))
        at = end
    return allowed + [{FAULT}] * (requests - len(allowed))


def exchange_against(
    engine_class: type[Engine], stream: bytes, cuts: list[int], requests: int
) -> list[Votes]:
    """The votes when master 0 says ``stream``, in pieces, and then hangs up; master 1 is well."""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)] or [b""]
    seen = 0

    def answer(words: Words) -> bytes:
        nonlocal seen
        seen += 1
        if seen == requests:
            f.session(0).send(pieces)
            f.session(0).finish()
        return b""

    with Fleet(engine_class, answer, lambda words: b":%d\r\n" % OTHERS_VOTE) as f, Stopwatch() as watch:
        asked = [acquire(b"%d" % number, f.all) for number in range(requests)]
        answers = f.exchange(asked, need=2, wait=Wait.ALL)
        f.until_broken(0)
        assert f.connection_state(0).pending == 0
        assert f.connection_state(1).attached
    assert watch.seconds < SOON
    return answers


# Without shrinking: an example that hangs waits for its deadline, and streams are short anyway.
@settings(
    max_examples=amount(50, 200, twice=200),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    stream=st.one_of(damaged(), streams, st.binary(max_size=40)),
    cuts=st.lists(st.integers(1, 80), max_size=4),
    requests=st.integers(1, 5),
)
@example(stream=b"+OK\r\n" * 3, cuts=[], requests=2)
@example(stream=b":1\r\n:", cuts=[3], requests=3)
@example(stream=b"|1\r\n+a\r\n:1\r\n+OK\r\n", cuts=[14], requests=1)
@example(stream=b":9223372036854775808\r\n", cuts=[], requests=1)
def test_no_stream_of_replies_makes_a_grant_that_is_none(
    engine_class: type[Engine], stream: bytes, cuts: list[int], requests: int
) -> None:
    answers = exchange_against(engine_class, stream, cuts, requests)
    for votes, allowed in zip(answers, model(stream, requests), strict=True):
        value = votes.values[0]
        assert value in allowed, f"{value} where {allowed} are right"
        assert value != NO_REPLY
        assert votes.values[1] == OTHERS_VOTE


# --- step by step, in one thread -----------------------------------------------------------------

knows_what_is_unread = pytest.mark.skipif(sys.platform != "linux", reason="asks a socket what is unread")
both_engines = pytest.mark.skipif(
    importlib.util.find_spec("redlock_fast.engine._native") is None, reason="compares both engines"
)


@knows_what_is_unread
@cases("data", EVERY, ids=lambda data: repr(data[:24])[2:-1])
def test_where_a_reply_is_cut_makes_no_difference(engine_class: type[Engine], data: bytes) -> None:
    whole = observe(engine_class, [data + b":77\r\n"], 2)
    places = range(1, min(len(data) + 5, 80), amount(5, 1, twice=1))
    for place in {*places, *range(max(1, len(data) - 5), len(data) + 5)}:
        assert observe(engine_class, cut(data + b":77\r\n", place), 2)[-1] == whole[-1]


@knows_what_is_unread
@cases("data", EVERY, ids=lambda data: repr(data[:24])[2:-1])
def test_of_a_reply_that_ends_early_nothing_counts(engine_class: type[Engine], data: bytes) -> None:
    for size in {*range(0, min(len(data), 80), amount(5, 1, twice=1)), len(data) - 1}:
        steps = observe(engine_class, [data[:size]], 1)
        assert not steps[0].completed or not steps[0].attached
        assert steps[-1].completed == {0: (FAULT, "broken")}


@both_engines
@knows_what_is_unread
@cases("data", EVERY, ids=lambda data: repr(data[:24])[2:-1])
def test_engines_agree_on_every_kind_of_reply(data: bytes) -> None:
    for requests in (1, 2):
        first, second = (observe(load(name), [data, data], requests) for name in ("python", "native"))
        assert first == second


def test_reply_to_what_has_not_been_sent_breaks_the_connection(engine_class: type[Engine]) -> None:
    # The fallback of a script that is lost goes out only after this was read.
    steps = observe(engine_class, [b"+OK\r\n-NOSCRIPT no\r\n:1\r\n"], 2)
    assert not steps[0].attached
    assert steps[0].completed == {0: (1, ""), 1: (FAULT, "broken")}


@both_engines
@knows_what_is_unread
@settings(
    max_examples=amount(60, 300, twice=300), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(chance=st.randoms(use_true_random=False), requests=st.integers(1, 5))
def test_engines_agree_on_any_reply(chance: Random, requests: int) -> None:
    replies = pieces(chance, stream(chance))
    first, second = (observe(load(name), replies, requests) for name in ("python", "native"))
    assert first == second
