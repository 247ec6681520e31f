"""One master's side of the pure-Python engine: what goes out to it, what it owes, what comes in.

Who leads (see ``engine/pure/engine.py``) sends, receives and matches. Others append to ``Connection.line``
and ``Lane.kept``, and read. What is marked ``# together`` is explained in ``engine/pure/requests.py``.
"""

from __future__ import annotations

import contextlib
import socket
from time import monotonic

from ...wire.commands import Dialect, checked
from ...wire.resp import MAX_PUSH, MAX_REPLY, NEW, PARTIAL, ProtocolError, Scan, error_code, resume
from ..contract import (
    FAULT,
    FLUSHED,
    LAG_ROUND_TRIPS,
    MAX_DETAIL,
    NOT_MASTER_ERRORS,
    TRANSIENT_ERRORS,
    UNSOLICITED,
    UNSOLICITED_LEAST,
    UNSOLICITED_PER_BYTE,
    ConnectionState,
    Request,
)
from .requests import SKIPPED, Op, Template, compiled
from .resend import Kept
from .watches import Vigils

RECEIVE_SIZE = 1 << 16
#: How often a connection that is about to end is asked to take more of what is left.
LAST_SENDS = 16

#: The replies that say how they vote, and by far the most of all.
FIXED = {b"+OK\r\n": 1, b"$-1\r\n": 0, b"_\r\n": 0} | {b":%d\r\n" % n: n for n in range(10)}
LONGEST_FIXED = len(b"+OK\r\n")
#: What an error begins with.
ERRORS = b"-!"
INT64_MAX = (1 << 63) - 1

#: Kinds of what comes in.
REPLY, PUSH, ATTRIBUTE, PARTIAL_REPLY, MALFORMED = range(5)

#: A request on its way: its op, the template and the bytes that it went out as, and when.
Slot = tuple[Op, Template, bytes, float]


class Lane(Kept):
    """What the engine has for one master as long as it lives: counters, and what is kept."""

    __slots__ = (
        "bounds",
        "broken",
        "connection",
        "index",
        "lag_after",
        "late",
        "pushes",
        "remains",
        "replayed",
        "scanned",
        "vigils",
    )

    def __init__(self, index: int, bounds: tuple[int, int, int], lag_after: float, vigils: Vigils) -> None:
        super().__init__(bounds[2])
        self.index = index
        self.vigils = vigils  # those of all masters
        self.lag_after = lag_after
        self.bounds = bounds[:2]  # of replies owed, of bytes to send
        self.connection: Connection | None = None
        self.remains: Connection | None = None  # broken, and not yet detached
        self.broken = ""
        self.late = self.replayed = self.pushes = self.scanned = 0

    def replay(self, connection: Connection, now: float) -> None:
        """Send what is kept, as far as there is room."""
        kept = self.kept
        while kept:
            turn, op = connection.turn, kept[0]
            template = connection.codec[op.request.verb]
            data = template.encode(op.request.args)
            size, alive = len(data), op.until > now
            if alive and connection.full(size, template.leading_replies):
                return
            again = Op(op.request, len(op.values), 0, 0, None, op.until)
            slots = on_line(again, template, data, now)
            if connection.turn == turn and kept and kept[0] is op:
                if alive:
                    connection.line += slots  # together
                    connection.queued += size
                    self.replayed += 1
                del kept[0]
                connection.turn = turn + 1

    def prompt(self) -> bool:
        """Whether replies are due that should come soon."""
        connection = self.connection
        return connection is not None and not connection.lagging and connection.owed() > 0

    def idle(self) -> bool:
        """Nothing to send, nothing to wait for but a lagging master."""
        connection = self.connection
        return connection is None or connection.lagging > 0 or not (connection.owed() or connection.out)

    def state(self) -> ConnectionState:
        connection = self.connection
        counts = (self.late, self.replayed, self.dropped, self.pushes, self.scanned)
        if connection is None:
            return ConnectionState(False, self.broken, 0, 0.0, 0.0, *counts)
        lag = monotonic() - connection.lagging if connection.lagging else 0.0
        return ConnectionState(True, "", connection.owed(), lag, connection.round_trip, *counts)


class Connection:
    """One socket: requests on the ``line`` until they are answered, bytes out, bytes in.

    Of the line, what is before ``head`` has been answered, and what is from ``tail`` on is not in
    the out-buffer yet. Whoever moves head or tail, or consumes input, takes a ``turn``: one who was
    interrupted by a signal handler's exchange notices, and looks again.
    """

    __slots__ = (
        "append",
        "blocked",
        "busy",
        "codec",
        "fd",
        "forget",
        "head",
        "incoming",
        "lagging",
        "lane",
        "line",
        "out",
        "polled",
        "queued",
        "read_at",
        "round_trip",
        "scan",
        "sock",
        "sock_receive",
        "sock_send",
        "tail",
        "turn",
        "unasked",
        "why",
    )

    not_now: tuple[type[OSError], ...] = (BlockingIOError,)

    def __init__(self, lane: Lane, sock: socket.socket, dialect: Dialect) -> None:
        sock.setblocking(False)
        self.lane = lane
        self.sock = sock
        self.sock_send, self.sock_receive = sock.send, sock.recv
        self.fd = sock.fileno()
        self.codec = tuple(map(compiled, checked(dialect)))
        self.line: list[Slot] = []
        self.head = self.tail = self.turn = 0
        self.out = bytearray()
        self.forget = self.out.__delitem__
        self.queued = 0  # bytes from tail on; threads may miscount it, until the next take()
        self.incoming = bytearray()
        self.append = self.incoming.extend
        self.scan = NEW  # of the reply that is not whole yet
        self.blocked = False  # the socket takes no more for now
        self.busy = False  # a signal handler's exchange has to leave it alone
        self.lagging = self.round_trip = self.read_at = self.polled = 0.0
        self.unasked = UNSOLICITED  # bytes that are no reply and that the master may still send
        self.why = ""  # it ended

    def owed(self) -> int:
        return len(self.line) - self.head

    def knows(self, request: Request) -> bool:
        """Whether there is such a command, and the arguments that it needs."""
        codec = self.codec
        return 0 <= request.verb < len(codec) and len(request.args) >= codec[request.verb].args

    def full(self, size: int, skip: int) -> str:
        """Why there is no room for a request of that many bytes, with replies to skip, or nothing."""
        owed, buffered = self.lane.bounds
        if len(self.line) - self.head + skip >= owed:
            return "too many replies owed"
        if len(self.out) + self.queued + size > buffered:
            return "buffer full"
        return ""

    def take(self) -> None:
        """What is new on the line goes into the out-buffer."""
        turn, tail = self.turn, self.tail
        new = self.line[tail:]
        data = new[0][2] if len(new) == 1 else b"".join([slot[2] for slot in new])
        end = tail + len(new)
        earned = sum([len(slot[2]) for slot in new if slot[1].watch]) * UNSOLICITED_PER_BYTE
        if self.turn == turn:
            self.out += data  # together
            self.tail = end
            self.queued = 0
            self.unasked += earned
            self.turn = turn + 1

    def send(self) -> None:
        """Send what the socket takes.

        The sending and the forgetting of what was sent are one call into C: after a signal handler
        that raises in between, nobody would know how much it was.
        """
        try:
            any(map(self.forget, map(slice, map(self.sock_send, (self.out,)))))
        except self.not_now:
            self.blocked = True
        else:
            self.blocked = len(self.out) > 0

    def receive(self, now: float, polled: float) -> None:
        """Read what is there, in one call for the same reason. Raises OSError.

        ``polled``: when it was last known that nothing was there to read.
        """
        incoming = self.incoming
        before = len(incoming)
        try:
            any(map(self.append, map(self.sock_receive, (RECEIVE_SIZE,))))
        except self.not_now:
            return
        if len(incoming) == before and self.ended():
            raise ConnectionError("connection closed by the master")
        self.read_at = now
        self.polled = polled

    def ended(self) -> bool:
        """Whether nothing was read because nothing will come; else a signal handler's exchange had it."""
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except self.not_now:
            return False

    def match(self) -> bool:
        """Hand every whole reply to the request that it answers; whether there was one.

        Raises ProtocolError.
        """
        incoming = self.incoming
        while incoming:
            turn = self.turn
            end = incoming.find(b"\r\n", 0, LONGEST_FIXED) + 2
            value = FIXED.get(bytes(incoming[:end]))
            kind: int = REPLY
            detail: str | bytes = b""
            if value is None:
                before = self.scan
                end, kind, value, detail, scan = _read(incoming, before, min(MAX_PUSH, self.unasked))
                if self.turn != turn:
                    continue
                self.scan = scan  # together
                self.lane.scanned += scan.looked - before.looked
            if self.turn != turn:
                continue
            if kind == REPLY:
                self._answer(turn, end, value, detail)
            elif kind == PARTIAL_REPLY:
                break
            elif kind == MALFORMED:
                raise ProtocolError(detail)
            else:
                whole = kind != PUSH or self.lane.vigils.pushed(
                    self.lane.index, bytes(incoming[:end]), self.read_at
                )
                size = max(end, UNSOLICITED_LEAST)
                if self.turn == turn:
                    del incoming[:end]  # together
                    self.scan = NEW
                    self.turn = turn + 1
                    self.lane.pushes += kind == PUSH
                    self.unasked -= size
                if not whole:
                    raise ConnectionError(FLUSHED)
                if self.unasked < 0:
                    raise ProtocolError("more than was asked for")
        matched = self.head
        if matched:
            del self.line[:matched]  # together
            self.tail -= matched
            self.head = 0
            self.turn += 1
        return matched > 0

    def _answer(self, turn: int, end: int, value: int, detail: str | bytes) -> None:
        """The reply that ends there is the oldest request's."""
        if self.turn != turn:
            return
        if self.head >= self.tail:
            raise ProtocolError("a reply that nobody is owed")
        slot = self.line[self.head]
        expected = slot[1].reply
        if expected and self.incoming[0] not in (ERRORS if detail else expected):
            raise ProtocolError("a reply that its request cannot have")
        op, late = slot[0], slot[0].decided
        if not self.head:
            self._measure(slot)
        again = _fallback(slot, detail) if detail else ()
        skipped = slot[1] is SKIPPED
        if not (again or skipped):
            if slot[1].watch and not detail:
                op.watched(self.lane.index, value, bytes(self.incoming[:end]), slot[3], self.read_at)
            else:
                op.vote(self.lane.index, value, detail, self.read_at)
            op.settle()
            if op.request.resend_for:
                self._done(slot, detail)
        if self.turn == turn:
            del self.incoming[:end]  # together
            self.scan = NEW
            self.head += 1
            self.turn = turn + 1
            self.line += again
            self.lane.late += late and not (again or skipped)
        if isinstance(detail, bytes) and (code := error_code(detail)) in NOT_MASTER_ERRORS:
            raise ConnectionError(f"{code.decode()}: it may be no master any more")

    def _done(self, slot: Slot, detail: str | bytes) -> None:
        """It was answered: done, or to be done later."""
        if not detail:
            self.lane.resume()
        elif (
            slot[1].rollback_verb is None and type(detail) is bytes and error_code(detail) in TRANSIENT_ERRORS
        ):
            self.lane.postpone(slot[0], self.read_at)

    def _measure(self, slot: Slot) -> None:
        """It was answered: how long that took, and the master does not lag."""
        self.lagging = 0.0
        # A reply that nobody waited for may have lain there: it took at least until the poll before.
        sample = (self.polled if slot[0].decided else self.read_at) - slot[3]
        if sample > 0:
            smoothed = self.round_trip
            # One long stall, such as a stopped server, must not pass for the way there.
            sample = min(sample, 4 * max(smoothed, self.lane.lag_after))
            self.round_trip = smoothed + (sample - smoothed) / 8 if smoothed else sample

    def lag(self, now: float) -> None:
        """Called straight after a poll that had no reply from here: does the master lag?"""
        if self.head < self.tail and not self.lagging:
            sent = self.line[self.head][3]
            patience = max(self.lane.lag_after, LAG_ROUND_TRIPS * self.round_trip)
            if now - sent > patience or self.owed() >= self.lane.bounds[0]:
                self.lagging = sent

    def condemn(self) -> None:
        """All that is owed becomes a fault; who waits is told by ``fail``."""
        for slot in self.line[self.head :]:
            slot[0].vote(self.lane.index, FAULT, self.why, self.read_at)
        self.lane.vigils.condemn(self.lane.index, self.why, self.read_at)

    def fail(self, now: float) -> None:
        """All that is owed is over, or kept for the next connection."""
        self.lane.vigils.fail(self.lane.index, self.why, now)
        while True:
            turn = self.turn
            oldest = self.line[self.head : self.head + 1]
            if not oldest:
                return
            op = oldest[0][0]
            op.vote(self.lane.index, FAULT, self.why, now)
            op.settle()
            if oldest[0][1] is not SKIPPED:
                self.lane.keep(op, now)
            if self.turn == turn:
                self.head += 1  # together
                self.turn = turn + 1

    def take_back(self, op: Op) -> None:
        """Behind all that was sent, the undo of a request, if it has one."""
        undo = self.codec[op.request.verb].rollback_verb
        if undo is not None:
            self.out += self.codec[undo].encode(op.request.args)

    def undo(self, closing: bool) -> None:
        """The last that is sent: what is left, and the undo of requests that are owed a reply.

        ``closing``: of all requests; else only of those that have failed. Another connection may have a
        granted request's vote counted before this one delivers.
        """
        for op, template, *_ in self.line[self.head : self.tail]:
            if template is not SKIPPED and (closing or op.failed()):
                self.take_back(op)
        with contextlib.suppress(OSError):
            for _ in range(LAST_SENDS):
                if self.out:
                    self.send()
                if not self.out or self.blocked:
                    break


def _read(incoming: bytearray, scan: Scan, most_pushed: int) -> tuple[int, int, int, str | bytes, Scan]:
    """The first reply: its end, its kind, its vote and, if that is FAULT, the reason or what is wrong.

    Last, where to go on. A signal handler may consume what stands here, at any moment: then nothing of
    this is true, and whoever called looks again.
    """
    try:
        end, scan = resume(incoming, scan, MAX_REPLY, most_pushed)
        if end == PARTIAL:
            return 0, PARTIAL_REPLY, FAULT, b"", scan
        first = bytes(incoming[:1])
        if first in (b">", b"|"):
            return end, PUSH if first == b">" else ATTRIBUTE, FAULT, b"", scan
        if end > MAX_DETAIL:  # there may be one for every request
            return end, REPLY, FAULT, f"unexpected reply of {end} bytes", scan
        data = bytes(incoming[:end])
        if first == b":" and FAULT < (number := int(data[1:-2])) <= INT64_MAX:
            return end, REPLY, number, b"", scan
    except (ProtocolError, ValueError) as error:
        return 0, MALFORMED, FAULT, str(error), scan
    return end, REPLY, FAULT, data, scan


def on_line(op: Op, template: Template, data: bytes, when: float) -> tuple[Slot, ...]:
    """What the request is on a line: one for each of its replies."""
    slot = (op, template, data, when)
    leading = template.leading_replies
    return (*((op, SKIPPED, b"", when),) * leading, slot) if leading else (slot,)


def _fallback(slot: Slot, detail: str | bytes) -> tuple[Slot, ...]:
    """The request once more, where the server has lost the script that it names.

    Not if it is over and was not to be kept: its undo may be on the way, and this would be behind.
    """
    op, template, _, sent = slot
    if template.fallback is None or not isinstance(detail, bytes) or not detail.startswith(b"-NOSCRIPT"):
        return ()
    if op.decided and op.need and not op.request.resend_for:
        return ()
    return on_line(op, template.fallback, template.fallback.encode(op.request.args), sent)
