"""A change of the masters of a running client: ``reconfigure``.

The masters that are new are connected beside the present ones. When each list has a quorum, all attempts that
begin from then on count by the new lists. Attempts under way, leases and waiting callers go on.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from ..algorithm.master_lists import MasterLists, mask_of
from ..errors import ClientClosed, ConfigError, MasterError, QuorumUnavailable
from .address import Target
from .masters import GRACE, Masters
from .monitor import do_nothing
from .verdict import Verdict


class MastersChange:
    """One change to ``new``, one list or two.

    In ``with``, the caller calls ``begin``, waits for ``conditions`` and calls ``finish``. A signal handler
    may raise anywhere in between.
    """

    def __init__(self, masters: Masters, new: Sequence[Sequence[Target]]) -> None:
        self._masters = masters
        self._connector = masters.connector
        self._new = new

    def begin(self) -> None:
        """Connect the masters that are new. Raises ConfigError if this is no step of a safe change."""
        connector = self._connector
        connector.start()
        with connector.monitor.mutex:
            if connector.roster.change() is not None:
                raise ConfigError("reconfigure: another change of the masters of this client is under way")
            self._check_step(self._new)
            connector.roster.change = weakref.ref(self)
            self._before = self._masters.policy.voters.lists
            self._masks = connector.number(self._new)
            self._lists = MasterLists(len(connector.roster.masters), *self._masks)

    def _check_step(self, lists: Sequence[Sequence[Target]]) -> None:
        """Two clients exclude each other if they have a list in common: each step must keep one."""
        present_masters = self._connector.roster.masters
        known = {master.target.address: master.target for master in present_masters if not master.gone}
        for one in (one for masters in lists for one in masters):
            before = known.get(one.address, one)
            if one.database != before.database:
                raise ConfigError(
                    f"reconfigure: {one.name} is another database than {before.name}, with other keys"
                )
        present = {
            frozenset(master.target.address for n, master in enumerate(present_masters) if mask >> n & 1)
            for mask, _ in self._masters.policy.voters.lists.lists
        }
        if present.isdisjoint(frozenset(one.address for one in masters) for masters in lists):
            raise ConfigError(
                "reconfigure: neither masters nor joint_with is a list that this client has now, so two "
                "clients could hold one lock: first reconfigure(new, joint_with=old) on every client, "
                "then reconfigure(new); see docs/changing-masters.md"
            )

    def conditions(self, timeout: float) -> Iterator[tuple[Callable[[], bool], float]]:
        """The conditions to wait for in this order, each with its seconds."""
        end = time.monotonic() + timeout
        self._connector.dialler.connect_urgently(timeout)

        def ready() -> bool:
            return self._connector.monitor.ended() or self._lists.is_quorum(self._voting())

        def all_tried() -> bool:
            return self._connector.monitor.ended() or self._connector.roster.all_tried(self._lists)

        yield ready, timeout
        # A lease on a bare quorum is lost with the first master that fails: give the others a moment.
        yield all_tried, min(timeout, GRACE)
        yield ready, max(0.0, end - time.monotonic())  # a master may have failed in that moment

    def finish(self) -> None:
        """Count by the new lists from now on. Raises QuorumUnavailable, ConfigError, ClientClosed."""
        policy, connector = self._masters.policy, self._connector
        with connector.monitor.mutex:
            self._masters.check_not_closed()
            if connector.monitor.ended():  # the connections that it knows are the parent's
                raise ClientClosed("this process is a child of fork: its parent continues this change")
            if wrong := self._verdict().wrong:
                raise ConfigError(f"reconfigure: {wrong}")
            if not self._lists.is_quorum(self._voting()):
                raise self._error()
            now, common = policy.clock(), self._lists.all
            for mask, _ in (*self._before.lists, *self._lists.lists):
                common &= mask
            same = self._before.lists == self._lists.lists
            connector.electorate.apply(
                MasterLists(
                    len(connector.roster.masters),
                    *self._masks,
                    partly=self._before.partly if same else self._lists.all & ~common,
                    settled_at=self._before.settled_at if same else now + connector.settings.guard.max_ttl,
                )
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """The change has ended, if it began. Masters that are in no list of the client leave it."""
        connector = self._connector
        with connector.monitor.mutex:
            if connector.roster.change() is self and not connector.monitor.ended():
                connector.roster.change = do_nothing
                connector.electorate.apply(self._masters.policy.voters.lists)

    def _verdict(self) -> Verdict:
        """What the records of the masters say of the new lists."""
        electorate = self._connector.electorate
        with self._connector.monitor.mutex:
            return electorate.records.verdict_by(electorate.list_check(self._lists))

    def _voting(self) -> int:
        """The mask of the masters that are connected, and that vote for the new lists."""
        reasons = self._verdict().reasons
        masters = self._connector.roster.masters[: len(reasons)]
        trusted = (n for n, master in enumerate(masters) if not master.guard.until and not reasons[n])
        return mask_of(filter(self._connector.connections.is_usable, trusted))

    def _error(self) -> ConfigError | QuorumUnavailable:
        own, voting = self._connector.roster.own(self._lists), self._voting()
        reasons = self._verdict().reasons
        for master in own.values():
            if master.unfit or master.duplicate:
                return ConfigError(f"reconfigure: {master.unfit or master.duplicate}")
        silent = {n: master for n, master in own.items() if not voting >> n & 1}
        guarded = [master.guard.seconds() for master in silent.values() if master.link.attached]
        causes = [
            MasterError(one.target.name, reasons[n] or one.guard_text() or one.tally.error or "not connected")
            for n, one in silent.items()
        ]
        lacking = self._lists.text(self._lists.lacking(voting))
        what = f"reconfigure: no quorum of {lacking} votes, so nothing was changed"
        if any(guarded):
            return QuorumUnavailable(what, causes, reason="guarded", retry_after=max(guarded))
        return QuorumUnavailable(what, causes, reason="unavailable")
