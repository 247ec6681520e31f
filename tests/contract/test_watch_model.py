"""Requests that watch against a model: any sequence of replies, pushes and breaks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fleet import Fleet
from support.miniloop import Loop
from support.scripted import silent
from support.watching import EVERYTHING, FREE, WATCHING, invalidate, watch, watch_all

from redlock_fast._engine import FAULT, SILENT, Engine

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), st.integers(0, 2), st.sampled_from([FREE, -1, 60_000, -3])),
        st.tuples(st.just("push"), st.integers(0, 2), st.sampled_from([b"k", b"", b"kk", None])),
        st.tuples(st.just("break"), st.integers(0, 2), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, need=st.integers(1, 3), prefix=st.booleans())
def test_any_sequence(
    engine_class: type[Engine], events: list[tuple[str, int, bytes | int | None]], need: int, prefix: bool
) -> None:
    expected, answered, broken = [SILENT] * 3, [False] * 3, [False] * 3

    def vote(master: int, value: int) -> None:
        if expected[master] == SILENT and not over():
            expected[master] = value

    def over() -> bool:
        return expected.count(1) >= need or expected.count(FAULT) > 3 - need

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
                loop.until(lambda m=master: not f.link(m).attached, "the break is seen")  # type: ignore[misc]
            elif kind == "push":
                assert what is None or isinstance(what, bytes)
                before = f.link(master).pushes
                session.send(EVERYTHING if what is None else invalidate(what))
                if what in (None, b"k") or (prefix and what == b"kk"):
                    vote(master, 1)
                loop.until(lambda m=master, b=before: f.link(m).pushes > b, "it is read")  # type: ignore[misc]
            else:
                assert isinstance(what, int)
                answered[master] = True
                session.send(b"+OK\r\n:%d\r\n" % what)
                if what in (FREE, -3):
                    vote(master, 1 if what == FREE else FAULT)
                loop.until(lambda m=master: not f.link(m).owed, "it is read")  # type: ignore[misc]
            assert bool(loop.told) == over()
        if over():
            assert loop.votes().values == tuple(expected)
        f.engine.unwatch()
