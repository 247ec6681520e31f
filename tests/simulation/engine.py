"""An engine in virtual time, after the contract in engine/contract.py.

Votes are counted by the pure engine's own code; connections are the simulated ones, and what the connector
of masters/connector.py does is here too: it lets go of broken and hopeless connections and makes new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from redlock_fast.algorithm.effects import Exchange
from redlock_fast.algorithm.quorum import deadline
from redlock_fast.engine.contract import FAULT, LAG_AFTER, Batch, Request
from redlock_fast.engine.pure.request import PendingRequest
from redlock_fast.engine.pure.subscriptions import Subscriptions
from redlock_fast.engine.pure.waiter import Waiter, answers
from redlock_fast.masters.address import Target
from redlock_fast.masters.master import Master
from redlock_fast.masters.probe import Server as Introduction
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.wire.commands import Verb

from .commands import look
from .network import BROKEN, Connection
from .requests import ACQUIRES, RELEASES, WATCHES, places, ttl
from .server import Server

if TYPE_CHECKING:
    from .process import Process

#: A master that is silent for longer (seconds) is connected again: after ``socket_timeout``, or as soon as it
#: may have replied on a new connection, where too few others reply.
SOCKET_TIMEOUTS = 0.3, 0.3, 0.3, 0.06


def no_connection(timeout: float, protocol: int) -> NoReturn:
    """Connections are simulated, not made from a target."""
    raise AssertionError


class Call(Waiter):
    """An exchange under way: ``done`` is called once, when it is decided.

    ``began``: when; ``voters``: whose yes counted then.
    """

    __slots__ = ("began", "done", "engine", "submitted", "voters")

    def __init__(
        self, engine: Engine, requests: list[Request] | Batch, count: int, done: Callable[[], None]
    ) -> None:
        super().__init__()
        self.undecided = count
        self.engine = engine
        self.submitted = requests
        self.began = engine.world.now
        self.voters = engine.process.core.policy.voters.mask
        self.done = done

    def notify(self) -> None:
        self.done()

    def on_deadline_moved(self, deadline: float) -> None:
        world = self.engine.world
        world.at(max(deadline, world.now), self.engine.expire, self)

    def forget(self) -> None:
        """No caller waits for it any more."""
        for request in self.requests:
            request.waiter = None
            request.decide()
        self.undecided = 0

    def answer(self) -> Any:
        process = self.engine.process
        start = process.reading(self.began)

        def end(op: PendingRequest) -> float:
            return process.true_time(deadline(start, ttl(op.request), process.core.drift_factor))

        process.witness.votes.answered(self.requests, self.began, end)
        return answers(self.submitted, self.requests)


class Engine:
    """One connection for each master, shared by all actors of a process."""

    def __init__(self, process: Process, servers: list[Server], guard: Guard) -> None:
        self.process = process
        self.guard = guard
        targets = [Target(f"master {n}", (n,), no_connection, None) for n in range(len(servers))]
        self.states = [Master(target) for target in targets]
        self.world = process.world
        self.servers = servers
        self.connections: list[Connection | None] = [None] * len(servers)
        self.kept: list[deque[PendingRequest]] = [deque() for _ in servers]
        self.on_attach: list[Callable[[], None]] = []
        self.subscriptions = Subscriptions()

    # --- exchanges ---

    def exchange(self, effect: Exchange, done: Callable[[], None]) -> Call:
        world, requests = self.world, effect.requests
        rows = requests.requests() if isinstance(requests, Batch) else requests
        call = Call(self, requests, len(rows), done)
        for request in rows:
            if request.verb in ACQUIRES:
                self.process.witness.draws(self.process.name, places(request)[0][1])
            until = world.now + request.resend_for
            need = effect.need if request.awaited else 0
            call.requests.append(
                PendingRequest(request, len(self.servers), need, effect.wait, call, until)
            )
        if not effect.need and rows and rows[0].verb in RELEASES:
            world.counts["undos"] += len(rows)
        if world.trace is not None:
            self._note(rows, effect)
        call.begin(world.now, effect.timeout / self.process.rate, effect.stall / self.process.rate)
        for op in call.requests:
            self._submit(call, op)
        if call.undecided > 0:
            world.at(call.deadline(), self.expire, call)
        return call

    def _note(self, rows: list[Request], effect: Exchange) -> None:
        for request in rows:
            line = b" ".join([Verb(request.verb).name.encode(), *request.args[:2]])
            words = b" ".join(line.split()).decode()
            self.world.note(self.process, f"sends {words} to {request.masters:b}, needs {effect.need}")

    def expire(self, call: Call) -> None:
        """Decide what its time is over for."""
        world = self.world
        if call.undecided <= 0:
            return
        if self.process.wakes > world.now:
            world.at(self.process.wakes + self.process.timers_late, self.expire, call)
        else:
            if (deadline := call.deadline()) <= world.now:
                world.counts["time-outs"] += 1
            if (deadline := call.expire(world.now)) < inf:
                world.at(deadline, self.expire, call)

    def _submit(self, call: Call, op: PendingRequest) -> None:
        """Rules 7 and 8 of the contract: which masters are asked, and which requests are kept."""
        request, now = op.request, self.world.now
        targets, lagging = [], []
        for number in range(len(self.servers)):
            connection = self.connections[number]
            if not request.masters >> number & 1:
                op.count(number, FAULT, "not asked")
            elif connection is None or self._hopeless(connection):
                op.count(number, FAULT, "not connected")
                self._keep(number, op)
            elif connection.owed and now - connection.owed[0][1] > LAG_AFTER:
                lagging.append(connection)
            else:
                targets.append(connection)
        healthy = sum([1 << connection.server.number for connection in targets])
        if lagging and (request.resend_for or not op.is_quorum(healthy)):
            targets += lagging
        else:
            for connection in lagging:
                op.count(connection.server.number, FAULT, "lagging")
        for connection in targets:
            op.sent |= 1 << connection.server.number
            if request.verb in WATCHES:
                self.subscriptions.add(op, connection.server.number, WATCHES[Verb(request.verb)])
        self.world.counts["watches"] += op.subscription is not None
        op.pending = len(targets)
        if op.need:
            op.settle()
        else:
            op.decide()
        for connection in targets:
            self.send(connection, op)

    def send(self, connection: Connection, op: PendingRequest) -> None:
        connection.send(op)

    # --- the connections' lives ---

    def connected(self) -> int:
        return len(self.servers) - self.connections.count(None)

    def connect(self, number: int) -> None:
        """Connect; a master that is down or stopped is connected when it is back."""
        self.world.after(self.world.delay(), self._try_connect, number)

    def _try_connect(self, number: int) -> None:
        server, world, process = self.servers[number], self.world, self.process
        if process.dead or self.connections[number] is not None:
            return
        if not server.up or server.replica:
            server.on_start.append(lambda: self.connect(number))
        elif (hold_up := max(server.stopped_until, process.wakes)) > world.now:
            world.at(hold_up, self.connect, number)
        else:
            self._attach(number, server)

    def _attach(self, number: int, server: Server) -> None:
        introduced = server.introduction(**server.identity())
        state = self.states[number]
        known = state.server if state.guard.known else None
        mark = self.guard.marker(introduced, known)
        if mark is not None:
            introduced = introduced._replace(guarded=look(server, mark) / 1000)
        self._attach_unless_duplicate(state, introduced)
        compared = mark if self.guard.mode == "marker" else None
        connection = self.connections[number] = Connection(self, server, compared)
        server.connections.append(connection)
        kept = self.kept[number]
        while kept:
            op = kept.popleft()
            if op.resend_until > self.world.now:
                self.world.counts["replays"] += 1
                connection.send(PendingRequest(op.request, len(self.servers), 0, 0, None, op.resend_until))
            else:
                self.process.witness.excuse(number, places(op.request))
        self.subscriptions.end()
        for attached in self.on_attach:
            attached()

    def _attach_unless_duplicate(self, master_state: Master, introduced: Introduction) -> None:
        """Record the master's identity and whether its grants count, before any request is sent to it."""
        process = self.process
        master_state.on_connected(introduced, self.guard, process.clock())
        if master_state.guard.until:
            self.world.counts["guarded"] += 1
            self.world.note(process, f"does not count on {introduced.run_id} for now")
            self.world.at(process.true_time(master_state.guard.until), self._end_guard, master_state)
        self._elect()

    def _end_guard(self, master_state: Master) -> None:
        if self.process.wakes > self.world.now:
            self.world.at(self.process.wakes, self._end_guard, master_state)
        elif master_state.guard.until and self.process.clock() >= master_state.guard.until - 1e-9:
            master_state.guard.until = 0.0
            self._elect()

    def _elect(self) -> None:
        mask = sum(
            1 << number for number, master_state in enumerate(self.states) if not master_state.guard.until
        )
        voters = self.process.core.policy.voters
        voters.mask = mask
        voters.all_push = all(server.push for server in self.servers)

    def _keep(self, number: int, op: PendingRequest) -> None:
        """For the next connection, while it is worth it."""
        if op.request.resend_for and op.resend_until > self.world.now:
            self.kept[number].append(op)
        elif op.request.resend_for:
            self.process.witness.excuse(number, places(op.request))

    def notice_soon(self, connection: Connection) -> None:
        self.world.after(self.world.delay(), self._notice, connection)

    def _notice(self, connection: Connection) -> None:
        """The client sees that the connection is broken."""
        if connection.over:
            return
        if self.process.wakes > self.world.now:
            self.world.at(self.process.wakes, self._notice, connection)
            return
        self._let_go(connection)

    def _let_go(self, connection: Connection) -> None:
        """Rule 6: all that is owed is a fault now, or kept."""
        number = connection.server.number
        connection.over = True
        self.connections[number] = None
        self.states[number].guard.lost_at = self.process.clock()
        connection.server.connections.remove(connection)
        owed = [op for op, _ in connection.owed]
        for op in owed:
            op.on_reply(number, self.world.now)
            op.count(number, FAULT, BROKEN)
            op.settle()
            self._keep(number, op)
        self.subscriptions.fail(number, BROKEN)
        if not self.process.dead:
            self.connect(number)

    def flushed(self, connection: Connection) -> None:
        """The master reported that all its keys are deleted."""
        self.states[connection.server.number].guard.flushed = True
        self.identify_again(connection)

    def identify_again(self, connection: Connection) -> None:
        """Connect again: no vote of the master counts before its identity is known again."""
        if not connection.over:
            self.world.counts["identified again"] += 1
            connection.close()
            self._let_go(connection)

    def _hopeless(self, connection: Connection) -> bool:
        """Silent for too long: given up."""
        owed, now = connection.owed, self.world.now
        if not owed or now - owed[0][1] <= self.process.socket_timeout or connection.cut:
            return False
        self.give_up(connection)
        return True

    def give_up_if_used(self, connection: Connection) -> None:
        if not connection.cut and self.process.wakes <= self.world.now:
            self.give_up(connection)

    def give_up(self, connection: Connection) -> None:
        """Make a new connection. The master still executes what was written to this one, whenever that comes.

        The undo of requests that have failed follows them on the same connection.
        """
        self.world.counts["masters hung up on"] += 1
        for op, _ in list(connection.owed):
            undo = connection.commands[op.request.verb][1]
            if undo is not None and op.has_failed():
                self.world.counts["undone at giving up"] += 1
                request = Request(undo, op.request.args, 0)
                now = self.world.now
                connection.send(PendingRequest(request, len(self.servers), 0, 0, None, now), silently=True)
        connection.close()
        self._let_go(connection)
