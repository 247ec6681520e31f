"""The simulation itself: chance that can be replayed, time, masters, connections, the engine's rules."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.actors import MAX_TTL
from simulation.choices import Choices, recorded, seeded, shrunk
from simulation.commands import understood
from simulation.engine import Call
from simulation.invariants import Witness
from simulation.network import Connection
from simulation.process import Process, SimulatedClient
from simulation.scenario import NODE_TIMEOUT, run
from simulation.server import Server
from simulation.virtual_threads import Over, stepped
from simulation.watches import free_for
from simulation.world import World

from redlock_fast.algorithm.effects import Exchange, WaitForChange
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Votes, Wait
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.wire.commands import Verb

KEY, TOKEN, OTHER = b"key", b"token", b"other"

# --- chance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_same_choices_make_the_same_run(seed: int) -> None:
    first = run(seeded(seed), tracing=True)
    assert run(seeded(seed), tracing=True).story == first.story
    again = run(recorded(first.choices.to_replay()), tracing=True)
    assert (again.story, again.counts) == (first.story, first.counts)
    assert len(first.story.splitlines()) > 10
    assert run(seeded(seed + 1), tracing=True).story != first.story


def test_first_choices_are_given() -> None:
    choices = seeded(1, [2, 9])
    assert (choices.draw(4), choices.draw(4)) == (2, 1)


def test_recorded_choices_end_in_zeros() -> None:
    choices = recorded("5,0,7")
    assert [choices.draw(10) for _ in range(5)] == [5, 0, 7, 0, 0]
    assert choices.to_replay() == "5,0,7"


def test_shrinking_keeps_what_matters() -> None:
    taken = [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert shrunk(taken, lambda one: one[4] >= 2 and one[7] > 0) == [0, 0, 0, 0, 2, 0, 0, 1, 0]


# --- time and masters -----------------------------------------------------------------------------


class Stage:
    """Masters and one process with connections to them; every message takes a tenth of a millisecond."""

    def __init__(self, masters: int = 3, guard: str = "auto") -> None:
        self.world = World(recorded([]))
        self.witness = Witness(self.world, masters)
        self.servers = [Server(self.world, self.witness, n, 1.0, False, push=True) for n in range(masters)]
        self.process = Process(self.world, self.witness, "client", 1.0, self.servers, Guard(guard, MAX_TTL))
        voters = VotingMasters(masters)
        policy = Policy(
            NODE_TIMEOUT, 0.01, 0.3, Retry(), voters, clock=self.process.clock,
            ttl=0.2,
        )  # fmt: skip
        self.process.core = SimulatedClient(policy, MAX_TTL)
        self.process.connect()
        self.world.wait(0.01)
        self.done: list[float] = []

    def ask(
        self, verb: Verb, *args: bytes, wait: Wait = Wait.EARLY, resend_for: float = 0.0, need: int = 2
    ) -> Any:
        request = Request(verb, args, self.process.core.policy.voters.mask, resend_for)
        exchange = Exchange([request], need, NODE_TIMEOUT, wait)
        return self.process.engine.exchange(exchange, lambda: self.done.append(self.world.now))

    def watch(self, need: int = 2, timeout: float = 10.0) -> Call:
        request = Request(Verb.WATCH, (KEY,), self.process.core.policy.voters.mask)
        watch = WaitForChange([], request, need, timeout)
        return self.process.engine.exchange(watch, lambda: self.done.append(self.world.now))

    def hold(self, *masters: int, ttl: bytes = b"1000") -> None:
        for number in masters:
            self.servers[number].put(KEY, TOKEN, ttl)

    def answer(self, *request: Any, **options: Any) -> Votes:
        call = self.ask(*request, **options)
        self.world.run(lambda: call.undecided <= 0)
        votes: Votes = call.answer()[0]
        return votes

    def connection(self, number: int) -> Connection:
        connection = self.process.engine.connections[number]
        assert connection is not None
        return connection


def test_events_come_in_the_order_of_their_time() -> None:
    world, seen = World(recorded([])), list[str]()
    for when, what in ((0.2, "c"), (0.1, "a"), (0.1, "b")):
        world.at(when, seen.append, what)
    world.wait(0.15)
    assert (seen, world.now) == (["a", "b"], 0.15)


def test_a_flush_whose_push_a_client_did_not_read_is_seen_when_it_connects_again() -> None:
    """It closes a connection that lags. Catches: a master whose keys are gone, and whose vote counts."""
    stage = Stage()
    engine, number = stage.process.engine, 0
    connection = stage.connection(number)
    stage.servers[number].flush()
    engine.connections[number] = connection
    connection.close()
    engine._let_go(connection)
    stage.world.wait(0.01)
    assert stage.connection(number) is not connection
    assert engine.states[number].guard.until > 0.0
    assert stage.process.core.policy.voters.mask == 0b110


def test_key_ends_by_the_masters_own_clock() -> None:
    stage = Stage()
    server = stage.servers[0]
    server.put(KEY, TOKEN, b"100")
    stage.world.wait(0.0985)
    assert server.owner(KEY) == TOKEN
    server.offset = 0.002
    assert server.owner(KEY) is None


@pytest.mark.parametrize("number", range(3))
def test_masters_of_every_kind_know_what_clients_send(number: int) -> None:
    server = Stage().servers[number]
    commands = understood(server, None)

    def does(verb: Verb, *args: bytes) -> int:
        return commands[verb][0](server, args, False)

    assert does(Verb.ACQUIRE, KEY, TOKEN, b"100") == 1
    assert does(Verb.ACQUIRE, KEY, OTHER, b"100") == 0
    assert does(Verb.EXTEND, KEY, OTHER, b"100") == 0
    assert does(Verb.EXTEND, KEY, TOKEN, b"100") == 1
    assert does(Verb.RELEASE, KEY, OTHER) == 0
    assert does(Verb.RELEASE, KEY, TOKEN) == 1
    count = does(Verb.FENCE, KEY, b"t2", b"100", b"counter", b"1000", b"500")
    rest = b"counter", b"1000", b"500"
    assert does(Verb.RAISE_FENCE, KEY, OTHER, b"%d" % (count + 5), *rest) == 0
    assert does(Verb.RAISE_FENCE, KEY, b"t2", b"%d" % (count + 5), *rest) == 1
    assert does(Verb.RAISE_FENCE, KEY, b"t2", b"%d" % (count + 5), *rest) == -(count + 5)
    assert does(Verb.RAISE_FENCE, KEY, b"t2", b"%d" % (count + 600_000), *rest) == -(count + 5)
    assert does(Verb.RELEASE, KEY, b"t2") == 1
    assert does(Verb.FENCE, KEY, b"t3", b"100", b"counter", b"1000", b"500") == count + 6
    assert commands[Verb.ACQUIRE][1] == commands[Verb.FENCE][1] == Verb.RELEASE


def test_marker_refuses_until_the_longest_lease_has_ended() -> None:
    stage = Stage(guard="marker")
    for server in stage.servers:
        server.forget()
    assert stage.answer(Verb.ACQUIRE, KEY, b"a", b"100").faulty >= 2
    stage.world.wait(MAX_TTL + 0.01)
    assert stage.answer(Verb.ACQUIRE, KEY, b"b", b"100").granted >= 2


# --- the engine -----------------------------------------------------------------------------------


def test_quorum_decides_early_and_all_waits() -> None:
    stage = Stage()
    stage.connection(2).not_before = stage.world.now + 0.01
    assert stage.answer(Verb.ACQUIRE, KEY, TOKEN, b"100").values == (1, 1, NO_REPLY)
    stage.connection(2).not_before = stage.world.now + 0.01
    assert stage.answer(Verb.ACQUIRE, b"k2", b"t2", b"100", wait=Wait.ALL).values == (1, 1, 1)


def test_silence_ends_with_the_time_and_counts_as_nothing() -> None:
    stage = Stage()
    began = stage.world.now
    for server in stage.servers[1:]:
        server.stopped_until = 10.0
    assert stage.answer(Verb.ACQUIRE, KEY, TOKEN, b"100").values == (1, NO_REPLY, NO_REPLY)
    assert stage.world.now - began == pytest.approx(NODE_TIMEOUT)


def test_one_connection_keeps_its_order() -> None:
    stage = Stage()
    stage.connection(0).not_before = stage.world.now + 0.02
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"100", need=0)
    stage.ask(Verb.RELEASE, KEY, TOKEN, need=0)
    stage.world.wait(0.05)
    assert stage.servers[0].owner(KEY) is None
    assert (0, (KEY, TOKEN)) in stage.witness.executed


def test_broken_connection_makes_faults_and_only_what_is_kept_is_sent_again() -> None:
    stage = Stage()
    call = stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"100", wait=Wait.ALL)
    stage.ask(Verb.RELEASE, KEY, OTHER, need=0, resend_for=1.0)
    stage.connection(0).reset(arriving=0, replies_too=True)
    stage.world.run(lambda: call.undecided <= 0)
    assert call.answer()[0].values == (FAULT, 1, 1)
    stage.world.wait(0.01)
    assert stage.servers[0].owner(KEY) is None
    assert stage.world.counts["replays"] == 1


def test_what_was_on_its_way_may_be_executed_late() -> None:
    stage = Stage()
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"100", need=0)
    connection = stage.connection(0)
    connection.not_before = stage.world.now + 0.03
    connection.reset(arriving=1, replies_too=True)
    stage.world.wait(0.02)
    assert stage.servers[0].owner(KEY) is None
    stage.world.wait(0.02)
    assert stage.servers[0].owner(KEY) == TOKEN
    assert (0, (KEY, TOKEN)) in stage.witness.excused


def test_lagging_master_is_not_asked_while_others_are_enough() -> None:
    stage = Stage()
    stage.servers[0].stopped_until = 10.0
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"100", need=0)
    stage.world.wait(0.1)
    assert stage.answer(Verb.ACQUIRE, b"k2", b"t2", b"100").sent == 0b110


def test_restarted_master_has_no_vote_for_the_longest_lease() -> None:
    stage = Stage()
    stage.servers[0].crash(forgetting=True)
    stage.world.wait(0.01)
    stage.servers[0].start()
    stage.world.wait(0.01)
    voters = stage.process.core.policy.voters
    assert voters.mask == 0b110
    stage.world.wait(MAX_TTL)
    assert voters.mask == 0b111


def test_paused_process_gets_nothing_until_it_goes_on() -> None:
    stage = Stage()
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"100")
    stage.process.pause(1.0, timers_late=False)
    stage.world.wait(0.5)
    stage.process.pause(0.1, timers_late=False)
    assert stage.process.paused_for == pytest.approx(1.0), "a second, shorter one changes nothing"
    stage.world.wait(0.4)
    assert stage.done == []
    stage.world.wait(0.2)
    assert stage.done == [pytest.approx(1.01)]


def test_choices_are_remembered() -> None:
    choices = Choices(lambda below: below - 1)
    assert [choices.draw(3), choices.draw(5)] == [2, 4] == choices.taken


# --- watches --------------------------------------------------------------------------------------


def test_watch_ends_when_a_quorum_is_free() -> None:
    stage = Stage()
    stage.hold(0, 1, 2)
    call = stage.watch()
    stage.world.wait(0.1)
    stage.servers[0].remove(KEY)
    stage.world.wait(0.1)
    assert call.undecided
    stage.servers[1].remove(KEY)
    stage.world.wait(0.1)
    assert stage.done == [pytest.approx(0.2101)]
    assert call.answer()[0].values == (1, 1, NO_REPLY)


def test_what_is_free_from_the_beginning_counts() -> None:
    stage = Stage()
    stage.hold(0)
    assert stage.world.now == 0.01
    stage.watch()
    stage.world.wait(0.1)
    assert stage.done == [pytest.approx(0.0102)]


def test_end_of_a_lease_is_not_pushed_but_foreseen() -> None:
    """When it has ended on a quorum: counted from the question, however late the answer was read."""
    stage = Stage()
    for number, ttl in enumerate((b"900", b"300", b"600")):
        stage.hold(number, ttl=ttl)
    call = stage.watch()
    stage.process.pause(0.2, timers_late=False)
    stage.world.wait(1.0)
    assert stage.done == [pytest.approx(0.01 + 0.601, abs=0.001)]
    assert stage.world.counts["pushes"] == 0
    assert call.answer()[0].values == (NO_REPLY,) * 3


def test_one_watch_gets_one_push() -> None:
    stage = Stage()
    stage.hold(0, 1, 2)
    stage.watch(need=3)
    stage.world.wait(0.1)
    for _ in range(3):
        stage.hold(0)
    assert stage.world.counts["pushes"] == 1


def test_new_connection_ends_all_watches() -> None:
    stage = Stage()
    stage.hold(0, 1, 2)
    call = stage.watch()
    stage.world.wait(0.1)
    stage.connection(0).reset(arriving=0, replies_too=True)
    stage.world.wait(0.1)
    assert len(stage.done) == 1
    assert call.answer()[0].values == (FAULT, NO_REPLY, NO_REPLY)


def test_watch_without_enough_masters_fails() -> None:
    stage = Stage()
    stage.hold(0, 1, 2)
    call = stage.watch()
    stage.world.wait(0.1)
    for server in stage.servers[:2]:
        server.crash(forgetting=False)
    stage.world.wait(0.1)
    assert call.undecided <= 0
    assert call.answer()[0].values == (FAULT, FAULT, NO_REPLY)


def test_a_master_that_loses_its_memory_pushes_to_all() -> None:
    stage = Stage()
    stage.hold(0, 1, 2)
    stage.watch()
    stage.world.wait(0.1)
    for server in stage.servers[:2]:
        server.forget()
    stage.world.wait(0.1)
    assert stage.done == [pytest.approx(0.1101)]


def test_time_in_which_a_lock_was_free_is_measured() -> None:
    """On a quorum of masters without a fault; and only while the client runs."""
    stage = Stage()
    stage.hold(0, 1, 2)
    call = stage.watch(need=3)
    stage.world.wait(0.1)
    stage.servers[0].remove(KEY)
    stage.world.wait(0.1)
    assert free_for(call) < 0
    stage.servers[1].remove(KEY)
    stage.world.wait(0.1)
    assert free_for(call) == pytest.approx(0.1)
    stage.connection(0).silent_until = stage.world.now - 0.04
    assert free_for(call) == pytest.approx(0.04)
    stage.process.pause(0.03, timers_late=False)
    stage.world.wait(0.05)
    assert free_for(call) == pytest.approx(0.02)
    stage.servers[1].crash(forgetting=False)
    assert free_for(call) < 0


# --- connections that are given up, and votes -----------------------------------------------------


def test_connection_that_is_given_up_delivers_after_its_successor() -> None:
    stage = Stage()
    old = stage.connection(0)
    old.not_before = stage.world.now + 0.05
    stage.ask(Verb.RELEASE, KEY, TOKEN, need=0)
    stage.process.engine.give_up(old)
    stage.world.wait(0.01)
    assert stage.connection(0) is not old
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"1000", need=0)
    stage.world.wait(0.01)
    assert stage.servers[0].owner(KEY) == TOKEN
    stage.world.wait(0.05)
    assert stage.servers[0].owner(KEY) is None


@pytest.mark.parametrize(("others", "undone"), [((0, 0), True), ((1, 1), False), ((0, 1), False)])
def test_only_what_no_lease_counts_on_is_undone(others: tuple[int, int], undone: bool) -> None:
    """Refused by a quorum; granted by a quorum; and undecided, with a caller that waits."""
    stage = Stage()
    for number, granted in enumerate(others, 1):
        if not granted:
            stage.servers[number].put(KEY, OTHER, b"1000")
    stage.connection(0).not_before = stage.world.now + 0.02
    stage.ask(Verb.ACQUIRE, KEY, TOKEN, b"1000")
    stage.world.wait(0.01)
    stage.process.engine.give_up(stage.connection(0))
    stage.world.wait(0.05)
    assert (stage.servers[0].owner(KEY) is None) == undone


def test_extension_never_shortens() -> None:
    stage = Stage()
    assert stage.answer(Verb.ACQUIRE, KEY, TOKEN, b"1000").granted >= 2
    before = stage.servers[0].left(KEY)
    stage.answer(Verb.EXTEND, KEY, TOKEN, b"100", wait=Wait.ALL)
    assert before - 10 < stage.servers[0].left(KEY) <= before


@pytest.mark.parametrize("how", ["removed", "shortened", "by clock", "forgotten"])
def test_vote_that_is_counted_must_last(how: str) -> None:
    stage = Stage()
    assert stage.answer(Verb.ACQUIRE, KEY, TOKEN, b"500", wait=Wait.ALL).granted == 3
    votes, server = stage.witness.votes, stage.servers[1]
    votes.confirmed((KEY, TOKEN))
    if how == "removed":
        server.remove(KEY)
    elif how == "shortened":
        server.put(KEY, TOKEN, b"400")
    elif how == "by clock":
        server.set_clock(0.1)
    else:
        server.forget()
    votes.look(server)
    assert [rule for rule, _ in stage.witness.violations] == ["V"] * (how != "forgotten")


def test_vote_of_a_master_that_forgot_before_it_was_confirmed_need_not_last() -> None:
    stage = Stage()
    assert stage.answer(Verb.ACQUIRE, KEY, TOKEN, b"500", wait=Wait.ALL).granted == 3
    votes, server = stage.witness.votes, stage.servers[1]
    server.forget()
    server.put(KEY, TOKEN, b"400")
    votes.confirmed((KEY, TOKEN))
    assert stage.witness.violations == []


# --- blocking code --------------------------------------------------------------------------------


def test_blocking_code_gets_what_the_actor_is_sent_and_raises_what_is_thrown() -> None:
    def call(masters: Any) -> str:
        assert masters.exchange(["request"], 2, 0.1) == "votes"
        try:
            masters.pause(0.5)
        except KeyError:
            masters.wait_for_quorum(0.7)
        return "done"

    steps = stepped(Stage().process, call)
    asked = next(steps)
    assert (type(asked), asked.requests, asked.need) == (Exchange, ["request"], 2)
    assert steps.send("votes").seconds == 0.5
    assert steps.throw(KeyError()).timeout == 0.7
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == "done"


def test_blocking_code_ends_with_its_actor() -> None:
    seen = list[BaseException]()

    def call(masters: Any) -> None:
        for _ in range(2):
            try:
                masters.pause(0.5)
            except Over as over:
                seen.append(over)

    steps = stepped(Stage().process, call)
    next(steps)
    steps.close()
    assert len(seen) == 2
