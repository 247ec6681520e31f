"""The phases of a change: commands that are killed, resumed, and at the same time; clients that copy records.

A world has masters with records and a clock. The invariant needs no knowledge of clients: between a moment at
which a client could have a quorum of the old list alone, and one of the new list alone, lies ``max_ttl``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.thorough import amount

from redlock_fast.algorithm.quorum import quorum
from redlock_fast.cli import exit_codes
from redlock_fast.cli.masters import phases
from redlock_fast.cli.masters.phases import (
    MAYBE_OTHER_CHANGE,
    OTHER_CHANGE,
    OTHER_LISTS,
    Command,
    Done,
    Lists,
    Phase,
    Present,
    Refused,
    Seen,
    State,
    Wait,
    Write,
    follow,
    next_move,
    present,
)

MAX_TTL = 10


def lists(old: str, new: str) -> Lists:
    return Lists(frozenset(map(int, old)), frozenset(map(int, new)))


CHANGES = {
    "1 to 3": lists("0", "012"),
    "3 to 5": lists("012", "01234"),
    "5 to 3": lists("01234", "012"),
    "1 of 3 replaced": lists("012", "013"),
    "all replaced": lists("012", "345"),
    "1 by 1": lists("0", "1"),
    "2 to 2": lists("01", "23"),
}


@dataclass
class World:
    change: Lists
    now: int = 0
    records: dict[int, State | None] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    #: The records that open connections to each master were compared with.
    compared: dict[int, set[State | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin_with(None)

    def begin_with(self, state: State | None) -> None:
        self.records = dict.fromkeys(sorted(self.change.old | self.change.new), state)
        self.compared = {master: {state} for master in self.records}

    def change_record(self, master: int, state: State) -> None:
        self.records[master] = state
        self.compared[master].add(state)

    def effective(self, step: str) -> bool:
        """Whether a client of this list alone may have a quorum."""
        masters = self.change.old if step == "old" else self.change.new
        votes = sum(self.allows(master, step) for master in masters)
        return votes >= quorum(len(masters))

    def allows(self, master: int, step: str) -> bool:
        found = self.compared[master]
        return any(step == "old" if state is None else step in state.phase.steps for state in found)

    def check(self) -> None:
        for step in ("old", "new"):
            if self.effective(step):
                self.last[step] = self.now
        if len(self.last) == 2 and self.now in self.last.values():
            assert abs(self.last["old"] - self.last["new"]) >= MAX_TTL, self

    def seen(self) -> dict[int, State | None]:
        return {master: state for master, state in self.records.items() if master not in self.down}

    def run(
        self, command: Command, clients: dict[str, int] | None = None, number: int | None = None
    ) -> Iterator[Done | Refused | None]:
        """One command. Between two of its steps anything may happen, and it may be killed."""
        own: Write | Wait | None = None
        while True:
            before = self.seen()
            action = follow(command, self.change, before, clients or {}, own, number)
            own = None
            if isinstance(action, (Done, Refused)):
                yield action
                return
            if isinstance(action, Wait):
                end = self.now + MAX_TTL
                while self.now < end:
                    yield None
                own = action
                continue
            wrote = set()
            for master in sorted(before, key=lambda _: random.random()):
                yield None
                if master not in self.down and self.records[master] == before[master]:
                    self.change_record(master, action.state)
                    yield None
                    self.compared[master] = {self.records[master]}
                    wrote.add(master)
            if not self.change.written(frozenset(wrote), action.state.phase):
                yield Refused("too few masters", exit_codes.NOT_YET)
                return
            own = action

    def finish(
        self, command: Command, clients: dict[str, int] | None = None, number: int | None = None
    ) -> Done | Refused:
        for result in self.run(command, clients, number):
            self.check()
            if result is not None:
                return result
            self.now += 1
        raise AssertionError(command)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_commands_at_the_same_time_killed_and_resumed(change: Lists) -> None:
    """No schedule lets a lease of each list alone live at the same time. Each ends where it can go on."""
    ends: set[Phase] = set()
    for seed in range(amount(60, 300, twice=300)):
        random.seed(seed)
        world = World(change)
        running: list[Iterator[Done | Refused | None]] = []
        for _ in range(random.randrange(300)):
            kind = random.random()
            if kind < 0.12 and len(running) < 3:
                given = random.choice(("start", "finish", "finish", "abort"))
                running.append(world.run(given, number=random.choice((None, 1, 2))))
            elif kind < 0.14 and running:
                running.pop(random.randrange(len(running)))
            elif kind < 0.17:
                master = random.choice(list(world.records))
                world.down ^= {master}
            elif kind < 0.25:  # a client brings a master up to date
                reader, late = random.choices(list(world.records), k=2)
                newer, older = world.records[reader], world.records[late]
                if newer is not None and (older is None or older.epoch < newer.epoch):
                    world.change_record(late, newer)
            elif kind < 0.35:
                world.now += 3
            elif running:
                command = random.choice(running)
                if next(command, None) is not None:
                    running.remove(command)
            world.check()
        world.down.clear()
        ends.add(_end(world))
    assert ends == {Phase.NEW, Phase.OLD}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_opposite_commands_at_the_same_time(change: Lists) -> None:
    """Both begin between the phases. Clients copy what either has written, also before a quorum has it."""
    for seed in range(amount(75, 400, twice=400)):
        random.seed(seed)
        world = World(change)
        world.records = dict.fromkeys(world.records, State(2, random.choice((Phase.TO_NEW, Phase.TO_OLD))))
        running = [world.run("finish"), world.run("abort")]
        patience = random.random()
        while running:
            if random.random() < patience:
                reader, late = random.sample(list(world.records), 2)
                newer, older = world.records[reader], world.records[late]
                if newer and older and older.epoch < newer.epoch:
                    world.change_record(late, newer)
            elif next(chosen := random.choice(running), None) is not None:
                running.remove(chosen)
            world.now += random.random() < 0.1
            world.check()


def _end(world: World) -> Phase:
    """Whatever has happened, one operator completes the change, or takes it back."""
    command: Command = random.choice(("finish", "abort"))
    for _ in range(4):
        result = world.finish(command)
        if isinstance(result, Refused):
            result = world.finish("start" if command == "finish" else "finish")
    now = present(world.change, world.records)
    assert now.written, world
    assert now.state.phase in (Phase.OLD, Phase.NEW)
    return now.state.phase


@pytest.mark.parametrize("command", ["start", "finish", "finish again", "abort"])
def test_killed_after_each_write_and_given_again(command: str) -> None:
    for kill in range(20):
        world = World(CHANGES["1 of 3 replaced"])
        for before in {"start": [], "abort": ["start"], "finish": ["start"]}.get(
            command, ["start", "finish"]
        ):
            assert isinstance(world.finish(before), Done)  # type: ignore[arg-type]
        given: Command = command.split()[0]  # type: ignore[assignment]
        for step, result in enumerate(world.run(given)):
            world.check()
            world.now += 1
            if result is not None or step == kill:
                break
        while isinstance(result := world.finish(given), Refused):
            given = "start" if given != "start" else "abort"
        assert present(world.change, world.records).written


@pytest.mark.parametrize("down", [set(), {0}], ids=["all up", "one down"])
@pytest.mark.parametrize(
    ("command", "number", "before", "end"),
    [
        ("finish", 1, ["start"], Phase.PHASE_2),
        ("finish", 2, ["start", "finish"], Phase.NEW),
        ("abort", 2, ["start", "finish"], Phase.PHASE_1),
        ("abort", 1, ["start"], Phase.OLD),
    ],
)
def test_one_phase_ends_however_often_its_command_is_given(
    command: Command, number: int, before: list[Command], end: Phase, down: set[int]
) -> None:
    """Without the number, a command that was killed after its last write would end the next phase, too."""
    for kill in range(30):
        world = World(CHANGES["1 of 3 replaced"], down=set(down))
        for one in before:
            assert isinstance(world.finish(one), Done)
        for step, result in enumerate(world.run(command, number=number)):
            world.check()
            world.now += 1
            if result is not None or step == kill:
                break
        world.down.clear()
        for _ in range(3):
            assert isinstance(world.finish(command, number=number), Done)
            now = present(world.change, world.records)
            assert (now.state.phase, now.written) == (end, True)


def test_phases_end_in_their_order() -> None:
    world = World(CHANGES["3 to 5"])
    assert world.finish("finish", number=1) == Refused("no change was started: give start")
    assert isinstance(world.finish("start"), Done)
    early = Refused("phase 1 comes first: give finish --phase 1")
    assert world.finish("finish", number=2) == early
    assert isinstance(world.finish("finish", number=1), Done)
    assert world.finish("abort", number=1) == Refused("phase 2 comes first: give abort --phase 2")
    assert isinstance(world.finish("finish", number=2), Done)
    assert world.finish("start") == Refused("the change has ended: --from is the former list")


def test_the_records_of_other_lists_end_no_change() -> None:
    change = CHANGES["3 to 5"]
    seen = dict.fromkeys(change.new, State(7, Phase.FOREIGN))
    for command, why in (next_move(change, seen, {}), (None, follow("finish", change, seen, {}))):
        assert command is None
        assert isinstance(why, Refused)
        assert "other lists" in why.why


def test_what_is_refused_and_why() -> None:
    world = World(CHANGES["3 to 5"])
    assert follow("finish", world.change, world.records, {}) == Refused("no change was started: give start")
    assert isinstance(world.finish("start", {"old": 7}), Done)
    assert world.finish("finish", {"old": 1, "joint": 6}) == Refused(
        "1 client is at step 'old'", exit_codes.NOT_YET
    )
    assert world.finish("finish", {"": 2}) == Refused("2 clients may be at step 'old'", exit_codes.NOT_YET)
    assert world.finish("abort", {"joint": 2}) == Refused("2 clients are at step 'joint'", exit_codes.NOT_YET)
    assert next_move(world.change, world.records, {"old": 1})[0] == "finish"
    assert isinstance(world.finish("finish", {"joint": 7}), Done)
    assert present(world.change, world.records).state == State(3, Phase.PHASE_2)
    assert isinstance(world.finish("start"), Refused)
    assert world.finish("finish", {"joint": 1}) == Refused("1 client is at step 'joint'", exit_codes.NOT_YET)
    assert world.finish("abort", {"new": 1}) == Refused("1 client is at step 'new'", exit_codes.NOT_YET)
    assert isinstance(world.finish("finish", {"new": 7}), Done)
    assert isinstance(world.finish("abort"), Refused)
    assert world.finish("finish") == Done(State(4, Phase.NEW), False)
    assert next_move(world.change, world.records, {}) == (None, None)


def test_the_way_back_out_of_phase_2_waits_too() -> None:
    world = World(CHANGES["all replaced"])
    for command in ("start", "finish", "abort", "abort"):
        assert isinstance(world.finish(command), Done)  # type: ignore[arg-type]
    assert present(world.change, world.records).state.phase is Phase.OLD


def test_a_master_that_was_down_has_no_say_and_gets_the_phase_later() -> None:
    world = World(CHANGES["3 to 5"], down={1})
    assert isinstance(world.finish("start"), Done)
    assert world.records[1] is None
    world.down = {4}
    assert present(world.change, world.seen()).written
    assert world.finish("start") == Done(State(1, Phase.PHASE_1), True)
    assert world.records[1] == State(1, Phase.PHASE_1)
    world.down = {0, 1}
    assert isinstance(world.finish("finish"), Refused)


# --- another change of the same old list ----------------------------------------------------------------

RIVAL = State(2, Phase.RIVAL)


@pytest.mark.parametrize("command", ["start", "finish", "abort"])
def test_a_command_that_meets_another_change_stops(command: Command) -> None:
    """Catches: what a killed start has left on new masters makes its clean-up undo the other change."""
    change = CHANGES["3 to 5"]
    world = World(change, records={})
    world.records |= {0: RIVAL, 1: RIVAL, 2: RIVAL, 3: State(2, Phase.PHASE_1), 4: None}
    assert world.finish(command) == Refused(OTHER_CHANGE)
    world.records |= {0: State(3, Phase.FOREIGN), 1: State(3, Phase.FOREIGN)}
    assert world.finish(command) == Refused(OTHER_LISTS)


def test_two_changes_of_which_neither_is_written_are_aborted() -> None:
    world = World(CHANGES["3 to 5"])
    world.records = {0: State(2, Phase.PHASE_1), 1: RIVAL, 2: State(1, Phase.OLD), 3: None, 4: None}
    assert world.finish("start") == Refused(OTHER_CHANGE)
    assert next_move(world.change, world.records, {})[0] == "abort"
    assert world.finish("abort") == Done(State(3, Phase.OLD), True)
    assert isinstance(world.finish("start"), Done)


def test_an_operator_decides_what_masters_that_are_down_may_have() -> None:
    change = CHANGES["3 to 5"]
    seen = {0: State(2, Phase.PHASE_1), 1: RIVAL}
    assert follow("abort", change, seen, {}) == Refused(MAYBE_OTHER_CHANGE)
    assert follow("abort", change, seen, {}, sure=True) == Write(State(3, Phase.OLD))
    assert follow("start", change, seen, {}, sure=True) == Refused(OTHER_CHANGE)
    later = {0: State(3, Phase.TO_NEW), 1: State(3, Phase.RIVAL)}
    assert follow("abort", change, later, {}, sure=True) == Refused(OTHER_CHANGE), "it is no phase 1 here"
    assert follow("abort", change, {0: RIVAL}, {}, sure=True) == Refused(OTHER_CHANGE), "too few answered"


def test_phase_1_is_aborted_without_the_new_masters() -> None:
    """Catches: a change that no command ends once the new masters are gone for ever."""
    world = World(CHANGES["all replaced"])
    assert isinstance(world.finish("start"), Done)
    world.down = {3, 4}
    assert isinstance(world.finish("finish"), Refused)
    assert world.finish("abort") == Done(State(2, Phase.OLD), True)
    world = World(CHANGES["all replaced"])
    world.records |= {0: State(1, Phase.PHASE_1)}  # killed after its first write, and the others are down
    world.down = {3, 4, 5}
    assert world.finish("abort") == Done(State(2, Phase.OLD), True)


def test_two_lists_that_are_both_in_use_are_no_change() -> None:
    """Whichever phase a set has first. Catches: an answer that depends on the hash of a string."""
    change = CHANGES["all replaced"]
    seen = {n: State(1, Phase.OLD if n < 3 else Phase.NEW) for n in range(6)}
    for command in ("start", "finish", "abort"):
        assert follow(command, change, seen, {}) == Refused(OTHER_LISTS)  # type: ignore[arg-type]


@dataclass
class Rivals:
    """As ``World``, with two operators, each with a change of the same old list.

    ``records``: the epoch, whose change it is, its phase. The phase of the old list is the same for both.
    """

    changes: tuple[Lists, Lists] = (lists("012", "013"), lists("012", "014"))
    now: int = 0
    records: dict[int, tuple[int, int, Phase] | None] = field(default_factory=lambda: dict.fromkeys(range(5)))
    last: dict[str, int] = field(default_factory=dict)

    def seen(self, which: int) -> dict[int, State | None]:
        mine = self.changes[which].old | self.changes[which].new
        return {n: self._state(which, self.records[n]) for n in sorted(mine)}

    def _state(self, which: int, record: tuple[int, int, Phase] | None) -> State | None:
        if record is None:
            return None
        epoch, whose, phase = record
        if whose != which and phase is not Phase.OLD:
            phase = Phase.RIVAL if phase is Phase.PHASE_1 else Phase.FOREIGN
        return State(epoch, phase)

    def check(self) -> None:
        """Leases of the old list alone and of each new list alone are ``MAX_TTL`` apart."""
        for name, masters, whose in (("old", "012", -1), ("first", "013", 0), ("second", "014", 1)):
            step = "old" if whose < 0 else "new"
            allowed = [self._allows(self.records[int(n)], step, whose) for n in masters]
            if sum(allowed) >= quorum(len(masters)):
                self.last[name] = self.now
        times = sorted(self.last.items(), key=lambda one: one[1])
        for (_, earlier), (_, later) in itertools.pairwise(times):
            assert later != self.now or later - earlier >= MAX_TTL, (self.last, self.records)

    @staticmethod
    def _allows(record: tuple[int, int, Phase] | None, step: str, whose: int) -> bool:
        if record is None:
            return step == "old"
        return step in record[2].steps and (step == "old" or record[1] == whose)

    def run(self, which: int, command: Command, sure: bool = False) -> Iterator[Done | Refused | None]:
        own: Write | Wait | None = None
        change = self.changes[which]
        while True:
            before, bytes_before = self.seen(which), dict(self.records)
            action = follow(command, change, before, {}, own, None, sure)
            own = None
            if isinstance(action, (Done, Refused)):
                yield action
                return
            if isinstance(action, Wait):
                end = self.now + MAX_TTL
                while self.now < end:
                    yield None
                own = action
                continue
            wrote = set()
            for master in sorted(before, key=lambda _: random.random()):
                yield None
                if self.records[master] == bytes_before[master]:
                    self.records[master] = (action.state.epoch, which, action.state.phase)
                    wrote.add(master)
            if not change.written(frozenset(wrote), action.state.phase):
                yield Refused("too few masters", exit_codes.NOT_YET)
                return
            own = action


def two_operators(seed: int) -> None:
    random.seed(seed)
    world = Rivals()
    running: list[Iterator[Done | Refused | None]] = []
    for _ in range(random.randrange(200)):
        kind = random.random()
        if kind < 0.15 and len(running) < 3:
            given = random.choice(("start", "start", "finish", "abort"))
            running.append(world.run(random.randrange(2), given, sure=random.random() < 0.5))
        elif kind < 0.2 and running:
            running.pop(random.randrange(len(running)))  # killed
        elif kind < 0.3:
            world.now += 3
        elif running:
            command = random.choice(running)
            if next(command, None) is not None:
                running.remove(command)
        world.check()
    for which in (0, 1, 0, 1):  # whatever has happened, commands lead out
        for given in ("abort", "abort", "finish", "finish"):
            for result in world.run(which, given, sure=True):  # type: ignore[arg-type]
                world.check()
                if result is not None:
                    break
                world.now += 1
    phases = {record[2] for n in range(3) if (record := world.records[n])}
    assert phases <= {Phase.OLD, Phase.NEW}, world.records


def many_times(count: int) -> None:
    for seed in range(count):
        two_operators(seed)


def test_two_operators_with_other_lists() -> None:
    many_times(amount(200, 1000, twice=1000))


def test_two_operators_convict_a_command_that_does_not_know_another_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it was: the record of another change was a conflict of two commands of this one."""

    def as_before(command: Command, lists: Lists, seen: Seen, now: Present, sure: bool) -> Write:
        return Write(State(now.state.epoch + 1, Phase.TO_OLD if command == "abort" else Phase.TO_NEW))

    monkeypatch.setattr(phases, "_beside_another_change", as_before)
    with pytest.raises(AssertionError):
        many_times(1000)
