"""Masters are replaced, added and removed while processes contend; one master crashes during each change.

``python -m chaos.change --seconds 600 --engine native``. Each change is made as docs/changing-masters.md
says: by the command ``redlock-fast masters``, and by clients that are at the old list, at both lists, at the
new list. In the first phase one client is killed and starts again with the old list; later one client tries
that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import history, verdict
from chaos.counters import FileCounter
from chaos.history import Hold, clock
from chaos.worker_process import Worker
from support.commands import Command
from support.waiting import eventually

from redlock_fast.embedded import Masters

MODES = ("threads", "asyncio")
TTL = 1.0
#: The pool of servers from which the lists are taken.
POOL = 8
NOTHING: Mapping[str, Any] = {}
#: Seconds within which the next phase of a change must be allowed.
ALLOWED = 120.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What plays. ``workers``: processes; ``holders``: in each of them; ``resources``: that they lock.

    ``restarts``: clients are killed, too. The mark of a killed client delays the next phase by a minute.
    """

    engines: tuple[str, ...]
    seconds: float
    seed: int
    workers: int = 8
    holders: int = 2
    resources: int = 20
    server: str = "auto"
    restarts: bool = True


@dataclass(slots=True)
class Result:
    """``did``: what was done how often. ``problems``: what must not be."""

    did: Counter[str] = field(default_factory=Counter)
    holds: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def succeeded(self) -> float:
        """The share of acquires that did not find too few masters."""
        return self.holds / max(1, self.holds + self.failed)

    def __str__(self) -> str:
        did = ", ".join(f"{what} {times}" for what, times in sorted(self.did.items()))
        problems = "".join(f"\n    PROBLEM: {problem}" for problem in self.problems)
        return f"{self.holds} holds, {self.succeeded:.2%} of acquires succeeded; {did}{problems}"


class Change:
    """The masters, the workers and the operator of one run."""

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        stack: contextlib.ExitStack,
        options: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.setting, self._folder, self._stack = setting, folder, stack
        self.chance = random.Random(setting.seed)
        self.result = Result()
        self.masters = stack.enter_context(Masters(POOL, server=setting.server, password=""))
        self.list: list[int] = [0, 1, 2]
        self.counters = [FileCounter(str(folder / f"counter {n}")) for n in range(setting.resources)]
        for one in self.counters:
            one.create()
        self._started = 0
        self.histories: list[Path] = []
        self.workers = [self.hire(self.list, None, options) for _ in range(setting.workers)]
        for worker in self.workers:
            assert worker.hear() == "ready"

    def urls(self, masters: Sequence[int]) -> list[str]:
        return [self.masters[n].url for n in masters]

    # --- workers ---

    def hire(
        self,
        masters: Sequence[int],
        joint_with: Sequence[int] | None = None,
        more: Mapping[str, Any] = NOTHING,
    ) -> Worker:
        engines, number = self.setting.engines, self._started
        self._started += 1
        engine, mode = engines[number % len(engines)], MODES[number // len(engines) % len(MODES)]
        name = f"{engine} {mode} {number}"
        options: dict[str, Any] = {"connect_timeout": 5.0, **more}
        if joint_with is not None:
            options["joint_with"] = self.urls(joint_with)
        setting = {
            "name": name,
            "urls": self.urls(masters),
            "engine": engine,
            "mode": mode,
            "holders": self.setting.holders,
            "ttl": TTL,
            "hold": (0.0, 0.03),
            "options": options,
            "seed": self.setting.seed,
            "counters": [str(self._folder / f"counter {n}") for n in range(self.setting.resources)],
            "journal": str(self._folder / f"{name}.journal"),
        }
        worker = Worker(name, setting, {}, "chaos.change_worker")
        self.histories.append(worker.history)
        self._stack.callback(worker.kill)
        return worker

    def _change_all(self, masters: Sequence[int], joint_with: Sequence[int] | None) -> None:
        other = None if joint_with is None else self.urls(joint_with)
        for worker in self.chance.sample(self.workers, len(self.workers)):
            worker.tell(json.dumps({"masters": self.urls(masters), "joint_with": other}))
            answer = worker.hear()
            if answer != "changed":
                self.result.problems.append(f"{worker.name}: {answer or 'no answer'}")

    def _restart(self, place: int, masters: Sequence[int], joint_with: Sequence[int] | None = None) -> None:
        self.workers[place].kill()
        self.workers[place] = worker = self.hire(masters, joint_with)
        if worker.hear() != "ready":
            self.result.problems.append(f"{worker.name} did not start with a list that is allowed")
        self.result.did["client restarted"] += 1

    # --- the operator ---

    def command(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = Command(None).run("masters", *arguments, "--json")
        try:
            return code, json.loads(out)
        except ValueError:
            return code, {"error": out + err}

    def _step(self, what: str, lists: Sequence[str]) -> None:
        """The command, as soon as it is allowed."""
        answers = list[Any]()

        def done() -> bool:
            answers.append(self.command(what, *lists))
            return bool(answers[-1][0] == 0)

        try:
            eventually(done, what, deadline=ALLOWED)
        except AssertionError:
            self.result.problems.append(f"masters {what}: {answers[-1]}")

    def next_list(self) -> list[int]:
        """Masters are added, removed or replaced."""
        spare = [n for n in range(POOL) if n not in self.list]
        self.chance.shuffle(spare)
        if len(self.list) == 3 and self.chance.random() < 0.5:
            self.result.did["3 to 5"] += 1
            return [*self.list, *spare[:2]]
        if len(self.list) == 5 and self.chance.random() < 0.5:
            self.result.did["5 to 3"] += 1
            return self.chance.sample(self.list, 3)
        self.result.did["replaced"] += 1
        return [*self.chance.sample(self.list, len(self.list) - 1), spare[0]]

    def act(self) -> None:
        """One change, from the old list to the new list."""
        old, new = self.list, self.next_list()
        lists = ["--from", ",".join(self.urls(old)), "--to", ",".join(self.urls(new))]
        self._step("start", lists)
        if self.setting.restarts:
            self._restart(self.chance.randrange(len(self.workers)), old)
        crashed = self.chance.choice(sorted({*old, *new}))
        self.masters[crashed].kill()
        self.result.did["master crashed"] += 1
        self._change_all(new, old)
        if self.setting.restarts:
            self._restart(self.chance.randrange(len(self.workers)), new, old)
        self.masters[crashed].restart()
        self._step("finish", lists)
        self._start_with_old(old, new)
        self._change_all(new, None)
        self._step("finish", lists)
        self.list = new

    def _start_with_old(self, old: Sequence[int], new: Sequence[int]) -> None:
        """A client tries the old list in the second phase.

        With as many masters as the new list has it may start: only masters of both lists vote for it, and a
        quorum of them is a quorum of the new list.
        """
        late = self.hire(old)
        said = late.hear()
        self.result.did["old list refused" if said.startswith("refused") else "old list counted as new"] += 1
        if said == "ready" and len(old) != len(new):
            self.result.problems.append(f"{late.name} got the old list in the second phase")
        late.kill()

    def end(self) -> Result:
        for worker in self.workers:
            worker.tell("")
        for worker in self.workers:
            if worker.hear() != "ended":
                self.result.problems.append(f"{worker.name} did not come to a good end")
        self._judge()
        return self.result

    def _judge(self) -> None:
        histories = [history.read(path) for path in self.histories if path.exists()]
        holds = [hold for one in histories for hold in one.holds]
        self.result.holds = len(holds)
        self.result.failed = sum(one.unavailable for one in histories)
        for n, number in enumerate(self.counters):
            self._judge_resource(n, [hold for hold in holds if hold.resource == n], number.read())

    def _judge_resource(self, number: int, holds: list[Hold], counted: int) -> None:
        for first, second in verdict.overlaps(holds):
            self.result.problems.append(
                f"resource {number}: {second.worker} was granted {second.token.hex()} "
                f"{first.end - second.granted:.4f} s before the end of {first.token.hex()} of {first.worker}"
            )
        for first, second in verdict.disorders(holds):
            self.result.problems.append(f"resource {number}: token {first.fence}, then {second.fence}")
        written = sum(hold.wrote is not None for hold in holds)
        late = sum(hold.wrote_late for hold in holds)
        if counted < written - late:
            self.result.problems.append(f"resource {number}: {written - late - counted} updates lost")


def run(setting: Setting, folder: Path) -> Result:
    with contextlib.ExitStack() as stack:
        change = Change(setting, folder, stack)
        end = clock() + setting.seconds
        change.act()
        while clock() < end:
            change.act()
        return change.end()


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.change", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--engine", action="append", choices=["native", "python"], help="default: both")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--server", default="auto")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    setting = Setting(
        tuple(args.engine or ("native", "python")),
        args.seconds,
        args.seed,
        workers=args.workers,
        server=args.server,
    )
    with tempfile.TemporaryDirectory(prefix="chaos-change-") as folder:
        result = run(setting, Path(folder))
    print(f"seed {args.seed}, engines {', '.join(setting.engines)}: {result}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
