"""Reads and writes the records of all masters of both lists, and reads the marks of clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...masters.key_scan import Server, Servers, escape_pattern
from ...masters.marks import MARK_KEY, REFUSED, Mark, decode_mark
from ...masters.membership import (
    JOINT,
    PHASE_1,
    PHASE_2,
    STEADY,
    STEPS,
    Members,
    Record,
    Unreadable,
    decode,
    ids_of,
    members,
    new_id,
    record_key,
    replace_command,
)
from ...masters.probe import info_of, pairs_of
from ...masters.restart_guard import stops_after
from ...wire.resp import ProtocolError
from ...wire.text import clean
from .phases import Lists, Phase, Present, Seen, State, present

#: Marks that are read of one master.
MAX_MARKS = 100_000
#: A phase as the steps and the direction of a record. OLD and NEW are steady: the record has one list.
TERMS: dict[Phase, tuple[tuple[str, ...], str]] = {
    Phase.PHASE_1: (PHASE_1, ""),
    Phase.TO_NEW: ((JOINT,), "new"),
    Phase.TO_OLD: ((JOINT,), "old"),
    Phase.PHASE_2: (PHASE_2, ""),
}


@dataclass(frozen=True)
class Answer:
    """What one master says.

    ``data``: its record as it is. ``connections``: of all programs, or None. ``ahead``: seconds, at
    least and at most, that its clock is ahead of this machine's clock. ``late``: seconds for which it may
    take writes after Sentinels have replaced it.
    """

    data: bytes
    record: Record | None
    run_id: str
    connections: int | None
    marks: Mapping[str, tuple[Mark, int]]
    ahead: tuple[float, float] = (0.0, 0.0)
    late: float = 0.0


@dataclass(frozen=True)
class Reading:
    """All masters at one time. ``answers``: of those that answered. ``ids``: of all masters of both lists."""

    lists: Lists
    answers: Mapping[int, Answer]
    ids: Sequence[str]
    seen: Seen
    #: Each client by its id: its latest mark, and the milliseconds until that expires.
    marks: Mapping[str, tuple[Mark, int]]
    max_ttl: int = 0
    #: The records that are about other lists, by master.
    foreign: Mapping[int, Record] = field(default_factory=dict)

    @property
    def present(self) -> Present:
        return present(self.lists, self.seen)

    def clients(self) -> dict[str, int]:
        """How many clients are at each step; "" for those whose step in this phase is not known."""
        found = dict.fromkeys((*STEPS, REFUSED, ""), 0)
        for mark, _ in self.marks.values():
            found[self.step(mark)] += 1
        return found

    def step(self, mark: Mark) -> str:
        """The step of a client, as a step of this change; "": it has not compared the present record yet."""
        if mark.step == REFUSED:
            return REFUSED
        state = self.present.state
        if mark.epoch != state.epoch or mark.step not in STEPS:
            return ""
        # Between changes a record has one list, which it calls the new one.
        return "old" if state.phase is Phase.OLD else mark.step

    @property
    def late(self) -> float:
        """Seconds for which a master that Sentinels have replaced may take writes."""
        return max((answer.late for answer in self.answers.values()), default=0.0)

    def clock_spread(self) -> float:
        """Seconds by which the clocks of two masters differ at least."""
        ahead = [answer.ahead for answer in self.answers.values()]
        return max(least for least, _ in ahead) - min(most for _, most in ahead) if ahead else 0.0

    def kept(self, before: Reading, masters: frozenset[int]) -> frozenset[int]:
        """Those of ``masters`` whose record is still the very one of ``before``: each write has a stamp."""
        return frozenset(
            master
            for master in masters & self.answers.keys() & before.answers.keys()
            if self.answers[master].data == before.answers[master].data
        )

    def duplicates(self) -> list[tuple[int, int]]:
        """Pairs of masters that are one server, or of which one is a copy of the other."""
        firsts: dict[str, int] = {}
        pairs = []
        for master, answer in self.answers.items():
            for name in filter(None, (answer.run_id, f"id {answer.record.id}" if answer.record else "")):
                if firsts.setdefault(name, master) != master:
                    pairs.append((firsts[name], master))
        return pairs


class Masters:
    """The masters of both lists. ``max_ttl``: in milliseconds; None: that of the newest record."""

    def __init__(
        self, servers: Servers, lists: Lists, key_prefix: bytes, timeout: float, max_ttl: int | None
    ) -> None:
        self.servers = servers
        self.lists = lists
        self._names = [server.name for server in servers.all]
        self._prefix = key_prefix
        self._timeout = timeout
        self._max_ttl = max_ttl
        self._new_ids: dict[int, str] = {}

    def read(self) -> Reading:
        self.servers.begin_again()
        answers = answers_of(self.servers, self._prefix, self._timeout)
        records = {master: one.record for master, one in answers.items() if one.record and one.record.epoch}
        newest = max(records.values(), key=lambda one: one.epoch, default=None)
        ids = self._ids(answers, newest)
        seen: dict[int, State | None] = {}
        foreign = {}
        old, new = (frozenset(ids[master] for master in one) for one in (self.lists.old, self.lists.new))
        for master in answers:
            record = records.get(master)
            phase = None if record is None else phase_of(record, old, new)
            seen[master] = None if record is None or phase is None else State(record.epoch, phase)
            if record is not None and phase in (None, Phase.FOREIGN):
                foreign[master] = record
        known = max((state.epoch for state in seen.values() if state), default=0)
        for master, record in foreign.items():
            if record.epoch > known:
                seen[master] = State(record.epoch, Phase.FOREIGN)
        max_ttl = newest.max_ttl if newest else 60_000
        if self._max_ttl is not None:
            max_ttl = self._max_ttl
        return Reading(self.lists, answers, ids, seen, _latest(answers), max_ttl, foreign)

    def _ids(self, answers: Mapping[int, Answer], newest: Record | None) -> list[str]:
        """The id of each master: its own, that of its address in the newest record, or a new one."""
        own = {master: one.record.id for master, one in answers.items() if one.record}
        known = {address: id for id, address in newest.addresses.items()} if newest else {}
        found: dict[int, str] = {}
        for master, name in enumerate(self._names):
            named, id = known.get(name, ""), own.get(master, "")
            # A master that was away while a change began is in the lists by an id that was made for it then.
            # It gets that one with its next record, unless another master has it.
            renamed = newest and named and id not in newest.addresses and named not in own.values()
            if chosen := named if renamed else id or named:
                found[master] = chosen
        if newest:
            self._add_missing(found, newest)
        return [found.get(n) or self._new_ids.setdefault(n, new_id()) for n in range(len(self._names))]

    def _add_missing(self, found: dict[int, str], newest: Record) -> None:
        """Add the only master of a list without an id, which is down and has another name in the record."""
        for members_of in (self.lists.old, self.lists.new):
            for ids in (ids_of(newest.old), ids_of(newest.new)):
                has = {found[master] for master in members_of if master in found}
                free = ids - set(found.values())
                if len(ids) == len(members_of) and has < ids and len(free) == len(ids - has) == 1:
                    (missing,) = members_of - found.keys()
                    found[missing] = next(iter(free))

    def write(self, reading: Reading, state: State) -> frozenset[int]:
        """Write a state where the record is still the one that was read, then cut the clients' connections.

        Returns the masters where both was done.
        """
        record, stamp = self._record(reading, state), new_id()
        numbers = {server: master for master, server in enumerate(self.servers.all)}

        def change(server: Server) -> bool:
            master = numbers[server]
            if master not in reading.answers:
                return False
            answer = reading.answers[master]
            own = record.of(reading.ids[master])
            # What another run has written here, and this one completes, keeps its stamp: neither of two such
            # runs makes the other one wait again.
            same = answer.record is not None and answer.record.terms == own.terms
            kept = answer.record.stamp if same and answer.record else ""
            return write_record(server, self._prefix, answer.data, own._replace(stamp=kept or stamp))

        done = self.servers.each(change, self._timeout)
        return frozenset(master for master, one in enumerate(done) if one)

    def _record(self, reading: Reading, state: State) -> Record:
        old, new = self._members(reading, self.lists.old), self._members(reading, self.lists.new)
        record = Record("", state.epoch, reading.max_ttl, in_force=True)
        if state.phase in (Phase.OLD, Phase.NEW):
            return record._replace(steps=STEADY, new=new if state.phase is Phase.NEW else old)
        steps, toward = TERMS[state.phase]
        return record._replace(steps=steps, old=old, new=new, toward=toward)

    def _members(self, reading: Reading, masters: frozenset[int]) -> Members:
        return members({reading.ids[master]: self._names[master] for master in masters})


def write_record(server: Server, key_prefix: bytes, expected: bytes, record: Record) -> bool:
    """Replace the record of one master, and cut its clients. False: it has another record by now.

    A client compares its lists only when it connects. A connection that is open was compared with the record
    before, or not at all.
    """
    replaced = server.ask([replace_command(key_prefix, expected, record)])[0]
    try:
        if not isinstance(replaced, bytes) or decode(replaced).terms != record.terms:
            return False
    except Unreadable:
        return False
    server.ask([(b"CLIENT", b"KILL", b"TYPE", kind, b"SKIPME", b"yes") for kind in (b"normal", b"pubsub")])
    return True


def phase_of(record: Record, old: frozenset[str], new: frozenset[str]) -> Phase | None:
    """The phase of the change between two lists of ids.

    RIVAL: it is phase 1 of another change of the old list. FOREIGN: it is about other lists. None: and its
    master is no member of them.
    """
    lists = [ids_of(record.old), ids_of(record.new)]
    if lists == [old, new]:
        for phase, terms in TERMS.items():
            if terms == (record.steps, record.toward):
                return phase
    if record.steps == STEADY and not record.old:
        if lists[1] == old:
            return Phase.OLD
        if lists[1] == new:
            return Phase.NEW
    if lists[0] == old and record.steps == PHASE_1:
        return Phase.RIVAL
    return Phase.FOREIGN if record.id in lists[0] | lists[1] else None


def answers_of(servers: Servers, key_prefix: bytes, timeout: float) -> dict[int, Answer]:
    """The answers by the numbers of the masters, without those that fail or exceed ``timeout`` seconds."""
    found = servers.each(lambda server: _answer_of(server, key_prefix), timeout)
    return {master: one for master, one in enumerate(found) if one is not None}


def _answer_of(server: Server, key_prefix: bytes) -> Answer:
    key = record_key(key_prefix)
    data, about, clients = server.ask(
        [(b"GET", key), (b"INFO", b"server"), (b"INFO", b"clients")], errors=True
    )
    begin = time.time()
    clock = _seconds(server.ask([(b"TIME",)])[0])
    ahead = clock - time.time(), clock - begin
    if not isinstance(data, bytes | None):
        raise ProtocolError(str(data))
    names = sorted(server.names(escape_pattern(key_prefix + MARK_KEY) + b"*", MAX_MARKS, server.end))
    marks = {}
    for name, value in zip(names, server.values(names), strict=True):
        mark = decode_mark(value[0]) if value else None
        if value and mark:
            marks[clean(name.removeprefix(key_prefix + MARK_KEY))] = mark, value[1]
    connections = info_of(clients).get("connected_clients", "")
    return Answer(
        data or b"",
        decode(data) if data else None,
        info_of(about).get("run_id", ""),
        int(connections) - 1 if connections.isdecimal() else None,
        marks,
        ahead,
        _late(server),
    )


def _late(server: Server) -> float:
    """Seconds for which a master may take writes after Sentinels have replaced it. Raises ProtocolError."""
    if not server.behind_sentinels:
        return 0.0
    reply = server.ask([(b"CONFIG", b"GET", b"min-replicas-max-lag")], errors=True)[0]
    lag = pairs_of(reply).get("min-replicas-max-lag", "")
    if not lag.isdecimal():
        raise ProtocolError("its min-replicas-max-lag is not known: this user needs +config|get there")
    return stops_after(int(lag))


def _seconds(reply: Any) -> float:
    """What a master replies to TIME, as seconds. Raises ProtocolError."""
    try:
        seconds, microseconds = map(int, reply)
    except (TypeError, ValueError):
        raise ProtocolError("TIME has no time") from None
    return seconds + microseconds / 1e6


def _latest(answers: Mapping[int, Answer]) -> dict[str, tuple[Mark, int]]:
    """Of each client the mark that a master got last: it expires last."""
    found: dict[str, tuple[Mark, int]] = {}
    for answer in answers.values():
        for client, (mark, left) in answer.marks.items():
            if client not in found or found[client][1] < left:
                found[client] = mark, left
    return found
