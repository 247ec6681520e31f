"""When a caller of a lock without a queue waits for its turn, by scripted votes."""

from __future__ import annotations

from typing import Any

import pytest
from support import bare
from support.scripted_votes import World
from support.votes import votes

from redlock_fast.algorithm.crowds import REFUSED_ROUNDS, RELEASES, Crowds
from redlock_fast.algorithm.effects import Sleep
from redlock_fast.algorithm.lease import AcquireFailure, Lease
from redlock_fast.algorithm.lock_kind import FencedKind, LockKind
from redlock_fast.algorithm.turn import TURN_TTL
from redlock_fast.engine.contract import FAULT, NO_REPLY, Request, Votes
from redlock_fast.locks.fair import QueuedKind
from redlock_fast.locks.multilock import MultiLockKind
from redlock_fast.locks.rwlock import Writer
from redlock_fast.wire.commands import Verb

KEY = b"orders:42"
TURN = b"{orders:42}:t:"
HELD = votes(0, 0, 0, 0, 0)
FREED = votes(1, 1, 1, NO_REPLY, NO_REPLY)
GRANTED = votes(1, 1, 1, 1, 1)
NUMBERED = votes(7, 7, 7, 7, 7)
FORBIDDEN = Votes((FAULT,) * 5, 0b11111, 0, 0, 5, dict.fromkeys(range(5), b"-NOPERM No permissions\r\n"))
REFUSED = [HELD, FREED] * (REFUSED_ROUNDS - 1) + [HELD]
FENCED = FencedKind(KEY, b"86400000", b"30000")


def acquire(world: World, rounds: int | None = None, **policy: Any) -> Any:
    made = world.policy(**{"push": True, "crowds": Crowds(QueuedKind), **policy})
    return made, world.run(bare.acquire(made, FENCED, 10.0, None, rounds))


def of_turn(requests: list[Request]) -> list[Verb]:
    return [Verb(request.verb) for request in requests if request.args[0] == TURN]


def test_a_caller_that_was_refused_often_has_the_turn_before_it_asks_again() -> None:
    world = World(*REFUSED, GRANTED, NUMBERED)
    _, lease = acquire(world)
    assert isinstance(lease, Lease)
    last = [(Verb(request.verb), request.args[0]) for request in world.sent[-3:]]
    assert last == [(Verb.ACQUIRE, TURN), (Verb.FENCE, KEY), (Verb.RELEASE, TURN)]


@pytest.mark.parametrize("others", [False, True])
def test_a_client_remembers_a_turn_that_others_had(others: bool) -> None:
    world = World(*REFUSED, *[HELD, FREED] * others, GRANTED, NUMBERED)
    policy, lease = acquire(world)
    assert isinstance(lease, Lease)
    assert (KEY in policy.crowds.until) == others


def test_the_turn_is_prolonged_while_its_caller_waits() -> None:
    world = World(*REFUSED, GRANTED, HELD, FREED, NUMBERED)
    acquire(world)
    assert of_turn(world.sent) == [Verb.ACQUIRE, Verb.EXTEND, Verb.RELEASE]
    (extend,) = (request for request in world.sent if request.verb == Verb.EXTEND)
    assert extend.args[2] == b"%d" % (TURN_TTL * 1000)


def test_a_caller_that_may_not_write_the_key_of_a_turn_goes_on_without() -> None:
    world = World(*REFUSED, FORBIDDEN, HELD, FREED, NUMBERED)
    _, lease = acquire(world)
    assert isinstance(lease, Lease)
    assert of_turn(world.sent) == [Verb.ACQUIRE, Verb.RELEASE]


@pytest.mark.parametrize("setting", [{"rounds": REFUSED_ROUNDS + 1}, {"push": False}, {"crowds": Crowds()}])
def test_other_callers_wait_for_no_turn(setting: dict[str, Any]) -> None:
    answers = [HELD] * REFUSED_ROUNDS if setting.get("push") is False else [*REFUSED, FREED]
    world = World(*answers, NUMBERED)
    _, lease = acquire(world, **setting)
    assert isinstance(lease, Lease)
    assert of_turn(world.sent) == []


def test_what_is_aborted_gives_the_turn_back() -> None:
    world = World(*REFUSED, GRANTED, HELD)
    policy = world.policy(push=True, crowds=Crowds(QueuedKind))
    operation = bare.BareAcquire(policy, FENCED)
    effect = operation.begin()
    while world.answers:
        effect = operation.advance(world.perform(effect))
    assert effect is not None
    for _ in range(2):
        undone = [one for message in operation.abort() for one in message]
        assert [(Verb(one.verb), one.args[0]) for one in undone] == [
            (Verb.RELEASE, KEY),
            (Verb.RELEASE, TURN),
        ]


def test_what_runs_out_of_time_gives_the_turn_back() -> None:
    world = World(*REFUSED, GRANTED, *[HELD, FREED] * 10_000)
    policy = world.policy(push=True, crowds=Crowds(QueuedKind))
    outcome = world.run(bare.acquire(policy, FENCED, 10.0, world.now + 1.0))
    assert isinstance(outcome, AcquireFailure)
    assert of_turn(world.sent)[-1] == Verb.RELEASE


def test_a_holder_that_was_never_refused_finds_those_that_wait() -> None:
    """It asks again sooner than the caller whose turn it is hears of its release."""
    crowds = Crowds(QueuedKind)
    for number in range(1, RELEASES + 1):
        looks = number == RELEASES
        world = World(NUMBERED)
        policy, lease = acquire(world, crowds=crowds)
        world.perform = lambda effect, looks=looks: [GRANTED] * (1 + looks)  # type: ignore[method-assign, misc]
        sent: list[Request] = []
        for effect in _effects(bare.release(policy, lease), world):
            sent += effect.requests
        assert [Verb(request.verb) for request in sent] == [Verb.RELEASE, *[Verb.EXISTS] * looks]
        assert (KEY in crowds.until) == looks
    world = World(GRANTED, NUMBERED)
    acquire(world, crowds=crowds, clock=lambda: policy.clock())
    assert of_turn(world.sent) == [Verb.ACQUIRE, Verb.RELEASE]
    assert world.pauses, "the caller whose turn it is asks first"


def _effects(steps: Any, world: World) -> Any:
    answer = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration:
            return
        yield effect
        answer = None if isinstance(effect, Sleep) else world.perform(effect)


def test_each_set_of_resources_has_a_turn_of_its_own() -> None:
    """A caller that waits for one set does not keep those of another one from asking."""
    one, other = MultiLockKind((b"a", b"b")), MultiLockKind((b"a", b"c"))
    assert one.turn_key != other.turn_key
    assert one.held_kind().turn_key == one.turn_key
    assert LockKind(KEY).turn_key is None
    assert Writer(KEY, b"1000").turn_key == TURN


def test_the_keys_of_the_queue_for_a_turn_are_beside_it() -> None:
    """All have the hash tag of the lock."""
    join = QueuedKind(TURN).acquire_request(b"token", b"1000", 0b11111)
    assert join.args[3:5] == (TURN + b"q", TURN + b"e")
