"""Clients in zones that are far apart: split votes end, and a job that is skipped runs elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest.mock import patch

import pytest
from simulation import lock_calls
from simulation.actors import MAX_TTL
from simulation.choices import seeded
from simulation.invariants import Witness
from simulation.process import Actor, Process, SimulatedClient
from simulation.server import Server
from simulation.world import World

from redlock_fast.algorithm.effects import Sleep
from redlock_fast.algorithm.lease import AcquireFailure
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.algorithm.refusals import Refusals
from redlock_fast.errors import Contended
from redlock_fast.locks.lock_state import LockState
from redlock_fast.masters.restart_guard import Guard

KEY, ROUNDS = b"job", 20
#: Longer than all clients try.
HOLD = 20.0
#: When a run is given up.
LONGEST = 60.0


class Zones:
    """A client in the zone of each of three masters. Messages to another zone take ``distance`` seconds."""

    def __init__(self, distance: float, seed: int, waits: bool) -> None:
        self.world = world = World(seeded(seed))
        self.witness = Witness(world, 3)
        self.servers = [Server(world, self.witness, n, 1.0, False, push=False) for n in range(3)]
        self.held = 0.0  # when the lock was granted first
        self.skipped = 0
        self.actors = [self._actor(zone, distance, waits) for zone in range(3)]

    def _actor(self, zone: int, distance: float, waits: bool) -> Actor:
        process = Process(
            self.world, self.witness, f"client-{zone}", 1.0, self.servers, Guard("off", MAX_TTL)
        )
        process.distances = [0.0 if zone == master else distance for master in range(3)]
        policy = Policy(
            1.0, 0.01, 10.0, Retry(), VotingMasters(3), clock=process.clock, chance=self.world.chance,
            token=process.token, tokens=process.draw_tokens, ttl=30.0,
        )  # fmt: skip
        process.core = SimulatedClient(policy, 30.0)
        process.connect()
        return Actor(process, f"user-{zone}", self._waits(process) if waits else self._runs_once(process))

    def _waits(self, process: Process) -> Generator[Any, Any, None]:
        lock = LockState(process.core, KEY, process.core.lock_kind(KEY, False))
        outcome = yield from lock_calls.acquire(lock, True, None)
        assert not isinstance(outcome, AcquireFailure)
        self.held = self.held or self.world.now
        yield from lock_calls.release(lock)

    def _runs_once(self, process: Process) -> Generator[Any, Any, None]:
        lock = LockState(process.core, KEY, process.core.lock_kind(KEY, False))
        refusals = Refusals(process.core.policy, KEY)
        while isinstance((yield from lock_calls.acquire(lock, False, None)), AcquireFailure):
            if (yield from refusals.is_held(Contended("split"))):
                self.skipped += 1
                return
        self.held = self.world.now
        yield Sleep(HOLD)
        yield from lock_calls.release(lock)

    def run(self) -> Zones:
        self.world.wait(0.5)
        began = self.world.now
        for actor in self.actors:
            actor.start()
        self.world.run(lambda: self.world.now > LONGEST or all(actor.done for actor in self.actors))
        assert not self.witness.violations
        self.held = (self.held or self.world.now) - began
        return self


@pytest.mark.parametrize("distance", [0.0, 0.01, 0.02, 0.055, 0.11])
def test_a_job_that_is_skipped_runs_elsewhere(distance: float) -> None:
    """If all candidates say "taken", one of them held the lock."""
    for seed in range(ROUNDS):
        zones = Zones(distance, seed, waits=False).run()
        assert zones.skipped == 2
        assert zones.held < max(1.0, 40 * distance)


@pytest.mark.parametrize("distance", [0.01, 0.055, 0.11])
def test_clients_that_poll_in_distant_zones_get_the_lock(distance: float) -> None:
    for seed in range(ROUNDS):
        zones = Zones(distance, seed, waits=True).run()
        assert zones.held < max(1.0, 40 * distance)


def test_pauses_of_one_value_split_the_votes_again_and_again() -> None:
    """What the runs above would find."""

    def in_step(retry: Retry, attempt: int, round_time: float, chance: float, splits: int = 0) -> float:
        return max(retry.max_delay, round_time)

    with patch.object(Retry, "delay", in_step):
        assert max(Zones(0.055, seed, waits=True).run().held for seed in range(2)) > 10.0
