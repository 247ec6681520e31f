"""A client's process: its clock, its engine, and the actors (threads or tasks) that run in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import nullcontext
from math import inf
from typing import Any

from redlock_fast.algorithm.effects import (
    Exchange,
    Sleep,
    WaitForQuorum,
    WaitForReconnect,
    WaitForTurn,
)
from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.local_queue import LocalQueue
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy
from redlock_fast.engine.contract import Votes
from redlock_fast.locks.client_core import ClientCore
from redlock_fast.masters.client_state import ClientState
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.wire.commands import Verb

from .engine import SOCKET_TIMEOUTS, Call, Engine
from .invariants import Witness
from .renewal import SimulatedRenewal
from .server import Server
from .watches import free_for
from .world import World

#: Where clients' clocks begin: they have nothing in common with the masters'.
EPOCH = 1000.0


class Interrupted(BaseException):
    """A signal or a cancellation, as a driver throws it into a procedure."""


class Silence:
    """A log that no program reads."""

    def warn(self, event: str, master: str, text: str) -> None:
        pass

    def warn_of(self, event: str, text: str, **fields: str) -> None:
        pass


class SimulatedClientState(ClientState):
    """A client state whose leases are not released at the end of the interpreter."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.events = Silence()  # type: ignore[assignment]
        self.mutex = nullcontext()  # type: ignore[assignment]

    def add_lease(self, lease: Lease) -> None:
        self.held.add(lease)

    def add_leases(self, leases: Collection[Lease]) -> None:
        self.held.update(leases)

    def remove_lease(self, lease: Lease) -> None:
        self.held.discard(lease)


class SimulatedMasters:
    """What procedures and locks ask of masters.Masters, and of its connector."""

    def __init__(self, count: int) -> None:
        self.connector = self.roster = self.dialler = self
        self.count = count
        self.turns = LocalQueue()

    def names(self) -> list[str]:
        return [f"master {number}" for number in range(self.count)]

    def cause(self, master: int, votes: Votes) -> str:
        return str(votes.details.get(master, "no reply in time"))

    def own(self, lists: MasterLists) -> dict[int, Any]:
        """None refuses this user."""
        return {}

    def guarded_for(self, votes: Votes) -> float:
        return 0.0

    def check_open(self) -> None:
        pass

    def connect_urgently(self, seconds: float) -> None:
        """Masters are connected again as soon as they can be, here."""


class SimulatedClient(ClientCore):
    """A client's settings and counters, without its connections."""

    def __init__(self, policy: Policy, max_ttl: float) -> None:
        self.policy = policy
        self.drift_factor = policy.drift_factor
        self.max_ttl = max_ttl
        self.key_prefix = b""
        self.connect_timeout = policy.outage_timeout
        self.timeout, self.auto_extend, self.max_hold, self.plain_locks = None, False, inf, True
        self.masters = SimulatedMasters(policy.voters.lists.masters)  # type: ignore[assignment]
        self.client_state = SimulatedClientState()

    def loop_binding(self) -> None:
        """The simulation is the only loop."""


class Process:
    """``rate``: how fast its clock runs. ``wakes``: until then it is paused, and does nothing."""

    core: SimulatedClient

    def __init__(
        self, world: World, witness: Witness, name: str, rate: float, servers: list[Server], guard: Guard
    ) -> None:
        self.world = world
        self.witness = witness
        self.name = name
        self.rate = rate
        self.wakes = 0.0
        self.socket_timeout = SOCKET_TIMEOUTS[world.draw(len(SOCKET_TIMEOUTS))]
        #: By master: the seconds that a message takes at least, because the master is in another zone.
        self.distances = [0.0] * len(servers)
        self.paused_for = 0.0
        #: After a pause, time-outs come before the replies that were waiting, or behind them.
        self.timers_late = 0.0
        self.dead = False
        self.actors: list[Actor] = []
        self.tokens = 0
        #: The longest time (seconds) between a lock being free and the report to a process that watches it.
        self.noticed_within = inf
        self.engine = Engine(self, servers, guard)
        self._renewal: SimulatedRenewal | None = None

    def __str__(self) -> str:
        return self.name

    def clock(self) -> float:
        return self.reading(self.world.now)

    def reading(self, true_time: float) -> float:
        """What the clock reads then."""
        return EPOCH + true_time * self.rate

    def true_time(self, reading: float) -> float:
        """When the clock reads, or read, that."""
        return (reading - EPOCH) / self.rate

    def token(self) -> bytes:
        self.tokens += 1
        return b"%s#%d." % (self.name.encode(), self.tokens)

    def draw_tokens(self, count: int) -> list[bytes]:
        return [self.token() for _ in range(count)]

    def renewal(self) -> SimulatedRenewal:
        """What extends its locks in the background."""
        if self._renewal is None:
            self._renewal = SimulatedRenewal(self)
        return self._renewal

    def begin(self, name: str, script: Generator[Any, Any, Any]) -> None:
        """Another actor, from now on."""
        self.world.at(self.world.now, Actor(self, name, script).start)

    def connect(self) -> None:
        for number in range(len(self.engine.servers)):
            self.engine.connect(number)

    # --- what may happen to it ---

    def pause(self, seconds: float, timers_late: bool) -> None:
        """It stops: SIGSTOP, a long collection of garbage, a suspended machine."""
        now, until = self.world.now, max(self.wakes, self.world.now + seconds)
        self.paused_for += until - max(self.wakes, now)
        self.wakes = until
        self.timers_late = 1e-9 * timers_late

    def die(self, arriving: int) -> None:
        """It is killed; of what it sent, so many requests on each connection arrive."""
        self.dead = True
        for connection in self.engine.connections:
            if connection is not None:
                connection.reset(arriving, replies_too=True)


class Actor:
    """Performs the effects of one script, as a driver does."""

    def __init__(self, process: Process, name: str, script: Generator[Any, Any, Any]) -> None:
        self.process = process
        self.world = process.world
        self.name = name
        self.script = script
        self.finished = False
        #: Interrupt at the next effect: before it is performed, or after. None: do not.
        self.interrupt_next: bool | None = None
        self._turn = 0
        self._call: Call | None = None
        process.actors.append(self)

    def __str__(self) -> str:
        return self.name

    @property
    def done(self) -> bool:
        return self.finished or self.process.dead

    def start(self) -> None:
        self._advance(self.script.send, None)

    def interrupt(self) -> None:
        """Now, while it waits."""
        if self.done:
            return
        if self.process.wakes > self.world.now:
            self.world.at(self.process.wakes, self.interrupt)
            return
        self.world.note(self.name, "is interrupted")
        self._forget()
        self._advance(self.script.throw, Interrupted())

    def _advance(self, resume: Callable[[Any], Any], argument: Any) -> None:
        while True:
            try:
                effect = resume(argument)
            except StopIteration:
                self.finished = True
                return
            except Exception as error:
                self.finished = True
                self.process.witness.violated("E", f"{self.name} raised {error!r}")
                return
            resume = self.script.send
            if self.interrupt_next is None:
                waiting, argument = self._perform(effect)
                if waiting:
                    return
                continue
            if self.interrupt_next:
                self._perform(effect)
                self._forget()
            self.interrupt_next = None
            self.world.note(self.name, "is interrupted at an effect")
            resume, argument = self.script.throw, Interrupted()

    def _forget(self) -> None:
        """No procedure waits for the effect any more; what was sent stays sent."""
        self._turn += 1
        call, self._call = self._call, None
        if call is not None:
            call.forget()

    def _perform(self, effect: Any) -> tuple[bool, Any]:
        """Whether there is something to wait for, and what came of it if not."""
        self._turn += 1
        turn, world = self._turn, self.world
        if isinstance(effect, Exchange):
            world.on_exchange()
            call = self.process.engine.exchange(effect, lambda: world.at(world.now, self._resume, turn))
            if call.undecided <= 0:
                self._turn += 1  # it has been rung
                return False, call.answer()
            self._call = call
        elif type(effect) in (Sleep, WaitForReconnect):
            world.after(effect.seconds / self.process.rate, self._resume, turn)
        elif type(effect) is WaitForTurn:
            return self._queue(effect, turn), None
        else:
            assert type(effect) is WaitForQuorum
            return self._connect(effect, turn), None
        return True, None

    def _queue(self, effect: WaitForTurn, turn: int) -> bool:
        world, entry = self.world, effect.entry
        world.counts["turns"] += 1
        entry.slot.wake = lambda: world.at(world.now, self._resume, turn)
        if entry.is_first:
            return False
        if effect.seconds < inf:
            world.after(effect.seconds / self.process.rate, self._resume, turn)
        return True

    def _connect(self, effect: WaitForQuorum, turn: int) -> bool:
        engine = self.process.engine
        self.process.core.client_state.ready = True
        if engine.connected() >= self.process.core.policy.voters.lists.least:
            return False
        engine.on_attach.append(lambda: self._look(turn))
        self.world.after(effect.timeout / self.process.rate, self._resume, turn)
        return True

    def _look(self, turn: int) -> None:
        lists = self.process.core.policy.voters.lists
        if turn == self._turn and self.process.engine.connected() >= lists.least:
            self._resume(turn)

    def _resume(self, turn: int) -> None:
        """Go on, unless it was interrupted before."""
        if turn != self._turn or self.done:
            return
        if self.process.wakes > self.world.now:
            self.world.at(self.process.wakes, self._resume, turn)
            return
        call, self._call = self._call, None
        if call is None:
            self._advance(self.script.send, None)
            return
        answer = call.answer()
        if any(request.subscription for request in call.requests):
            self._ends_watch(call)
        call.forget()
        self._advance(self.script.send, answer)

    def _ends_watch(self, call: Call) -> None:
        watch = call.requests[-1].request
        if watch.verb != Verb.WATCH:
            return  # other kinds wait for more than one key
        late = free_for(call)
        if late > self.process.noticed_within:
            key = watch.args[0]
            self.process.witness.violated("L1", f"{self} slept while {key!r} was free for {late:.3f} s")
