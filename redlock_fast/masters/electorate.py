"""The electorate: which masters of a client vote now, by their restart guards and by their records."""

from __future__ import annotations

import contextlib
import time

from ..algorithm.master_lists import MasterLists, mask_of
from ..engine.contract import Engine
from ..engine.threads import start_thread
from ..telemetry import log_error
from .list_check import ListCheck
from .master import Master
from .monitor import Monitor
from .records import MasterRecords, RecordConnections
from .roster import Roster
from .settings import ConnectorSettings
from .verdict import Verdict


class Electorate:
    """The masters of ``roster`` that vote. Its methods without I/O are called with the mutex held."""

    def __init__(self, settings: ConnectorSettings, roster: Roster, monitor: Monitor, engine: Engine) -> None:
        self._settings = settings
        self._roster = roster
        self._monitor = monitor
        self._engine = engine
        #: Why the configuration cannot work, or "".
        self.misconfigured: str = ""
        self.records: MasterRecords = MasterRecords(
            self.list_check(roster.voters.lists), roster.masters, monitor.mutex
        )

    def list_check(self, lists: MasterLists) -> ListCheck:
        """What compares ``lists`` with the records of the masters."""
        strict = self._settings.check_masters == "strict"
        masks = tuple(mask for mask, _ in lists.lists)
        return ListCheck(masks, round(self._settings.guard.max_ttl * 1000), strict)

    def apply(self, lists: MasterLists) -> None:
        """The masters that must agree from now on. The others leave."""
        voters = self._roster.voters
        self.records.check = self.list_check(lists)
        self.records.judge()
        # Before the lists: no attempt by them asks a master that has no vote for them.
        voters.mask &= self._voting()
        lists.unlisted = self._unlisted()
        self._roster.replace_lists(lists)
        self.judge()
        self._monitor.notify()
        self._monitor.wake()

    def judge(self, attaching: int | None = None) -> None:
        """Find out which masters vote, and whether the configuration is wrong.

        ``attaching``: the number of the master that is connected next.
        """
        self.records.judge(attaching)
        self._check_configuration()
        self.update()

    def _judge_and_notify(self) -> bool:
        """``judge``, and tell those that wait. False: the client was closed."""
        self.judge()
        self._monitor.notify()
        return not self._monitor.ended()

    def _check_configuration(self) -> None:
        """Set ``misconfigured`` if a master is unfit, or fewer servers than a quorum are distinct."""
        lists = self._roster.voters.lists
        own = self._roster.own(lists)
        duplicates = {number: master.duplicate for number, master in own.items() if master.duplicate}
        wrong = [master.unfit for master in own.values() if master.unfit]
        if not lists.is_quorum(lists.all & ~mask_of(duplicates)):
            wrong += duplicates.values()
        self.misconfigured = wrong[0] if wrong else self.records.verdict.wrong
        if self.misconfigured:
            self._monitor.client_state.ready = False

    def update(self) -> None:
        """Let the client count the votes of the masters that vote now."""
        if self._monitor.ended():  # in a child of fork a copy of a greenlet may call this
            return
        voters = self._roster.voters
        voters.lists.unlisted = self._unlisted()
        voters.mask = self._voting()
        voters.all_push = all(one.server.can.push for one in self._roster.own().values() if one.guard.known)

    def _voting(self) -> int:
        """The mask of the masters that cast votes, once they are connected."""
        return self._roster.mask(lambda one: not one.no_vote)

    def _unlisted(self) -> int:
        """The mask of the masters whose records forbid the client's lists, or that may have a rival.

        The restart guard of a promoted master is longer than ``max_ttl`` by the time for which its former
        master may go on to take writes. In that time the former master may grant a key that has ended there,
        while the promoted one extends its own copy of it: both votes would be those of one master.
        """
        rivals = time.monotonic() + self._settings.guard.max_ttl
        return self._roster.mask(lambda one: one.record.listed is False or one.guard.until > rivals)

    def end_guard(self, master: Master, now: float) -> float:
        """When the restart guard of a master ends, or ended. Takes the mutex."""
        end = master.guard.until
        if self._roster.voters.lists.unlisted != self._unlisted():  # a promoted master has no rival any more
            with self._monitor.mutex:
                self.update()
        if end <= now:
            with self._monitor.mutex:
                if master.guard.until > now:  # another thread connected it since, after another restart
                    return master.guard.until
                master.guard.until = 0.0
                self.update()
                self._monitor.notify()  # a change of the masters waits for votes
            events = self._monitor.client_state.events
            events.info("master-trusted", master.target.name, "its restart guard has ended")
        return end

    # --- the records of the masters: with I/O, and without the mutex ---

    def read_records(self) -> Verdict:
        """What the records of the masters say of this client's lists. Writes none, and changes no vote."""
        with contextlib.closing(self._record_connections()) as connections:
            return self.records.read_only(connections)

    def write_records(self, again: bool = False) -> None:
        """Write the records that are missing. ``again``: first read those that allow no vote."""
        self.records.write(self._record_connections(), self._judge_and_notify, again)
        self.records.report(self._monitor.client_state.events)

    def _record_connections(self) -> RecordConnections:
        return RecordConnections(self._settings.key_prefix, self._settings.connect_timeout)

    def keep_records(self, now: float) -> None:
        """Begin to read or to confirm records in a thread, if it is time for that."""
        if self.records.due(now):
            start_thread("records", self.write_records, True)
        elif self.records.confirmation_due(now):
            start_thread("records", self._confirm_records)

    def _confirm_records(self) -> None:
        settings = self._settings
        try:
            lost = self.records.confirm(self._engine, settings.key_prefix, settings.connect_timeout)
        except Exception:  # the engine was closed, or memory is short
            if not self._monitor.ended():
                log_error("connector-error")
            return
        if lost:
            with self._monitor.mutex:
                self._judge_and_notify()
            self.write_records()
