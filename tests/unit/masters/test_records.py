"""Records are read and written with scripted servers: what is written, and what a failure leaves."""

from __future__ import annotations

import itertools
import logging
import threading
from random import Random
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoPermissionError, ResponseError
from support.thorough import amount

from redlock_fast.algorithm.machine import boot_time
from redlock_fast.masters import records as module
from redlock_fast.masters.address import target
from redlock_fast.masters.link import Link
from redlock_fast.masters.list_check import ListCheck
from redlock_fast.masters.master import Master
from redlock_fast.masters.membership import STEADY, Record, Seen, decode, encode, first_id, members
from redlock_fast.masters.no_vote import NoVote
from redlock_fast.masters.records import RECHECK_INTERVAL, MasterRecords, RecordConnections
from redlock_fast.telemetry import EventLog

N = 3
NAMES = [f"m{n}:6379/0" for n in range(N)]


class Servers(RecordConnections):
    """``data``: the record of each master. ``fails``: what a master raises."""

    def __init__(self) -> None:
        super().__init__(b"", 1.0)
        self.data: dict[str, bytes] = {}
        self.fails: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.closed = 0

    def _ask(self, to: Any, command: tuple[bytes, ...]) -> Any:
        self.asked.append(to.name)
        if to.name in self.fails:
            raise self.fails[to.name]
        now = self.data.get(to.name, b"")
        if command[0] == b"GET":
            return now or None
        if now == command[-2]:
            self.data[to.name] = command[-1]
        return self.data[to.name]

    def close(self) -> None:
        self.closed += 1


class One:
    """The records of one client with three masters."""

    def __init__(self, servers: Servers) -> None:
        self.states = [Master(target(f"redis://m{n}"), Link(attached=True)) for n in range(N)]
        for state in self.states:
            state.record.learn(Seen(), boot_time())
        self.records = MasterRecords(ListCheck((0b111,), 60_000), self.states, threading.RLock())
        self.servers = servers
        self.ended = False

    def judge(self) -> bool:
        self.records.judge()
        return not self.ended

    def write(self, again: bool = False) -> None:
        self.judge()
        self.records.write(self.servers, self.judge, again)

    def votes(self) -> list[bool]:
        return [not state.no_vote for state in self.states]


@pytest.fixture
def servers() -> Servers:
    return Servers()


def test_the_first_record_is_written_on_all_masters(servers: Servers) -> None:
    one, other = One(servers), One(servers)
    one.write()
    assert [decode(servers.data[state.target.name]).in_force for state in one.states] == [True] * N
    assert (one.votes(), [state.record.listed for state in one.states], servers.closed) == (
        [True] * N,
        [True] * N,
        1,
    )
    servers.asked.clear()
    other.write()  # it believed that there is none
    assert other.votes() == [True] * N
    assert len(servers.asked) <= 2 * N + 1
    servers.asked.clear()
    other.write()
    assert not servers.asked


def first_records(servers: Servers) -> list[dict[str, bytes]]:
    """What the masters have after each write of a client that writes the first records."""
    one, steps = One(servers), [{}]
    one.records._writing = True
    while one.records._write_next(servers, one.judge):
        steps.append(dict(servers.data))
    return steps


def test_records_that_another_client_wrote_between_two_reads(servers: Servers) -> None:
    """Each master was read at another step of the other client, which has finished, or has stopped."""
    steps = first_records(servers)
    for read_at in itertools.islice(
        itertools.product(range(len(steps)), repeat=N), None, None, amount(8, 1, twice=1)
    ):
        for now in (max(read_at), -1):
            servers.data = dict(steps[now])
            late = One(servers)
            for state, step in zip(late.states, read_at, strict=True):
                state.record.seen = module.seen(steps[step].get(state.target.name))
            late.write()
            assert late.votes() == [True] * N, (read_at, now)
            assert late.records.verdict.ruled


@pytest.mark.parametrize("seed", range(amount(20, 100, twice=100)))
def test_records_that_two_clients_write_at_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The other client takes steps before each command of this one. It may stop for ever."""
    random = Random(seed)
    one, other, theirs, ask = One(servers), One(servers), Servers(), servers._ask
    theirs.data = servers.data
    other.records._writing = True
    most = random.choice((1, 3, 30))

    def asked(to: Any, command: tuple[bytes, ...]) -> Any:
        for _ in range(random.randrange(most + 1)):
            if other.records._writing:
                other.records._write_next(theirs, other.judge)
        return ask(to, command)

    monkeypatch.setattr(servers, "_ask", asked)
    one.write()
    assert one.votes() == [True] * N
    assert one.records.verdict.ruled


def a_majority_lost_its_records(servers: Servers) -> One:
    """And the master that still has one is down."""
    one = One(servers)
    one.write()
    for number in (1, 2):
        servers.data[one.states[number].target.name] = b""
        one.states[number].record.learn(Seen(), boot_time())
    one.states[0].link.attached = False
    return one


def test_a_majority_that_lost_its_records_gets_them_back(servers: Servers) -> None:
    """The client saw them on all masters a moment ago, so no change can have replaced them."""
    one = a_majority_lost_its_records(servers)
    one.write()
    assert one.votes() == [True] * N
    assert servers.data["m1:6379/0"]
    assert servers.data["m2:6379/0"]


def test_a_majority_that_lost_its_records_is_read_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client saw them so long ago that they may be out of date, so they are not written."""
    one = a_majority_lost_its_records(servers)
    monkeypatch.setattr(module, "CONFIRMED_FOR", 0.0)
    one.records.judge(attaching=1)
    assert [state.no_vote for state in one.states] == [None, NoVote.AWAITED, NoVote.AWAITED]
    assert [state.record.listed for state in one.states] == [True, False, False]
    servers.asked.clear()
    one.write()
    assert servers.asked == ["m1:6379/0", "m2:6379/0"]
    assert one.votes() == [True, False, False]
    assert [state.no_vote for state in one.states] == [None, NoVote.RECORD, NoVote.RECORD], "no caller waits"


def test_a_master_that_fails_meanwhile(servers: Servers) -> None:
    """The others vote: no other list was read. It is tried again, some seconds later."""
    one = One(servers)
    servers.fails["m2:6379/0"] = ConnectionError()
    one.write()
    assert one.votes() == [True] * N
    assert [state.record.listed for state in one.states] == [None] * N
    assert not one.records.due(0.0)
    assert one.records.due(1e12)
    assert not one.records.due(1e12 + RECHECK_INTERVAL / 2)
    servers.fails = {"m0:6379/0": ConnectionError()}
    one.states[1].record.seen = Seen()
    one.write(again=True)
    assert one.states[1].record.seen.record, "it was read although another one failed"
    servers.fails.clear()
    one.write(again=True)
    assert one.records.verdict.ruled


@pytest.mark.parametrize("failing", range(N))
def test_the_others_get_their_records_when_one_master_takes_none(servers: Servers, failing: int) -> None:
    one, name = One(servers), f"m{failing}:6379/0"
    servers.fails[name] = ResponseError("OOM")
    one.write()
    others = {f"m{n}:6379/0" for n in range(N)} - {name}
    assert {name for name, data in servers.data.items() if decode(data).epoch} == others
    assert one.votes() == [True] * N
    assert servers.asked.count(name) == 1
    for number in (failing, None):  # it is connected again, and read again
        one.records.judge(attaching=number)
        assert one.votes() == [True] * N, "no master waits for it"
        one.write(again=number is None)
    assert servers.asked.count(name) > 2
    servers.fails.clear()
    one.write(again=True)
    assert one.records.verdict.ruled
    assert [state.record.writes for state in one.states] == [0] * N


def test_masters_that_take_their_records_later_are_written_at_once(servers: Servers) -> None:
    """All refused them before. Catches: writes that are counted against a master that takes them now."""
    one = One(servers)
    for name in NAMES:
        servers.fails[name] = ResponseError("OOM")
    one.write()
    servers.fails.clear()
    one.write(again=True)
    assert one.records.verdict.ruled
    assert [state.record.error for state in one.states] == [""] * N


def test_votes_wait_for_a_master_that_is_connected_later(servers: Servers) -> None:
    one = One(servers)
    late = one.states[2]
    late.link.attached, late.record.seen, late.link.failures = False, None, 1
    one.write()
    assert one.votes() == [True] * N
    late.record.seen = Seen()
    one.records.judge(attaching=2)
    assert one.votes() == [False] * N
    late.link.attached = True
    one.write()
    assert one.records.verdict.ruled


def test_a_master_that_keeps_no_record_is_waited_for_only_a_few_times(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replies that another client has written its id."""
    one, ask, waited = One(servers), servers._ask, []

    def asked(to: Any, command: tuple[bytes, ...]) -> Any:
        if to.name != "m0:6379/0":
            return ask(to, command)
        waited.append(one.states[1].no_vote is NoVote.UNDECIDED)
        return encode(Record("0" * 32))

    monkeypatch.setattr(servers, "_ask", asked)
    one.write()
    assert 0 < sum(waited) <= 2 * module.MAX_WRITES
    assert {name for name, data in servers.data.items() if decode(data).epoch} == {"m1:6379/0", "m2:6379/0"}


def test_a_connection_that_ends_in_a_write_is_counted(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that is connected again in each write is waited for a few times, too."""
    one, ask = One(servers), servers._ask

    def asked(to: Any, command: tuple[bytes, ...]) -> Any:
        if to.name != "m0:6379/0":
            return ask(to, command)
        one.states[0].link.connections += 1
        one.records.judge(attaching=0)
        raise ConnectionError

    monkeypatch.setattr(servers, "_ask", asked)
    one.write()
    assert len(servers.data) == N - 1
    assert one.votes() == [True] * N


def test_a_lost_record_is_written_back_when_another_master_takes_none(servers: Servers) -> None:
    """Two masters came back without their records, and the first one takes none."""
    servers.fails["m0:6379/0"] = ResponseError("OOM")
    one = One(servers)
    record = Record("", 1, 60_000, STEADY, (), members({first_id(n): n for n in NAMES}), True)
    one.states[2].record.learn(module.seen(encode(record.of(first_id(NAMES[2])))), boot_time())
    one.write()
    assert one.votes() == [False, True, True]
    assert decode(servers.data[NAMES[1]]).in_force


def test_a_master_that_never_takes_it(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(servers)
    monkeypatch.setattr(servers, "_ask", lambda to, command: None)
    one.write()
    assert one.votes() == [True] * N
    monkeypatch.setattr(servers, "_ask", lambda to, command: NoPermissionError("no EVAL"))
    other = One(servers)
    other.write()
    assert other.votes() == [True] * N


def test_nothing_is_written_for_a_closed_client(servers: Servers) -> None:
    one = One(servers)
    one.ended = True
    one.write()
    assert not servers.data


def test_another_list_is_logged_and_counted_once(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    one, events = One(servers), EventLog()
    one.write()
    one.records.report(events)
    foreign = encode(Record("f" * 32, 1, 60_000, ("new",), (), (("f" * 32, "elsewhere"),), True))
    servers.data["m0:6379/0"] = foreign
    one.states[0].record.seen = None
    one.judge()
    one.states[0].record.seen = module.seen(foreign)
    one.judge()
    with caplog.at_level(logging.WARNING):
        one.records.report(events)
        one.records.report(events)
    assert [getattr(record, "event", "") for record in caplog.records] == ["master-unlisted"]
    assert one.states[0].tally.causes == {"another list": 1}
    assert one.votes() == [False, True, True]
    assert one.records.due(1e12)


def test_why_a_record_is_not_written_back(servers: Servers) -> None:
    one = One(servers)
    one.write()
    servers.data.pop("m1:6379/0")
    servers.fails["m1:6379/0"] = ResponseError("no space")
    one.states[1].record.seen = Seen()
    one.write()
    assert one.states[1].record.why.endswith("which is not written back yet (no space)")
    assert one.votes() == [True, False, True]
    assert one.states[1].no_vote is NoVote.RECORD
    servers.fails.clear()
    one.write(again=True)
    assert one.votes() == [True] * N


def test_records_that_cannot_be_compared(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the comparison takes the votes. It does not end the thread that connects a master."""
    one = One(servers)
    one.write()
    with monkeypatch.context() as patched:
        patched.setattr(ListCheck, "judge", lambda *_: max([]))
        one.records.judge(attaching=0)
        assert one.votes() == [False] * N
        assert "cannot be compared: ValueError" in one.states[0].record.why
        assert [state.record.listed for state in one.states] == [False] * N
        assert one.records.due(1e12)
    one.judge()
    assert one.votes() == [True] * N


def test_a_reply_that_belongs_to_an_earlier_connection_is_ignored(servers: Servers) -> None:
    one = One(servers)
    one.states[0].link.connections = 2
    one.records._learn(one.states[0], 1, Seen(b"x", error="old"), boot_time())
    assert one.states[0].record.seen == Seen()


def test_replies() -> None:
    assert module.seen(None) == Seen()
    assert module.seen(b"").record is None
    assert not module.seen(NoPermissionError("no")).compared
    assert "damaged" in module.seen(ResponseError("WRONGTYPE Operation against")).error
    with pytest.raises(ResponseError):
        module.seen(ResponseError("LOADING"))


def test_masters_that_another_client_lists_by_other_names(servers: Servers) -> None:
    """Each master was read before the other client wrote its record, or after that: all orders.

    Catches: a master that was read too early counts as one of another list, which is a ConfigError.
    """
    aliases = [f"alias{n}:6379/0" for n in range(N)]
    listed = members({first_id(alias): alias for alias in aliases})
    for early in itertools.product([True, False], repeat=N):
        late = One(servers)
        for state, alias, before in zip(late.states, aliases, early, strict=True):
            record = encode(Record(first_id(alias), 1, 60_000, STEADY, (), listed, True))
            servers.data[state.target.name] = record
            if not before:
                state.record.learn(module.seen(record), boot_time())
        late.judge()
        assert not late.records.verdict.wrong, early
        late.write()
        assert late.votes() == [True] * N, early
        assert [decode(servers.data[state.target.name]).new for state in late.states] == [listed] * N
