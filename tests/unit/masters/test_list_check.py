"""Which masters vote for a client: all orders of the steps of several clients, and single cases."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import pytest

from redlock_fast.algorithm.quorum import quorum
from redlock_fast.masters.list_check import ListCheck
from redlock_fast.masters.list_texts import ADVICE
from redlock_fast.masters.membership import (
    JOINT,
    PHASE_1,
    PHASE_2,
    STEADY,
    Members,
    Record,
    Seen,
    encode,
    first_id,
    members,
)
from redlock_fast.masters.verdict import Verdict, View

TTL = 60_000
Store = tuple[Record | None, ...]
#: Of a master of a client: whether it was tried, whether it is connected, its record as read, and whether a
#: write has failed.
One = tuple[bool, bool, Record | None, bool]
Views = tuple[One, ...]
#: A master that was not tried; one that cannot be connected, or not any more.
NEW, GONE = (False, False, None, False), (True, False, None, False)


def name(master: int) -> str:
    return f"m{master}"


def view(
    master: int, tried: bool, attached: bool, record: Record | None, failed: bool = False, alias: str = ""
) -> View:
    seen = Seen(encode(record) if record else b"", record) if attached else None
    return View(alias or name(master), seen, None, attached, tried, awaited=not failed)


@dataclass(frozen=True)
class Clients:
    """Clients that start at one time. ``lists``: of each.

    Pairs of a client and a master: ``down``, it cannot be connected; ``full``, it takes no record.
    """

    lists: tuple[tuple[int, ...], ...]
    down: frozenset[tuple[int, int]] = frozenset()
    full: frozenset[tuple[int, int]] = frozenset()
    strict: bool = False
    aliases: int = -1  # this client has other names for all masters
    forgets: int = 0  # how often a master loses its record

    def judge(self, client: int, views: Views) -> Verdict:
        masters = self.lists[client]
        alias = "an alias of " * (client == self.aliases)
        found = [
            view(m, *one, alias=alias and alias + name(m)) for m, one in zip(masters, views, strict=True)
        ]
        return ListCheck(((1 << len(masters)) - 1,), TTL, self.strict).judge(found)

    def explore(self) -> tuple[bool, set[tuple[int, ...]]]:
        """Whether two clients can have disjoint quorums, and which clients can have a quorum at the end."""
        judge = cache(self.judge)
        size = 1 + max(map(max, self.lists))
        start = (
            (None,) * size,
            tuple((NEW,) * len(one) for one in self.lists),
            self.forgets,
        )
        found, todo = {start}, deque([start])
        disjoint, ends = False, set()
        while todo:
            store, clients, forgets = todo.popleft()
            after: list[tuple[Store, tuple[Views, ...], int]] = []
            voters: dict[int, set[int]] = {}
            for client, views in enumerate(clients):
                verdict = judge(client, views)
                votes = zip(self.lists[client], views, verdict.reasons, strict=True)
                voting = {master for master, (_, attached, _, _), why in votes if attached and not why}
                if len(voting) >= quorum(len(views)):
                    voters[client] = voting
                for stored, at, one in self._steps(client, store, views, verdict):
                    changed = (*views[:at], one, *views[at + 1 :])
                    after.append((stored, (*clients[:client], changed, *clients[client + 1 :]), forgets))
            disjoint |= any(self._disjoint(voters, *pair) for pair in combinations(voters, 2))
            if not after:
                ends.add(tuple(voters))
            for master in range(size) if forgets else ():
                lost = tuple(self._cut(one, master, self.lists[n]) for n, one in enumerate(clients))
                after.append(((*store[:master], None, *store[master + 1 :]), lost, forgets - 1))
            todo.extend(one for one in after if one not in found)
            found.update(after)
        return disjoint, ends

    def _steps(
        self, client: int, store: Store, views: Views, verdict: Verdict
    ) -> list[tuple[Store, int, One]]:
        """What one client may do next: connect a master, read a record again, write one."""
        steps: list[tuple[Store, int, One]] = []
        masters = zip(self.lists[client], views, strict=True)
        for at, (master, (tried, attached, record, failed)) in enumerate(masters):
            if not tried and (client, master) in self.down:
                steps.append((store, at, GONE))
                continue
            again = attached and (verdict.reasons[at] or not verdict.ruled)
            if not tried or (again and record != store[master]):
                steps.append((store, at, (True, True, store[master], failed)))
        if verdict.write:
            at, written = verdict.write
            master = self.lists[client][at]
            if (client, master) in self.full:
                return steps + [(store, at, (True, True, views[at][2], True))] * (not views[at][3])
            if store[master] == views[at][2]:  # otherwise the write only reads what is there
                store = (*store[:master], written, *store[master + 1 :])
            steps.append((store, at, (True, True, store[master], False)))
        return steps

    @staticmethod
    def _cut(views: Views, master: int, masters: tuple[int, ...]) -> Views:
        return tuple(NEW if m == master and one[1] else one for m, one in zip(masters, views, strict=True))

    def _disjoint(self, voters: dict[int, set[int]], a: int, b: int) -> bool:
        """Whether two clients can choose quorums of their voters that share no master."""
        one, other = voters[a], voters[b]
        missing = max(0, quorum(len(self.lists[a])) - len(one - other))
        return missing + max(0, quorum(len(self.lists[b])) - len(other - one)) <= len(one & other)


THREE, FIVE = (0, 1, 2), (0, 1, 2, 3, 4)
PAIRS = [((0,), THREE), (THREE, FIVE), ((4, 3, 2), FIVE), (THREE, (0, 1, 3)), (THREE, (2, 3, 4))]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("lists", PAIRS, ids=str)
def test_of_two_lists_at_most_one_gets_a_quorum(lists: tuple[tuple[int, ...], ...], strict: bool) -> None:
    """Both start at one time on blank masters. Either may be first, and is not stopped by the other."""
    disjoint, ends = Clients(lists, strict=strict).explore()
    assert not disjoint
    if lists[1] == (0, 1, 3):  # it has a quorum of the other list, and votes of its members only
        assert ends == {(0, 1)}
    else:
        assert ends == {(0,), (1,)}


@pytest.mark.parametrize("down", [(), ((0, 2), (1, 0)), ((0, 2), (1, 2))], ids=str)
def test_clients_with_the_same_list_do_not_stop_each_other(down: tuple[tuple[int, int], ...]) -> None:
    assert Clients((THREE, THREE), frozenset(down)).explore() == (False, {(0, 1)})
    assert Clients((THREE, THREE), aliases=1).explore() == (False, {(0, 1)})


def test_a_master_that_loses_its_record_does_not_bring_two_holders() -> None:
    assert not Clients((THREE, (0, 1, 3)), forgets=1).explore()[0]


DOWN = frozenset({(0, 2), (1, 0), (1, 1)})


def test_auto_needs_one_master_that_both_lists_reached() -> None:
    """The limit that the documents name: the first start of two lists on both sides of a partition."""
    for missing in DOWN:
        assert not Clients((THREE, FIVE), DOWN - {missing}).explore()[0]
    assert Clients((THREE, FIVE), DOWN).explore()[0]
    assert Clients((THREE, FIVE), DOWN, strict=True).explore() == (False, {()})


def test_a_master_that_takes_no_record_does_not_bring_two_holders() -> None:
    """It counts as one that was not reached: the record on another common master keeps two lists apart."""
    for full in (1, 2):
        fails = frozenset({(0, full), (1, full)})
        for lists in (THREE, FIVE), (THREE, (1, 2, 3)), (THREE, (0, 1, 2, 3)):
            assert not Clients(lists, full=fails).explore()[0]
        assert Clients((THREE, THREE), full=fails).explore() == (False, {(0, 1)})
        assert Clients((THREE, THREE), full=fails, strict=True).explore() == (False, {()})
    assert not Clients((THREE, (0, 1, 3)), full=frozenset({(1, 3)})).explore()[0]
    assert Clients(((0, 1), THREE), full=frozenset({(0, 0), (0, 1)})).explore()[0] is False
    assert Clients(((0,), THREE), full=frozenset({(0, 0), (1, 0)})).explore()[0]


# --- single cases ---------------------------------------------------------------------------------


def listed(*masters: int) -> Members:
    return members({first_id(name(master)): name(master) for master in masters})


def steady(*masters: int, epoch: int = 1, max_ttl: int = TTL, in_force: bool = True) -> Record:
    return Record("", epoch, max_ttl, STEADY, (), listed(*masters), in_force)


def found(*records: Record | None, masters: tuple[int, ...] = FIVE) -> list[View]:
    return [
        view(m, True, True, record and record.of(record.id or first_id(name(m))))
        for m, record in zip(masters, records, strict=False)
    ]


CHECK_3, CHECK_5 = ListCheck((0b111,), TTL), ListCheck((0b11111,), TTL)


def test_three_to_five_without_a_change() -> None:
    verdict = CHECK_5.judge(found(*[steady(*THREE)] * 3, None, None))
    assert all(verdict.reasons)
    assert verdict.wrong == f"masters: m0: it expects the masters m0, m1, m2 (epoch 1); {ADVICE}"
    assert verdict.write is None


def test_another_max_ttl() -> None:
    verdict = CHECK_3.judge(found(*[steady(*THREE, max_ttl=30_000)] * 3))
    assert "it expects max_ttl=30, and this client has max_ttl=60; give" in verdict.wrong


def test_a_replaced_master_is_no_member() -> None:
    verdict = CHECK_3.judge(found(steady(*THREE), steady(*THREE), None, masters=(0, 1, 3)))
    assert verdict.reasons[:2] == ("", "")
    assert verdict.reasons[2].startswith("it is not in the list that the other masters have: the masters m0")
    assert (verdict.wrong, verdict.write) == ("", None)


def test_a_master_that_lost_its_record_gets_it_back_by_its_address_or_its_former_id() -> None:
    record = steady(*THREE)
    views = found(record, record, None)
    verdict = CHECK_3.judge(views)
    assert verdict.write == (2, record.of(first_id("m2")))
    assert "not written back yet" in verdict.reasons[2]
    assert verdict.wrong == ""
    views[2] = views[2]._replace(name="another", former=record.of(first_id("m2")))
    assert CHECK_3.judge(views).write == (2, record.of(first_id("m2")))
    assert CHECK_3.judge([views[0], views[1], views[2]._replace(former=None)]).write is None


def test_most_masters_lost_their_records() -> None:
    record = steady(*THREE)
    assert CHECK_3.judge(found(record, None, None)).write == (1, record.of(first_id("m1")))


def test_a_copy_of_a_master_has_no_vote_beside_it() -> None:
    record = steady(*THREE)
    copy = record.of(first_id("m0"))
    for views in (found(record, copy, record), found(copy, record, record, masters=(3, 0, 1))):
        reasons = CHECK_3.judge(views).reasons
        assert [why for why in reasons if why] == ["it has the same id as m0: it is a copy of that master"]


def test_an_id_is_not_taken_by_a_claim() -> None:
    """A hostile server has the id of master 0, with its own address, before or behind that one."""
    record = steady(*THREE)
    ids = {first_id("m0"): "m2", first_id("m1"): "m1", first_id("m2"): "m0"}
    claim = record._replace(id=first_id("m0"), new=members(ids))
    for in_force in (True, False):
        for of_1 in record, record._replace(in_force=False):
            views = found(record, of_1, claim._replace(in_force=in_force))
            for check, found_views in (CHECK_3, views), (CHECK_3, views[::-1]):
                verdict = check.judge(found_views)
                assert {view.name for view, why in zip(found_views, verdict.reasons, strict=True) if why} == {
                    "m2"
                }
                assert verdict.ruled


def test_wrong_addresses_are_not_copied() -> None:
    """A hostile server has its own address for the id of master 0 in its record, and claims that id later."""
    ids = [first_id(name(m)) for m in FIVE]
    record = steady(*FIVE)
    swapped = dict(zip(ids, ("m4", "m1", "m2", "m3", "m0"), strict=True))
    wrong = record._replace(new=members(swapped))
    proposal, wrong_proposal = record._replace(in_force=False), wrong._replace(in_force=False)
    for views, written in (
        # One master lost its record. It may be the hostile one that was read first.
        (found(wrong, None, record, record, record), record.of(ids[1])),
        (found(wrong.of(ids[0]), None, *[record] * 3), record.of(ids[1])),
        # The mark is missing on some.
        (found(record, proposal, *[wrong] * 3), record.of(ids[1])),
        # No list is in force.
        (found(wrong_proposal, Record(ids[1]), *[proposal] * 3), proposal.of(ids[1])),
    ):
        verdict = CHECK_5.judge(views)
        assert verdict.write == (1, written)
    record = steady(*THREE)
    wrong = record._replace(new=members(dict(zip(ids, ("m1", "m0", "m2"), strict=False))))
    for views in found(wrong, record, None), found(record, wrong, None):
        assert CHECK_3.judge(views).write == (2, record.of(ids[2])), "what this client reached decides"


def test_a_claim_before_all_masters_are_read() -> None:
    """One record gives each address. The master whose record is in force votes."""
    record = steady(*THREE)
    claim = record.of(first_id("m0"))._replace(in_force=False)
    claim = claim._replace(new=members({**record.addresses, first_id("m0"): "m1"}))
    for views in found(claim, record, masters=(1, 0)), found(record, claim):
        verdict = CHECK_3.judge([*views, View("m2")])
        assert {view.name for view, why in zip(views, verdict.reasons, strict=False) if why} == {"m1"}
        assert verdict.wrong == ""


def test_a_claim_that_is_the_only_record_in_force() -> None:
    """The records of a list are marked at one time, so a client may come before all are."""
    record = steady(*THREE)
    claim = record.of(first_id("m0"))
    verdict = CHECK_3.judge(found(*[record._replace(in_force=False)] * 2, claim))
    assert all(verdict.reasons)
    assert "it expects the masters" in verdict.wrong


def test_a_later_epoch_is_copied_from_a_quorum_only() -> None:
    old, later = steady(*THREE), steady(*THREE, epoch=7)
    assert CHECK_3.judge(found(later, later, old)).write == (2, later.of(first_id("m2")))
    for third in old, None:
        verdict = CHECK_3.judge(found(later, old, third))
        assert verdict.write is None, "one master alone may be hostile"
        assert verdict.blocked == (third is None), "only a record that is lost is waited for"


def test_a_hostile_minority_changes_no_other_vote() -> None:
    hostile = steady(0, 3, 4, epoch=9)
    verdict = CHECK_3.judge(found(hostile, steady(*THREE), steady(*THREE)))
    assert [bool(why) for why in verdict.reasons] == [True, False, False]
    assert (verdict.wrong, verdict.write) == ("", None)


def test_the_steps_of_a_change() -> None:
    """Clients at old and at joint, then at joint and at new. A master that was away gets the record."""
    both = Record("", 2, TTL, PHASE_1, listed(*THREE), listed(*FIVE), True)
    joint = ListCheck((0b11111, 0b111), TTL)
    for record, may in ((both, (1, 1, 0)), (both._replace(epoch=3, steps=PHASE_2), (0, 1, 1))):
        verdicts = [
            CHECK_3.judge(found(*[record] * 3)),
            joint.judge(found(*[record] * 5)),
            CHECK_5.judge(found(*[record] * 5)),
        ]
        assert [not any(verdict.reasons) for verdict in verdicts] == list(map(bool, may))
        assert [not verdict.wrong for verdict in verdicts] == list(map(bool, may))
    steps = [one.judge(found(*[both] * 5)) for one in (CHECK_3, joint, CHECK_5)]
    assert [(one.step, one.epoch) for one in steps] == [("old", 2), (JOINT, 2), ("", 0)]
    verdict = joint.judge(found(both, both, steady(*THREE), both, both))
    assert verdict.write == (2, both.of(first_id("m2")))
    wrong = joint.judge(found(*[steady(*THREE)] * 5)).wrong
    assert "it expects the masters m0, m1, m2 (epoch 1)" in wrong
    assert "joint in the change from m0, m1, m2 to m0" in CHECK_5.judge(found(*[both] * 5)).wrong


def changed(steps: tuple[str, ...], epoch: int, toward: str = "") -> Record:
    """The record of a change from the masters 0, 1, 2 to 0, 1, 3."""
    return Record("", epoch, TTL, steps, listed(0, 1, 2), listed(0, 1, 3), True, toward)


def test_a_step_that_ended_is_not_written_back() -> None:
    """One of the quorum that has the joint phase lost its record. Phase 1 must not come back to it."""
    phase_1, joint = changed(PHASE_1, 2), changed((JOINT,), 3, "new")
    check = ListCheck((0b1011, 0b0111), TTL)  # by place in the views: 0, 1, 3 and 0, 1, 2
    four = (0, 1, 2, 3)
    lost = found(joint, None, phase_1, phase_1, masters=four)
    verdict = check.judge(lost)
    assert verdict.write is None
    assert "lost its record" in verdict.reasons[1]
    again = check.judge(found(joint, None, joint, joint, masters=four))
    assert again.write == (1, joint.of(first_id(name(1))))


def test_a_master_that_keeps_no_record_may_change_its_id() -> None:
    """It has not the id in the proposal any more. Before its writes have failed, that is another list."""
    proposal = steady(*THREE, in_force=False)
    views = found(proposal, proposal, Record("f" * 32))
    assert CHECK_3.judge(views).wrong
    verdict = CHECK_3.judge([*views[:2], views[2]._replace(awaited=False)])
    assert [bool(why) for why in verdict.reasons] == [False, False, True]
    assert not verdict.undecided
    other = steady(0, 1, 3, in_force=False)
    views = found(proposal, proposal, other.of(first_id("m3")), masters=(0, 1, 3))
    assert CHECK_3.judge([*views[:2], views[2]._replace(awaited=False)]).wrong, "a list is another list"


@pytest.mark.parametrize("victim", [Record(first_id("m1")), None], ids=["with its id", "without an id"])
def test_no_vote_without_a_list_that_can_be_written(victim: Record | None) -> None:
    """A server claims another one's id before the first list."""
    views = found(Record(first_id("m1")), victim, None, None, None)
    for one in views, [views[0], View("m1", tried=True), *views[2:]]:
        verdict = CHECK_5.judge(one)
        assert (verdict.write, verdict.undecided) == (None, False)
        assert verdict.wrong.startswith("masters: m0: no list can be written: m0 and m1 have one id")


def test_a_later_epoch_of_a_minority_outdates_no_record() -> None:
    """No quorum has either epoch: others are not read. Catches: readings again and again for no repair."""
    claim, record = steady(*FIVE, epoch=10**6), steady(*FIVE, epoch=4)
    views = found(claim, record, record, record, record)
    few = [*views[:3], *(view._replace(attached=False) for view in views[3:])]
    verdict = CHECK_5.judge(few)
    assert (verdict.write, verdict.blocked) == (None, False)
    assert verdict.reasons[:3] == ("", "", "")


def test_a_later_record_of_a_minority_does_not_stop_repairs() -> None:
    """One master may claim any epoch. Or a phase of a change has begun on a few masters."""
    record, claim = steady(*FIVE, epoch=4), steady(*FIVE, epoch=10**6)
    phase_1 = Record("", 2, TTL, PHASE_1, listed(*FIVE), listed(*FIVE), True)
    joint = phase_1._replace(epoch=3, steps=(JOINT,), toward="new")
    both = ListCheck((0b11111, 0b11111), TTL)
    for check, later, most in (CHECK_5, claim, record), (both, joint, phase_1):
        verdict = check.judge(found(later, None, most, most, most))
        assert verdict.write == (1, most.of(first_id("m1")))
        assert [bool(why) for why in verdict.reasons] == [False, True, False, False, False]
        assert verdict.epoch == later.epoch
        blocked = check.judge(found(later, None, later, most, most))
        assert (blocked.write, blocked.blocked) == (None, True)


def test_what_a_client_remembers_is_not_written_back() -> None:
    """A client slept at the old list; its connection to master 0 was cut when the joint phase began."""
    old = ListCheck((0b111,), TTL)
    views = found(changed(PHASE_1, 2), None, changed(PHASE_1, 2), masters=(0, 1, 2))
    disconnected = [views[0]._replace(attached=False), *views[1:]]
    seen_at = views[0].read_at
    assert old.judge(disconnected, since=seen_at).write is None, "all of it was seen too long ago"
    assert old.judge(disconnected, since=seen_at - 1).write, "a change takes longer than that"


def test_masters_of_no_list_do_not_count() -> None:
    """A client that is about to change its lists has more masters."""
    check = ListCheck((0b10101,), TTL)
    record = steady(0, 2, 4)
    assert check.judge(found(record, steady(1), None, None, record)).write == (2, record.of(first_id("m2")))
    verdict = check.judge(found(*[None] * 5))
    assert [bool(why) for why in verdict.reasons] == [True, False, True, False, True]
    other = check.judge(found(steady(1), None, record, None, record))
    assert [bool(why) for why in other.reasons] == [True, False, False, False, False]


def test_a_joint_client_counts_a_master_of_both_lists_only_if_both_have_it() -> None:
    other = Record("", 2, TTL, PHASE_1, listed(0, 1, 5), listed(*FIVE), True)
    reasons = ListCheck((0b11111, 0b111), TTL).judge(found(*[other] * 5)).reasons
    assert [bool(why) for why in reasons] == [False, False, True, False, False]


def test_a_joint_client_writes_no_first_record() -> None:
    assert ListCheck((0b11111, 0b111), TTL).judge(found(*[None] * 5)) == Verdict(("",) * 5)


def test_what_a_user_may_not_read_is_not_compared() -> None:
    views = found(*[None] * 3)
    views[1] = views[1]._replace(seen=Seen(compared=False))
    verdict = CHECK_3.judge(views)
    assert (verdict.reasons[1], verdict.undecided) == ("", True)
    assert CHECK_3.judge([one._replace(writable=False) for one in views]) == Verdict(("",) * 3)
    assert "may not read" in ListCheck((0b111,), TTL, strict=True).judge(views).reasons[1]


def test_a_record_that_cannot_be_read() -> None:
    views = found(*[steady(*THREE)] * 3)
    views[0] = views[0]._replace(seen=Seen(b"x", error="it is damaged"))
    assert CHECK_3.judge(views).reasons == ("it is damaged", "", "")
    views[1] = views[1]._replace(seen=views[0].seen)
    assert CHECK_3.judge(views).wrong == "masters: m0: it is damaged"


def test_before_all_masters_were_tried_none_votes() -> None:
    views = found(None, None, None)
    views[2] = views[2]._replace(attached=False, tried=False, seen=None)
    verdict = CHECK_3.judge(views)
    assert (verdict.undecided, verdict.write) == (True, None)
    assert verdict.reasons[0].startswith("no vote yet")
    assert CHECK_3.judge(found(steady(*THREE), steady(*THREE), None)[:2] + views[2:]).reasons[:2] == ("", "")


def test_a_long_list_is_cut() -> None:
    record = steady(*range(20))
    assert CHECK_3.judge(found(record, record, record)).reasons[0].endswith("m16 and 11 more (epoch 1)")


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_client_restores_the_records_of_any_masters_beside_any_minority(count: int) -> None:
    """All subsets of masters that are down and that came back blank. The client saw all of them before that.

    Catches: a fleet of which N - f masters are up, and no client votes again.
    """
    masters, check = range(count), ListCheck(((1 << count) - 1,), TTL)
    whole = [one._replace(read_at=10.0) for one in found(*[steady(*masters)] * count, masters=tuple(masters))]
    for kinds in itertools.product(["up", "blank", "down"], repeat=count):
        if kinds.count("down") > (count - 1) // 2:
            continue
        views = list(whole)
        for n, kind in enumerate(kinds):
            if kind == "blank":
                lost = whole[n]._replace(former=whole[n].record, former_at=10.0)
                views[n] = lost._replace(seen=Seen(), read_at=11.0)
            elif kind == "down":
                views[n] = whole[n]._replace(attached=False)
        for _ in range(count + 1):
            verdict = check.judge(views, since=5.0)
            if verdict.write is None:
                break
            n, record = verdict.write
            views[n] = views[n]._replace(seen=Seen(encode(record), record), read_at=12.0)
        assert [kinds[n] for n in masters if verdict.reasons[n]] == [], kinds
        late = check.judge(views, since=20.0)
        assert late.write is None, "what is there needs no confirmation"
