"""Many processes that want one lock: the rounds that a grant takes them, by the real procedures."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest.mock import patch

import pytest
from simulation import lock_calls
from simulation.actors import MAX_TTL, Script
from simulation.choices import seeded
from simulation.invariants import Witness
from simulation.process import Actor, Process, SimulatedClient
from simulation.server import Server
from simulation.world import World

from redlock_fast.algorithm.crowds import Crowds
from redlock_fast.algorithm.effects import Exchange, Sleep
from redlock_fast.algorithm.lease import AcquireFailure
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import ContentionHistory, Retry
from redlock_fast.locks.fair import QueuedKind
from redlock_fast.locks.lock_state import LockState
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.wire.commands import Verb

N = 5
HOLD = 0.01


class Herd:
    """``size`` processes that take one lock ``turns`` times each, and keep it for ``hold`` seconds.

    They begin ``gap`` seconds one after the other. ``queues``: where many wait, they take places.
    """

    def __init__(
        self, size: int, turns: int, hold: float = HOLD, gap: float = 0.0, queues: bool = False
    ) -> None:
        self.world = World(seeded(7))
        self.witness = Witness(self.world, N)
        self.servers = [Server(self.world, self.witness, n, 1.0, False, push=True) for n in range(N)]
        self.turns, self.hold, self.gap, self.queues = turns, hold, gap, queues
        self.rounds = 0
        self.released = 0.0
        self.waits: list[float] = []  # from each release to the next grant
        self.actors = [self._actor(number) for number in range(size)]

    def _actor(self, number: int) -> Actor:
        guard = Guard("off", MAX_TTL)
        process = Process(self.world, self.witness, f"client-{number}", 1.0, self.servers, guard)
        policy = Policy(
            1.0, 0.01, 10.0, Retry(), VotingMasters(N), clock=process.clock, chance=self.world.chance,
            token=process.token, tokens=process.draw_tokens, push=True, ttl=30.0,
            crowds=Crowds(QueuedKind if self.queues else None),
        )  # fmt: skip
        process.core = SimulatedClient(policy, 30.0)
        process.connect()
        return Actor(process, f"user-{number}", self._script(process))

    def _script(self, process: Process) -> Script:
        for _ in range(self.turns):
            lock = LockState(process.core, b"a", process.core.lock_kind(b"a", False))
            outcome = yield from self._counted(lock_calls.acquire(lock, True, None))
            assert not isinstance(outcome, AcquireFailure)
            self.waits.append(self.world.now - self.released)
            yield Sleep(self.hold)
            self.released = self.world.now
            assert (yield from lock_calls.release(lock))
            yield Sleep(self.hold)

    def _counted(self, procedure: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        answer = None
        while True:
            try:
                effect = procedure.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(effect, Exchange):
                self.rounds += effect.requests[0].verb in (Verb.ACQUIRE, Verb.FAIR)  # type: ignore[index]
            answer = yield effect

    def run(self) -> Herd:
        self.world.wait(0.01)
        for number, actor in enumerate(self.actors):
            self.world.after(number * self.gap, actor.start)
        self.world.run(lambda: all(actor.done for actor in self.actors))
        assert all(actor.done for actor in self.actors)
        assert not self.witness.violations
        return self

    @property
    def rounds_a_grant(self) -> float:
        return self.rounds / len(self.waits)


@pytest.mark.parametrize("size", [2, 16])
def test_a_grant_takes_each_waiting_process_few_rounds(size: int) -> None:
    """A process that is woken asks once for each grant, unless the votes are split."""
    turns = 32 // size
    herd = Herd(size, turns).run()
    assert len(herd.waits) == size * turns
    assert herd.rounds_a_grant < 1.5 * size


@pytest.mark.parametrize("size", [16, 48])
def test_where_many_wait_a_grant_takes_few_rounds_of_all_of_them(size: int) -> None:
    """A release wakes one of them. Catches: the herd, in which a grant costs a round of each."""
    herd = Herd(size, 12, queues=True).run()
    assert herd.rounds / len(herd.waits) < 5.0


def test_a_history_costs_no_more_rounds_than_wake_ups_that_are_always_spread() -> None:
    adaptive = Herd(12, 2).run()
    with patch.object(ContentionHistory, "recent", lambda history, now: True):
        spread = Herd(12, 2).run()
    assert adaptive.rounds_a_grant < 1.2 * spread.rounds_a_grant


def test_without_another_waiter_the_next_grant_comes_sooner() -> None:
    """Two processes by turns: there is only one waiter."""
    at_once = Herd(2, 10, hold=0.5, gap=0.1).run()
    with patch.object(ContentionHistory, "recent", lambda history, now: True):
        spread = Herd(2, 10, hold=0.5, gap=0.1).run()
    assert sum(at_once.waits[1:]) < 0.8 * sum(spread.waits[1:])
