"""What the pure-Python engine handles: commands' templates, requests under way, threads that wait or lead.

Python runs signal handlers between bytecodes, in fact at calls and loops only. A handler may raise, or
use the engine that it interrupted. So whatever belongs together changes here, and in ``_pure_link``,
without a call in between: ``# together`` marks such lines.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from math import inf
from threading import Lock, get_ident

from ._commands import Command
from ._engine import FAULT, SILENT, Request, Votes, Wait

#: As plain numbers, which compare faster.
EARLY, ALL = int(Wait.EARLY), int(Wait.ALL)


class Template:
    """A command, compiled: one ``%`` operation encodes it."""

    __slots__ = ("args", "fallback", "pattern", "slots", "undo")

    def __init__(self, command: Command) -> None:
        parts = command.parts
        self.pattern = b"".join(
            b"$%d\r\n%b\r\n" if isinstance(part, int) else part.replace(b"%", b"%%") for part in parts
        )
        self.slots = tuple(part for part in parts if isinstance(part, int))
        self.args = max(self.slots, default=-1) + 1
        self.fallback = Template(command.fallback) if command.fallback else None
        self.undo = command.undo

    def encode(self, args: tuple[bytes, ...]) -> bytes:
        words: list[int | bytes] = []
        for slot in self.slots:
            word = args[slot]
            words += len(word), word
        return self.pattern % tuple(words)


@lru_cache(maxsize=256)
def compiled(command: Command) -> Template:
    """The one template of all equal commands, so that masters of a kind share what is encoded."""
    return Template(command)


def new_bell() -> Lock:
    """To wait at with acquire(), and to ring with release()."""
    bell = Lock()
    bell.acquire()
    return bell


class Waiter:
    """A thread inside the engine: what it takes to wake it, and whose leadership it interrupted.

    ``open``: how many of its requests are undecided. ``limit``: when it stops waiting; where ``stall``
    is set, it does so that long after it was last ``heard``. ``outer``: the leader on the same thread
    that a signal handler interrupted. ``brief``: does not wait for replies while it leads. ``urgent``:
    needs the lead itself, to change connections.
    """

    __slots__ = ("bell", "brief", "heard", "limit", "open", "outer", "stall", "thread", "urgent")

    def __init__(self, requests: int, brief: bool = False, urgent: bool = False) -> None:
        self.limit = inf
        self.heard = self.stall = 0.0
        self.bell: Lock | None = None
        self.open = requests
        self.outer: Waiter | None = None
        self.thread = get_ident()
        self.brief = brief
        self.urgent = urgent

    def since(self, now: float, timeout: float, stall: float = 0.0) -> float:
        """Begin to wait. Returns when I am due."""
        self.limit = now + timeout
        self.heard = now
        self.stall = stall
        return self.due()

    def due(self) -> float:
        return min(self.limit, self.heard + self.stall) if self.stall else self.limit

    def ring(self) -> None:
        if self.bell is not None:
            with contextlib.suppress(RuntimeError):  # rung already
                self.bell.release()


class Lead:
    """Which of the threads in the engine leads, and who may have to be rung to lead next."""

    __slots__ = ("holder", "urgent", "waiters")

    def __init__(self) -> None:
        self.holder: dict[None, Waiter] = {}  # one at most; a dict, for its setdefault is atomic
        self.waiters: dict[Waiter, None] = {}
        self.urgent: dict[Waiter, None] = {}

    def claim(self, me: Waiter) -> bool:
        """Lead, if nobody does, or if it is a frame of this thread that a signal handler interrupted."""
        leader = self.holder.get(None)
        if leader is None:
            if self.urgent and not me.urgent:
                return False
            leader = self.holder.setdefault(None, me)
            if leader is me:
                return True
        if leader.thread != me.thread:
            return False
        me.outer = leader
        self.holder[None] = me
        return True

    def interrupted(self, me: Waiter) -> bool:
        """Whether I run in a signal handler that interrupted who leads."""
        leader = self.holder.get(None)
        return leader is not None and leader.thread == me.thread

    def give_up(self, me: Waiter) -> None:
        """For me to have it."""
        if me.outer is None:
            del self.holder[None]
        else:
            self.holder[None] = me.outer

    def pass_on(self) -> None:
        """If nobody leads, ring one who waits."""
        if self.holder or not (self.waiters or self.urgent):
            return
        for waiter in [*self.urgent, *self.waiters]:
            if waiter.open > 0:
                waiter.ring()
                return

    def forget(self, me: Waiter) -> None:
        self.waiters.pop(me, None)
        self.urgent.pop(me, None)

    def unclaimed(self) -> bool:
        """Nobody leads, and nobody is about to."""
        return not (self.holder or self.waiters or self.urgent)


class Op:
    """One request under way, and what the masters said so far.

    Who leads counts the votes; its own thread reads them when it is ``decided``, or gives up waiting.
    ``owing``: how many masters owe it a reply. ``until``: how long it is worth sending again.
    """

    __slots__ = (
        "decided",
        "details",
        "faulty",
        "granted",
        "limit",
        "need",
        "owing",
        "refused",
        "request",
        "sent",
        "until",
        "values",
        "wait",
        "waiter",
    )

    def __init__(
        self, request: Request, masters: int, need: int, wait: int, waiter: Waiter | None, until: float
    ) -> None:
        self.request = request
        self.values = [SILENT] * masters
        self.details: dict[int, str | bytes] = {}
        self.granted = self.refused = self.faulty = 0
        self.need = need
        self.limit = masters - need
        self.wait = wait
        self.owing = self.sent = 0
        self.waiter = waiter
        self.until = until
        self.decided = waiter is None  # sent again for nobody

    def fault(self, master: int, detail: str | bytes) -> None:
        """Count a fault of which no reply is owed."""
        self.details[master] = detail
        self.values[master] = FAULT
        self.faulty += 1

    def vote(self, master: int, value: int, detail: str | bytes, now: float) -> None:
        """Count what a master owed. Counts once, however often it is said."""
        if self.waiter is not None:
            self.waiter.heard = now
        if self.decided or self.values[master] != SILENT:
            return
        if value == FAULT:
            self.details[master] = detail
            self.faulty += 1
        elif value > 0:
            self.granted += 1
        else:
            self.refused += 1
        self.values[master] = value  # together
        self.owing -= 1

    def settle(self) -> None:
        """Decide, if the votes do."""
        waiter = self.waiter
        if self.decided or waiter is None:
            return
        if self.need and self.owing:
            against = self.refused + self.faulty if self.wait == EARLY else self.refused
            if self.wait == ALL or (self.granted < self.need and against <= self.limit):
                return
        self.decided = True  # together
        waiter.open -= 1
        if waiter.open <= 0:
            waiter.ring()

    def votes(self) -> Votes:
        """The votes as they stand; later ones are dropped."""
        self.decided = True
        # Counted anew: who leads may be in the middle of counting, where this request has expired.
        values = tuple(self.values)
        granted = refused = faulty = 0
        for value in values:
            if value > 0:
                granted += 1
            elif value == FAULT:
                faulty += 1
            elif value != SILENT:
                refused += 1
        details = self.details
        if len(details) != faulty:
            details = {m: text for m, text in details.copy().items() if values[m] == FAULT}
        return Votes(values, self.sent, granted, refused, faulty, details)
