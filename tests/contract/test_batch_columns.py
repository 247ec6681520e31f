"""The columns of a batch: constants and lists, right ones and wrong ones, and the owner of their memory."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.fleet import (
    LONG,
    TOKEN,
    TTL,
    Fleet,
    MakeFleet,
    acquire,
    acquires,
    as_requests,
    check_tally,
    keys,
    set_words,
)
from support.miniloop import Ask, Loop, both_ways
from support.scripted import Words, always, granting, silent
from support.thorough import amount
from support.worker_leaks import resident

from redlock_fast.engine.contract import FAULT, Batch, Engine, Request, Votes, Wait
from redlock_fast.wire.commands import Verb


def completed(votes: Votes) -> tuple[Any, ...]:
    """All that votes say."""
    return votes.values, votes.sent, votes.granted, votes.refused, votes.faulty, votes.details


@both_ways
def test_constants_and_lists_in_every_place(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, granting, granting)
    tokens = [b"t%d" % n for n in range(4)]
    batch = Batch(Verb.ACQUIRE, (b"same", tokens, [b"1", b"2", b"3", b"4"]), 4, [1, 2, 4, 7], [LONG] * 4)
    tally = ask(f, batch, 1)
    assert tally.sent == [1, 2, 4, 7]

    def words(number: int) -> Words:
        return (b"SET", b"same", tokens[number], b"NX", b"PX", b"%d" % (number + 1))

    for master in range(3):
        assert f.session(master).wait_commands(2) == [words(master), words(3)]


@both_ways
def test_constants_everywhere(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting, granting)
    tally = ask(f, Batch(Verb.ACQUIRE, (b"k", TOKEN, TTL), 3, 0b11, LONG), 2)
    assert tally.granted == [2] * 3
    assert f.session(1).commands == [set_words(b"k")] * 3


@both_ways
def test_any_bytes_of_any_length(fleet: MakeFleet, ask: Ask) -> None:
    f = fleet(granting)
    names = [b"", b"\r\n", b"\x00" * 3, b"$3\r\nfoo\r\n", b"k" * 70_000, b"*1\r\n", b"k" * 9, b"k" * 10]
    assert ask(f, acquires(names, 1), 1).granted == [1] * len(names)
    assert f.session(0).commands == [set_words(key) for key in names]


PHASES = Phase.explicit, Phase.reuse, Phase.generate
answers = st.sampled_from(
    [b"+OK\r\n", b":7\r\n", b"$-1\r\n", b":0\r\n", b":-2\r\n", b"-OOM\r\n", b"$1\r\nx\r\n"]
)
tables = st.lists(st.lists(answers, min_size=3, max_size=3), min_size=1, max_size=8)


@settings(max_examples=amount(25, 60, twice=60), deadline=None, phases=PHASES)
@given(data=st.data(), table=tables, need=st.integers(1, 4), down=st.sampled_from([None, 0, 2]))
def test_tally_agrees_with_the_votes_of_the_same_requests(
    engine_class: type[Engine], data: st.DataObject, table: list[list[bytes]], need: int, down: int | None
) -> None:
    count = len(table)
    column = data.draw(st.one_of(st.just(7), st.lists(st.integers(0, 7), min_size=count, max_size=count)))
    # Kept, so that no master is passed over because the machine was busy.
    resend_for: float | list[float] = [LONG] * count if data.draw(st.booleans()) else LONG
    batch = acquires(keys(count), column, resend_for)

    def by_key(master: int) -> Callable[[Words], bytes]:
        return lambda words: table[int(words[1])][master]

    with Fleet(engine_class, *[by_key(master) for master in range(3)], attach=False) as f:
        for master in {0, 1, 2} - {down}:
            f.attach(master)
        expected = f.exchange(as_requests(batch), need, wait=Wait.ALL)
        loop = Loop(f)
        loop.submit(batch, need, wait=Wait.ALL)
        for tally in (f.tally(batch, need, wait=Wait.ALL), *loop.hear()):
            check_tally(tally, batch, need, 3)
            assert tally.granted == [votes.granted for votes in expected]
            assert tally.sent == [votes.sent for votes in expected]
            for number, votes in enumerate(expected):
                if number in tally.votes:
                    assert completed(tally.votes[number]) == completed(votes)
                failed = [m for m in range(3) if votes.values[m] == FAULT and votes.sent >> m & 1]
                assert number in tally.votes or not failed


WRONG: dict[str, tuple[Batch, type[Exception]]] = {
    "args too short": (Batch(Verb.ACQUIRE, ([b"a", b"b"], TOKEN, TTL), 3, 1), ValueError),
    "args too long": (Batch(Verb.ACQUIRE, (keys(4), TOKEN, TTL), 3, 1), ValueError),
    "args empty": (Batch(Verb.ACQUIRE, ([], TOKEN, TTL), 3, 1), ValueError),
    "last column too short": (Batch(Verb.ACQUIRE, (keys(3), TOKEN, [TTL]), 3, 1), ValueError),
    "masters too short": (Batch(Verb.ACQUIRE, (keys(3), TOKEN, TTL), 3, [1, 1]), ValueError),
    "masters too long": (Batch(Verb.ACQUIRE, (keys(3), TOKEN, TTL), 3, [1] * 4), ValueError),
    "keep too short": (Batch(Verb.ACQUIRE, (keys(3), TOKEN, TTL), 3, 1, [LONG]), ValueError),
    "keep too long": (Batch(Verb.ACQUIRE, (keys(3), TOKEN, TTL), 3, 1, [LONG] * 4), ValueError),
    "count below 0": (Batch(Verb.ACQUIRE, (b"k", TOKEN, TTL), -1, 1), ValueError),
}  # fmt: skip
#: What is no bytes, no mask of masters, no number of seconds.
NO_BYTES: list[Any] = ["text", None, 5, [b"k"]]
for wrong in NO_BYTES:
    last = [*keys(999), wrong]
    WRONG[f"key {wrong!r} at the end"] = Batch(Verb.ACQUIRE, (last, TOKEN, TTL), 1000, 1), TypeError
    WRONG[f"key {wrong!r} in front"] = Batch(Verb.ACQUIRE, (last[::-1], TOKEN, TTL), 1000, 1), TypeError
    if not isinstance(wrong, list):
        WRONG[f"token {wrong!r}"] = Batch(Verb.ACQUIRE, (keys(3), wrong, TTL), 3, 1), TypeError
NO_NUMBERS: list[Any] = ["text", None, b"1"]
for wrong in NO_NUMBERS:
    WRONG[f"masters {wrong!r}"] = acquires(keys(3), wrong), TypeError
    WRONG[f"masters {wrong!r} at the end"] = acquires(keys(3), [1, 1, wrong]), TypeError
    WRONG[f"keep {wrong!r}"] = acquires(keys(3), 1, wrong), TypeError
    WRONG[f"keep {wrong!r} at the end"] = acquires(keys(3), 1, [LONG, LONG, wrong]), TypeError


@pytest.mark.parametrize("how", WRONG)
def test_wrong_columns_send_nothing(fleet: MakeFleet, how: str) -> None:
    batch, error = WRONG[how]
    f = fleet(always(b":5\r\n"))
    loop = Loop(f)
    for need in (0, 1):
        with pytest.raises(error):
            f.engine.exchange(batch, need, LONG)
        with pytest.raises(error):
            loop.submit(batch, need)
    assert f.connection_state(0).pending == 0
    assert f.engine.next_timeout() is None
    assert f.ask(acquire(b"next", 1), 1).values == (5,)
    loop.settle()
    assert loop.completed == []
    assert f.session(0).commands == [set_words(b"next")]
    f.lose(0)
    f.reattach(0)
    f.ask(acquire(b"again", 1), 1)
    assert f.session(0).commands == [set_words(b"again")], "nor is anything kept"


def test_wrong_request_in_a_list_sends_nothing(fleet: MakeFleet) -> None:
    f = fleet(always(b":5\r\n"))
    loop = Loop(f)
    args: Any = (b"wrong", "text", TTL)
    requests = [acquire(b"right", 1), Request(Verb.ACQUIRE, args, 1)]
    for need in (0, 1):
        with pytest.raises(TypeError):
            f.engine.exchange(requests, need, LONG)
        with pytest.raises(TypeError):
            loop.submit(requests, need)
    assert f.connection_state(0).pending == 0
    assert f.engine.next_timeout() is None
    assert f.ask(acquire(b"next", 1), 1).values == (5,)
    loop.settle()
    assert loop.completed == []
    assert f.session(0).commands == [set_words(b"next")]


@pytest.mark.parametrize("verb", [-1, 4, 1000])
def test_wrong_verb_is_no_crash(fleet: MakeFleet, verb: int) -> None:
    f = fleet(always(b":5\r\n"))
    loop = Loop(f)
    with contextlib.suppress(ValueError, IndexError):
        f.engine.exchange(Batch(verb, (keys(3), TOKEN, TTL), 3, 1), 1, LONG)
    with contextlib.suppress(ValueError, IndexError):
        loop.submit(Batch(verb, (keys(3), TOKEN, TTL), 3, 1), 1)
        loop.hear()
    assert f.ask(acquire(b"next", 1), 1).values == (5,)
    assert f.engine.next_timeout() is None
    assert f.session(0).commands == [set_words(b"next")]


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts references")
@pytest.mark.parametrize("how", ["well", "wrong"])
def test_arguments_are_released(fleet: MakeFleet, how: str) -> None:
    f = fleet(granting)
    names, token = keys(50), b"tok" * 7
    loop = Loop(f)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(token), sys.getrefcount(names), *map(sys.getrefcount, names)]

    def once() -> None:
        masters: Any = 1 if how == "well" else [1] * 49 + ["wrong"]
        batch = Batch(Verb.ACQUIRE, (names, token, TTL), 50, masters)
        if how == "well":
            f.tally(batch, 1)
            loop.submit(batch, 1)
            loop.hear()
        else:
            with pytest.raises(TypeError):
                f.engine.exchange(batch, 1, LONG)
            with pytest.raises(TypeError):
                loop.submit(batch, 1)

    once()
    before = counts()
    for _ in range(3):
        once()
    assert counts() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["completed", "forgotten", "unwatched", "wrong", "no waiter"])
def test_memory_is_given_back(fleet: MakeFleet, how: str) -> None:
    """Catches: requests in C that are not freed, 8 MB and more of them here."""
    f = fleet(granting)
    names = keys(1000, b"k" * 600)
    masters: Any = [1] * 999 + ["wrong" if how == "wrong" else 1]
    batch = acquires(names, masters)

    def once() -> None:
        loop = Loop(f)
        if how == "wrong":
            with pytest.raises(TypeError):
                loop.submit(batch, 1)
            return
        ticket = loop.submit(batch, 0 if how == "no waiter" else 1)
        if how == "forgotten":
            f.engine.cancel(ticket)
        elif how == "completed":
            loop.hear()
        f.engine.flush()
        f.engine.close_loop_fd()
        f.until(lambda: f.connection_state(0).pending == 0, "all is answered")
        f.session(0).commands.clear()
        f.session(0).raw.clear()

    for _ in range(4):
        once()
    before = resident()
    for _ in range(amount(12, 25, twice=25)):
        once()
    assert resident() - before < 4 << 20


@both_ways
def test_lists_may_change_while_the_batch_is_under_way(fleet: MakeFleet, ask: Ask) -> None:
    # Whatever the caller's other threads do to them: what was handed over is what goes out, and again.
    names = [b"%06d" % number * 100 for number in range(300)]
    masters, resend_for = [0b11] * 300, [LONG] * 300
    copy = names[:]

    def change(words: Words) -> bytes:
        if names:
            names.clear()
            masters[:] = [0] * 10
            resend_for.clear()
            gc.collect()
        return b"+OK\r\n"

    f = fleet(change, silent, buffers=4096)
    tally = ask(f, acquires(names, masters, resend_for), 1)
    assert tally.sent == [0b11] * 300
    assert f.session(0).commands == [set_words(key) for key in copy]
    f.until(lambda: len(f.session(1).commands) == 300, "all has arrived")
    f.lose(1)
    session = f.reattach(1)
    f.until(lambda: len(session.commands) >= 300, "what is kept is sent again")
    assert session.commands == [set_words(key) for key in copy]
