"""The phases of a change: commands that are killed, resumed, and at the same time; clients that copy records.

A world has masters with records and a clock. The invariant needs no knowledge of clients: between a moment at
which a client could have a quorum of the old list alone, and one of the new list alone, lies ``max_ttl``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.thorough import amount

from redlock_fast.algorithm.quorum import quorum
from redlock_fast.cli import exit_codes
from redlock_fast.cli.masters.phases import (
    Command,
    Done,
    Lists,
    Phase,
    Refused,
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
