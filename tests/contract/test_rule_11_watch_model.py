"""Requests that watch against a model: any sequence of replies, pushes and breaks."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_trace import observe
from support.fleet import Fleet
from support.miniloop import Loop
from support.scripted import silent
from support.thorough import amount
from support.watching import EVERYTHING, FREE, WATCHING, invalidate, watch, watch_all

from redlock_fast.engine import load
from redlock_fast.engine.contract import FAULT, NO_REPLY, Engine, Quorums, Request

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), st.integers(0, 2), st.sampled_from([FREE, -1, 60_000, -3])),
        st.tuples(st.just("push"), st.integers(0, 2), st.sampled_from([b"k", b"", b"kk", None])),
        st.tuples(st.just("break"), st.integers(0, 2), st.none()),
    ),
    max_size=12,
)
#: Of three masters; some lists have a fourth, which the engine does not have.
LISTS = st.integers(1, 15).flatmap(lambda mask: st.tuples(st.just(mask), st.integers(1, mask.bit_count())))
QUORUMS = st.lists(LISTS, min_size=1, max_size=2).map(lambda lists: Quorums(tuple(lists)))


@settings(max_examples=amount(40, 150, twice=150), deadline=None)
@given(events=EVENTS, need=st.one_of(st.integers(1, 3), QUORUMS), prefix=st.booleans())
def test_any_sequence(
    engine_class: type[Engine],
    events: list[tuple[str, int, bytes | int | None]],
    need: int | Quorums,
    prefix: bool,
) -> None:
    lists = need.lists if isinstance(need, Quorums) else ((0b111, need),)
    expected, answered, broken = [NO_REPLY] * 3, [False] * 3, [False] * 3

    def vote(master: int, value: int) -> None:
        if expected[master] == NO_REPLY and not over():
            expected[master] = value

    def over() -> bool:
        of_lists = [[vote for m, vote in enumerate(expected) if mask >> m & 1] for mask, _ in lists]
        needs = [number for _, number in lists]
        granted = all(votes.count(1) >= n for votes, n in zip(of_lists, needs, strict=True))
        open_votes = [len(votes) - votes.count(FAULT) for votes in of_lists]
        return granted or any(left < n for left, n in zip(open_votes, needs, strict=True))

    with Fleet(engine_class, silent, silent, silent, commands=WATCHING, lag_after=1e6) as f:
        loop = Loop(f)
        loop.submit([(watch_all if prefix else watch)(b"k", f.all)], need)
        f.engine.flush()
        for kind, master, what in events:
            if broken[master] or (kind == "reply" and answered[master]):
                continue
            session = f.session(master)
            session.wait_commands(2)
            if kind == "break":
                broken[master] = True
                session.close()
                vote(master, FAULT)
                loop.until(lambda m=master: not f.connection_state(m).attached, "the break is seen")  # type: ignore[misc]
            elif kind == "push":
                assert what is None or isinstance(what, bytes)
                before = f.connection_state(master).pushes
                session.send(EVERYTHING if what is None else invalidate(what))
                if what in (None, b"k") or (prefix and what == b"kk"):
                    vote(master, 1)
                loop.until(lambda m=master, b=before: f.connection_state(m).pushes > b, "it is read")  # type: ignore[misc]
                if what is None:  # its keys were flushed
                    broken[master] = True
                    loop.until(lambda m=master: not f.connection_state(m).attached, "it ends")  # type: ignore[misc]
            else:
                assert isinstance(what, int)
                answered[master] = True
                session.send(b"+OK\r\n:%d\r\n" % what)
                if what in (FREE, -3):
                    vote(master, 1 if what == FREE else FAULT)
                loop.until(lambda m=master: not f.connection_state(m).pending, "it is read")  # type: ignore[misc]
            loop.ready()  # the engine may have read it, and not decided yet
            assert bool(loop.completed) == over()
        if over():
            assert loop.votes().values == tuple(expected)
        f.engine.close_loop_fd()


# --- the engines against each other ---

BULKS = st.one_of(
    st.sampled_from([b"invalidate", b"k", b"kk", b"", b"x"]).map(
        lambda text: b"$%d\r\n%b\r\n" % (len(text), text)
    ),
    st.sampled_from([b"_\r\n", b"$-1\r\n", b"*-1\r\n", b"$+1\r\nk\r\n", b"$-0\r\n\r\n", b"+k\r\n"]),
)
ARRAYS = st.lists(BULKS, max_size=3).map(lambda items: b"*%d\r\n%b" % (len(items), b"".join(items)))
ATTRIBUTES = st.sampled_from([b"", b"", b"", b"|1\r\n+a\r\n:1\r\n"])
ITEMS = st.tuples(ATTRIBUTES, st.one_of(BULKS, ARRAYS)).map(b"".join)
NAMED = ITEMS.map(lambda item: b">2\r\n$10\r\ninvalidate\r\n" + item)
ANY = st.lists(ITEMS, max_size=3).map(lambda items: b">%d\r\n%b" % (len(items), b"".join(items)))


@pytest.mark.skipif(
    importlib.util.find_spec("redlock_fast.engine._native") is None, reason="compares both engines"
)
@settings(max_examples=amount(60, 300, twice=300), deadline=None)
@given(
    pushes=st.lists(st.one_of(NAMED, ANY), min_size=1, max_size=4).map(b"".join),
    cut=st.integers(0, 60),
    damage=st.one_of(st.none(), st.tuples(st.integers(0, 60), st.binary(max_size=2))),
)
def test_engines_read_pushes_alike(pushes: bytes, cut: int, damage: tuple[int, bytes] | None) -> None:
    def request(number: int) -> Request:
        return (watch_all if number else watch)(b"k", 1)

    if damage is not None:
        pushes = pushes[: damage[0]] + damage[1] + pushes[damage[0] + 1 :]
    pieces = [b"+OK\r\n:-1\r\n" * 2, *filter(None, (pushes[:cut], pushes[cut:]))]
    native, pure = (observe(load(name), pieces, 2, WATCHING, request) for name in ("native", "python"))
    assert native == pure
