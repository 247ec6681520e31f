"""Rule 2 for two lists of masters: a request needs a quorum of each, and is decided early both ways."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fleet import LONG, NATIVE, SOON, Fleet, MakeFleet, Stopwatch, acquire, acquires, keys
from support.letters import ANSWERS, kinds, votes_at_timeout
from support.miniloop import Ask, Loop, both_ways
from support.scripted import Answer, granting
from support.thorough import amount

from redlock_fast.engine.contract import FAULT, NO_REPLY, Engine, Quorums, Votes, Wait

#: Masters 0 to 2, and 2 to 4: master 2 is in both lists. Master 5 is in none.
JOINT = Quorums(((0b00111, 2), (0b11100, 2)))
ONE_LIST = Quorums(((0b01110, 2),))


def by_exchange(f: Fleet, wait: Wait) -> Votes:
    return f.ask(acquire(b"k", f.all), JOINT, LONG, wait)


def by_submit(f: Fleet, wait: Wait) -> Votes:
    loop = Loop(f)
    loop.submit([acquire(b"k", f.all)], JOINT, LONG, wait)
    votes = loop.votes()
    f.engine.close_loop_fd()
    return votes


threads_and_loops = pytest.mark.parametrize("ask", [by_exchange, by_submit])
One = Callable[[Fleet, Wait], Votes]


@threads_and_loops
@pytest.mark.parametrize("masters", ["g-g-g-", "gg-gg-", "-gggrr", "rgg-gf", "ggfgg-", "gggggg"])
def test_a_quorum_of_each_list_decides(fleet: MakeFleet, ask: One, masters: str) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    with Stopwatch() as watch:
        votes = ask(f, Wait.EARLY)
    assert watch.seconds < SOON
    assert JOINT.granted(votes.values)


@threads_and_loops
@pytest.mark.parametrize("masters", ["rr----", "-f-rf-", "gggrr-", "gg-ff-", "r-r-gg", "rrgggg"])
def test_one_list_that_can_have_no_quorum_decides(fleet: MakeFleet, ask: One, masters: str) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    with Stopwatch() as watch:
        votes = ask(f, Wait.EARLY)
    assert watch.seconds < SOON
    assert JOINT.impossible(votes.values, True)


@pytest.mark.parametrize(
    ("masters", "wait"),
    [
        # the quorum of one list
        ("gg---g", Wait.EARLY), ("ggg--g", Wait.EARLY), ("-g-ggg", Wait.EARLY),
        # a refusal or a fault of each list; master 5 counts for nothing
        ("--r--r", Wait.EARLY), ("g--r-f", Wait.EARLY), ("f---rr", Wait.EARLY),
        # faults are no refusals
        ("ff-ff-", Wait.CERTAIN), ("r--rf-", Wait.CERTAIN),
        # every reply is due
        ("gg-gg-", Wait.ALL), ("rr-rrr", Wait.ALL),
    ],
)  # fmt: skip
def test_what_is_open_waits_for_its_timeout(fleet: MakeFleet, masters: str, wait: Wait) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    votes = votes_at_timeout(f, masters, JOINT, wait)
    assert kinds(votes.values) == masters
    assert (votes.granted, votes.refused, votes.faulty) == tuple(masters.count(kind) for kind in "grf")


@pytest.mark.parametrize("masters", ["gg-gg-", "rr-f--", "--ffrr"])
def test_certain_is_decided_by_grants_or_refusals_of_a_list(fleet: MakeFleet, masters: str) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters.replace("--ffrr", "--rfrr")])
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), JOINT, LONG, Wait.CERTAIN)
    assert watch.seconds < SOON
    assert JOINT.granted(votes.values) or JOINT.impossible(votes.values, False)


def test_one_list_leaves_the_votes_of_other_masters_out(fleet: MakeFleet) -> None:
    f = fleet(*[ANSWERS[kind] for kind in "ggr-g"])
    assert kinds(votes_at_timeout(f, "ggr-g", ONE_LIST, Wait.EARLY).values) == "ggr-g"
    f = fleet(*[ANSWERS[kind] for kind in "-ggr-"])
    assert ONE_LIST.granted(f.ask(acquire(b"k", f.all), ONE_LIST).values)


def test_masters_of_a_list_that_are_not_asked_are_faults_of_that_list(fleet: MakeFleet) -> None:
    f = fleet(*[granting] * 5)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", 0b00111), JOINT)
    assert watch.seconds < SOON
    assert not JOINT.granted(votes.values)


@pytest.mark.parametrize("wait", list(Wait))
def test_masters_of_a_list_that_the_engine_does_not_have_never_grant(fleet: MakeFleet, wait: Wait) -> None:
    f = fleet(granting, granting, granting)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", 0b11111), JOINT, LONG, wait)
    assert watch.seconds < SOON
    assert votes.values == (1, 1, 1) or wait != Wait.ALL
    assert not JOINT.granted(votes.values)


def of_kinds(*rows: str) -> list[Answer]:
    """A master for each column; the number of the key is the row."""
    replies = {"g": b"+OK\r\n", "r": b"$-1\r\n", "f": b"-OOM\r\n", "-": b""}

    def answering(master: int) -> Answer:
        return lambda words: replies[rows[int(words[1])][master]]

    return [answering(master) for master in range(len(rows[0]))]


@both_ways
def test_each_request_of_a_batch_needs_the_quorums_of_its_own(fleet: MakeFleet, ask: Ask) -> None:
    rows = ["g-gggg", "g-grrg", "g-ggrg", "r-rggg", "g-grgr", "g-gffg", "r-frrg"]
    f = fleet(*of_kinds(*rows))
    tally = ask(f, acquires(keys(len(rows)), f.all), JOINT)
    assert [granted > 0 for granted in tally.granted] == [True, False, True, False, True, False, False]
    assert {1, 3, 5, 6} <= set(tally.votes)
    assert JOINT.impossible(tally.votes[5].values, True)


@both_ways
def test_the_tally_of_all_replies(fleet: MakeFleet, ask: Ask) -> None:
    rows = ["ggfggr", "gggrrg", "gggggg"]
    f = fleet(*of_kinds(*rows))
    tally = ask(f, acquires(keys(3), f.all), JOINT, LONG, Wait.ALL)
    assert tally.granted == [4, 0, 6]
    assert set(tally.votes) == {0, 1}
    assert [kinds(tally.votes[row].values) for row in (0, 1)] == rows[:2]


def test_a_quorum_of_anything_else_is_a_type_error(fleet: MakeFleet) -> None:
    f = fleet(granting)
    for need in ("1", None, ((1, 1),)):
        with pytest.raises(TypeError):
            f.engine.exchange([acquire(b"k", 1)], need, LONG)  # type: ignore[arg-type]
    assert f.session(0).commands == []


# --- against a model ---

#: Of five masters; some lists have a sixth, which the engine does not have.
LISTS = st.integers(1, 63).flatmap(lambda mask: st.tuples(st.just(mask), st.integers(1, mask.bit_count())))
QUORUMS = st.lists(LISTS, min_size=1, max_size=2).map(lambda lists: Quorums(tuple(lists)))
REPLIES = {b"+OK\r\n": 1, b":7\r\n": 7, b"$-1\r\n": 0, b":-3\r\n": -3, b"-OOM\r\n": FAULT}


def is_decided(quorums: Quorums, votes: dict[int, int], wait: Wait) -> bool:
    """What rule 2 says, list by list, vote by vote."""
    if len(votes) == 5:
        return True
    lacking, lost = False, False
    for mask, need in quorums.lists:
        grants, left = 0, 0
        for master in range(5):
            if mask >> master & 1:
                vote = votes.get(master)
                against = vote is not None and vote <= 0 and (vote != FAULT or wait == Wait.EARLY)
                grants += vote is not None and vote > 0
                left += not against
        lacking |= grants < need
        lost |= left < need
    return wait != Wait.ALL and (not lacking or lost)


@settings(max_examples=amount(60, 150, twice=150), deadline=None)
@given(
    quorums=QUORUMS,
    replies=st.lists(st.sampled_from(sorted(REPLIES)), min_size=5, max_size=5),
    order=st.permutations(range(5)),
    wait=st.sampled_from(list(Wait)),
)
def test_decided_at_the_first_vote_that_determines_it(
    engine_class: type[Engine], quorums: Quorums, replies: list[bytes], order: list[int], wait: Wait
) -> None:
    engine = engine_class(5, lambda: None, lag_after=1e6)
    pairs = [socket.socketpair() for _ in range(5)]
    votes: dict[int, int] = {}
    reported: list[tuple[object, list[Votes]]] = []
    try:
        engine.fileno()
        for master, (client, _) in enumerate(pairs):
            engine.attach(master, client, NATIVE)
        engine.submit([acquire(b"k", 0b11111)], quorums, LONG, wait, 0.0, None)
        reported += engine.on_ready()
        for master in order:
            assert bool(reported) == is_decided(quorums, votes, wait)
            if reported:
                break
            pairs[master][1].sendall(replies[master])
            votes[master] = REPLIES[replies[master]]
            while engine.connection_state(master).pending:
                reported += engine.on_ready()
            reported += engine.on_ready()  # the reply was taken, and perhaps not counted yet
        assert reported[0][1][0].values == tuple(votes.get(master, NO_REPLY) for master in range(5))
    finally:
        engine.close()
        engine.close_loop_fd()
        for _, server in pairs:
            server.close()
