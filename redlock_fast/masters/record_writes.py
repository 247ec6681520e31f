"""Which record of masters a client writes next, and on which master. No I/O."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from ..algorithm.quorum import quorum
from .client_lists import Class, ClientLists
from .membership import STEADY, Record, first_id, members
from .verdict import View, Views, lost_records

# --- a list is in force: records that are lost, or that a quorum has replaced ---


def latest_first(lists: ClientLists, views: Views, voters: Mapping[str, int], of: Class) -> list[Record]:
    """The records in force, the latest epoch first; of one epoch, that of most masters.

    Those of masters that are connected come first, then those that masters have lost.
    """
    found = [
        (view.attached, record)
        for view in (views[n] for n in voters.values())
        if (record := view.record) and record.in_force
    ]
    found += [(False, one) for one in lost_records(views) if lists.class_of(one) == of]
    counts = Counter(record.terms for attached, record in found if attached)
    found.sort(key=lambda one: (one[0], one[1].epoch, counts[one[1].terms]), reverse=True)
    return [record for _, record in found]


def confirmed_at(lists: ClientLists, views: Views, record: Record) -> float:
    """When the client saw the record last on a quorum of each of its lists; -inf: it did not."""
    of, confirmed = lists.class_of(record), math.inf
    if of is None:
        return -math.inf
    for ids, mask in zip(of, lists.lists, strict=True):
        times = dict.fromkeys(ids, -math.inf)
        for n, view in views.items():
            latest, at = view.latest
            if latest and latest.terms == record.terms and mask >> n & 1 and latest.id in times:
                times[latest.id] = max(times[latest.id], at)
        confirmed = min(confirmed, sorted(times.values(), reverse=True)[quorum(len(times)) - 1])
    return confirmed


def whole_at(views: Views, record: Record) -> float:
    """When the client saw all masters of its lists, and those with a record had this one; -inf: it did not.

    Then no master can have a later one, unless each master that had it has lost it.
    """
    have = {view.id: view.read_at for view in views.values() if _has(view, record)}
    blank = {
        view.name: view.read_at
        for view in views.values()
        if view.attached and view.readable and view.record is None
    }
    times = [have.get(id, blank.get(address, -math.inf)) for id, address in record.old + record.new]
    return min(times)


def with_known_addresses(views: Views, voters: Mapping[str, int], record: Record) -> Record:
    """``record`` with the addresses that most masters give that have it: any of them may give wrong ones."""
    same = [one for n in voters.values() if (one := views[n].record) and one.terms == record.terms]
    same = same or [record]  # all masters have lost it

    def known(id: str) -> str:
        given = Counter(one.addresses[id] for one in same)
        own = views[voters[id]].name if id in voters else ""
        return max(given, key=lambda address: (given[address], address == own))

    old, new = (tuple((id, known(id)) for id, _ in one) for one in (record.old, record.new))
    return record._replace(old=old, new=new)


def repairs(
    lists: ClientLists, views: Views, of: Class, voters: dict[str, int], record: Record
) -> dict[int, Record]:
    """What to write on each master that needs ``record``, by number."""
    return {
        n: _in_place_of(view.record, record.of(id))
        for n, view in views.items()
        if (id := _to_repair(lists, view, n, of, voters, record))
        and (view.record is None or _outdated(lists, views, view.record, record))
    }


def _to_repair(
    lists: ClientLists, view: View, master: int, of: Class, voters: dict[str, int], record: Record
) -> str:
    """The id of a master that may get ``record``; "": it may not."""
    if not view.readable:
        return ""
    at_address = [id for id, address in record.addresses.items() if address == view.name]
    former_id = view.former.id if view.former else ""
    ids = [view.id] if view.epoch else [view.id, former_id, *at_address]
    known = record.addresses
    free = (id for id in ids if id in known and voters.get(id, master) == master)
    return next((id for id in free if lists.is_member(master, id, of)), "")


def _outdated(lists: ClientLists, views: Views, own: Record, record: Record) -> bool:
    """Whether ``record`` may replace ``own``: that is not in force, or a quorum has a later epoch."""
    if own.terms == record.terms or not own.epoch:
        return not own.in_force
    if not own.in_force or own.epoch >= record.epoch:
        return False
    same = sum(1 << n for n, view in views.items() if _has(view, record))
    return all((same & mask).bit_count() >= quorum(mask.bit_count()) for mask in lists.lists)


def _in_place_of(own: Record | None, record: Record) -> Record:
    """What replaces ``own`` by ``record``. It keeps its addresses if only the mark is missing."""
    return own._replace(in_force=True) if own and own.terms == record.terms else record


def _has(view: View, record: Record) -> bool:
    """Whether a master has ``record`` now. What was read before it was disconnected may be out of date."""
    return view.attached and view.record is not None and view.record.terms == record.terms


# --- no list is in force: the first record ---


def first_write(
    lists: ClientLists, views: Views, proposed: Record | None, awaited: bool
) -> tuple[int, Record] | None:
    """The next write to the masters that are ``awaited``, or to those that are not."""
    reached = [
        (n, view)
        for n, view in views.items()
        if view.attached and view.readable and view.writable and view.awaited is awaited
    ]
    if proposed is None:
        for n, view in reached:
            if not view.id:
                return n, Record(first_id(view.name))
        listed = members({view.id or first_id(view.name): view.name for view in views.values()})
        if not reached:
            return None
        proposed = Record("", 1, lists.max_ttl, STEADY, (), listed)
    names = {
        view.id: view.name for view in views.values() if view.id
    }  # the proposal may have wrong addresses
    proposed = proposed._replace(new=tuple((id, names.get(id, one)) for id, one in proposed.new))
    missing = [
        (id, n) for n, view in reached if not view.epoch and (id := proposed_id(lists, n, view, proposed))
    ]
    if missing:
        id, n = min(missing)
        return n, proposed.of(id)
    if all(view.epoch for view in views.values()) and reached:
        n, view = reached[0]
        return n, proposed._replace(id=view.id, in_force=True)
    return None


def proposed_id(lists: ClientLists, master: int, view: View, proposed: Record) -> str:
    """The id of a master in the list that is proposed; "": it is no member."""
    of = lists.class_of(proposed)
    ids = [view.id] if view.id else [id for id, address in proposed.addresses.items() if address == view.name]
    return next((id for id in ids if of and lists.is_member(master, id, of)), "")
