"""Rule 2: a request is decided at the first moment when its outcome is determined."""

from __future__ import annotations

import threading

import pytest
from support.fleet import ENOUGH, LONG, SOON, MakeFleet, Stopwatch, acquire, set_words
from support.letters import ANSWERS, kinds, votes_at_timeout
from support.scripted import Answer, always, failing, granting, refusing, silent
from support.waiting import DEADLINE

from redlock_fast.engine.contract import FAULT, NO_REPLY, Votes, Wait


@pytest.mark.parametrize(
    ("masters", "need"),
    [
        ("g", 1), ("gg", 2), ("gg-", 2), ("-gg", 2), ("ggg-", 3), ("g-g-g", 3), ("ggg--", 3),
        ("gggg---", 4), ("g----", 1), ("grgr-g", 3), ("ggfrg-", 3),
    ],
)  # fmt: skip
def test_grants_decide_while_others_are_silent(fleet: MakeFleet, masters: str, need: int) -> None:
    # As many grants as needed: each must have come. The others may or may not have.
    f = fleet(*[ANSWERS[kind] for kind in masters])
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), need)
    assert watch.seconds < SOON
    for kind, vote in zip(masters, kinds(votes.values), strict=True):
        assert vote == "g" if kind == "g" else vote in (kind, "-")


@pytest.mark.parametrize(
    ("masters", "need"),
    [
        ("r", 1), ("r-", 2), ("-r", 2), ("rr-", 2), ("f-", 2), ("rr--", 3), ("rf--", 3), ("-f-f", 3),
        ("rrr--", 3), ("-rfr-", 3), ("fff--", 3), ("rrr---", 4), ("rrrr---", 4), ("r----", 5), ("grrr-", 3),
    ],
)  # fmt: skip
def test_refusals_and_faults_decide_while_others_are_silent(
    fleet: MakeFleet, masters: str, need: int
) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), need)
    assert watch.seconds < SOON
    for kind, vote in zip(masters, kinds(votes.values), strict=True):
        assert vote == kind if kind in "rf" else vote in (kind, "-")


@pytest.mark.parametrize(
    ("masters", "need"),
    [
        ("-", 1), ("g-", 2), ("r--", 2), ("f--", 2), ("gr-", 2), ("gr--", 3), ("ggrr-", 3), ("ggff-", 3),
        ("-----", 3),
    ],
)  # fmt: skip
def test_what_is_open_waits_for_its_timeout_and_not_longer(fleet: MakeFleet, masters: str, need: int) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    votes = votes_at_timeout(f, masters, need, Wait.EARLY)
    assert kinds(votes.values) == masters, "silence is SILENT, not a fault"
    assert votes.sent == f.all


@pytest.mark.parametrize("timeout", [0.0, 0.0004, 0.013])
def test_short_timeouts_are_not_cut_shorter(fleet: MakeFleet, timeout: float) -> None:
    f = fleet(silent)
    for number in range(5):
        with Stopwatch() as watch:
            votes = f.ask(acquire(b"%d" % number, f.all), 1, timeout=timeout)
        assert timeout <= watch.seconds < SOON
        assert votes.values == (NO_REPLY,)
    assert len(f.session(0).wait_commands(5)) == 5


@pytest.mark.parametrize(
    ("masters", "need"),
    [("gg-", 2), ("-ggg-", 3), ("rr-", 2), ("rr--", 3), ("rrr--", 3), ("rffr-r-", 5), ("fff", 2), ("rff", 2)],
)
def test_certain_is_decided_by_grants_or_refusals_or_all_replies(
    fleet: MakeFleet, masters: str, need: int
) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), need, wait=Wait.CERTAIN)
    assert watch.seconds < SOON
    for kind, vote in zip(masters, kinds(votes.values), strict=True):
        assert vote in (kind, "-")
    asked_for = "r" if "r" in masters else "f"
    assert votes.granted >= need or kinds(votes.values).count(asked_for) == masters.count(asked_for)


@pytest.mark.parametrize(
    ("masters", "need"), [("ff-", 2), ("rf-", 2), ("ff--", 3), ("rrf--", 3), ("fffff-", 4), ("gff-", 3)]
)
def test_certain_does_not_count_faults_as_refusals(fleet: MakeFleet, masters: str, need: int) -> None:
    f = fleet(*[ANSWERS[kind] for kind in masters])
    assert kinds(votes_at_timeout(f, masters, need, Wait.CERTAIN).values) == masters


def test_certain_ends_when_the_last_master_has_failed(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, refusing)
    future = f.ask_in_background(acquire(b"k", f.all), 2, wait=Wait.CERTAIN)
    f.session(0).close()
    f.session(1).send(b"-OOM\r\n")
    assert kinds(future.result(SOON).values) == "ffr"


def test_waiting_for_all_includes_what_the_decision_does_not_need(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting, silent, silent)
    future = f.ask_in_background(acquire(b"k", f.all), 3, wait=Wait.ALL)
    f.session(3).send(b"$-1\r\n")
    f.session(4).send(b":7\r\n")
    votes = future.result(SOON)
    assert kinds(votes.values) == "gggrg"
    assert votes.values[4] == 7


def test_waiting_for_all_does_not_wait_for_faults(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, failing, silent, silent, attach=False)
    for master in (0, 1, 2, 3):
        f.attach(master)
    future = f.ask_in_background(acquire(b"k", 0b01111), 3, wait=Wait.ALL)
    f.session(3).close()
    assert kinds(future.result(SOON).values) == "ggfff"


def test_waiting_for_all_ends_with_its_timeout(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, silent)
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all), 2, timeout=ENOUGH, wait=Wait.ALL)
    assert ENOUGH <= watch.seconds < SOON
    assert kinds(votes.values) == "gg-"


def test_need_0_waits_for_no_reply_and_arrives(fleet: MakeFleet) -> None:
    f = fleet(silent, silent, silent)
    with Stopwatch() as watch:
        first, second = f.exchange([acquire(b"a", f.all), acquire(b"b", 0b101)], need=0)
    assert watch.seconds < SOON
    assert (first.values, first.sent) == ((NO_REPLY,) * 3, 0b111)
    assert (second.values, second.sent) == ((NO_REPLY, FAULT, NO_REPLY), 0b101)
    assert f.session(0).wait_commands(2) == [set_words(b"a"), set_words(b"b")]
    assert f.session(1).wait_commands(1) == [set_words(b"a")]
    assert f.session(2).wait_commands(2) == [set_words(b"a"), set_words(b"b")]


def test_need_0_arrives_while_another_thread_waits(fleet: MakeFleet) -> None:
    f = fleet(silent, silent)
    waiting = f.ask_in_background(acquire(b"slow", 0b01), 1)
    f.ask(acquire(b"a", f.all), need=0)
    f.session(1).wait_commands(1)
    f.session(0).wait_commands(2)
    f.session(0).send(b":1\r\n:2\r\n")
    assert waiting.result(SOON).values[0] == 1


def test_requests_of_one_exchange_are_decided_each_by_itself(fleet: MakeFleet) -> None:
    def by_key(master: int) -> Answer:
        answers = {
            b"granted": b":%d\r\n" % (master + 1),
            b"refused": b"$-1\r\n",
            b"mixed": b"+OK\r\n" if master % 2 else b"-OOM\r\n",
            b"single": b":9\r\n",
        }
        return lambda words: answers[words[1]]

    f = fleet(*[by_key(master) for master in range(5)])
    requests = [acquire(key, f.all) for key in (b"granted", b"refused", b"mixed")]
    requests.append(acquire(b"single", 0b00100))
    granted, refused, mixed, single = f.exchange(requests, need=3, wait=Wait.ALL)
    assert granted.values == (1, 2, 3, 4, 5)
    assert refused.values == (0,) * 5
    assert kinds(mixed.values) == "fgfgf"
    assert mixed.details == {0: b"-OOM\r\n", 2: b"-OOM\r\n", 4: b"-OOM\r\n"}
    assert kinds(single.values) == "ffgff"
    assert single.values[2] == 9


def test_exchange_ends_when_the_last_of_its_requests_is_decided(fleet: MakeFleet) -> None:
    f = fleet(lambda words: b"+OK\r\n" if words[1] == b"quick" else b"")
    with Stopwatch() as watch:
        quick, slow = f.exchange([acquire(b"quick", 1), acquire(b"slow", 1)], need=1, timeout=ENOUGH)
    assert ENOUGH <= watch.seconds < SOON
    assert (kinds(quick.values), kinds(slow.values)) == ("g", "-")
    assert watch.seconds < LONG


def test_decision_does_not_hang_on_the_order_of_masters(fleet: MakeFleet) -> None:
    # The last reply decides, from whichever master it is.
    for last in range(3):
        f = fleet(*[silent if n in (last, (last + 1) % 3) else always(b":5\r\n") for n in range(3)])
        future = f.ask_in_background(acquire(b"k", f.all), 2)
        f.session(last).send(b":6\r\n")
        votes = future.result(SOON)
        assert votes.values[last] == 6
        assert votes.granted == 2


def test_a_stopped_clock_of_python_does_not_stop_the_deadline(fleet: MakeFleet) -> None:
    """Catches: a call of the pure engine that never ends in a test which stops the time with freezegun."""
    freezegun = pytest.importorskip("freezegun", reason="freezegun is not installed")
    f = fleet(silent, silent)
    answers: list[Votes] = []
    with freezegun.freeze_time("2026-01-01"):
        asking = threading.Thread(target=lambda: answers.append(f.ask(acquire(b"k", f.all), 1, 0.05)))
        asking.daemon = True
        asking.start()
        asking.join(DEADLINE)
    assert [votes.values for votes in answers] == [(NO_REPLY, NO_REPLY)]
