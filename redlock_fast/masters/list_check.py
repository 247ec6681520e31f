"""Which masters may vote for a client, by the records that they keep. No I/O.

*A class* is the list that a client at one step needs a quorum of, as ids; of a joint client it is both lists.
Once a list is in force, all votes of a client come from members of one class whose records allow that class.
So the quorums of two clients share a master, or belong to classes of which a record allows only one.

*The first record.* Every master of a list gets it as a proposal, and only then it is in force. A proposal is
never replaced or withdrawn, so of two lists with a common master at most one is ever in force. Masters are
asked in the order of their ids: two lists meet first at one master, and the list that gets it is not stopped
by the other one.

*Before a list is in force*, "strict" allows no vote. "auto" allows votes when the client has tried to connect
all masters, has left its list on each that it reached, and has read no other list. So two clients with
different lists can both have a quorum then only if no master was reached by both. A master that fails to take
its record is one that was not reached.
``tests/unit/masters/test_list_check.py`` explores all orders of these steps.

*A record that is lost* is written back by a client that saw it on a quorum of each of its lists not long ago
(``since``): a change of the masters takes longer than that, so the client has not missed one. With a minority
down and one more master blank no quorum has a record any more, and that client is the only witness. The model
is ``proof/restore.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..algorithm.quorum import quorum
from . import record_writes
from .client_lists import Class, ClientLists
from .list_texts import ADVICE, LOST, NOT_IN_FORCE, OUTDATED, UNDECIDED, UNSURE, expects, not_listed, unread
from .membership import Record, first_id
from .verdict import Verdict, View, Views, lost_records, proposed


class ListCheck(ClientLists):
    """Which masters may vote for a client with these lists."""

    def judge(self, views: Sequence[View], since: float = -math.inf) -> Verdict:
        """The verdict on all masters. Those of other lists have no reasons.

        ``since``: what was seen before does not confirm a record any more.
        """
        own = {n: view for n, view in enumerate(views) if any(mask >> n & 1 for mask in self.lists)}
        reasons = {n: unread(view, self.strict) * (n in own) for n, view in enumerate(views)}
        found = self._ruling_list(own, since)
        if found:
            return self._compared(own, reasons, *found, since)
        if self._conflict(own):
            return self._refused(own, reasons)
        return self._first(own, reasons)

    # --- a list is in force that the client's lists may be ---

    def _ruling_list(self, views: Views, since: float) -> tuple[Class, dict[str, int]] | None:
        """The class in force with most masters, and these by their ids; None: no record allows one.

        It is also in force by a record that masters have lost, if that was confirmed.
        """
        records: dict[Class, dict[int, Record]] = {
            of: {}
            for one in lost_records(views)
            if (of := self.class_of(one)) and record_writes.confirmed_at(self, views, one) > since
        }
        confirmed = set(records)
        for master, view in views.items():
            record = view.record
            allowed = self.class_of(record) if record and record.epoch else None
            if record and allowed and self.is_member(master, record.id, allowed):
                records.setdefault(allowed, {})[master] = record
        found = [(one, _voters(views, by_master)) for one, by_master in records.items()]

        def size(item: tuple[Class, dict[str, int]]) -> tuple[int, int]:
            return sum(views[n].attached for n in item[1].values()), len(item[1])

        ruling = [one for one in found if one[0] in confirmed or _is_in_force(views, one[1])]
        return max(ruling, key=size, default=None)

    def _compared(
        self, views: Views, reasons: dict[int, str], of: Class, voters: dict[str, int], since: float
    ) -> Verdict:
        """The verdict where the ruling list is ``of``, and ``voters`` are its members by their ids."""
        records = record_writes.latest_first(self, views, voters, of)
        confirmed = [
            max(record_writes.confirmed_at(self, views, one), record_writes.whole_at(views, one))
            for one in records
        ]
        # The latest that may be written back. Later records of a few masters do not stop that: a client that
        # is not connected to these masters writes the same one (proof/phases.py, ``restored``).
        chosen = next((place for place, at in enumerate(confirmed) if at > since), 0)
        writable, confirmed_at = confirmed[chosen] > since, confirmed[chosen]
        record = record_writes.with_known_addresses(views, voters, records[chosen])
        repairs = record_writes.repairs(self, views, of, voters, record)
        again = {n for n, view in views.items() if view.outdated} - repairs.keys()
        for n, view in views.items():
            if n in voters.values() or not view.readable:
                continue
            if n in repairs:
                reasons[n] = LOST if writable else UNSURE
            elif n in again:
                reasons[n] = OUTDATED
            elif view.id in voters:
                reasons[n] = (
                    f"it has the same id as {views[voters[view.id]].name}: it is a copy of that master"
                )
            elif view.record and view.epoch and self.class_of(view.record) != of:
                reasons[n] = expects(view.record, self.max_ttl)
            else:
                reasons[n] = not_listed(record)
        due = next(
            (one for one in repairs.items() if views[one[0]].attached and views[one[0]].writable), None
        )
        return Verdict(
            tuple(reasons.values()),
            write=due if writable else None,
            confirmed_at=confirmed_at,
            blocked=bool(again) or (due is not None and not writable),
            wrong=self._wrong(views, reasons, repairs.keys() | again),
            step=self.step_of(records[0]),
            epoch=records[0].epoch,
        )

    # --- no list is in force that the client's lists may be ---

    def _conflict(self, views: Views) -> bool:
        """Whether a record is of other lists than the client's."""
        proposal = proposed(views)
        if proposal is None:
            return len(self.lists) == 1 and bool(_shared_id(views))
        of = self.class_of(proposal)
        # A master that keeps no record counts as not reached: it may have another id each time.
        ids = {view.id if view.awaited or view.epoch else "" for view in views.values()}
        if of is None or ("" not in ids and len(self.lists) == 1 and of != (frozenset(ids),)):
            return True
        return any(
            view.record.in_force
            or self.class_of(view.record) != of
            or not self.is_member(master, view.id, of)
            for master, view in views.items()
            if view.record and view.record.epoch
        )

    def _refused(self, views: Views, reasons: dict[int, str]) -> Verdict:
        """The verdict where a record is of other lists."""
        again = {n for n, view in views.items() if view.outdated}
        shared = _shared_id(views) if proposed(views) is None else ""
        for n, view in views.items():
            if shared and view.readable:
                reasons[n] = f"no list can be written: {shared} have one id, and one is a copy of the other"
            elif view.record and view.epoch:
                reasons[n] = expects(view.record, self.max_ttl)
            elif n in again:
                reasons[n] = OUTDATED
            elif view.readable:
                reasons[n] = "it has no record of masters, and other masters of this client have another list"
        return Verdict(tuple(reasons.values()), blocked=bool(again), wrong=self._wrong(views, reasons, again))

    # --- no record is of other lists ---

    def _first(self, views: Views, reasons: dict[int, str]) -> Verdict:
        """The verdict where masters have the list that the client would write first, or none."""
        proposal = proposed(views)
        for n, view in views.items():
            reasons[n] = reasons[n] or self._not_proposed(n, view, proposal)
        again = {n for n, view in views.items() if view.outdated and reasons[n]}
        reasons.update(dict.fromkeys(again, OUTDATED))
        wrong = self._wrong(views, reasons, again)
        tried = all(view.tried for view in views.values())
        first, later = (
            record_writes.first_write(self, views, proposal, awaited)
            if tried and len(self.lists) == 1
            else None
            for awaited in (True, False)
        )
        undecided = self.strict or not tried or first is not None
        if undecided:
            why = NOT_IN_FORCE.format(len(views)) if self.strict else UNDECIDED
            for n, view in views.items():
                reasons[n] = reasons[n] or why * view.readable
        return Verdict(
            tuple(reasons.values()),
            first or later,
            blocked=bool(again),
            undecided=undecided and not wrong,
            wrong=wrong,
        )

    def _not_proposed(self, master: int, view: View, proposal: Record | None) -> str:
        """Why a master is no member of the list that is proposed, or ""."""
        if proposal is None or not view.readable or record_writes.proposed_id(self, master, view, proposal):
            return ""
        return not_listed(proposal)

    def _wrong(self, views: Views, reasons: Mapping[int, str], waiting: Collection[int] = ()) -> str:
        """Why a majority of a list has no vote, or "". The masters ``waiting`` for a record do not count."""
        for mask in self.lists:
            refused = [n for n, why in reasons.items() if why and n not in waiting and mask >> n & 1]
            if mask.bit_count() - len(refused) < quorum(mask.bit_count()):
                first = views[refused[0]]
                return (
                    f"masters: {first.name}: {reasons[refused[0]]}{'; ' + ADVICE if first.readable else ''}"
                )
        return ""


def _voters(views: Views, records: Mapping[int, Record]) -> dict[str, int]:
    """The masters of a class by their ids. Of servers with one id, one is the master.

    It is the one at the address that most records give: any server can claim an id.
    """
    same: dict[str, list[int]] = {}
    for master, record in records.items():
        same.setdefault(record.id, []).append(master)
    voters = {}
    for id, claimants in same.items():
        given = Counter(record.addresses[id] for record in records.values())
        claimants.sort(key=lambda n: (given[views[n].name], records[n].in_force), reverse=True)
        voters[id] = claimants[0]
    return voters


def _is_in_force(views: Views, voters: Mapping[str, int]) -> bool:
    return any(record.in_force for n in voters.values() if (record := views[n].record))


def _shared_id(views: Views) -> str:
    """Two masters that would have one id in a first list, as text; "": all ids are different."""
    names: dict[str, str] = {}
    for view in views.values():
        other = names.setdefault(view.id or first_id(view.name), view.name)
        if other != view.name:
            return f"{other} and {view.name}"
    return ""
