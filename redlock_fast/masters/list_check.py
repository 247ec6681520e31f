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
from typing import NamedTuple

from ..algorithm.quorum import quorum
from .membership import STEADY, Members, Record, Seen, first_id, ids_of, members

#: Addresses of a list in a text.
MAX_SHOWN = 9
#: What to do about another list.
ADVICE = (
    "give this client that list and max_ttl, or change the list with `redlock-fast masters`; "
    "clients with locks of their own need another key_prefix (docs/operations.md)"
)
#: Why a master has no vote yet.
UNDECIDED = "no vote yet: the records of the other masters are not read and written yet"
NOT_IN_FORCE = "no vote yet: its list of masters is not in force, so all {} masters must be reached once"

LOST = "it has lost its record of masters, which is not written back yet"
UNSURE = (
    "it has lost its record of masters, and too few others have theirs: a client that was connected before "
    "will write it back; if there is none, and no change of the masters is under way, give "
    "`redlock-fast masters restore`"
)
#: Another client has written a record since this master was read without one.
OUTDATED = "it had no record of masters when it was read, and is read again"
#: Reasons that another client may have ended by now.
PASSING = (LOST, UNSURE, OUTDATED)

Class = tuple[frozenset[str], ...]


class View(NamedTuple):
    """What a client knows of one master.

    ``seen``: its record as read last; None: it was not read. ``read_at``: when this client saw it there last.
    ``former``, ``former_at``: the same of the record before, if a list is in it. ``attached``: it is
    connected now. ``tried``: it is connected, or the last attempt failed. ``writable``: its record may be
    written now. ``awaited``: no master votes before its first record is written. ``settled``: it was read
    after the client knew a record with a list.
    """

    name: str
    seen: Seen | None = None
    former: Record | None = None
    attached: bool = False
    tried: bool = False
    writable: bool = True
    awaited: bool = True
    read_at: float = 0.0
    former_at: float = -math.inf
    settled: bool = True

    @property
    def record(self) -> Record | None:
        return self.seen.record if self.seen else None

    @property
    def id(self) -> str:
        return self.record.id if self.record else ""

    @property
    def epoch(self) -> int:
        return self.record.epoch if self.record else 0

    @property
    def readable(self) -> bool:
        return self.seen is not None and self.seen.compared and not self.seen.error

    @property
    def latest(self) -> tuple[Record | None, float]:
        """The latest record with a list that was seen there, and when; the master may have lost it since."""
        return (self.record, self.read_at) if self.epoch else (self.former, self.former_at)

    @property
    def outdated(self) -> bool:
        """Whether it had no record when it was read, and may have got one since."""
        return self.attached and self.readable and self.record is None and not self.settled


class Verdict(NamedTuple):
    """What follows from all records.

    ``reasons``: for each master why it has no vote; "": it votes. ``write``: the master and the record to be
    written next, or None. ``confirmed_at``: when the client saw that record on a quorum, at the latest; inf:
    it is a first record. ``blocked``: by what was read, masters need a record that may be out of date, or
    they must be read again. ``undecided``: the reasons are not final. ``wrong``: why the configuration cannot
    work, or "". ``step``, ``epoch``: of the client, by the record in force that allows its lists; "" and 0:
    there is none.
    """

    reasons: tuple[str, ...]
    write: tuple[int, Record] | None = None
    confirmed_at: float = math.inf
    blocked: bool = False
    undecided: bool = False
    wrong: str = ""
    step: str = ""
    epoch: int = 0

    @property
    def ruled(self) -> bool:
        """Whether a list is in force, and the client's list is that one: the ruling list."""
        return self.step != ""


class ListCheck(NamedTuple):
    """The lists of one client, as masks of its masters: one list, or the new list and the old list.

    ``max_ttl``: of the client, in milliseconds. ``strict``: no votes before a list is in force.
    """

    lists: tuple[int, ...]
    max_ttl: int
    strict: bool = False

    def judge(self, views: Sequence[View], since: float = -math.inf) -> Verdict:
        """The verdict on all masters. Those of other lists have no reasons.

        ``since``: what was seen before does not confirm a record any more.
        """
        own = [n for n in range(len(views)) if any(mask >> n & 1 for mask in self.lists)]
        if len(own) < len(views):
            return self._judge_own(views, own, since)
        found = self._ruling_list(views, since)
        if found:
            return self._compared(views, *found, since)
        if self._conflict(views):
            return self._refused(views)
        return self._first(views)

    def _judge_own(self, views: Sequence[View], own: Sequence[int], since: float) -> Verdict:
        """The verdict on the masters ``own``, for the numbers of all masters."""
        lists = [sum((mask >> n & 1) << place for place, n in enumerate(own)) for mask in self.lists]
        verdict = self._replace(lists=tuple(lists)).judge([views[n] for n in own], since)
        reasons = [""] * len(views)
        for n, why in zip(own, verdict.reasons, strict=True):
            reasons[n] = why
        write = verdict.write and (own[verdict.write[0]], verdict.write[1])
        return verdict._replace(reasons=tuple(reasons), write=write)

    # --- a list is in force that the client's lists may be ---

    def _step_of(self, record: Record) -> str:
        """The step that a record allows for this client, by the numbers of masters; "": it allows none."""
        sizes = [mask.bit_count() for mask in self.lists]
        steps = record.steps if record.max_ttl == self.max_ttl else ()
        return next((step for step in steps if [len(one) for one in record.lists(step)] == sizes), "")

    def _class_of(self, record: Record) -> Class | None:
        step = self._step_of(record)
        return tuple(map(ids_of, record.lists(step))) if step else None

    def _is_member(self, master: int, id: str, of: Class) -> bool:
        """Whether ``id`` is in each list of the class in which the client has the master."""
        return all(id in ids for ids, mask in zip(of, self.lists, strict=True) if mask >> master & 1)

    def _ruling_list(self, views: Sequence[View], since: float) -> tuple[Class, dict[str, int]] | None:
        """The class in force with most masters, and these by their ids; None: no record allows one.

        It is also in force by a record that masters have lost, if that was confirmed.
        """
        records: dict[Class, dict[int, Record]] = {
            of: {}
            for one in _lost(views)
            if (of := self._class_of(one)) and self._confirmed_at(views, one) > since
        }
        confirmed = set(records)
        for master, view in enumerate(views):
            record = view.record
            allowed = self._class_of(record) if record and record.epoch else None
            if record and allowed and self._is_member(master, record.id, allowed):
                records.setdefault(allowed, {})[master] = record
        found = [(one, _voters(views, by_master)) for one, by_master in records.items()]

        def size(item: tuple[Class, dict[str, int]]) -> tuple[int, int]:
            return sum(views[n].attached for n in item[1].values()), len(item[1])

        ruling = [one for one in found if one[0] in confirmed or _is_in_force(views, one[1])]
        return max(ruling, key=size, default=None)

    def _confirmed_at(self, views: Sequence[View], record: Record) -> float:
        """When the client saw the record last on a quorum of each of its lists; -inf: it did not."""
        of, confirmed = self._class_of(record), math.inf
        if of is None:
            return -math.inf
        for ids, mask in zip(of, self.lists, strict=True):
            times = dict.fromkeys(ids, -math.inf)
            for n, view in enumerate(views):
                latest, at = view.latest
                if latest and latest.terms == record.terms and mask >> n & 1 and latest.id in times:
                    times[latest.id] = max(times[latest.id], at)
            confirmed = min(confirmed, sorted(times.values(), reverse=True)[quorum(len(times)) - 1])
        return confirmed

    def _compared(self, views: Sequence[View], of: Class, voters: dict[str, int], since: float) -> Verdict:
        records = self._latest_first(views, voters, of)
        confirmed = [max(self._confirmed_at(views, one), _whole_at(views, one)) for one in records]
        # The latest that may be written back. Later records of a few masters do not stop that: a client that
        # is not connected to these masters writes the same one (proof/phases.py, ``restored``).
        chosen = next((place for place, at in enumerate(confirmed) if at > since), 0)
        writable, confirmed_at = confirmed[chosen] > since, confirmed[chosen]
        record = _with_known_addresses(views, voters, records[chosen])
        repairs = {
            n: _in_place_of(view.record, record.of(id))
            for n, view in enumerate(views)
            if (id := self._to_repair(view, n, of, voters, record))
            and (view.record is None or self._outdated(views, view.record, record))
        }
        again = {n for n, view in enumerate(views) if view.outdated} - repairs.keys()
        reasons = [self._unread(view) for view in views]
        for n, view in enumerate(views):
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
            elif view.record and view.epoch and self._class_of(view.record) != of:
                reasons[n] = self._expects(view.record)
            else:
                reasons[n] = _not_listed(record)
        due = next(
            (one for one in repairs.items() if views[one[0]].attached and views[one[0]].writable), None
        )
        return Verdict(
            tuple(reasons),
            write=due if writable else None,
            confirmed_at=confirmed_at,
            blocked=bool(again) or (due is not None and not writable),
            wrong=self._wrong(views, reasons, repairs.keys() | again),
            step=self._step_of(records[0]),
            epoch=records[0].epoch,
        )

    def _latest_first(self, views: Sequence[View], voters: Mapping[str, int], of: Class) -> list[Record]:
        """The records in force, the latest epoch first; of one epoch, that of most masters.

        Those of masters that are connected come first, then those that masters have lost.
        """
        found = [
            (view.attached, record)
            for view in (views[n] for n in voters.values())
            if (record := view.record) and record.in_force
        ]
        found += [(False, one) for one in _lost(views) if self._class_of(one) == of]
        counts = Counter(record.terms for attached, record in found if attached)
        found.sort(key=lambda one: (one[0], one[1].epoch, counts[one[1].terms]), reverse=True)
        return [record for _, record in found]

    def _to_repair(self, view: View, master: int, of: Class, voters: dict[str, int], record: Record) -> str:
        """The id of a master that may get ``record``; "": it may not."""
        if not view.readable:
            return ""
        at_address = [id for id, address in record.addresses.items() if address == view.name]
        former_id = view.former.id if view.former else ""
        ids = [view.id] if view.epoch else [view.id, former_id, *at_address]
        known = record.addresses
        free = (id for id in ids if id in known and voters.get(id, master) == master)
        return next((id for id in free if self._is_member(master, id, of)), "")

    def _outdated(self, views: Sequence[View], own: Record, record: Record) -> bool:
        """Whether ``record`` may replace ``own``: that is not in force, or a quorum has a later epoch."""
        if own.terms == record.terms or not own.epoch:
            return not own.in_force
        if not own.in_force or own.epoch >= record.epoch:
            return False
        same = sum(1 << n for n, view in enumerate(views) if _has(view, record))
        return all((same & mask).bit_count() >= quorum(mask.bit_count()) for mask in self.lists)

    # --- no list is in force that the client's lists may be ---

    def _conflict(self, views: Sequence[View]) -> bool:
        """Whether a record is of other lists than the client's."""
        proposed = _proposed(views)
        if proposed is None:
            return len(self.lists) == 1 and bool(_shared_id(views))
        of = self._class_of(proposed)
        # A master that keeps no record counts as not reached: it may have another id each time.
        ids = {view.id if view.awaited or view.epoch else "" for view in views}
        if of is None or ("" not in ids and len(self.lists) == 1 and of != (frozenset(ids),)):
            return True
        return any(
            view.record.in_force
            or self._class_of(view.record) != of
            or not self._is_member(master, view.id, of)
            for master, view in enumerate(views)
            if view.record and view.record.epoch
        )

    def _refused(self, views: Sequence[View]) -> Verdict:
        reasons = [self._unread(view) for view in views]
        again = {n for n, view in enumerate(views) if view.outdated}
        shared = _shared_id(views) if _proposed(views) is None else ""
        for n, view in enumerate(views):
            if shared and view.readable:
                reasons[n] = f"no list can be written: {shared} have one id, and one is a copy of the other"
            elif view.record and view.epoch:
                reasons[n] = self._expects(view.record)
            elif n in again:
                reasons[n] = OUTDATED
            elif view.readable:
                reasons[n] = "it has no record of masters, and other masters of this client have another list"
        return Verdict(tuple(reasons), blocked=bool(again), wrong=self._wrong(views, reasons, again))

    # --- no record is of other lists ---

    def _first(self, views: Sequence[View]) -> Verdict:
        proposed = _proposed(views)
        reasons = [
            self._unread(view) or self._not_proposed(n, view, proposed) for n, view in enumerate(views)
        ]
        again = {n for n, view in enumerate(views) if view.outdated and reasons[n]}
        for n in again:
            reasons[n] = OUTDATED
        wrong = self._wrong(views, reasons, again)
        tried = all(view.tried for view in views)
        writes = [
            self._first_write(views, proposed, awaited) if tried and len(self.lists) == 1 else None
            for awaited in (True, False)
        ]
        undecided = self.strict or not tried or writes[0] is not None
        if undecided:
            why = NOT_IN_FORCE.format(len(views)) if self.strict else UNDECIDED
            reasons = [old or why * view.readable for old, view in zip(reasons, views, strict=True)]
        return Verdict(
            tuple(reasons),
            writes[0] or writes[1],
            blocked=bool(again),
            undecided=undecided and not wrong,
            wrong=wrong,
        )

    def _not_proposed(self, master: int, view: View, proposed: Record | None) -> str:
        """Why a master is no member of the list that is proposed, or ""."""
        member = not proposed or not view.readable or self._proposed_id(master, view, proposed)
        return "" if member or proposed is None else _not_listed(proposed)

    def _proposed_id(self, master: int, view: View, proposed: Record) -> str:
        """The id of a master in the list that is proposed; "": it is no member."""
        of = self._class_of(proposed)
        ids = (
            [view.id]
            if view.id
            else [id for id, address in proposed.addresses.items() if address == view.name]
        )
        return next((id for id in ids if of and self._is_member(master, id, of)), "")

    def _first_write(
        self, views: Sequence[View], proposed: Record | None, awaited: bool
    ) -> tuple[int, Record] | None:
        """The next write to the masters that are ``awaited``, or to those that are not."""
        reached = [
            (n, view)
            for n, view in enumerate(views)
            if view.attached and view.readable and view.writable and view.awaited is awaited
        ]
        if proposed is None:
            for n, view in reached:
                if not view.id:
                    return n, Record(first_id(view.name))
            listed = members({view.id or first_id(view.name): view.name for view in views})
            if not reached:
                return None
            proposed = Record("", 1, self.max_ttl, STEADY, (), listed)
        names = {view.id: view.name for view in views if view.id}  # the proposal may have wrong addresses
        proposed = proposed._replace(new=tuple((id, names.get(id, one)) for id, one in proposed.new))
        missing = [
            (id, n) for n, view in reached if not view.epoch and (id := self._proposed_id(n, view, proposed))
        ]
        if missing:
            id, n = min(missing)
            return n, proposed.of(id)
        if all(view.epoch for view in views) and reached:
            n, view = reached[0]
            return n, proposed._replace(id=view.id, in_force=True)
        return None

    # --- texts ---

    def _unread(self, view: View) -> str:
        """Why a master without a record that can be read has no vote, or ""."""
        if view.seen is None or view.readable:
            return ""
        refused = "this user may not read its record of masters, and check_masters='strict' needs it"
        return view.seen.error or refused * self.strict

    def _expects(self, record: Record) -> str:
        if record.max_ttl != self.max_ttl:
            ours, theirs = self.max_ttl / 1000, record.max_ttl / 1000
            return f"it expects max_ttl={theirs:g}, and this client has max_ttl={ours:g}"
        return f"it expects {_shown(record)}"

    def _wrong(self, views: Sequence[View], reasons: Sequence[str], waiting: Collection[int] = ()) -> str:
        """Why a majority of a list has no vote, or "". The masters ``waiting`` for a record do not count."""
        for mask in self.lists:
            refused = [n for n, why in enumerate(reasons) if why and n not in waiting and mask >> n & 1]
            if mask.bit_count() - len(refused) < quorum(mask.bit_count()):
                first = views[refused[0]]
                return (
                    f"masters: {first.name}: {reasons[refused[0]]}{'; ' + ADVICE if first.readable else ''}"
                )
        return ""


def _voters(views: Sequence[View], records: Mapping[int, Record]) -> dict[str, int]:
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


def _with_known_addresses(views: Sequence[View], voters: Mapping[str, int], record: Record) -> Record:
    """``record`` with the addresses that most masters give that have it: any of them may give wrong ones."""
    same = [one for n in voters.values() if (one := views[n].record) and one.terms == record.terms]
    same = same or [record]  # all masters have lost it

    def known(id: str) -> str:
        given = Counter(one.addresses[id] for one in same)
        own = views[voters[id]].name if id in voters else ""
        return max(given, key=lambda address: (given[address], address == own))

    old, new = (tuple((id, known(id)) for id, _ in one) for one in (record.old, record.new))
    return record._replace(old=old, new=new)


def _in_place_of(own: Record | None, record: Record) -> Record:
    """What replaces ``own`` by ``record``. It keeps its addresses if only the mark is missing."""
    return own._replace(in_force=True) if own and own.terms == record.terms else record


def _is_in_force(views: Sequence[View], voters: Mapping[str, int]) -> bool:
    return any(record.in_force for n in voters.values() if (record := views[n].record))


def _lost(views: Sequence[View]) -> list[Record]:
    """The records in force that masters have lost."""
    return [view.former for view in views if not view.epoch and view.former and view.former.in_force]


def _has(view: View, record: Record) -> bool:
    """Whether a master has ``record`` now. What was read before it was disconnected may be out of date."""
    return view.attached and view.record is not None and view.record.terms == record.terms


def _whole_at(views: Sequence[View], record: Record) -> float:
    """When the client saw all masters of its lists, and those with a record had this one; -inf: it did not.

    Then no master can have a later one, unless each master that had it has lost it.
    """
    have = {view.id: view.read_at for view in views if _has(view, record)}
    blank = {
        view.name: view.read_at for view in views if view.attached and view.readable and view.record is None
    }
    times = [have.get(id, blank.get(address, -math.inf)) for id, address in record.old + record.new]
    return min(times)


def _proposed(views: Sequence[View]) -> Record | None:
    return next((view.record for view in views if view.record and view.epoch), None)


def _shared_id(views: Sequence[View]) -> str:
    """Two masters that would have one id in a first list, as text; "": all ids are different."""
    names: dict[str, str] = {}
    for view in views:
        other = names.setdefault(view.id or first_id(view.name), view.name)
        if other != view.name:
            return f"{other} and {view.name}"
    return ""


def _not_listed(record: Record) -> str:
    return f"it is not in the list that the other masters have: {_shown(record)}"


def _shown(record: Record) -> str:
    """The lists that a record allows, as text."""
    if not record.old:
        return f"the masters {_addresses(record.new)} (epoch {record.epoch})"
    steps = " or ".join(record.steps)
    return (
        f"clients that are {steps} in the change from {_addresses(record.old)} to {_addresses(record.new)} "
        f"(epoch {record.epoch})"
    )


def _addresses(listed: Members) -> str:
    names = sorted(address for _, address in listed)
    more = f" and {len(names) - MAX_SHOWN} more" * (len(names) > MAX_SHOWN)
    return ", ".join(names[:MAX_SHOWN]) + more
