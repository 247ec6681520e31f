"""Requests to the pure-Python engine: from threads, which wait, and from an event loop, which does not."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from ..contract import NOT_ASKED, NOT_SENT, Batch, BatchVotes, Request, Votes, Wait
from .connection import Lane, Slot, on_line
from .hub import SLICE, Hub
from .poller import Watch
from .requests import Op, Template, Vigil, Waiter


class Ticket(Waiter):
    """What an event loop submitted: nobody is rung when it is decided, the loop is told."""

    __slots__ = ("context", "desk", "requests")

    def __init__(self, requests: Sequence[Request] | Batch, context: object, desk: Desk) -> None:
        super().__init__(0)
        self.requests = requests
        self.context = context
        self.desk = weakref.ref(desk)  # which has its connections, which know the requests, which know me

    def ring(self) -> None:
        if self.partly and not all(op.decided for op in self.ops):
            return
        if (desk := self.desk()) is not None:
            desk.tell(self)

    def hasten(self, due: float) -> None:
        if (desk := self.desk()) is not None:
            desk.hasten(due)

    def end(self) -> list[Op]:
        """The requests, let go of, as is ``context``."""
        ops, self.ops, self.context = self.ops, [], None
        return ops


class Desk(Hub):
    """What callers hand over, and what they get for it."""

    def _reset(self) -> None:
        super()._reset()
        self._tickets: dict[Ticket, None] = {}  # submitted, and not yet told
        self._told: deque[Ticket] = deque()  # decided
        self._soonest = inf  # no ticket is due before
        self._collecting = False

    # --- for threads -------------------------------------------------------------------------

    def exchange(
        self,
        requests: Sequence[Request] | Batch,
        need: int,
        timeout: float,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> Any:
        now = monotonic()
        me = Waiter(0)
        ops = self._ops(me, requests, need, wait, now)
        me.since(now, timeout, stall)
        undecided = ops[:]

        def done() -> bool:
            while undecided and undecided[-1].decided:
                undecided.pop()
            return not undecided

        try:
            for op in ops:
                self._submit(me, op, now)
            self._news = True
            if done():
                self._hand_over(now + SLICE)
            elif me.watching:
                me.ops = ops
                self._run(me, lambda: self._watch_for(me, done))
            else:
                self._run(me, lambda: self._wait(me, done))
        finally:  # an interrupt too ends the waiting: what comes later is nobody's
            result = answers(requests, ops)
            if me.watching:
                me.ops = []
                self._end_vigils(ops)
            self._sweep()
        return result

    def _watch_for(self, me: Waiter, done: Callable[[], bool]) -> None:
        """Wait as the others do, for as long as there are requests that do not watch; then look out."""
        others = [op for op in me.ops if op.vigil is None]
        if others:
            self._wait(me, lambda: all(op.decided for op in others))
            self._leave(me)  # it may end with the lead, which nobody else would take from a lookout
        self._look_out(me, done)

    def _end_vigils(self, ops: list[Op]) -> None:
        for op in ops:
            self._vigils.discard(op)

    def drain(self, timeout: float) -> bool:
        def done() -> bool:
            return all(lane.idle() for lane in self._lanes)

        me = Waiter(1)
        me.since(monotonic(), timeout)
        self._run(me, lambda: self._wait(me, done))
        self._sweep()
        return done()

    # --- for an event loop -------------------------------------------------------------------

    def fileno(self) -> int:
        if self._watch is None:
            self._alone(self._begin_to_watch)
        assert self._watch is not None
        return self._watch.fileno()

    def _begin_to_watch(self) -> None:
        watch = self._watch = Watch()
        for connection in self._by_fd.values():
            watch.add(connection.fd)
            watch.output(connection.fd, connection.blocked)
        if self._told:
            watch.ring()

    def close_loop_fd(self) -> None:
        for ticket in list(self._tickets):
            self.cancel(ticket)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        now = monotonic()
        ticket = Ticket(requests, context, self)
        waiter = ticket if need else Waiter(0)
        ops = ticket.ops = self._ops(waiter, requests, need, wait, now)
        if need:
            self._tickets[ticket] = None
            ticket.since(now, timeout, stall)
        for op in ops:
            self._submit(waiter, op, now)
        if need:
            self._look_at_time((ticket.expire(now) or inf) if ticket.watching else ticket.due())
        self._news = True
        if need and not ops:
            ticket.ring()
        return ticket if need else None

    def cancel(self, ticket: object) -> None:
        assert isinstance(ticket, Ticket)
        self._tickets.pop(ticket, None)
        watching, ops = ticket.watching, ticket.end()
        for op in ops:
            op.decided = True
        if watching:
            self._end_vigils(ops)

    def flush(self) -> None:
        self.maintain()
        if self._news and self._watch is not None:  # another thread leads,
            self._kick_leader()
            self._watch.ring()  # and may not look again: come back for it

    def on_ready(self) -> list[tuple[object, Any]]:
        if self._watch is not None:
            self._watch.silence()
        self._collecting = True
        try:
            self.flush()
            self._expire(monotonic())
        finally:
            self._collecting = False
        result = []
        while self._told:
            ticket = self._told.popleft()
            if ticket in self._tickets:
                del self._tickets[ticket]
                context, ops = ticket.context, ticket.end()
                result.append((context, answers(ticket.requests, ops)))
                if ticket.watching:
                    self._end_vigils(ops)
        return result

    def next_timeout(self) -> float | None:
        if not self._tickets:
            return None
        return max(0.0, self._soonest - monotonic())

    def _expire(self, now: float) -> None:
        if now >= self._soonest:
            self._soonest = inf
            due = [
                (ticket.expire(now) if ticket.watching else ticket.due(), ticket)
                for ticket in list(self._tickets)
            ]
            self._told.extend(ticket for when, ticket in due if when <= now)
            self._look_at_time(min((when for when, _ in due if when > now), default=inf))

    def _look_at_time(self, when: float) -> bool:
        """Whether that is sooner than was known. Other threads may do the same: nothing is called here."""
        if when < self._soonest:
            self._soonest = when
            return True
        return False

    def tell(self, ticket: Ticket) -> None:
        """It is decided."""
        self._told.append(ticket)
        if self._watch is not None and not self._collecting:
            self._watch.ring()

    def hasten(self, due: float) -> None:
        """A ticket may be due then."""
        if self._look_at_time(due) and self._watch is not None and not self._collecting:
            self._watch.ring()

    # --- inside ------------------------------------------------------------------------------

    def _ops(
        self, me: Waiter, requests: Sequence[Request] | Batch, need: int, wait: int, now: float
    ) -> list[Op]:
        rows = requests.requests() if isinstance(requests, Batch) else requests
        for request in rows:
            for arg in request.args:
                if type(arg) is not bytes:
                    raise TypeError(f"an argument is {type(arg).__name__}, not bytes")
        me.open = len(rows)
        return [Op(request, self._masters, need, wait, me, now + request.resend_for) for request in rows]

    def _submit(self, me: Waiter, op: Op, now: float) -> None:
        """Put the request on the lines of its masters."""
        request = op.request
        targets, lagging = [], []
        for lane in self._lanes:
            connection = lane.connection
            if not request.masters >> lane.index & 1:
                op.fault(lane.index, NOT_ASKED)
            elif connection is None:
                self._refuse(op, lane, lane.broken or "not connected", now)
            elif connection.busy and self._lead.interrupted(me):
                self._refuse(op, lane, "in use by what this signal handler interrupted", now)
            elif not connection.knows(request):
                op.fault(lane.index, "no such command")
            elif connection.lagging:
                lagging.append(connection)
            else:
                targets.append(connection)
        if lagging and (request.resend_for or len(targets) < op.need):
            targets += lagging
        else:
            for connection in lagging:
                op.fault(connection.lane.index, "lagging")
        ready, slots = [], dict[Template, Slot]()
        for connection in targets:
            template = connection.codec[request.verb]
            slot = slots.get(template)
            if slot is None:
                slot = slots[template] = (op, template, template.encode(request.args), now)
            if why := connection.full(len(slot[2]), template.leading_replies):
                self._refuse(op, connection.lane, why, now)
            else:
                op.sent |= 1 << connection.lane.index
                ready.append((connection, slot))
                if template.watch and op.need:
                    self._begin_vigil(me, op, connection.lane.index, template.watch)
        op.owing = len(ready)
        op.settle()
        for connection, slot in ready:
            connection.line += on_line(*slot)
            connection.queued += len(slot[2])
            if connection.lane.connection is not connection:  # it ended just now, perhaps before this
                self._dead.append(connection)

    def _begin_vigil(self, me: Waiter, op: Op, master: int, watch: int) -> None:
        if op.vigil is None:
            op.vigil = Vigil(watch, self._masters)
            self._vigils.add(op)
            me.watching = True
        op.vigil.masters |= 1 << master

    def _refuse(self, op: Op, lane: Lane, why: str, now: float) -> None:
        """It cannot be sent to this master now."""
        op.fault(lane.index, why)
        if op.request.resend_for:
            lane.keep(op, now)


def answers(requests: Sequence[Request] | Batch, ops: list[Op]) -> list[Votes] | BatchVotes:
    """What the masters said, in the form that fits the requests."""
    votes = [op.votes() for op in ops]
    if not isinstance(requests, Batch):
        return votes
    return BatchVotes(
        [one.granted for one in votes],
        [one.sent for one in votes],
        {
            number: one
            for number, (one, op) in enumerate(zip(votes, ops, strict=True))
            if one.granted < op.need or (one.details and not NOT_SENT.issuperset(one.details.values()))
        },
    )
