"""One run: its processes, its faults, and the checks at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

from redlock_fast.algorithm import attempts as _tries
from redlock_fast.algorithm import refill as _refill
from redlock_fast.algorithm.attempts import MAX_POLL_INTERVAL
from redlock_fast.algorithm.crowds import Crowds
from redlock_fast.algorithm.lock_kind import wire_ttl
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry, quorum
from redlock_fast.engine.contract import Wait
from redlock_fast.locks import fair, rwlock
from redlock_fast.masters.restart_guard import Guard

from .actors import MAX_TTL, Script, User
from .choices import Choices
from .invariants import Witness
from .nemesis import BACKLOGS, CHANGES, FAULTS, TROUBLES, Nemesis
from .process import Actor, Process, SimulatedClient
from .server import Server
from .world import WEATHERS, World

MASTERS = 3, 4, 5, 7
KINDS = (
    *("plain", "extending", "batches", "fencing", "waiting"),
    *("renewing", "reentrant", "readwrite", "semaphore", "multilock", "fair"),
    "straight",
)
#: Kinds of clients that extend: what is executed late matters to them.
EXTENDERS = frozenset({"extending", "renewing", "reentrant", "readwrite", "semaphore", "multilock", "fair"})
#: Locks that are one key: what masters execute is replayed through the model of a master.
ONE_KEY = frozenset(KINDS) - {"readwrite", "semaphore", "multilock", "fair"}
#: Kinds whose callers wait in a queue, or for a turn, if many clients want the lock.
CROWDED = ONE_KEY | {"readwrite", "multilock"}
#: Which masters push to waiting clients: none, all, or those that can.
WAITS = "poll", "push", "some push"
GUARDS = "auto", "strict", "marker", "off"
DRIFTS = 0.01, 0.1
NODE_TIMEOUT = 0.05
SKEWS = 0.0, 10.0, -10.0
DISTANCES = 0.0, 0.0, 0.0, 0.0, 0.0, 0.005, 0.01, 0.02
RESOURCES = b"a", b"b", b"c"
#: The longest time (seconds) until a process that watches a lock knows that it is free, without messages:
#: clocks that run differently put off the end of a lease.
NOTICED_WITHIN = 0.1
#: A client that waits for a push does not poll: that would hide that the push never came.
NEVER = 1e6
#: Everything is over by then (seconds).
HORIZON = 60.0
#: Time for all that is late to come, and for every lease to end.
RECOVERY = 5 * MAX_TTL


@dataclass(frozen=True)
class Result:
    """``violations``: rule and how."""

    violations: list[tuple[str, str]]
    counts: Counter[str]
    story: str
    choices: Choices

    def broken(self) -> set[str]:
        return {rule for rule, _ in self.violations}


class Scenario:
    """The first four choices: how many masters, what decides, what clients do, how they wait.

    ``steps``: the masks of the lists of each step of a change; each process is at one of them. Without them
    all masters are the list of all processes.
    """

    def __init__(
        self,
        choices: Choices,
        tracing: bool = False,
        careless: bool = False,
        steps: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self.choices = choices
        self.steps = steps
        draw = choices.draw
        self.masters = MASTERS[draw(len(MASTERS))]
        self.wait = (Wait.CERTAIN, Wait.ALL)[draw(2)]
        self.kind = KINDS[draw(len(KINDS))]
        self.world = world = World(choices, tracing)
        self.witness = Witness(world, self.masters)
        if steps:
            self.witness.quorum = min(quorum(mask.bit_count()) for step in steps for mask in step)
        self.waiting = WAITS[draw(len(WAITS)) or int(self.kind == "waiting")]
        #: Whether callers take places on the masters, of which the model knows nothing.
        self.queues = self.kind in CROWDED and not steps and self.waiting == "push" and draw(2) == 1
        if self.kind in ONE_KEY and not steps and not self.queues:
            self.witness.history = []
        self.drift = DRIFTS[draw(2)]
        world.delays = WEATHERS[draw(len(WEATHERS))]
        mode = "off" if careless else GUARDS[draw(len(GUARDS))]
        self.guard = Guard(mode, MAX_TTL)
        self.servers = [
            Server(world, self.witness, n, self.rate(), draw(4) == 3, self.pushing(), self.skew())
            for n in range(self.masters)
        ]
        self.refill = draw(4) != 3
        self.resources = RESOURCES[: 1 + draw(2) + (self.kind in ("batches", "multilock"))]
        #: Seconds that a message takes to a master in another zone.
        self.distance = DISTANCES[draw(len(DISTANCES))]
        self.processes: list[Process] = []
        self.actors = [self.actor(number) for number in range(2 + draw(3))]
        self._busy = self.actors[:]
        # What is left of the drift when all clocks run as differently as they may.
        band = 0.3 * self.drift * 0.1
        self.nemesis = Nemesis(world, self.servers, self.processes, self.actors, band, mode, careless)
        self.nemesis.conspire(draw(6), FAULTS)
        self.nemesis.conspire(draw(4), CHANGES)
        if self.kind == "waiting":
            self.nemesis.conspire(draw(4), TROUBLES)
        if self.kind in EXTENDERS:
            self.nemesis.conspire(draw(6), BACKLOGS)

    def rate(self) -> float:
        """Of a clock: a third of the drift is for clients, a third for masters, the rest for steps."""
        return 1.0 + 0.35 * self.drift * (0, 1, -1)[self.world.draw(3)]

    def skew(self) -> float:
        """How far a master's clock is from others', in seconds. It matters to fencing tokens only."""
        return 0.0 if self.kind == "fencing" else SKEWS[self.world.draw(len(SKEWS))]

    def pushing(self) -> bool:
        """Of a master."""
        return self.waiting == "push" or (self.waiting == "some push" and self.world.draw(2) == 0)

    def process(self) -> Process:
        name = f"client-{len(self.processes)}"
        masks = self.steps[self.world.draw(len(self.steps))] if self.steps else ()
        process = Process(self.world, self.witness, name, self.rate(), self.servers, self.guard)
        zone = len(self.processes) % self.masters
        process.distances = [self.distance * (zone != n) for n in range(self.masters)]
        policy = Policy(
            node_timeout=NODE_TIMEOUT + 6 * self.distance,
            drift_factor=self.drift,
            outage_timeout=0.3,
            retry=Retry(0.005, 0.1),
            voters=VotingMasters(self.masters, *masks),
            wait=self.wait,
            clock=process.clock,
            chance=self.world.chance,
            token=process.token,
            tokens=process.draw_tokens,
            step=wire_ttl(MAX_TTL / 2),
            push=self.waiting != "poll",
            refill=self.refill,
            crowds=Crowds(fair.QueuedKind if self.queues else None),
            ttl=0.2,
        )
        process.noticed_within = NOTICED_WITHIN + 5 * (self.world.delays[-1] + self.distance)
        if not all(server.push for server in self.servers):
            process.noticed_within += MAX_POLL_INTERVAL
        process.core = SimulatedClient(policy, MAX_TTL)
        self.processes.append(process)
        # Some come later: then masters may have restarted before they ever saw them.
        self.world.after(self.world.disturbance() if self.world.draw(4) == 3 else 0.0, process.connect)
        return process

    def actor(self, number: int) -> Actor:
        """A user with a process of its own, or another thread of the last process."""
        shared = number > 0 and self.world.draw(4) == 3
        process = self.processes[-1] if shared else self.process()
        name = f"user-{number}"
        user = User(process, name, 1 + self.world.draw(3), self.kind)
        return Actor(process, name, getattr(user, self.kind)(self.resources))

    # --- the run ---

    def run(self) -> Result:
        world = self.world
        for actor in self.actors:
            actor.start()
        world.run(self._settled)
        self.nemesis.heal()
        world.delays = WEATHERS[0]
        world.wait(RECOVERY)
        if self.guard.mode == "marker":
            self._visit()
        self._probe()
        world.run(lambda: False)
        self.witness.end({process.name for process in self.processes if process.dead})
        if not all(actor.done for actor in self.actors):
            self.witness.violated("L1", "an actor never came to an end")
        for process in self.processes:
            if process.core.client_state.held and not process.dead:
                self.witness.violated("L4", f"{process} still remembers leases that all have released")
        world.counts["runs"] += 1
        result = Result(list(self.witness.violations), world.counts, world.story(), self.choices)
        for process in self.processes:
            for actor in process.actors:
                actor.script.close()  # those of dead processes are where they were
        return result

    def _settled(self) -> bool:
        busy = self._busy
        while busy and busy[-1].done:
            busy.pop()
        return not busy or self.world.now > HORIZON

    def _survivor(self) -> Process:
        return next(process for process in self.processes if not process.dead)

    def _visit(self) -> None:
        """A marker is checked by an acquire: a master that forgot is guarded from then on."""
        process = self._survivor()
        visitor = User(process, "visitor", 1, self.patient)
        Actor(process, "visitor", visitor.take_and_release(visitor.lock(self.resources[0]))).start()
        self.world.wait(RECOVERY)

    def _probe(self) -> None:
        """L1: with a majority healthy, each process that still runs acquires what is free."""
        world, process = self.world, self._survivor()
        spare = 0 if self.steps else self.masters - quorum(self.masters)
        for number in range(world.draw(spare + 1)):
            server = self.servers[(number + world.draw(self.masters)) % self.masters]
            if world.draw(2) and server.up:
                server.crash(forgetting=False)
            else:
                server.stopped_until = world.now + 10.0
        actor = Actor(process, "probe", self._acquire_all(process))
        actor.start()
        world.run(lambda: actor.finished)

    @property
    def patient(self) -> str:
        """The kind of a client that tries again."""
        return "plain" if self.kind == "straight" else self.kind

    def _acquire_all(self, process: Process) -> Script:
        user = User(process, "probe", 1, self.patient)
        for resource in self.resources:
            if not (yield from user.take_and_release(user.lock(resource))) and self._clocks_agree():
                self.witness.violated("L1", f"{resource!r} was free and could not be acquired")

    def _clocks_agree(self) -> bool:
        """Whether the masters' clocks still differ by as little as fencing tokens need."""
        clocks = [server.time() for server in self.servers]
        return self.kind != "fencing" or max(clocks) - min(clocks) < MAX_TTL / 2


def run(
    choices: Choices,
    tracing: bool = False,
    careless: bool = False,
    steps: Sequence[tuple[int, ...]] = (),
) -> Result:
    with (
        patch.object(_tries, "REARM", NEVER),
        # Few clients are many.
        patch.object(_tries, "REFUSED_ROUNDS", 1),
        patch.object(_tries, "LONG_QUEUE", 0),
        # What a dead client leaves in queues ends within a run.
        patch.object(rwlock, "REARM", 0.2),
        patch.object(fair, "ENTRY_TTL", 0.6),
        # Leases of a simulation are not extended often enough for what happens at every eighth extension.
        patch.object(_refill, "RECHECK_EVERY", 2),
    ):
        return Scenario(choices, tracing, careless, steps).run()
