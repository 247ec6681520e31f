"""One connection between a client and a master: what goes in comes out in order, or not at all."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redlock_fast.engine.contract import FAULT
from redlock_fast.engine.pure.request import PendingRequest
from redlock_fast.wire.commands import Verb, bulk
from redlock_fast.wire.dialect import RestartMarker

from .commands import GUARDED, understood
from .requests import WATCHES
from .server import Server

if TYPE_CHECKING:
    from .engine import Engine

BROKEN = "connection reset"
#: A replica does not write.
REFUSED = FAULT - 1000
#: All that the client watches has changed: a flush, or data that was replaced.
FLUSHED = b">2\r\n" + bulk(b"invalidate") + b"_\r\n"


class Connection:
    """``pipe``: not executed yet; ``owed``: not answered yet, as the client sees it.

    ``cut``: nothing new gets through. ``over``: the client has noticed, or no longer reads.
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

    def __init__(self, engine: Engine, server: Server, mark: RestartMarker | None) -> None:
        self.engine = engine
        self.server = server
        self.commands = understood(server, mark)
        self.pipe: deque[PendingRequest] = deque()
        self.owed: deque[tuple[PendingRequest, float]] = deque()
        self.replies: deque[tuple[PendingRequest, int | bytes] | bytes] = deque()
        self.calm_since = server.world.now
        self.not_before = self.silent_until = 0.0
        self.cut = self.over = False

    def __str__(self) -> str:
        return f"{self.engine.process} to {self.server}"

    def send(self, op: PendingRequest, silently: bool = False) -> None:
        """``silently``: the reply is dropped."""
        world = self.server.world
        if not silently:
            self.owed.append((op, world.now))
        if not self.cut:
            self.pipe.append(op)
            world.after(self._delay(), self._arrive)

    def _delay(self) -> float:
        """How long a message takes."""
        return self.server.world.delay() + self.engine.process.distances[self.server.number]

    def _arrive(self) -> None:
        """The next request has come to the master."""
        if not self.pipe:
            return  # it was lost
        server, world = self.server, self.server.world
        hold_up = max(server.stopped_until, self.not_before)
        if hold_up > world.now:
            # Of a connection that was given up, a busy master reads a piece now and a piece then.
            pieces = world.disturbance() if self.over and not server.stopped_until > world.now else 0.0
            world.at(hold_up + pieces, self._arrive)
            return
        op = self.pipe.popleft()
        request = op.request
        late = op.has_failed() and not op.cannot_have_quorum(faults=False)
        world.counts["late executions"] += late
        server.caller = self
        execute = self.commands[request.verb][0]
        value = REFUSED if server.replica else execute(server, request.args, self.cut)
        if not isinstance(value, bytes):
            server.executed(request.verb, request.args, None if value in (FAULT, REFUSED) else value)
        server.witness.votes.look(server)
        if world.trace is not None:
            words = b" ".join([Verb(request.verb).name.encode(), *request.args]).decode().replace("\r\n", " ")
            shown = "fault" if value in (FAULT, REFUSED) else str(value)
            world.note(server, f"{words} from {self.engine.process}: {shown}{', late' * late}")
        if not self.cut:
            self.replies.append((op, value))
            world.after(self._delay(), self._answer)

    def push(self, key: bytes | None) -> None:
        """The push of the master that the key has changed, or all keys; lost only with the connection."""
        world = self.server.world
        if self.cut:
            return
        world.counts["pushes"] += 1
        world.note(self.server, f"tells {self.engine.process} of {key.decode() if key else 'everything'}")
        self.replies.append(b">2\r\n" + bulk(b"invalidate") + b"*1\r\n" + bulk(key) if key else FLUSHED)
        world.after(self._delay(), self._answer)

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
            self.engine.subscriptions.on_push(number, reply)
            if reply == FLUSHED:
                self.engine.flushed(self)
            return
        op, value = reply
        if value == REFUSED:
            self.engine.identify_again(self)
            return
        asked = self.owed.popleft()[1]
        op.on_reply(number, world.now)
        if op.request.verb in WATCHES:
            op.count_pttl(number, value, b":%d\r\n" % value, asked)
        else:
            text = bulk(value) if isinstance(value, bytes) else GUARDED if value == FAULT else b""
            op.count(number, FAULT if isinstance(value, bytes) else value, text)
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
            if FLUSHED in self.replies:
                self.engine.flushed(self)  # or nothing would report that to it
            self.replies.clear()
        self.engine.notice_soon(self)
