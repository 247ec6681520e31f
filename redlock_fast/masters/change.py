"""A change of the masters of a running client: ``reconfigure``.

The masters that are new are connected beside the present ones. When each list has a quorum, all attempts that
begin from then on count by the new lists. Attempts under way, leases and waiting callers go on.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence

from ..algorithm.master_lists import MasterLists, mask_of
from ..errors import ClientClosed, ConfigError, MasterError, QuorumUnavailable
from .address import Target
from .connector import do_nothing
from .list_check import Verdict
from .masters import GRACE, Masters


class MastersChange:
    """One change to ``new``, one list or two.

    The caller calls ``begin``, waits for ``conditions`` and calls ``finish``, then always ``end``. A signal
    handler may raise anywhere in between.
    """

    def __init__(self, masters: Masters, new: Sequence[Sequence[Target]]) -> None:
        self._masters = masters
        self._connector = masters.connector
        self._new = new

    def begin(self) -> None:
        """Connect the masters that are new. Raises ConfigError if this is no step of a safe change."""
        connector = self._connector
        connector.start()
        with connector.mutex:
            if connector.change() is not None:
                raise ConfigError("reconfigure: another change of the masters of this client is under way")
            self._check_step(self._new)
            connector.change = weakref.ref(self)
            self._before = self._masters.policy.voters.lists
            self._masks = connector.number(self._new)
            self._lists = MasterLists(len(connector.states), *self._masks)

    def _check_step(self, lists: Sequence[Sequence[Target]]) -> None:
        """Two clients exclude each other if they have a list in common: each step must keep one."""
        states = self._connector.states
        known = {state.target.address: state.target for state in states if not state.gone}
        for one in (one for masters in lists for one in masters):
            before = known.get(one.address, one)
            if one.database != before.database:
                raise ConfigError(
                    f"reconfigure: {one.name} is another database than {before.name}, with other keys"
                )
        present = {
            frozenset(state.target.address for n, state in enumerate(states) if mask >> n & 1)
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
        self._connector.connect_urgently(timeout)

        def ready() -> bool:
            return self._connector.ended() or self._lists.is_quorum(self._voting())

        def all_tried() -> bool:
            return self._connector.ended() or self._connector.all_tried(self._lists)

        yield ready, timeout
        # A lease on a bare quorum is lost with the first master that fails: give the others a moment.
        yield all_tried, min(timeout, GRACE)
        yield ready, max(0.0, end - time.monotonic())  # a master may have failed in that moment

    def finish(self) -> None:
        """Count by the new lists from now on. Raises QuorumUnavailable, ConfigError, ClientClosed."""
        policy, connector = self._masters.policy, self._connector
        with connector.mutex:
            self._masters.check_not_closed()
            if connector.ended():  # the connections that it knows are the parent's
                raise ClientClosed("this process is a child of fork: its parent continues this change")
            if wrong := self._verdict().wrong:
                raise ConfigError(f"reconfigure: {wrong}")
            if not self._lists.is_quorum(self._voting()):
                raise self._error()
            now, common = policy.clock(), self._lists.all
            for mask, _ in (*self._before.lists, *self._lists.lists):
                common &= mask
            same = self._before.lists == self._lists.lists
            connector.apply(
                MasterLists(
                    len(connector.states),
                    *self._masks,
                    partly=self._before.partly if same else self._lists.all & ~common,
                    settled_at=self._before.settled_at if same else now + connector.settings.guard.max_ttl,
                )
            )

    def end(self) -> None:
        """The change has ended, if it began. Masters that are in no list of the client leave it."""
        connector = self._connector
        with connector.mutex:
            if connector.change() is self and not connector.ended():
                connector.change = do_nothing
                connector.apply(self._masters.policy.voters.lists)

    def _verdict(self) -> Verdict:
        """What the records of the masters say of the new lists."""
        with self._connector.mutex:
            return self._connector.records.verdict_by(self._connector.list_check(self._lists))

    def _voting(self) -> int:
        """The mask of the masters that are connected, and that vote for the new lists."""
        reasons = self._verdict().reasons
        states = self._connector.states[: len(reasons)]
        trusted = (n for n, state in enumerate(states) if not state.guarded_until and not reasons[n])
        return mask_of(filter(self._connector.is_usable, trusted))

    def _error(self) -> ConfigError | QuorumUnavailable:
        own, voting = self._connector.own_states(self._lists), self._voting()
        reasons = self._verdict().reasons
        for state in own.values():
            if state.refused or state.duplicate_error:
                return ConfigError(f"reconfigure: {state.refused or state.duplicate_error}")
        guarded = [state.guard() for n, state in own.items() if state.attached and not voting >> n & 1]
        causes = [
            MasterError(state.target.name, reasons[n] or state.guard_text() or state.error or "not connected")
            for n, state in own.items()
            if not voting >> n & 1
        ]
        lacking = self._lists.text(self._lists.lacking(voting))
        what = f"reconfigure: no quorum of {lacking} votes, so nothing was changed"
        if any(guarded):
            return QuorumUnavailable(what, causes, reason="guarded", retry_after=max(guarded))
        return QuorumUnavailable(what, causes, reason="unavailable")
