"""Masters are added, replaced and removed while processes contend; one master crashes during each change.

``python -m chaos.change --seconds 600 --engine native``. Each change is made as docs/changing-masters.md
says: by the command ``redlock-fast masters``, and by clients that are at the old list, at both lists, at the
new list. In the first phase one client starts again with the old list, and one with both lists; in the second
phase one client tries the old list. The master crashes in any phase.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import history, verdict
from chaos.counters import FileCounter
from chaos.history import Hold, clock
from chaos.worker_process import Worker
from support.commands import Command, running
from support.waiting import eventually, start

from redlock_fast.embedded import Masters

MODES = ("threads", "asyncio")
TTL = 1.0
#: The pool of servers from which the lists are taken.
POOL = 8
NOTHING: Mapping[str, Any] = {}
#: Seconds within which the next phase of a change must be allowed.
ALLOWED = 300.0
#: What is done to the lists of three or five masters, again and again.
CHANGES = ("added", "replaced", "removed", "replaced")
#: The exit codes of a command that is to be given again.
AGAIN = (69, 75)
#: When a master crashes: before one of these steps of a change, within that many seconds; and for how long.
STEPS = ("to both", "finish phase 1", "to new", "finish phase 2")
SOON, DOWN = 0.5, (0.3, 3.0)
#: Holds of a client that was allowed to start with the old list.
ENOUGH = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """The setup. ``workers``: processes; ``holders``: in each of them; ``resources``: that they lock.

    ``restarts``: clients start again, half of them after SIGKILL. The mark of a killed client delays the next
    phase by a minute.
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
    """``did``: what was done how often. ``problems``: what must not be.

    ``holds``, ``unavailable``, ``contended``: how acquires ended. ``longest``: seconds that one took beyond
    its timeout. ``in_steps``: how many got the lock, and how many did not,
    of the acquires that ended while a step of a change was made.
    """

    did: Counter[str] = field(default_factory=Counter)
    holds: int = 0
    unavailable: int = 0
    contended: int = 0
    overtime: float = 0.0
    in_steps: tuple[int, int] = (0, 0)
    problems: list[str] = field(default_factory=list)

    @property
    def succeeded(self) -> float:
        """The share of acquires that got the lock, of all."""
        return share(self.holds, self.unavailable + self.contended)

    def __str__(self) -> str:
        did = ", ".join(f"{what} {times}" for what, times in sorted(self.did.items()))
        problems = "".join(f"\n    PROBLEM: {problem}" for problem in self.problems)
        return (
            f"{self.holds} holds, {self.unavailable} acquires found too few masters, {self.contended} timed "
            f"out: {self.succeeded:.3%} succeeded, {share(*self.in_steps):.3%} of the {sum(self.in_steps)} "
            f"that ended during a step; longest overtime {self.overtime:.2f} s; {did}{problems}"
        )


def share(succeeded: int, failed: int) -> float:
    return succeeded / max(1, succeeded + failed)


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
        self._steps: list[tuple[float, float]] = []
        self._crash: Future[None] | None = None
        self.counters = [FileCounter(str(folder / f"counter {n}")) for n in range(setting.resources)]
        for one in self.counters:
            one.create()
        self._started = self._changes = 0
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
        # "auto" trusts a master that restarted just before the client: see docs/guarantees.md.
        options: dict[str, Any] = {"connect_timeout": 5.0, "restart_guard": "strict", **more}
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
            with self._a_step():
                worker.tell(json.dumps({"masters": self.urls(masters), "joint_with": other}))
                answer = worker.hear()
            if answer != "changed":
                self.result.problems.append(f"{worker.name}: {answer or 'no answer'}")

    def _restart(self, masters: Sequence[int], joint_with: Sequence[int] | None = None) -> None:
        """One client ends, or is killed, and starts with these lists."""
        place = self.chance.randrange(len(self.workers))
        if self.chance.random() < 0.5:
            self.result.did["client killed"] += 1
        else:
            self._end(self.workers[place])
            self.result.did["client ended"] += 1
        self.workers[place].kill()
        self.workers[place] = worker = self.hire(masters, joint_with)
        if worker.hear() != "ready":
            self.result.problems.append(f"{worker.name} did not start with a list that is allowed")

    def _end(self, worker: Worker) -> None:
        worker.tell("")
        if worker.hear() != "ended":
            self.result.problems.append(f"{worker.name} did not come to a good end")

    # --- the operator ---

    def command(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        with running(Command(None).start("masters", *arguments, "--json")) as process:
            out, err = process.communicate(timeout=ALLOWED)
        try:
            return process.returncode, json.loads(out)
        except ValueError:
            return process.returncode, {"error": out + err}

    def _command(self, what: str, lists: Sequence[str]) -> None:
        """The command, as soon as it is allowed."""
        answers = list[Any]()

        def done() -> bool:
            with self._a_step():
                answers.append(self.command(what, *lists))
            return answers[-1][0] not in AGAIN

        with contextlib.suppress(AssertionError):
            eventually(done, what, deadline=ALLOWED)
        if answers[-1][0] != 0:
            self.result.problems.append(f"masters {what}: {answers[-1]}")

    @contextlib.contextmanager
    def _a_step(self) -> Iterator[None]:
        begin = clock()
        try:
            yield
        finally:
            self._steps.append((begin, clock()))

    def next_list(self) -> list[int]:
        """Masters are added, replaced or removed."""
        spare = [n for n in range(POOL) if n not in self.list]
        self.chance.shuffle(spare)
        what = CHANGES[self._changes % len(CHANGES)]
        self._changes += 1
        self.result.did[what] += 1
        if what == "added":
            return [*self.list, *spare[:2]]
        if what == "removed":
            return self.chance.sample(self.list, 3)
        return [*self.chance.sample(self.list, len(self.list) - 1), spare[0]]

    def act(self) -> None:
        """One change, from the old list to the new list."""
        old, new = self.list, self.next_list()
        lists = ["--from", ",".join(self.urls(old)), "--to", ",".join(self.urls(new))]
        crash = self.chance.choice(STEPS)

        def soon(step: str) -> None:
            if step == crash:
                self._crash = start(lambda: self._crash_one(sorted({*old, *new})))

        self._command("start", lists)
        if self.setting.restarts:
            self._restart(old)
        soon("to both")
        self._change_all(new, old)
        if self.setting.restarts:
            self._restart(new, old)
        soon("finish phase 1")
        self._command("finish", lists)
        self._start_with_old(old, new)
        soon("to new")
        self._change_all(new, None)
        soon("finish phase 2")
        self._command("finish", lists)
        assert self._crash is not None
        self._crash.result()
        self.list = new

    def _crash_one(self, masters: Sequence[int]) -> None:
        """A master crashes, and starts again without its data."""
        chance = random.Random(f"{self.setting.seed} {self._changes}")
        crashed = self.masters[chance.choice(masters)]
        time.sleep(chance.uniform(0.0, SOON))
        with self._a_step():
            crashed.kill()
            time.sleep(chance.uniform(*DOWN))
            crashed.restart()
        self.result.did["master crashed"] += 1

    def _start_with_old(self, old: Sequence[int], new: Sequence[int]) -> None:
        """A client tries the old list in the second phase.

        With as many masters as the new list has it may start: only masters of both lists vote for it, and a
        quorum of them is a quorum of the new list.
        """
        late = self.hire(old)
        reply = late.hear()
        if reply == "ready":
            eventually(lambda: late.history.read_bytes().count(b"released") >= ENOUGH, "it holds locks")
        self.result.did["old list refused" if reply.startswith("refused") else "old list counted as new"] += 1
        if reply == "ready" and len(old) != len(new):
            self.result.problems.append(f"{late.name} got the old list in the second phase")
        late.kill()

    def end(self) -> Result:
        for worker in self.workers:
            self._end(worker)
        self._judge()
        return self.result

    def _judge(self) -> None:
        histories = [history.read(path) for path in self.histories if path.exists()]
        holds = [hold for one in histories for hold in one.holds]
        self.result.holds = len(holds)
        self.result.unavailable = sum(one.unavailable for one in histories)
        self.result.contended = sum(one.contended for one in histories)
        self.result.overtime = max(one.overtime for one in histories)
        failed = [at for one in histories for at in one.refused]
        self.result.in_steps = self._in_steps([hold.granted for hold in holds]), self._in_steps(failed)
        for n, number in enumerate(self.counters):
            self._judge_resource(n, [hold for hold in holds if hold.resource == n], number.read())

    def _in_steps(self, moments: Sequence[float]) -> int:
        return sum(any(begin <= at <= end for begin, end in self._steps) for at in moments)

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
