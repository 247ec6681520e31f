"""What the pure-Python engine handles: commands' templates, requests under way, threads that wait or lead.

Python runs signal handlers between bytecodes, in fact at calls and loops only. A handler may raise, or
use the engine that it interrupted. So whatever belongs together changes here, and in
``engine/pure/connection.py``, without a call in between: ``# together`` marks such lines.
"""

from __future__ import annotations

import contextlib
import socket
from functools import lru_cache
from math import inf
from threading import Lock, get_ident

from ...wire.commands import Command, Reply
from ..contract import FAULT, NO_REPLY, Request, Votes, Wait

#: As plain numbers, which compare faster.
EARLY, ALL = int(Wait.EARLY), int(Wait.ALL)


#: What a reply begins with that is no error, by Command.reply.
FIRST_BYTES: dict[int, bytes] = {Reply.STATUS: b"+$_", Reply.INTEGER: b":"}


class Template:
    """A command, compiled: one ``%`` operation encodes it.

    ``reply``: what its replies begin with, unless they are errors; empty where any reply will do.
    """

    __slots__ = ("args", "fallback", "leading_replies", "pattern", "reply", "rollback_verb", "slots", "watch")

    def __init__(self, command: Command) -> None:
        self.pattern = b"".join(map(_pattern, command.parts))
        self.slots = tuple(part for part in command.parts if isinstance(part, int))
        self.args = max((slot if slot >= 0 else ~slot for slot in self.slots), default=-1) + 1
        self.fallback = Template(command.fallback) if command.fallback else None
        self.rollback_verb = command.rollback_verb
        self.leading_replies = command.leading_replies
        self.watch = command.watch
        self.reply = FIRST_BYTES.get(command.reply, b"")
        if self.watch:
            self.args = max(self.args, 1)  # what it watches

    def encode(self, args: tuple[bytes, ...]) -> bytes:
        words: list[int | bytes] = []
        for slot in self.slots:
            if slot >= 0:
                word = args[slot]
                words += len(word), word
            else:
                words.append(args[~slot])
        return self.pattern % tuple(words)


def _pattern(part: bytes | int) -> bytes:
    if isinstance(part, int):
        return b"$%d\r\n%b\r\n" if part >= 0 else b"%b"
    return part.replace(b"%", b"%%")


#: On a line: a reply that is dropped, before the one that counts.
SKIPPED = Template(Command(()))


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
    needs the lead itself, to change connections. ``watching``: some of its requests watch; ``ops`` are all
    of them then. ``partly``: some were decided by time. ``kick``: rings it where it is on the lookout.
    ``seen``: how often somebody had led when it last looked.
    """

    __slots__ = (
        "bell",
        "brief",
        "heard",
        "kick",
        "limit",
        "open",
        "ops",
        "outer",
        "partly",
        "seen",
        "stall",
        "thread",
        "urgent",
        "watching",
    )

    def __init__(self, requests: int, brief: bool = False, urgent: bool = False) -> None:
        self.limit = inf
        self.heard = self.stall = 0.0
        self.bell: Lock | None = None
        self.open = requests
        self.outer: Waiter | None = None
        self.thread = get_ident()
        self.brief = brief
        self.urgent = urgent
        self.watching = self.partly = False
        self.ops: list[Op] = []
        self.kick: socket.socket | None = None
        self.seen = -1

    def since(self, now: float, timeout: float, stall: float = 0.0) -> float:
        """Begin to wait. Returns when I am due."""
        self.limit = now + timeout
        self.heard = now
        self.stall = stall
        return self.due()

    def due(self) -> float:
        return min(self.limit, self.heard + self.stall) if self.stall else self.limit

    def expire(self, now: float) -> float:
        """Decide those of my requests whose time is over. When that of the next one is; 0.0: none is left."""
        due, soonest = self.due(), inf
        for op in self.ops:
            if not op.decided:
                end = due if op.vigil is None else min(self.limit, op.vigil.due)
                if end <= now:
                    op.decided = self.partly = True
                else:
                    soonest = min(soonest, end)
        return soonest if any(not op.decided for op in self.ops) else 0.0

    def hasten(self, due: float) -> None:
        """I may be due before I thought."""
        self.ring()

    def ring(self) -> None:
        if self.bell is not None:
            with contextlib.suppress(RuntimeError):  # rung already
                self.bell.release()
        if (kick := self.kick) is not None:
            with contextlib.suppress(OSError):  # full: it rings already
                kick.send(b"!")


class Lead:
    """Which of the threads in the engine leads, and who may have to be rung to lead next.

    Those that only watch are not rung to lead; one of them is on the ``lookout``. ``count``: how often
    somebody has led.
    """

    __slots__ = ("count", "holder", "lookout", "urgent", "waiters", "watchers")

    def __init__(self) -> None:
        self.holder: dict[None, Waiter] = {}  # one at most; a dict, for its setdefault is atomic
        self.lookout: dict[None, Waiter] = {}  # likewise
        self.waiters: dict[Waiter, None] = {}
        self.watchers: dict[Waiter, None] = {}
        self.urgent: dict[Waiter, None] = {}
        self.count = 0

    def claim(self, me: Waiter) -> bool:
        """Lead, if nobody does, or if it is a frame of this thread that a signal handler interrupted."""
        leader = self.holder.get(None)
        if leader is None:
            if self.urgent and not me.urgent:
                return False
            leader = self.holder.setdefault(None, me)
            if leader is me:
                self.count += 1
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
        if self.holder:
            return
        if self.waiters or self.urgent:
            for waiter in [*self.urgent, *self.waiters]:
                if waiter.open > 0:
                    waiter.ring()
                    return
        elif self.watchers and not self.lookout:
            for waiter in [*self.watchers][:1]:
                waiter.ring()

    def keep_lookout(self, me: Waiter) -> bool:
        """Whether it is me who does."""
        return self.lookout.setdefault(None, me) is me

    def forget(self, me: Waiter) -> None:
        self.waiters.pop(me, None)
        self.urgent.pop(me, None)
        if me.watching:
            self.watchers.pop(me, None)
            if self.lookout.get(None) is me:
                del self.lookout[None]

    def unclaimed(self) -> bool:
        """Nobody leads, and nobody is about to."""
        return not (self.holder or self.waiters or self.urgent)


class Vigil:
    """What a request that watches has besides.

    ``masters``: a mask of those that watch for it. ``expires``: when their open votes will have nothing
    left to watch. ``due``: when its time is over, if that is before its waiter's.
    """

    __slots__ = ("due", "expires", "masters", "watch")

    def __init__(self, watch: int, masters: int) -> None:
        self.watch = watch
        self.masters = 0
        self.expires = [inf] * masters
        self.due = inf


class Op:
    """One request under way, and what the masters said so far.

    Who leads counts the votes; its own thread reads them when it is ``decided``, or gives up waiting.
    ``owing``: how many masters owe it a reply. ``until``: how long it is worth sending again.
    """

    __slots__ = (
        "__weakref__",
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
        "vigil",
        "wait",
        "waiter",
    )

    def __init__(
        self, request: Request, masters: int, need: int, wait: int, waiter: Waiter | None, until: float
    ) -> None:
        self.request = request
        self.values = [NO_REPLY] * masters
        self.details: dict[int, str | bytes] = {}
        self.granted = self.refused = self.faulty = 0
        self.need = need
        self.limit = masters - need
        self.wait = wait
        self.owing = self.sent = 0
        self.vigil: Vigil | None = None
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
        if self.decided or self.values[master] != NO_REPLY:
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
        if self.vigil is not None:
            if self.granted < self.need and self.refused + self.faulty <= self.limit:
                self._hasten(self.vigil, waiter)
                return
        elif self.need and self.owing:
            against = self.refused + self.faulty if self.wait == EARLY else self.refused
            if self.wait == ALL or (self.granted < self.need and against <= self.limit):
                return
        self.decide()

    def decide(self) -> None:
        waiter = self.waiter
        if waiter is None:
            return
        self.decided = True  # together
        waiter.open -= 1
        if waiter.open <= 0 or waiter.partly:
            waiter.ring()

    def watched(self, master: int, value: int, reply: bytes, asked: float, now: float) -> None:
        """Count the reply of a master that watches, and was ``asked`` then; ``value``: if it is a number."""
        if not reply.startswith(b":") or value < -2:
            self.vote(master, FAULT, reply, now)
        elif value == -2:
            self.vote(master, 1, b"", now)
        elif value >= 0 and self.vigil is not None:
            self.vigil.expires[master] = asked + (value + 1) / 1000

    def _hasten(self, vigil: Vigil, waiter: Waiter) -> None:
        """My time is over when the ``need`` masters that are first to have granted, or expired, have."""
        ends = [
            0.0 if value > 0 else inf if value == FAULT else end
            for value, end in zip(self.values, vigil.expires, strict=True)
        ]
        before, vigil.due = vigil.due, sorted(ends)[self.need - 1]
        if vigil.due < before:
            waiter.hasten(vigil.due)

    def failed(self) -> bool:
        """Whether it got too few grants, and can get no more."""
        return self.decided and self.granted < self.need

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
            elif value != NO_REPLY:
                refused += 1
        details = self.details
        if len(details) != faulty:
            details = {m: text for m, text in details.copy().items() if values[m] == FAULT}
        return Votes(values, self.sent, granted, refused, faulty, details)
