"""``python -m tests.nightly [PART ...] [VARIABLE=VALUE ...]``: what takes a night, each part by its target.

Without a name all parts run, in this order. A variable goes to make in place of the one that a part has. Each
result goes to nightly.json and nightly.md of docs/internals: the last run, and the last that passed. A part
that fails does not end the night; the exit code is 1 then. Ctrl-C and SIGTERM end it, after the record.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.records import INTERNALS, ROOT, Record, Records, commit, table, today

#: The target of each part, with its variables.
PARTS = {
    "matrix": ("matrix",),
    "coverage": ("coverage",),
    "pyx": ("coverage-native",),
    "wheel": ("wheel",),
    "proof": ("proof",),
    "simulation": ("simulate", "RUNS=50000"),
    "mutants": ("mutants",),
    "fuzz": ("fuzz", "SECONDS=3600"),
    "soak": ("soak", "STEPS=50"),
    "chaos": ("chaos", "SECONDS=3600"),
    "benchmark": ("bench", "ARGS=--strict"),
}
INTERRUPTED = "interrupted"
COLUMNS = ("result", "seconds", "date", "commit", "command")


def main(words: list[str], docs: Path = INTERNALS) -> int:
    names = [word for word in words if "=" not in word] or list(PARTS)
    variables = [word for word in words if "=" in word]
    if unknown := [name for name in names if name not in PARTS]:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    records = Records("nightly", rows, docs)
    results = []
    for name in names:
        command = command_of(name, variables)
        print(f"== {shlex.join(command)}", flush=True)
        record = run(command)
        row = name if is_whole(name, variables) else f"{name}, other limits"
        earlier = records.read().get(row, {}).get("passed")
        passed = record if record["result"] == "passed" else earlier
        records.put(row, {"last": record, "passed": passed})
        results.append(record["result"])
        print(f"== {name}: {record['result']} after {record['seconds']} s", flush=True)
        if record["result"] == INTERRUPTED:
            break
    return int(any(result != "passed" for result in results))


def is_whole(name: str, variables: list[str]) -> bool:
    """Whether the part runs as in a night. ROOTS has more to run."""
    return all(variable in PARTS[name] or variable.startswith("ROOTS=") for variable in variables)


def command_of(name: str, variables: list[str]) -> list[str]:
    """The command of a part; a variable of the caller replaces the part's."""
    target, *usual = PARTS[name]
    given = {variable.partition("=")[0] for variable in variables}
    kept = [variable for variable in usual if variable.partition("=")[0] not in given]
    return ["make", target, *kept, *variables]


def run(command: list[str]) -> Record:
    # The variables of the make that called this are not those of the targets.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    python = f"PYTHON={sys.executable}"
    tree, day, began = commit(), today(), time.monotonic()
    with subprocess.Popen([*command, python], cwd=ROOT, env=environment, start_new_session=True) as part:
        try:
            code = part.wait()
            result = "passed" if code == 0 else f"exit code {code}"
        except KeyboardInterrupt:
            os.killpg(part.pid, signal.SIGTERM)
            result = INTERRUPTED
    return {
        "command": shlex.join(without_path(command)),
        "result": result,
        "seconds": round(time.monotonic() - began),
        "date": day,
        "commit": tree,
    }


def without_path(command: list[str]) -> list[str]:
    """The command for the record, which is committed: no path of this machine."""
    return ["ROOTS=FOLDER" if word.startswith("ROOTS=") else word for word in command]


def rows(records: dict[str, Record]) -> list[str]:
    """The table of nightly.md: for each part the last run that passed, and a later one that did not."""
    cells = []
    for name in (row for part in PARTS for row in (part, f"{part}, other limits")):
        known = records.get(name, {})
        for record in (known.get("passed"), known.get("last")):
            if record and (name, *(record[column] for column in COLUMNS)) not in cells:
                cells.append((name, *(record[column] for column in COLUMNS)))
        if not known and name in PARTS:
            cells.append((name, "not run yet", *[""] * 4))
    return table(("part", *COLUMNS), cells)


if __name__ == "__main__":
    # A job in the background of a script has inherited that SIGINT is ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
