"""Compares the records of masters with the lists of one client, and writes records that are missing.

Records are read when a master is connected. They are written, and read again, on connections of their own:
seldom, and never on the way of a lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..algorithm.machine import boot_time
from ..algorithm.master_lists import mask_of
from ..engine.contract import Engine, Request, Wait
from ..telemetry import EventLog, log_error
from ..wire.commands import Verb
from .address import Target
from .connect import connection_of, error_text
from .list_check import LOST, PASSING, ListCheck, Verdict, View
from .membership import (
    CONFIRMED_FOR,
    Record,
    Seen,
    address_of,
    encode,
    record_key,
    replace_command,
    seen,
)
from .probe import send_commands
from .state import MasterState

#: Seconds between two readings of records that allow no vote, or while the client's list is not in force.
RECHECK_INTERVAL = 15.0
#: Writes that a new list needs on a master, at most: its id, the proposal, and the mark that it is in force.
MAX_WRITES = 3
#: A vote that is missing because of a record, as a cause of faults.
CAUSE = "another list"


class MasterRecords:
    """The records of the masters of one client. ``mutex``: guards the states of the masters."""

    def __init__(self, check: ListCheck, states: Sequence[MasterState], mutex: threading.RLock) -> None:
        #: The lists of the client. After a change of them, call ``judge``.
        self.check: ListCheck = check
        self._states = states
        self._mutex = mutex
        self.verdict: Verdict = Verdict(("",) * len(states))
        self._is_fresh = True  # a master was connected since the last reading and writing ended
        self._writing = False  # a thread writes records
        self._news = False  # a record has changed since the last reading of all
        self._next_recheck = 0.0
        self._next_confirmation = 0.0
        self._listed_at = math.inf  # ``boot_time`` when a record with a list was known first

    def judge(self, attaching: int | None = None) -> None:
        """Find out which masters vote. The caller holds the mutex. ``attaching``: it is connected next."""
        if attaching is not None:
            self._is_fresh = True
            self._states[attaching].record_error, self._states[attaching].record_writes = "", 0
        try:
            self.verdict = self.verdict_by(self.check, attaching)
        except Exception as failure:  # memory is short; or an error of ours, which must not end a thread
            self.verdict = Verdict((f"the records cannot be compared: {failure!r}",) * len(self._states))
        for state, why in zip(self._states, self.verdict.reasons, strict=True):
            refused = bool(why) and not self.verdict.undecided
            error = state.record_error if why == LOST else ""
            # Another client may have written the record after it was read: it is read again, or written.
            passing = why in PASSING and self._is_fresh and not error
            state.undecided = bool(why) and (not refused or passing)
            state.unlisted = f"{why} ({error})" if error else why
            compared = self.verdict.in_force and state.seen is not None and state.seen.compared
            state.listed = False if refused else True if compared else None

    def verdict_by(self, check: ListCheck, attaching: int | None = None) -> Verdict:
        """The verdict on other lists of the client. The caller holds the mutex."""
        if self._listed_at == math.inf and any(_has_list(state.seen) for state in self._states):
            self._listed_at = boot_time()
        views = []
        for n, state in enumerate(self._states):
            attached = state.attached or n == attaching
            views.append(
                View(
                    address_of(state.target.name),
                    state.seen,
                    state.former,
                    attached,
                    tried=attached or state.failures > 0,
                    writable=not state.record_error,
                    awaited=state.record_tries < MAX_WRITES,
                    read_at=state.read_at,
                    former_at=state.former_at,
                    settled=state.read_at > self._listed_at or bool(state.record_error),
                )
            )
        return check.judge(views, boot_time() - _confirmed_for(check))

    def read_only(self, connections: RecordConnections) -> Verdict:
        """The verdict by what the masters have now. Reads all records, writes none, and changes no vote."""
        views = []
        for state in self._states:
            found, attached = None, state.attached
            if attached:
                try:
                    found = connections.read(state.target)
                except Exception:  # this master failed: it has no vote anyway
                    attached = False
            views.append(View(address_of(state.target.name), found, None, attached, True, writable=False))
        verdict = self.check.judge(views)
        # A client writes a record back that a master has lost.
        return verdict._replace(reasons=tuple("" if why == LOST else why for why in verdict.reasons))

    def report(self, events: EventLog) -> None:
        """Log each master that has no vote, once for each reason; not while a thread writes records."""
        if self._writing:
            return
        for state in self._states:
            why = state.unlisted
            if why != state.reported and not state.undecided:
                state.reported = why
                if why:
                    state.causes[CAUSE] += 1
                    events.warn("master-unlisted", state.target.name, why)

    def due(self, now: float) -> bool:
        """Whether to read records again: some allow no vote, or the client's list is not in force."""
        if now < self._next_recheck or self._writing:
            return False
        self._next_recheck = now + RECHECK_INTERVAL
        return any(map(self._is_stale, self._states))

    def _is_stale(self, state: MasterState) -> bool:
        """Whether its record is to be read again."""
        if not state.attached or state.seen is None:
            return False
        return bool(state.unlisted) or (state.seen.compared and not self.verdict.in_force)

    def confirmation_due(self, now: float) -> bool:
        """Whether to ask the masters again for their records. ``now``: monotonic."""
        if now < self._next_confirmation or not self.verdict.in_force:
            return False
        self._next_confirmation = now + min(RECHECK_INTERVAL, self.check.max_ttl / 1000)
        return True

    def confirm(self, engine: Engine, key_prefix: bytes, timeout: float) -> bool:
        """See which masters still have the records that were read. True: one has lost its record.

        A master is asked whether it has a record. The command that changes a record cuts the connections of
        that master afterwards. So a reply on the connection on which a record was read, or which is older
        than that reading, says that the record is still that one.
        """
        with self._mutex:
            asked = {
                n: one.connections
                for n, one in enumerate(self._states)
                if one.attached and _has_list(one.seen)
            }
        if not asked:
            return False
        begin = boot_time()
        request = Request(Verb.EXISTS, (record_key(key_prefix),), mask_of(asked))
        votes = engine.exchange([request], len(asked), timeout, Wait.ALL)[0]
        lost = False
        with self._mutex:
            for n, connections in asked.items():
                state, vote = self._states[n], votes.values[n]
                replied = vote >= 0 or isinstance(votes.details.get(n), bytes)
                if not (replied and state.attached and state.connections == connections):
                    continue
                if vote == 0:
                    state.learn(Seen(), begin)
                    lost = True
                elif state.read_at < begin:
                    state.read_at = begin
        return lost

    def write(self, connections: RecordConnections, judge: Callable[[], bool], again: bool) -> None:
        """Write the records that are missing, and close ``connections``.

        ``judge``: calls ``judge`` and what depends on it; False: the client was closed. ``again``: first read
        the records that allow no vote.
        """
        with self._mutex:
            if self._writing or not (again or self.verdict.write or self.verdict.blocked):
                return
            self._writing = self._news = True
            self._is_fresh |= again
            for state in self._states if again else ():
                state.record_error, state.record_writes = "", 0
        self._next_recheck = time.monotonic() + RECHECK_INTERVAL
        done = False
        try:
            if again:
                self._read(connections)
            # Other clients may write at the same time, and a master may reply anything.
            for _ in range(2 * MAX_WRITES * len(self._states)):
                done = not self._write_next(connections, judge)
                if done:
                    return
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            connections.close()
            if not done:  # again later
                with self._mutex:
                    self._writing = self._is_fresh = False
                    judge()

    def _write_next(self, connections: RecordConnections, judge: Callable[[], bool]) -> bool:
        """Write one record. False: all are written; in the same instant another thread may begin."""
        with self._mutex:
            is_open, verdict = judge(), self.verdict
            # Another client may have written while records were read, one after the other.
            read_again = verdict.blocked and self._news
            if not is_open or not (verdict.write or read_again):
                self._writing = False
                for state in self._states if verdict.in_force else ():
                    state.record_writes = state.record_tries = 0
                if verdict.blocked:  # all is read, and the masters still have no record
                    self._is_fresh = False
                    judge()
                return False
            if verdict.write:
                master, record = verdict.write
                state = self._states[master]
                before, connection = state.seen or Seen(), state.connections
                until = verdict.confirmed_at + _confirmed_for(self.check)
        if verdict.write:
            try:
                begin = boot_time()
                now = connections.replace(state.target, before.data, record, until)
            except Exception as error:  # this master failed: the other masters are written
                self._give_up(state, connection, error_text(error))
            else:
                self._learn(state, connection, now, begin)
                read_again = now.data != encode(record)  # another client has written: perhaps to all masters
                self._count_write(state)
        if read_again:
            self._read(connections)
        return True

    def _read(self, connections: RecordConnections) -> None:
        """Read records again that allow no vote, or all of them while the client's list is not in force."""
        with self._mutex:
            self._news = False
            stale = [
                (state, state.connections)
                for state in self._states
                if self._is_stale(state) and not state.record_error
            ]
        for state, connection in stale:
            try:
                begin = boot_time()
                self._learn(state, connection, connections.read(state.target), begin)
            except Exception as error:  # this master failed: read those of the others
                self._give_up(state, connection, error_text(error))

    def _learn(self, state: MasterState, connection: int, now: Seen, at: float) -> None:
        with self._mutex:
            if state.connections == connection:
                self._news |= state.seen != now
                state.learn(now, at)

    def _count_write(self, state: MasterState) -> None:
        with self._mutex:
            state.record_writes += 1
            state.record_tries += 1
            if state.record_writes > MAX_WRITES:
                state.record_error = "it has not kept what was written"

    def _give_up(self, state: MasterState, connection: int, why: str) -> None:
        """No more writes to a master before it is connected or read again. No other master waits for it."""
        with self._mutex:
            if state.connections == connection:
                state.record_tries, state.record_error = MAX_WRITES, why
            else:
                state.record_tries += 1


def _has_list(seen: Seen | None) -> bool:
    return seen is not None and seen.record is not None and seen.record.epoch > 0


def _confirmed_for(check: ListCheck) -> float:
    """Seconds for which a client believes in what it saw: see CONFIRMED_FOR."""
    return CONFIRMED_FOR * check.max_ttl / 1000


class RecordConnections:
    """Connections for a few commands, one to each master.

    Their methods raise exceptions of redis-py, or ConnectError.
    """

    def __init__(self, key_prefix: bytes, timeout: float) -> None:
        self._key_prefix = key_prefix
        self._timeout = timeout
        self._open: dict[Target, Any] = {}

    def read(self, to: Target) -> Seen:
        return seen(self._ask(to, (b"GET", record_key(self._key_prefix))))

    def replace(self, to: Target, expected: bytes, record: Record, until: float = math.inf) -> Seen:
        """Set the record of a master, if it is still ``expected``. Returns the record that is there now.

        ``until``: the ``boot_time`` after which that is too late. The master is read before the look at the
        clock, on the connection that the write goes out on. A change of the masters that the write could undo
        cuts that connection, however late the write arrives (proof/restore.py).
        """
        if until < math.inf:
            now = self.read(to)
            if now.data != expected or boot_time() >= until:
                return now
        reply = self._ask(to, replace_command(self._key_prefix, expected, record))
        if isinstance(reply, Exception):
            raise reply
        return seen(reply)

    def _ask(self, to: Target, command: tuple[bytes, ...]) -> Any:
        if to not in self._open:
            self._open[to] = connection_of(to, self._timeout, to.protocol or 2)
        return send_commands(self._open[to], [command])[0]

    def close(self) -> None:
        for connection in self._open.values():
            connection.disconnect()
