"""The connection of one master: its output, its pending replies, its input. The twin of src/link.c.

Only the I/O thread changes its fields.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING

from ...wire.commands import Dialect, checked
from ...wire.resp import MAX_PUSH, MAX_REPLY, NEW, PARTIAL, ProtocolError, Scan, TooLong, error_code, resume
from ...wire.text import clean
from ..clock import monotonic
from ..contract import (
    FAULT,
    FLUSHED,
    LAG_AFTER_WAIT,
    LAG_ROUND_TRIPS,
    MAX_DETAIL,
    NO_REPLY,
    NOT_MASTER_ERRORS,
    PROTOCOL_ERROR,
    TRANSIENT_ERRORS,
    UNSOLICITED,
    UNSOLICITED_LEAST,
    UNSOLICITED_PER_BYTE,
)
from .replicas import NOT_HELD, ReplicaWait
from .request import PendingRequest
from .template import Template, compiled

if TYPE_CHECKING:
    from .channel import MasterChannel

RECEIVE_SIZE = 1 << 16
#: How many sends a connection that ends may take for its remaining output.
LAST_SENDS = 16

#: The replies of a fixed form and their votes: by far the most of all replies.
FIXED = {b"+OK\r\n": 1, b"$-1\r\n": 0, b"_\r\n": 0} | {b":%d\r\n" % n: n for n in range(10)}
LONGEST_FIXED = len(b"+OK\r\n")
#: What is wrong with pushes and attributes of more bytes than the requests allow (rule 13).
UNASKED_FOR = "more than was asked for"
#: The first bytes of an error reply.
ERRORS = b"-!"
INT64_MAX = (1 << 63) - 1


#: A pending reply: its request; the command, None if the reply precedes the one that counts; when it was
#: submitted.
Slot = tuple[PendingRequest, Template | None, float]


class Connection:
    """A socket, the output and the pending replies of all threads.

    ``out``: what the socket has not taken yet. ``flushed``: number of pending replies to requests that a send
    has begun with. ``lagging_since``: when the oldest pending request was sent, 0.0 if the master does not
    lag. ``push_credit``: bytes of pushes and attributes that the master may still send. ``failure``: why the
    connection must end.
    """

    def __init__(self, channel: MasterChannel, sock: socket.socket, dialect: Dialect) -> None:
        sock.setblocking(False)
        self.channel: MasterChannel = channel
        self.sock: socket.socket = sock
        self.fd: int = sock.fileno()
        self.codec: tuple[Template, ...] = tuple(map(compiled, checked(dialect)))
        self.out: bytearray = bytearray()
        self.pending: deque[Slot] = deque()
        self.flushed: int = 0
        self.replica_wait: ReplicaWait = ReplicaWait()
        self.incoming: bytearray = bytearray()
        self.scan: Scan = NEW  # of the first reply in `incoming`
        self.blocked: bool = False  # the socket takes no more output for now
        self.received: bool = False
        self.lagging_since: float = 0.0
        self.round_trip: float = 0.0
        self.push_credit: int = UNSOLICITED
        self.failure: str = ""

    # --- submitting ------------------------------------------------------------------------------

    def append(self, request: PendingRequest, encoded: dict[Template, bytes], now: float) -> str:
        """Appends a request to the output. Returns why it cannot, or "".

        ``encoded``: the bytes of this request by template, shared by its masters.
        """
        verb, args, channel = request.request.verb, request.request.args, self.channel
        if not 0 <= verb < len(self.codec) or len(args) < self.codec[verb].args:
            return "no such command"
        template = self.codec[verb]
        if len(self.pending) + template.leading_replies >= channel.max_owed:
            return "too many replies owed"
        data = encoded.get(template)
        if data is None:
            data = encoded[template] = template.encode(args)
        if len(self.out) + len(data) > channel.max_buffer:
            return "buffer full"
        if template.leading_replies:
            self._add_leading(request, template, now)
        self.pending.append((request, template, now))
        self.out += data
        self.replica_wait.note(request, template)
        request.pending += request.values[channel.index] == NO_REPLY
        if template.watch:
            self.push_credit += UNSOLICITED_PER_BYTE * len(data)
            if not request.decided and request.need:
                channel.subscriptions.add(request, channel.index, template.watch)
        return ""

    def _add_leading(self, request: PendingRequest, template: Template, sent: float) -> None:
        """Appends the replies that precede the reply that counts."""
        self.pending.extend([(request, None, sent)] * template.leading_replies)

    def append_rollbacks(self, closing: bool) -> None:
        """Appends the rollback of failed requests that are pending. ``closing``: undecided ones fail, too.

        A request that was granted gets none: its vote may be counted before this connection delivers, by the
        next connection or by another process that has the token.
        """
        for request, template, _ in self.pending:
            if template is not None and request.has_failed(closing):
                self.roll_back(request)
        for held, _ in self.replica_wait.grants:
            if held.has_failed(closing):
                self.roll_back(held)

    def roll_back(self, request: PendingRequest) -> None:
        """Appends the rollback of a request, if its command has one."""
        verb = self.codec[request.request.verb].rollback_verb
        if verb is not None:
            self.out += self.codec[verb].encode(request.request.args)

    # --- moving bytes ----------------------------------------------------------------------------

    def has_output(self) -> bool:
        """Whether a flush has something to send."""
        return len(self.out) > 0 or self.replica_wait.due()

    def _append_wait(self) -> None:
        """Appends the verb that confirms what the flush writes, and all that was sent before."""
        request = self.replica_wait.begin(self.channel.index)
        template = self.codec[request.request.verb]
        self.out += template.encode(())
        now = monotonic()
        self._add_leading(request, template, now)
        self.pending.append((request, template, now))

    def send(self) -> None:
        """Sends what the socket takes. Sets ``blocked``, or ``failure``."""
        if self.replica_wait.due():
            self._append_wait()
        self.flushed = len(self.pending)
        try:
            del self.out[: self.sock.send(self.out)]
            self.blocked = len(self.out) > 0
        except BlockingIOError:
            self.blocked = True
        except (OSError, MemoryError) as error:
            self.fail(error)

    def send_remaining(self) -> None:
        """Sends the last output of a connection that ends."""
        for _ in range(LAST_SENDS):
            if self.out:
                self.send()
            if not self.out or self.blocked or self.failure:
                break

    def receive(self) -> None:
        """Receives what is there. Sets ``received``, or ``failure``."""
        try:
            data = self.sock.recv(RECEIVE_SIZE)
        except BlockingIOError:
            return
        except (OSError, MemoryError) as error:
            self.fail(error)
            return
        self.incoming += data
        self.received = True
        if not data:
            self.failure = "connection closed by the master"

    def fail(self, error: OSError | MemoryError) -> None:
        """Without memory, it is unknown how many bytes have moved."""
        self.failure = clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)

    # --- replies ---------------------------------------------------------------------------------

    def process_input(self, now: float, last_poll: float) -> bool:
        """Gives every whole reply to its request. Returns whether a reply came: a push is none.

        Sets ``failure`` if the connection must end.
        """
        self.received = False
        replied = False
        try:
            while self.incoming:
                end = self.incoming.find(b"\r\n", 0, LONGEST_FIXED) + 2
                value = FIXED.get(bytes(self.incoming[:end]))
                reply: bytes | None = None
                if value is not None:
                    self.scan = NEW
                else:
                    end = self._scan()
                    if end == PARTIAL:
                        break
                    if self.incoming[0] in b">|":
                        self._on_push(end)
                        continue
                    reply = bytes(self.incoming[:end]) if end <= MAX_DETAIL else b""
                    value = _number(reply)
                if not replied:
                    replied = True
                    self._measure(now, last_poll)
                detail: str | bytes = ""
                if value == FAULT:  # every request may get a long reply, so only its size is stored
                    detail = reply or f"unexpected reply of {end} bytes"
                self._on_reply(end, value, detail, now)
        except ProtocolError as error:
            self.failure = f"{PROTOCOL_ERROR}: {clean(str(error))}"
        except ConnectionError as error:
            self.failure = str(error)
        if replied:
            self.lagging_since = 0.0
        return replied

    def _scan(self) -> int:
        """Where the first reply ends, or PARTIAL."""
        before, most_pushed = self.scan, min(MAX_PUSH, self.push_credit)
        try:
            end, self.scan = resume(self.incoming, before, MAX_REPLY, most_pushed)
        except TooLong:
            if self.incoming.startswith(b">") and most_pushed < MAX_PUSH:
                raise ProtocolError(UNASKED_FOR) from None
            raise
        self.channel.scanned += self.scan.looked - before.looked
        if end != PARTIAL:
            self.scan = NEW
        return end

    def _on_push(self, end: int) -> None:
        push = bytes(self.incoming[:end])
        del self.incoming[:end]
        self.push_credit -= max(end, UNSOLICITED_LEAST)
        if push.startswith(b">"):
            self.channel.pushes += 1
            if not self.channel.subscriptions.on_push(self.channel.index, push):
                raise ConnectionError(FLUSHED)
        if self.push_credit < 0:
            raise ProtocolError(UNASKED_FOR)

    def _on_reply(self, end: int, value: int, detail: str | bytes, now: float) -> None:
        """Gives the reply to the oldest pending request."""
        if not self.flushed:
            raise ProtocolError("a reply that no request is owed")
        request, template, sent = self.pending[0]
        first = self.incoming[0]
        if template is not None and template.reply and first not in (ERRORS if detail else template.reply):
            raise ProtocolError("a reply that its request cannot have")
        reply = bytes(self.incoming[:end]) if template is not None and template.watch else b""
        code = error_code(bytes(self.incoming[:end])) if detail else b""
        self.pending.popleft()
        self.flushed -= 1
        del self.incoming[:end]
        if detail and template is not None and self._falls_back(request, template, sent, detail):
            return
        replicas = self.codec[request.request.verb].replicas
        if replicas and (template is not None or value < 1):  # without its write WAIT waits for too little
            for held, vote, why in self.replica_wait.end(replicas, value, detail):
                self._count(held, vote, why, now)
        if replicas or template is None:
            return
        if template.confirm_verb is not None and value > 0 and not request.decided:
            if len(self.replica_wait.grants) < self.channel.max_owed:
                self.replica_wait.hold(request, self.channel.index, value)
                return
            value, detail = FAULT, NOT_HELD
        self._count(request, value, detail, now, reply, sent)
        if detail:
            self._on_error(request, code, now)
        elif request.request.resend_for and self.channel.resend:
            self.channel.resend_all(now)  # the master can do it again

    def _count(
        self,
        request: PendingRequest,
        value: int,
        detail: str | bytes,
        now: float,
        pttl: bytes = b"",
        sent: float = 0.0,
    ) -> None:
        """Counts a reply. ``pttl``: the reply to a subscription that was sent at ``sent``."""
        index = self.channel.index
        self.channel.late += request.decided
        request.on_reply(index, now)
        if pttl and request.subscription is not None and not detail:
            request.count_pttl(index, value, pttl, sent)
        else:
            request.count(index, value, detail)
        request.settle()

    def _on_error(self, request: PendingRequest, code: bytes, now: float) -> None:
        """After a transient error, a request that must arrive joins the resend queue."""
        taken_back = self.codec[request.request.verb].rollback_verb is not None  # a fallback does not say so
        if request.request.resend_for and not taken_back and code in TRANSIENT_ERRORS:
            self.channel.resend.add(request, now)
        if code in NOT_MASTER_ERRORS:
            raise ConnectionError(f"{code.decode()}: it may be no master any more")

    def _falls_back(
        self, request: PendingRequest, template: Template, sent: float, detail: str | bytes
    ) -> bool:
        """Sends the fallback of a command if the server has lost its script.

        A request that is decided and need not arrive gets no fallback: its rollback may be on the way,
        and the fallback would follow it.
        """
        fallback = template.fallback
        if fallback is None or not isinstance(detail, bytes) or not detail.startswith(b"-NOSCRIPT"):
            return False
        if request.decided and request.need and not request.request.resend_for:
            return False
        self.out += fallback.encode(request.request.args)
        self.replica_wait.note(request, fallback)
        self._add_leading(request, fallback, sent)
        self.pending.append((request, fallback, sent))
        return True

    def _measure(self, now: float, last_poll: float) -> None:
        """Smooths the round trip, by the oldest pending request."""
        if not self.flushed:
            return
        # If the request was decided earlier, no thread may have polled when its reply came. The previous poll
        # is a lower bound of the arrival.
        request, template, sent = self.pending[0]
        if template is not None and template.replicas:
            return  # the master waited for replicas
        sample = (last_poll if request.decided else now) - sent
        if sample > 0:
            if sample > self.channel.lag_after:
                # A single long stall, such as a stopped server, must not be taken for the round trip.
                sample = min(sample, 4 * max(self.round_trip, self.channel.lag_after))
            self.round_trip += (sample - self.round_trip) / 8 if self.round_trip else sample

    def flag_lagging(self, now: float) -> None:
        """Called after a poll that brought no reply though one is due: notes whether the master lags."""
        (request, _, sent), channel = self.pending[0], self.channel
        least = LAG_AFTER_WAIT if self.codec[request.request.verb].replicas else channel.lag_after
        late = now - sent > least and now - sent > LAG_ROUND_TRIPS * self.round_trip
        if late or len(self.pending) >= channel.max_owed:
            self.lagging_since = sent


def _number(reply: bytes) -> int:
    """The vote of a reply: its number, or FAULT if it is none."""
    if reply[:1] == b":" and FAULT < (number := int(reply[1:-2])) <= INT64_MAX:
        return number
    return FAULT
