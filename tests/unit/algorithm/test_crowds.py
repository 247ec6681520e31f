"""When a caller of a plain lock takes a place in a queue on the masters, by scripted votes."""

from __future__ import annotations

from typing import Any

import pytest
from support import bare
from support.scripted_votes import World
from support.votes import votes

from redlock_fast.algorithm import crowds
from redlock_fast.algorithm.crowds import COURTESY, LONG_QUEUE, MEMORY, REFUSED_ROUNDS, Crowds
from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.engine.contract import FAULT, NO_REPLY, Votes
from redlock_fast.locks.fair import PER_TICKET, QueuedKind
from redlock_fast.wire.commands import Verb

KEY = b"orders:42"
HELD = votes(0, 0, 0, 0, 0)
FREED = votes(1, 1, 1, NO_REPLY, NO_REPLY)
GRANTED = votes(1, 1, 1, 1, 1)
#: Masters whose user may not write the keys of a queue.
FORBIDDEN = Votes((FAULT,) * 5, 0b11111, 0, 0, 5, dict.fromkeys(range(5), b"-NOPERM No permissions\r\n"))
REFUSED = [HELD, FREED] * REFUSED_ROUNDS


def places(rank: int, ticket: int = 7) -> Any:
    return votes(*[-1 - (PER_TICKET * ticket + rank)] * 5)


def acquire(world: World, rounds: int | None = None, **policy: Any) -> Any:
    settings = {"push": True, "crowds": Crowds(QueuedKind), **policy}
    made = world.policy(**settings)
    outcome = world.run(bare.acquire(made, LockKind(KEY), 10.0, None, rounds, world.kept.append))
    return made, outcome


def acquires(world: World) -> list[Verb]:
    """The verbs, without releases."""
    return [verb for verb in world.verbs() if verb != Verb.RELEASE]


def test_after_refused_rounds_a_caller_takes_a_place_and_the_key_when_its_turn_comes() -> None:
    world = World(*REFUSED[:-1], places(1), FREED, GRANTED)
    _, lease = acquire(world)
    assert isinstance(lease, Lease)
    assert acquires(world) == [Verb.ACQUIRE, Verb.WATCH] * (REFUSED_ROUNDS - 1) + [
        *(Verb.ACQUIRE, Verb.FAIR, Verb.WATCH, Verb.ACQUIRE)
    ]
    joined = next(request for request in world.sent if request.verb == Verb.FAIR)
    watch = [request for request in world.sent if request.verb == Verb.WATCH][-1]
    assert watch.args == (b"{%b}:b:%b" % (KEY, joined.args[5]),), "it watches its own wait key"
    assert [request.verb for request in lease.release_requests()] == [Verb.FAIR_LEAVE]
    assert lease.refillable
    assert not lease.batchable


def test_the_head_of_the_queue_watches_the_lock() -> None:
    world = World(*REFUSED[:-1], places(0), FREED, GRANTED)
    acquire(world)
    watch = [request for request in world.sent if request.verb == Verb.WATCH][-1]
    assert watch.args == (KEY,)


@pytest.mark.parametrize("rank", [LONG_QUEUE - 1, LONG_QUEUE])
def test_a_long_queue_is_remembered_and_the_next_callers_take_a_place_at_once(rank: int) -> None:
    world = World(*REFUSED[:-1], places(rank), FREED, GRANTED, GRANTED, GRANTED)
    policy, _ = acquire(world)
    long = rank == LONG_QUEUE
    assert (KEY in policy.crowds.until) == long
    before = len(world.sent)
    acquire(world, crowds=policy.crowds)
    assert [request.verb for request in world.sent[before:]] == [Verb.FAIR if long else Verb.ACQUIRE]
    assert (world.pauses[-1:] == [COURTESY]) == long, "the caller whose turn it is asks first"
    before, world.now = len(world.sent), world.now + MEMORY
    acquire(world, crowds=policy.crowds)
    assert [request.verb for request in world.sent[before:]] == [Verb.ACQUIRE]


@pytest.mark.parametrize(
    "setting", [{"rounds": REFUSED_ROUNDS + 2}, {"push": False}, {"crowds": Crowds()}, {"all_push": False}]
)
def test_other_callers_take_no_place(setting: dict[str, Any]) -> None:
    answers = [HELD] * (REFUSED_ROUNDS + 1) if setting.get("push") is False else REFUSED * 2
    world = World(*answers[: 2 * REFUSED_ROUNDS + 2], GRANTED)
    all_push = setting.pop("all_push", True)
    voters = world.policy().voters
    voters.all_push = all_push
    acquire(world, voters=voters, **setting)
    assert Verb.FAIR not in world.verbs()


def test_a_place_that_the_masters_refuse_is_not_asked_for_again() -> None:
    """A user without rights on the keys of queues: the lock works as without them."""
    world = World(*REFUSED[:-1], FORBIDDEN, HELD, FREED, GRANTED)
    policy, lease = acquire(world)
    assert isinstance(lease, Lease)
    verbs = acquires(world)
    assert verbs[verbs.index(Verb.FAIR) :] == [
        *(Verb.FAIR, Verb.FAIR_LEAVE, Verb.ACQUIRE, Verb.WATCH, Verb.ACQUIRE)
    ]
    assert policy.crowds.queued is None
    assert [request.verb for request in lease.release_requests()] == [Verb.RELEASE]


def test_a_refused_caller_whose_turn_came_repeats_its_place() -> None:
    """Another library took the key first."""
    world = World(*REFUSED[:-1], places(1), FREED, HELD, places(0), FREED, GRANTED)
    acquire(world)
    verbs = acquires(world)
    assert verbs[verbs.index(Verb.FAIR) :] == [
        *(Verb.FAIR, Verb.WATCH, Verb.ACQUIRE, Verb.FAIR, Verb.WATCH, Verb.ACQUIRE)
    ]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "MOST", 3)
    memory = Crowds()
    for number in range(3):
        memory.note(b"%d" % number, 100.0 + number)
    assert memory.recent(b"1", 101.5)
    assert not memory.recent(b"0", 101.5)
    assert list(memory.until) == [b"1", b"2"]
    for number in range(3, 5):
        memory.note(b"%d" % number, 103.0)
    assert len(memory.until) <= 3
