"""One connection between a client and a master: what goes in comes out in order, or not at all."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redlock_fast._commands import Mark, Verb, bulk
from redlock_fast._engine import FAULT
from redlock_fast._pure_op import Op

from .commands import GUARDED, understood
from .server import Server

if TYPE_CHECKING:
    from .engine import Engine

BROKEN = "connection reset"


class Connection:
    """``pipe``: not executed yet; ``owed``: not answered yet, as the client sees it.

    ``cut``: nothing new gets through. ``over``: the client knows, or no longer listens.
    """

    __slots__ = (
        "calm_since",
        "commands",
        "cut",
        "engine",
        "not_before",
        "over",
        "owed",
        "pipe",
        "replies",
        "server",
        "silent_until",
    )

    def __init__(self, engine: Engine, server: Server, mark: Mark | None) -> None:
        self.engine = engine
        self.server = server
        self.commands = understood(server, mark)
        self.pipe: deque[Op] = deque()
        self.owed: deque[tuple[Op, float]] = deque()
        self.replies: deque[tuple[Op, int] | bytes] = deque()
        self.calm_since = server.world.now
        self.not_before = self.silent_until = 0.0
        self.cut = self.over = False

    def __str__(self) -> str:
        return f"{self.engine.process} to {self.server}"

    def send(self, op: Op, silently: bool = False) -> None:
        """``silently``: nobody reads the reply."""
        world = self.server.world
        if not silently:
            self.owed.append((op, world.now))
        if not self.cut:
            self.pipe.append(op)
            world.after(world.delay(), self._arrive)

    def _arrive(self) -> None:
        """The next request has come to the master."""
        if not self.pipe:
            return  # it was lost
        server, world = self.server, self.server.world
        hold_up = max(server.stopped_until, self.not_before)
        if hold_up > world.now:
            world.at(hold_up, self._arrive)
            return
        op = self.pipe.popleft()
        request = op.request
        late = op.decided and op.granted < op.need and op.refused <= op.limit
        world.counts["late executions"] += late
        server.caller = self
        value = self.commands[request.verb][0](server, request.args, self.cut)
        if world.trace is not None:
            words = b" ".join([Verb(request.verb).name.encode(), *request.args]).decode()
            said = "fault" if value == FAULT else str(value)
            world.note(server, f"{words} from {self.engine.process}: {said}{', late' * late}")
        if not self.cut:
            self.replies.append((op, value))
            world.after(world.delay(), self._answer)

    def push(self, key: bytes | None) -> None:
        """The master tells that the key has changed, or all keys; lost only with the connection."""
        world = self.server.world
        if self.cut:
            return
        world.counts["pushes"] += 1
        world.note(self.server, f"tells {self.engine.process} of {key.decode() if key else 'everything'}")
        what = b"*1\r\n" + bulk(key) if key else b"_\r\n"
        self.replies.append(b">2\r\n" + bulk(b"invalidate") + what)
        world.after(world.delay(), self._answer)

    def _answer(self) -> None:
        """The next reply, or push, has come to the client, which reads it when it runs."""
        if self.over or not self.replies:
            return
        world = self.server.world
        hold_up = max(self.engine.process.wakes, self.silent_until)
        if hold_up > world.now:
            world.at(hold_up, self._answer)
            return
        reply, number = self.replies.popleft(), self.server.number
        if isinstance(reply, bytes):
            self.engine.vigils.pushed(number, reply, world.now)
            return
        op, value = reply
        asked = self.owed.popleft()[1]
        if op.request.verb == Verb.WATCH:
            op.watched(number, value, b":%d\r\n" % value, asked, world.now)
        else:
            op.vote(number, value, GUARDED if value == FAULT else b"", world.now)
        op.settle()

    # --- how it ends ---

    def close(self) -> None:
        """By the client, with nothing lost: the master reads on to the end."""
        self.cut = self.over = True

    def reset(self, arriving: int, replies_too: bool) -> None:
        """Lost, but for the first ``arriving`` requests that are on their way; the client will notice."""
        self.cut = True
        counts = self.server.world.counts
        while len(self.pipe) > arriving:
            self.pipe.pop()
            counts["requests lost"] += 1
        if replies_too:
            counts["replies lost"] += len(self.replies)
            self.replies.clear()
        self.engine.notice_soon(self)

