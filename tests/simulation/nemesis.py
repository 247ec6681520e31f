"""The faults, injected while a client exchanges requests with the masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .actors import MAX_TTL
from .network import Connection
from .process import Actor, Process
from .server import Server
from .world import World

#: The longest restart guard: a master that lost its memory comes back when all leases have ended.
GUARD = MAX_TTL * 1.2


#: Injects a fault. Returns the text for the trace, with the victim.
Fault = Callable[["Nemesis"], str]
MISSED = ""


@dataclass
class Nemesis:
    """``band``: within which (seconds) masters' clocks may step. ``guard``: the clients' mode.

    ``careless``: more than the algorithm allows: no client guards against masters without memory.
    """

    world: World
    servers: list[Server]
    processes: list[Process]
    actors: list[Actor]
    band: float
    guard: str
    careless: bool = False
    plan: dict[int, list[Fault]] = field(default_factory=dict)
    exchanges: int = 0

    def conspire(self, faults: int, kinds: Sequence[Fault]) -> None:
        """Plan faults, each for an exchange by its number."""
        for _ in range(faults):
            kind = kinds[self.world.draw(len(kinds))]
            self.plan.setdefault(self.world.draw(24), []).append(kind)
        self.world.on_exchange = self._exchange_begins

    def _exchange_begins(self) -> None:
        """What was planned for it happens while it is under way."""
        for kind in self.plan.pop(self.exchanges, ()):
            self.world.after(self.world.delay(), self._strike, kind)
        self.exchanges += 1

    def _strike(self, kind: Fault) -> None:
        name, context = kind.__name__.replace("_", " "), kind(self)
        if context != MISSED:
            self.world.counts[f"fault: {name}"] += 1
            self.world.note("NEMESIS", f"{name}: {context}")

    def heal(self) -> None:
        """Nothing goes wrong from here on, and what is down comes back."""
        self.plan.clear()

    def may_forget(self, server: Server) -> bool:
        """ "auto" trusts a master that it sees for the first time."""
        alive = (process for process in self.processes if not process.dead)
        return self.guard != "auto" or all(one.engine.states[server.number].guard.known for one in alive)

    def may_notice(self, server: Server) -> bool:
        """All clients learn that its data is not what it was; but one that comes later does not."""
        alive = [process for process in self.processes if not process.dead]
        connections = [one.engine.connections[server.number] for one in alive]
        reached = all(connection is not None and not connection.cut for connection in connections)
        return self.guard in ("auto", "strict") and server.push and reached

    # --- victims ---

    def server(self) -> Server:
        return self.servers[self.world.draw(len(self.servers))]

    def process(self) -> Process:
        return self.processes[self.world.draw(len(self.processes))]

    def actor(self) -> Actor:
        return self.actors[self.world.draw(len(self.actors))]

    def until(self) -> float:
        """When something will be in order again."""
        return self.world.now + self.world.disturbance()

    def connection(self) -> Connection | None:
        process = self.process()
        return process.engine.connections[self.world.draw(len(self.servers))]


def slow_requests(it: Nemesis) -> str:
    until, connection = it.until(), it.connection()
    if connection is None:
        return MISSED
    connection.not_before = until
    return f"{connection} until {until * 1000:.3f} ms"


def slow_replies(it: Nemesis) -> str:
    until, connection = it.until(), it.connection()
    if connection is None:
        return MISSED
    connection.silent_until = until
    return f"{connection} until {until * 1000:.3f} ms"


def slow_client(it: Nemesis) -> str:
    """All its requests are late on most masters."""
    process, until = it.process(), it.until()
    for connection in process.engine.connections[it.world.draw(2) :]:
        if connection is not None:
            connection.not_before = until
    return f"{process} until {until * 1000:.3f} ms"


def reset(it: Nemesis) -> str:
    """What was on its way is lost, or executed late."""
    until, connection = it.until(), it.connection()
    if connection is None or connection.cut:
        return MISSED
    connection.not_before = until
    connection.reset(arriving=it.world.draw(4), replies_too=it.world.draw(2) == 1)
    return f"{connection}, what was on its way may come until {until * 1000:.3f} ms"


def hang_up(it: Nemesis) -> str:
    """A client gives up a connection that is stuck; what it wrote to it is executed later."""
    until, connection = it.until(), it.connection()
    if connection is None or connection.cut:
        return MISSED
    connection.not_before = until
    soon = it.world.now + (until - it.world.now) * it.world.chance()
    it.world.at(soon, connection.engine.give_up_if_used, connection)
    return f"{connection} at {soon * 1000:.3f} ms, what is on its way comes at {until * 1000:.3f} ms"


def partition(it: Nemesis) -> str:
    """One client loses most of its connections."""
    process, until = it.process(), it.until()
    for connection in process.engine.connections[it.world.draw(2) :]:
        if connection is not None and not connection.cut:
            connection.not_before = until
            connection.reset(arriving=it.world.draw(4), replies_too=True)
    return f"{process}, what was on its way may come until {until * 1000:.3f} ms"


def stop_master(it: Nemesis) -> str:
    server, until = it.server(), it.until()
    server.stopped_until = until
    return f"{server} until {until * 1000:.3f} ms"


def crash_with_memory(it: Nemesis) -> str:
    """Everything that was acknowledged is still there afterwards."""
    return crash(it, it.server(), False)


def crash_without_memory(it: Nemesis) -> str:
    server = it.server()
    return crash(it, server, not server.durable and it.may_forget(server))


def crash(it: Nemesis, server: Server, forgetting: bool) -> str:
    if not server.up:
        return MISSED
    server.crash(forgetting)
    delayed = forgetting and it.guard == "off" and not it.careless
    it.world.after(it.world.disturbance() + GUARD * delayed, server.start)
    return str(server)


def flushall(it: Nemesis) -> str:
    """The marker shows it, and clients get a push."""
    server = it.server()
    if it.guard != "marker" and not it.careless and not it.may_notice(server):
        return MISSED
    server.flush()
    return str(server)


def change_role(it: Nemesis) -> str:
    """A master becomes a replica of another, or of an empty one, and a master again, in one process."""
    server, other, until = it.server(), it.server(), it.until()
    if not server.up or server.replica or not it.may_notice(server):
        return MISSED
    # Keys end by the clock of the master that set them: so from one with a clock like its own.
    server.demote(other if other is not server and other.skew == server.skew else None)
    it.world.at(until, server.promote)
    return f"{server} until {until * 1000:.3f} ms"


def lose_disk(it: Nemesis) -> str:
    """A durable master restarts with an empty disk."""
    server = it.server()
    if not it.may_notice(server):
        return MISSED
    return crash(it, server, True)


def old_disk(it: Nemesis) -> str:
    """A durable master restarts with the disk that it had some time ago."""
    server, until = it.server(), it.until()
    data = server.snapshot()

    def restart() -> None:
        if server.up and it.may_notice(server):
            crash(it, server, True)
            server.restore(data)

    it.world.at(until, restart)
    return f"{server} at {until * 1000:.3f} ms"


def step_clock(it: Nemesis) -> str:
    """A master's wall clock is set, to anywhere within the band."""
    server = it.server()
    server.set_clock(it.band * it.world.chance())
    return f"{server} by {server.offset * 1000:.3f} ms"


def pause_client(it: Nemesis) -> str:
    process, until = it.process(), it.until()
    process.pause(until - it.world.now, timers_late=it.world.draw(2) == 1)
    return f"{process} until {until * 1000:.3f} ms"


def kill_client(it: Nemesis) -> str:
    process = it.process()
    if process.dead or sum(not one.dead for one in it.processes) == 1:
        return MISSED
    process.die(arriving=it.world.draw(4))
    return str(process)


def interrupt(it: Nemesis) -> str:
    actor = it.actor()
    actor.interrupt()
    return str(actor)


def interrupt_at_effect(it: Nemesis) -> str:
    """Before it is performed, or after."""
    actor = it.actor()
    actor.interrupt_next = it.world.draw(2) == 1
    return str(actor)


#: The most frequent are there more than once.
FAULTS: tuple[Fault, ...] = (
    slow_requests,
    slow_replies,
    slow_client,
    slow_client,
    reset,
    reset,
    hang_up,
    hang_up,
    hang_up,
    partition,
    stop_master,
    stop_master,
    crash_with_memory,
    crash_without_memory,
    crash_without_memory,
    flushall,
    step_clock,
    pause_client,
    pause_client,
    kill_client,
    interrupt,
    interrupt,
    interrupt_at_effect,
)
#: What a master is, and what it has: not what it was.
CHANGES: tuple[Fault, ...] = (flushall, change_role, lose_disk, old_disk)
#: By which a release comes to some masters only, or a client that waits loses connections.
TROUBLES: tuple[Fault, ...] = (slow_requests, reset, kill_client)
#: By which a request is executed after later ones, and masters miss an acquire.
BACKLOGS: tuple[Fault, ...] = (hang_up, hang_up, slow_replies, stop_master)
