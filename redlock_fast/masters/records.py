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
from .connect import connection_of
from .connect_errors import error_text
from .known_record import KnownRecord
from .list_check import ListCheck
from .list_texts import LOST, PASSING
from .master import Master
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
from .no_vote import NoVote
from .probe import send_commands
from .verdict import Verdict, View

#: Seconds between two readings of records that allow no vote, or while the client's list is not in force.
RECHECK_INTERVAL = 15.0
#: Writes that a new list needs on a master, at most: its id, the proposal, and the mark that it is in force.
MAX_WRITES = 3
#: A vote that is missing because of a record, as a cause of faults.
CAUSE = "another list"


class MasterRecords:
    """The records of the masters of one client. ``mutex``: guards what is known of the masters."""

    def __init__(self, check: ListCheck, masters: Sequence[Master], mutex: threading.RLock) -> None:
        #: The lists of the client. After a change of them, call ``judge``.
        self.check: ListCheck = check
        self._masters = masters
        self._mutex = mutex
        self.verdict: Verdict = Verdict(("",) * len(masters))
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
            self._masters[attaching].record.begin_again()
        try:
            self.verdict = self.verdict_by(self.check, attaching)
        except Exception as failure:  # memory is short; or an error of ours, which must not end a thread
            self.verdict = Verdict((f"the records cannot be compared: {failure!r}",) * len(self._masters))
        for master, why in zip(self._masters, self.verdict.reasons, strict=True):
            self._rule(master.record, why)

    def _rule(self, record: KnownRecord, why: str) -> None:
        """Take the vote of a master, or give it. ``why``: the reason against it in the verdict, or ""."""
        error = record.error if why == LOST else ""
        # Another client may have written the record after it was read: it is read again, or written.
        awaited = why in PASSING and self._is_fresh and not error
        known = NoVote.AWAITED if awaited else NoVote.RECORD
        record.no_vote = None if not why else NoVote.UNDECIDED if self.verdict.undecided else known
        record.why = f"{why} ({error})" if error else why
        record.ruled = self.verdict.ruled and record.seen is not None and record.seen.compared

    def verdict_by(self, check: ListCheck, attaching: int | None = None) -> Verdict:
        """The verdict on other lists of the client. The caller holds the mutex."""
        if self._listed_at == math.inf and any(master.record.has_list for master in self._masters):
            self._listed_at = boot_time()
        views = []
        for n, master in enumerate(self._masters):
            attached = master.link.attached or n == attaching
            views.append(
                View(
                    address_of(master.target.name),
                    master.record.seen,
                    master.record.former,
                    attached,
                    tried=attached or master.link.failures > 0,
                    writable=not master.record.error,
                    awaited=master.record.tries < MAX_WRITES,
                    read_at=master.record.read_at,
                    former_at=master.record.former_at,
                    settled=master.record.read_at > self._listed_at or bool(master.record.error),
                )
            )
        return check.judge(views, boot_time() - _confirmed_for(check))

    def read_only(self, connections: RecordConnections) -> Verdict:
        """The verdict by what the masters have now. Reads all records, writes none, and changes no vote."""
        views = []
        for master in self._masters:
            found, attached = None, master.link.attached
            if attached:
                try:
                    found = connections.read(master.target)
                except Exception:  # this master failed: it has no vote anyway
                    attached = False
            views.append(View(address_of(master.target.name), found, None, attached, True, writable=False))
        verdict = self.check.judge(views)
        # A client writes a record back that a master has lost.
        return verdict._replace(reasons=tuple("" if why == LOST else why for why in verdict.reasons))

    def report(self, events: EventLog) -> None:
        """Log each master that has no vote, once for each reason; not while a thread writes records."""
        if self._writing:
            return
        for master in self._masters:
            record = master.record
            final = record.no_vote in (None, NoVote.RECORD)
            if final and record.why != record.reported:
                record.reported = record.why
                if record.why:
                    master.tally.causes[CAUSE] += 1
                    events.warn("master-unlisted", master.target.name, record.why)

    def due(self, now: float) -> bool:
        """Whether to read records again: some allow no vote, or the client's list is not in force."""
        if now < self._next_recheck or self._writing:
            return False
        self._next_recheck = now + RECHECK_INTERVAL
        return any(map(self._is_stale, self._masters))

    def _is_stale(self, master: Master) -> bool:
        """Whether its record is to be read again."""
        if not master.link.attached or master.record.seen is None:
            return False
        return bool(master.record.why) or (master.record.seen.compared and not self.verdict.ruled)

    def confirmation_due(self, now: float) -> bool:
        """Whether to ask the masters again for their records. ``now``: monotonic."""
        if now < self._next_confirmation or not self.verdict.ruled:
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
                n: one.link.connections
                for n, one in enumerate(self._masters)
                if one.link.attached and one.record.has_list
            }
        if not asked:
            return False
        begin = boot_time()
        request = Request(Verb.EXISTS, (record_key(key_prefix),), mask_of(asked))
        votes = engine.exchange([request], len(asked), timeout, Wait.ALL)[0]
        lost = False
        with self._mutex:
            for n, connections in asked.items():
                master, vote = self._masters[n], votes.values[n]
                replied = vote >= 0 or isinstance(votes.details.get(n), bytes)
                if not (replied and master.link.attached and master.link.connections == connections):
                    continue
                if vote == 0:
                    master.record.learn(Seen(), begin)
                    lost = True
                elif master.record.read_at < begin:
                    master.record.read_at = begin
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
            for one in self._masters if again else ():
                one.record.begin_again()
        self._next_recheck = time.monotonic() + RECHECK_INTERVAL
        done = False
        try:
            if again:
                self._read(connections)
            # Other clients may write at the same time, and a master may reply anything.
            for _ in range(2 * MAX_WRITES * len(self._masters)):
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
                for one in self._masters if verdict.ruled else ():
                    one.record.writes = one.record.tries = 0
                if verdict.blocked:  # all is read, and the masters still have no record
                    self._is_fresh = False
                    judge()
                return False
            if verdict.write:
                master, record = verdict.write
                asked = self._masters[master]
                before, connection = asked.record.seen or Seen(), asked.link.connections
                until = verdict.confirmed_at + _confirmed_for(self.check)
        if verdict.write:
            try:
                begin = boot_time()
                now = connections.replace(asked.target, before.data, record, until)
            except Exception as error:  # this master failed: the other masters are written
                self._give_up(asked, connection, error_text(error))
            else:
                self._learn(asked, connection, now, begin)
                read_again = now.data != encode(record)  # another client has written: perhaps to all masters
                self._count_write(asked)
        if read_again:
            self._read(connections)
        return True

    def _read(self, connections: RecordConnections) -> None:
        """Read records again that allow no vote, or all of them while the client's list is not in force."""
        with self._mutex:
            self._news = False
            stale = [
                (master, master.link.connections)
                for master in self._masters
                if self._is_stale(master) and not master.record.error
            ]
        for master, connection in stale:
            try:
                begin = boot_time()
                self._learn(master, connection, connections.read(master.target), begin)
            except Exception as error:  # this master failed: read those of the others
                self._give_up(master, connection, error_text(error))

    def _learn(self, master: Master, connection: int, now: Seen, at: float) -> None:
        with self._mutex:
            if master.link.connections == connection:
                self._news |= master.record.seen != now
                master.record.learn(now, at)

    def _count_write(self, master: Master) -> None:
        with self._mutex:
            master.record.writes += 1
            master.record.tries += 1
            if master.record.writes > MAX_WRITES:
                master.record.error = "it has not kept what was written"

    def _give_up(self, master: Master, connection: int, why: str) -> None:
        """No more writes to a master before it is connected or read again. No other master waits for it."""
        with self._mutex:
            if master.link.connections == connection:
                master.record.tries, master.record.error = MAX_WRITES, why
            else:
                master.record.tries += 1


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
