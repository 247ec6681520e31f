"""What a quorum of two lists costs, and what the check of the masters' records costs.

    python benchmarks/joint.py [--engine python] [--rounds 15] [--seconds 0.4]

Five masters on this machine. In each round every configuration has one turn with a new client, in random
order. Prints a Markdown table: the median over the rounds, and the median ratio to the plain configuration of
three masters in the same round.
"""

from __future__ import annotations

import argparse
import functools
import random
from collections.abc import Callable
from typing import Any

import libraries
import stats
from closed_loop import Result, tasks, threads

from redlock_fast import embedded

MASTERS = 5
#: The arguments of the client, by the numbers of the masters. Every configuration has a key prefix of one
#: length, so that all send as many bytes, and only the checked one has records.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "3 masters": {"masters": "012"},
    "3 masters, `check_masters`": {"masters": "012", "check_masters": "auto"},
    "joint, 1 of 3 replaced": {"masters": "013", "joint_with": "012"},
    "joint, 3 to 5": {"masters": "01234", "joint_with": "012"},
    "5 masters": {"masters": "01234"},
}
PLAIN = "3 masters"


def with_threads(callers: int, masters: Any, options: dict[str, Any], seconds: float) -> Result:
    opener = functools.partial(libraries.redlock_fast, masters, **options)
    return threads(opener, callers=callers, warmup=seconds / 4, seconds=seconds)


def with_tasks(callers: int, masters: Any, options: dict[str, Any], seconds: float) -> Result:
    opener = functools.partial(libraries.redlock_fast_aio, masters, **options)
    return tasks(opener, callers=callers, warmup=seconds / 4, seconds=seconds)


#: For each column what runs, and the number that counts.
COLUMNS: dict[str, tuple[Callable[..., Result], int, str]] = {
    "1 caller: p50, µs": (with_threads, 1, "p50"),
    "32 threads: locks/s": (with_threads, 32, "locks/s"),
    "64 tasks: locks/s": (with_tasks, 64, "locks/s"),
}


def options_of(configuration: str, urls: list[str], engine: str) -> tuple[list[str], dict[str, Any]]:
    given = dict(CONFIGURATIONS[configuration])
    lists: dict[str, Any] = {
        name: [urls[int(number)] for number in given.pop(name)]
        for name in ("masters", "joint_with")
        if name in given
    }
    prefix = f"{list(CONFIGURATIONS).index(configuration)}:"
    options = {"check_masters": "off", "engine": engine, "key_prefix": prefix, "connect_timeout": 20.0}
    return lists.pop("masters"), {**options, **given, **lists}


def measure(urls: list[str], args: argparse.Namespace) -> stats.Turns:
    """The turns, by column and configuration."""
    turns: stats.Turns = {column: {name: [] for name in CONFIGURATIONS} for column in COLUMNS}
    for _ in range(args.rounds):
        for column, (run, callers, _) in COLUMNS.items():
            for name in random.sample(list(CONFIGURATIONS), len(CONFIGURATIONS)):
                masters, options = options_of(name, urls, args.engine)
                turn = stats.summed_up(run(callers, masters, options, args.seconds))
                if turn.numbers["failed"]:
                    raise SystemExit(f"{name}, {column}: {turn.error}")
                turns[column][name].append(turn)
    return turns


def table(turns: stats.Turns, engine: str) -> str:
    rows = [f"| {engine} engine | " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * len(COLUMNS)]
    for name in CONFIGURATIONS:
        cells = []
        for column, (_, _, number) in COLUMNS.items():
            ratio = stats.ratio(turns[column], number, name, PLAIN)
            against = f" ({ratio:.2f})" if name != PLAIN else ""
            cells.append(f"{stats.over_rounds(turns[column][name], number):,.0f}{against}")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", default="native")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.4, help="measured in each turn")
    args = parser.parse_args()
    with embedded.Masters(MASTERS, password="") as masters:
        print(table(measure(masters.urls, args), args.engine))


if __name__ == "__main__":
    main()
