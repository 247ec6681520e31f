# cython: language_level=3, freethreading_compatible=False, auto_pickle=False
"""The compiled engine: the Python face of the hub. The contract is in redlock_fast/engine/contract.py."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF
from cpython.set cimport PySet_Discard
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.errno cimport EAGAIN, EINTR, EIO
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hub cimport *
from redlock_fast.engine.messages cimport Request, Votes

import socket
import time
from collections import deque
from functools import partial

from redlock_fast.wire.commands import checked
from redlock_fast.engine.contract import LAG_AFTER, MAX_BUFFER, MAX_MASTERS, MAX_OWED, MAX_RESEND
from redlock_fast.engine.descriptors import close_copy, file_of, is_file
from redlock_fast.engine.contract import Batch, ConnectionState, BatchVotes, Quorums
from redlock_fast.engine import contract, messages

if messages.__file__.endswith(".py"):
    raise ImportError("redlock_fast.engine._native is compiled, and redlock_fast.engine.messages, which it reaches into, is not")


cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define NO_GIL 1
    #else
    #define NO_GIL 0
    #endif
    """
    int NO_GIL

#: The most plaintext of a TLS record: TlsSocket.send takes no more.
cdef enum: TLS_RECORD = 1 << 14

#: The maximum number of dialects to remember: a server with a restart marker gets a new one at each restart.
cdef enum: MOST_KINDS = 256

#: Texts for the values of enum hub_reason that carry none.
_REASONS = ("", contract.NOT_ASKED, "not connected", "lagging", "too many replies owed", "buffer full", "no such command")


# --- templates -------------------------------------------------------------------------------


cdef hub_template *compile_template(object command) except NULL:
    parts = command.parts
    cdef hub_template *template = hub_template_new(<int> len(parts))
    if template is NULL:
        raise MemoryError
    cdef int i
    try:
        for i, part in enumerate(parts):
            if isinstance(part, int):
                template.part[i].slot = part
                template.args = max(template.args, <int> (part if part >= 0 else ~part) + 1)
            elif not hub_template_text(template, i, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)):
                raise MemoryError
        if command.rollback_verb is not None:
            template.rollback_verb = command.rollback_verb
        if command.confirm_verb is not None:
            template.confirm_verb = command.confirm_verb
        template.replicas = command.replicas
        template.leading_replies = command.leading_replies
        template.watch = command.watch
        template.reply = command.reply
        if template.watch:
            template.args = max(template.args, 1)  # what it watches
        if command.fallback is not None:
            template.fallback = compile_template(command.fallback)
    except BaseException:
        hub_template_free(template)
        raise
    return template


cdef hub_template **compile_dialect(object dialect) except NULL:
    cdef int count = <int> len(dialect), done = 0
    cdef hub_template **templates = <hub_template **> malloc(count * sizeof(hub_template *))
    if templates is NULL:
        raise MemoryError
    try:
        while done < count:
            templates[done] = compile_template(dialect[done])
            done += 1
    except BaseException:
        while done:
            done -= 1
            hub_template_free(templates[done])
        free(templates)
        raise
    return templates


# --- requests --------------------------------------------------------------------------------


@cython.final
@cython.freelist(64)
cdef class _Ticket:
    """Requests that were submitted together, and the thread or event loop that waits for them."""

    cdef hub_waiter waiter
    cdef hub_op *single
    cdef hub_op **ops
    cdef size_t count
    cdef bint batch
    cdef object context
    cdef bint cancelled  # after hub_on_ready had returned it: on_ready drops it
    cdef hub *home  # where the event loop waits; retained, for a garbage collector may free the engine first

    def __dealloc__(self):
        cdef size_t i
        if self.home is not NULL:
            hub_leave(self.home, &self.waiter)
            self.left()
        for i in range(self.count):
            hub_op_release(self.ops[i])
        if self.ops is not &self.single:
            free(self.ops)  # NULL too

    cdef void left(self) noexcept:
        """Drop the reference to the hub: the ticket waits no more."""
        if self.home is not NULL:
            hub_release(self.home)
            self.home = NULL

    cdef int room(self, Py_ssize_t count, Py_ssize_t args) except -1:
        if args > HUB_MAX_ARGS:
            raise ValueError(f"more than {HUB_MAX_ARGS} arguments")
        if count > 1 and self.ops is NULL:
            self.ops = <hub_op **> malloc(count * sizeof(hub_op *))
            if self.ops is NULL:
                raise MemoryError
        return 0

    cdef int add(self, hub_op *op) except -1:
        if op is NULL:
            raise MemoryError
        if self.ops is NULL:
            self.ops = &self.single
        self.ops[self.count] = op
        self.count += 1
        return 0

    cdef int fill(self, hub *h, list requests, const hub_quorum *quorum, int wait) except -1:
        cdef const char *data[HUB_MAX_ARGS]
        cdef size_t sizes[HUB_MAX_ARGS]
        cdef Py_ssize_t j, count = len(requests)
        cdef Request request
        cdef tuple args
        cdef hub_quorum none
        none.need = none.lists = 0
        for request in requests:
            args = request.args
            self.room(count, len(args))
            for j in range(len(args)):
                point(args[j], &data[j], &sizes[j])
            self.add(hub_op_new(h, request.verb, quorum if request.awaited else &none, wait, request.masters,
                                request.resend_for, <int> len(args), data, sizes))
        return 0

    cdef int fill_batch(self, hub *h, object batch, const hub_quorum *quorum, int wait) except -1:
        cdef const char *data[HUB_MAX_ARGS]
        cdef size_t sizes[HUB_MAX_ARGS]
        cdef Py_ssize_t i, j, count = batch.count, args = len(batch.args)
        cdef list columns = [column(one, count) for one in (batch.masters, batch.resend_for, *batch.args)]
        cdef int verb = batch.verb
        cdef uint64_t masters = 0
        cdef double keep = 0
        if count < 0:
            raise ValueError(f"a batch of {count}")
        self.room(count, args)
        for i in range(count):
            masters = at(columns[0], i)
            keep = at(columns[1], i)
            for j in range(args):
                point(at(columns[2 + j], i), &data[j], &sizes[j])
            self.add(hub_op_new(h, verb, quorum, wait, masters, keep, <int> args, data, sizes))
        return 0


cdef inline int read_quorum(object need, hub_quorum *quorum) except -1:
    quorum.need = quorum.lists = 0
    if type(need) is not int and isinstance(need, Quorums):
        for masters, of_list in need.lists:
            hub_quorum_add(quorum, masters, of_list)
    else:
        quorum.need = need
    return 0


cdef int point(object arg, const char **data, size_t *size) except -1:
    """Point to the bytes of ``arg``, which the caller keeps alive."""
    data[0] = PyBytes_AS_STRING(<bytes?> arg)
    size[0] = PyBytes_GET_SIZE(arg)
    return 0


cdef object column(object values, Py_ssize_t count):
    if type(values) is list and len(<list> values) != count:
        raise ValueError(f"a column of {len(<list> values)} in a batch of {count}")
    return values


cdef inline object at(object column, Py_ssize_t row):
    return (<list> column)[row] if type(column) is list else column


# --- TLS: bytes move through the Python socket, under the GIL ------------------------------------


@cython.final
cdef class _TlsSocket:
    cdef object sock
    cdef object interrupt  # what a signal handler raised while bytes moved; the engine's call raises it
    cdef unsigned long interrupted  # the thread that it interrupted
    cdef unsigned long thread  # the thread that moves bytes now
    cdef hub_transport transport
    cdef object file

    def __cinit__(self, sock):
        self.sock = sock
        self.file = file_of(sock.fileno())
        self.transport.send = tls_send
        self.transport.receive = tls_receive
        self.transport.context = <void *> self

    cdef object end(self, bint half):
        """The socket half-closed, or None and closed."""
        if not is_file(self.sock.fileno(), self.file):
            self.sock.detach()
            return None
        if half:
            try:
                self.sock.shutdown(socket.SHUT_WR)
                return self.sock
            except OSError:
                pass  # the connection broke
        self.sock.close()
        return None

    cdef ssize_t failed(self, object error) noexcept:
        if isinstance(error, BlockingIOError):
            return -EAGAIN
        if isinstance(error, (OSError, ValueError)):
            text = (getattr(error, "strerror", None) or str(error)).encode("utf-8", "replace")
            snprintf(self.transport.failure, sizeof(self.transport.failure), "%s", <const char *> text)
            return -EIO
        self.interrupt, self.interrupted = error, self.thread
        return -EINTR


cdef ssize_t tls_send(void *context, const char *data, size_t size) noexcept with gil:
    cdef _TlsSocket tls = <_TlsSocket> context
    tls.thread = PyThread_get_thread_ident()
    try:
        return tls.sock.send(data[:min(size, <size_t> TLS_RECORD)])
    except BaseException as error:
        return tls.failed(error)
    finally:
        tls.thread = 0


cdef ssize_t tls_receive(void *context, char *data, size_t size) noexcept with gil:
    cdef _TlsSocket tls = <_TlsSocket> context
    cdef bytes received
    tls.thread = PyThread_get_thread_ident()
    try:
        received = tls.sock.recv(size)
        memcpy(data, PyBytes_AS_STRING(received), PyBytes_GET_SIZE(received))
        return PyBytes_GET_SIZE(received)
    except BaseException as error:
        return tls.failed(error)
    finally:
        tls.thread = 0


cdef int raise_interrupt(list sockets) except -1:
    """Raise what a signal handler raised while this thread moved the bytes of one of these TLS sockets."""
    for tls in sockets:
        if tls is not None and (<_TlsSocket> tls).interrupt is not None:
            if (<_TlsSocket> tls).interrupted == PyThread_get_thread_ident():
                error, (<_TlsSocket> tls).interrupt = (<_TlsSocket> tls).interrupt, None
                raise error
    return 0


# --- the engine -----------------------------------------------------------------------------------


@cython.final
cdef class NativeEngine:
    """One ordered connection per master, shared by all threads, driven in C without the GIL."""

    cdef hub *_hub
    cdef int _masters
    cdef list _tls  # per master: its _TlsSocket, or None
    cdef bint _tls_used
    cdef object _deferred  # a deque: calls of a signal handler that interrupted TLS, to be made afterwards
    cdef dict _kinds  # a number for each dialect
    cdef int _made_kinds
    cdef set _tickets  # submitted, and not yet returned by on_ready
    cdef object _on_break
    cdef uint64_t _reported_breaks

    def __cinit__(self, int masters, on_break, *, size_t max_owed=MAX_OWED, size_t max_buffer=MAX_BUFFER,
                  size_t max_resend=MAX_RESEND, double lag_after=LAG_AFTER):
        if not 1 <= masters <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {masters}")
        self._masters = masters
        self._on_break = on_break
        self._tls = [None] * masters
        self._deferred = deque()
        self._tickets = set()
        self._kinds = {}
        self._hub = hub_new(masters, max_owed, max_buffer, max_resend, lag_after, NO_GIL)
        if self._hub is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._hub is not NULL:
            hub_free(self._hub)

    def attach(self, int master, sock, dialect):
        if not hub_open_kick(self._hub):
            raise OSError("no file descriptor for the engine")
        cdef _TlsSocket tls = None
        cdef hub_transport *transport = NULL
        cdef hub_connection_state state
        self._check(master)
        with nogil:
            hub_get_connection_state(self._hub, master, &state)
        if state.attached or state.broken[0]:
            raise ValueError(f"master {master} has a connection: detach it first")
        cdef hub_template **templates = compile_dialect(checked(dialect))
        cdef int verbs = <int> len(dialect), fd, kind = self._kind(dialect)
        sock.setblocking(False)
        if hasattr(sock, "handshake"):
            tls = _TlsSocket(sock)
            self._tls[master] = tls
            self._tls_used = True
            transport = &tls.transport
            fd = sock.fileno()
        else:
            fd = sock.detach()
        with nogil:
            hub_attach(self._hub, master, fd, transport, templates, verbs, kind)
            hub_maintain(self._hub)
        self._finish()

    def detach(self, int master):
        cdef hub_connection_state state
        cdef int fd
        self._check(master)
        if self._tls_used and self._inside():
            self._deferred.append(partial(self._detach_and_close, master))
            return None
        with nogil:
            hub_get_connection_state(self._hub, master, &state)
            fd = hub_detach(self._hub, master)
        return self._remains(master, fd, state.attached != 0)

    def _detach_and_close(self, int master):
        sock = self.detach(master)
        if sock is not None:
            sock.close()

    cdef object _remains(self, int master, int fd, bint whole):
        tls = self._tls[master]
        self._tls[master] = None
        if fd >= 0:
            return socket.socket(fileno=fd)
        return None if tls is None else (<_TlsSocket> tls).end(whole)

    def exchange(self, requests, need, double timeout, int wait=0, double stall=0.0):
        cdef hub_state state
        cdef _Ticket ticket
        cdef hub_quorum quorum
        if self._tls_used and self._inside():
            return self._refuse(requests)
        read_quorum(need, &quorum)
        ticket = self._ticket(requests, &quorum, wait)
        try:
            with nogil:
                state = hub_exchange(self._hub, &ticket.waiter, ticket.ops, ticket.count, timeout, stall)
            while state == HUB_SIGNALS:
                state = self._resume(&ticket.waiter)
            if self._tls_used:
                raise_interrupt(self._tls)  # the break that it caused may have decided these requests
            return self._answers(ticket)
        finally:
            self._finish()

    # --- for an event loop ---

    def fileno(self):
        cdef int fd
        with nogil:
            fd = hub_loop_fd(self._hub)
        if fd < 0:
            raise OSError("no file descriptor for the event loop")
        return fd

    def close_loop_fd(self):
        self._cancel_all()
        with nogil:
            hub_close_loop_fd(self._hub)

    def submit(self, requests, need, double timeout, int wait, double stall, context):
        cdef hub_quorum quorum
        cdef _Ticket ticket
        cdef void *owner
        read_quorum(need, &quorum)
        cdef bint awaited = quorum.need != 0
        ticket = self._ticket(requests, &quorum, wait)
        ticket.context = context
        if awaited:
            self._tickets.add(ticket)
            ticket.home = self._hub
            hub_retain(self._hub)
        owner = <void *> ticket if awaited else NULL
        if ticket.count == 1:  # done before another thread would have the GIL
            hub_submit(self._hub, &ticket.waiter, ticket.ops, 1, timeout, stall, owner)
        else:
            with nogil:
                hub_submit(self._hub, &ticket.waiter, ticket.ops, ticket.count, timeout, stall, owner)
        return ticket if awaited else None

    def cancel(self, _Ticket ticket):
        cdef bint had = True
        if ticket.home is not NULL:
            with nogil:
                had = hub_leave(self._hub, &ticket.waiter) != 0
        if not had:  # on_ready holds a pointer to it: a finalizer, or another thread, calls
            ticket.cancelled = True
            return
        ticket.left()
        ticket.context = None
        self._tickets.discard(ticket)

    def flush(self):
        raise_interrupt(self._tls)
        with nogil:
            hub_flush(self._hub)
        self._finish()

    def on_ready(self):
        cdef hub_waiter *decided
        cdef _Ticket ticket
        raise_interrupt(self._tls)  # of the previous round; this round's decisions must be returned
        with nogil:
            decided = hub_on_ready(self._hub)
        tickets = []
        while decided is not NULL:
            ticket = <_Ticket> decided.owner
            decided = decided.next
            ticket.left()
            tickets.append(ticket)
        self._finish()
        result = []
        for ticket in tickets:
            # still expected: a callback, or a finalizer, may have cancelled it
            if PySet_Discard(self._tickets, ticket) and not ticket.cancelled:
                result.append((ticket.context, self._answers(ticket)))
            ticket.context = None
        return result

    def next_timeout(self):
        cdef int64_t left
        with nogil:
            left = hub_next_timeout(self._hub)
        return None if left < 0 else left / 1e9

    def maintain(self):
        with nogil:
            hub_maintain(self._hub)
        self._end(self._tls)

    def drain(self, double timeout):
        if self._tls_used and self._inside():
            return False
        cdef int done = 0
        cdef double end = time.monotonic() + timeout
        while True:
            with nogil:
                done = hub_drain(self._hub, min(timeout, 0.05))
            self._end(self._tls)
            timeout = end - time.monotonic()
            if done or not timeout > 0:
                return done != 0
            PyErr_CheckSignals()

    def grow(self, int masters):
        if masters > HUB_MAX_MASTERS:
            raise ValueError(f"{MAX_MASTERS} masters at most, not {masters}")
        if masters > self._masters:
            self._tls.extend([None] * (masters - self._masters))
            hub_grow(self._hub, masters)
            self._masters = masters

    def connection_state(self, int master):
        cdef hub_connection_state state
        self._check(master)
        with nogil:
            hub_get_connection_state(self._hub, master, &state)
        return ConnectionState(
            attached=state.attached != 0,
            broken=state.broken.decode("utf-8", "replace"),
            pending=state.pending,
            lag=state.lag / 1e9,
            round_trip=state.round_trip / 1e9,
            late_replies=state.late_replies,
            resent=state.resent,
            resend_dropped=state.resend_dropped,
            pushes=state.pushes,
            scanned=state.scanned,
        )

    def close(self, on_socket=socket.socket.close):
        cdef hub_connection_state state
        cdef int master, masters
        cdef int fds[HUB_MAX_MASTERS]
        if self._tls_used and self._inside():
            self._deferred.append(partial(self.close, on_socket))
            return
        whole, sockets = [], list(self._tls)
        for master in range(self._masters):
            hub_get_connection_state(self._hub, master, &state)
            whole.append(state.attached != 0)
        with nogil:
            masters = hub_close(self._hub, fds)
        for master in range(masters):
            sock = self._remains(master, fds[master], master < len(whole) and whole[master])
            if sock is not None:
                on_socket(sock)
        with nogil:
            hub_stop_helper(self._hub)  # no request is left that a thread waits for
        raise_interrupt(sockets)

    def after_fork_in_child(self):
        hub_after_fork_in_child(self._hub)
        self._cancel_all()
        self._deferred.clear()
        for tls in self._tls:
            if tls is not None:
                close_copy((<_TlsSocket> tls).sock, (<_TlsSocket> tls).file)
        self._tls = [None] * self._masters

    # --- inside ---

    cdef int _check(self, int master) except -1:
        if not 0 <= master < self._masters:
            raise IndexError(f"master {master} of {self._masters}")
        return 0

    cdef int _cancel_all(self) except -1:
        for ticket in list(self._tickets):
            self.cancel(ticket)
        return 0

    cdef int _kind(self, object dialect) except -1:
        kind = self._kinds.get(dialect)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()  # the servers may be gone; a dialect may get a second number
            self._made_kinds += 1
            kind = self._kinds[dialect] = self._made_kinds
        return kind

    cdef _Ticket _ticket(self, object requests, const hub_quorum *quorum, int wait):
        cdef _Ticket ticket = _Ticket.__new__(_Ticket)
        if type(requests) is Batch:
            ticket.batch = True
            ticket.fill_batch(self._hub, requests, quorum, wait)
        else:
            ticket.fill(self._hub, requests if type(requests) is list else list(requests), quorum, wait)
        return ticket

    cdef object _answers(self, _Ticket ticket):
        cdef hub_op *op
        cdef size_t i
        if not ticket.batch:
            return [self._votes(ticket.ops[i]) for i in range(ticket.count)]
        cdef list granted = [tally(ticket.ops[i]) for i in range(ticket.count)]
        cdef list sent = [ticket.ops[i].sent for i in range(ticket.count)]
        votes = {}
        for i in range(ticket.count):
            op = ticket.ops[i]
            if not hub_has_quorum(op) or op.details is not NULL:
                votes[i] = self._votes(op)
        return BatchVotes(granted, sent, votes)

    cdef hub_state _resume(self, hub_waiter *waiter) except *:
        """Run signal handlers, then wait again. What a handler raises ends the wait; the requests stay sent."""
        cdef hub_state state
        try:
            PyErr_CheckSignals()
            raise_interrupt(self._tls)
        except BaseException:
            with nogil:
                hub_leave(self._hub, waiter)
            raise
        with nogil:
            state = hub_wait(self._hub, waiter)
        return state

    cdef bint _inside(self):
        """Whether a signal handler calls that interrupted its thread while that moves TLS bytes."""
        cdef unsigned long mine = PyThread_get_thread_ident()
        return any([tls is not None and (<_TlsSocket> tls).thread == mine for tls in self._tls])

    cdef object _refuse(self, object requests):
        """Nothing is sent now; what must arrive is, later."""
        details = dict.fromkeys(range(self._masters), "called from a signal handler")
        votes = Votes((_FAULT,) * self._masters, 0, 0, 0, self._masters, details)
        if type(requests) is Batch:
            if requests.resend_for:
                self._deferred.append(partial(self.exchange, requests, 0, 0.0))
            return BatchVotes([0] * requests.count, [0] * requests.count, dict.fromkeys(range(requests.count), votes))
        self._deferred.extend([partial(self.exchange, [one], 0, 0.0) for one in requests if one.resend_for])
        return [votes] * len(requests)

    cdef object _votes(self, hub_op *op):
        cdef int i
        cdef hub_detail *detail = op.details
        details = {}
        if op.faulty:
            for i in range(op.master_count):
                if REASON_NONE < op.reasons[i] < REASON_BROKEN:
                    details[i] = _REASONS[op.reasons[i]]
            while detail is not NULL:
                text = PyBytes_FromStringAndSize(detail.text, detail.size)
                whole = op.reasons[detail.master] == REASON_REPLY
                details[detail.master] = text if whole else text.decode("utf-8", "replace")
                detail = detail.next
        cdef tuple values = PyTuple_New(op.master_count)
        for i in range(op.master_count):
            cast = vote(op.values[i])
            Py_INCREF(cast)
            PyTuple_SET_ITEM(values, i, cast)
        cdef Votes votes = Votes.__new__(Votes)
        votes.values = values
        votes.sent = op.sent
        votes.granted = op.granted
        votes.refused = op.refused
        votes.faulty = op.faulty
        votes.details = details
        return votes

    cdef int _finish(self) except -1:
        """End a call: report connections that broke, and do what a signal handler could not do inside."""
        cdef uint64_t breaks = hub_breaks(self._hub)
        if breaks != self._reported_breaks:
            self._reported_breaks = breaks
            self._on_break()
        if self._deferred and not self._inside():
            calls, self._deferred = self._deferred, deque()
            try:
                while calls:
                    calls.popleft()()
            finally:
                self._deferred.extendleft(reversed(calls))  # the next call goes on, if one raised
        return 0

    cdef int _end(self, list sockets) except -1:
        """As ``_finish``, and raise what a signal handler raised in a TLS socket."""
        try:
            raise_interrupt(sockets)
        finally:
            self._finish()
        return 0


cdef inline int tally(const hub_op *op) noexcept:
    return op.granted if not op.quorum.lists or hub_has_quorum(op) else 0


cdef object _FAULT = contract.FAULT, _NO_REPLY = contract.NO_REPLY  # looked up in no dictionary


cdef object vote(int64_t value):
    return _FAULT if value == HUB_FAULT else _NO_REPLY if value == HUB_NO_REPLY else value
