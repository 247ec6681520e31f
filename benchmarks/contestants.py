"""Who is measured, and how each is run.

A contestant is a name and a command: a process that runs lock cycles against the masters and
prints one JSON object with "samples" (nanoseconds of each cycle) and "info". A process of its own
for every round, so that no contestant's threads or connections disturb another's turn.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redlock_fast import _commands, _engine, embedded
from redlock_fast.errors import ConfigError

HERE = Path(__file__).parent
DRIVER = HERE / "driver.py"
TIMEOUT = 300.0


class UnavailableError(Exception):
    """This contestant cannot run here, and why."""


class FailedError(Exception):
    """This contestant ran and did not get its locks, or crashed."""


@dataclass(frozen=True)
class Load:
    """What each contestant has to do in one round."""

    masters: embedded.Masters
    warmup: int
    cycles: int
    scratch: Path


@dataclass(frozen=True)
class Contestant:
    """``command`` builds the arguments of its process; raises UnavailableError where it cannot."""

    name: str
    command: Callable[[Load], list[str]]
    peer: bool = False


@dataclass
class Turn:
    """What one contestant did in one round."""

    samples: list[int]
    info: dict[str, Any] = field(default_factory=dict)


def run(contestant: Contestant, load: Load) -> Turn:
    """One turn; raises UnavailableError, or FailedError with the last words of the process."""
    done = subprocess.run(contestant.command(load), capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise FailedError(last_line(done.stderr) or f"ended with status {done.returncode}")
    return Turn(**json.loads(done.stdout))


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


# -- the floor ---------------------------------------------------------------------------------


def floor(batch: int = 1) -> Contestant:
    """The C program: ``batch`` locks in each write, no client at all."""

    def command(load: Load) -> list[str]:
        numbers = [load.warmup, load.cycles, batch]
        ports = [master.port for master in load.masters]
        return [_compiled(load.scratch), *map(str, numbers), release_path(load.masters), *map(str, ports)]

    return Contestant(f"floor{batch}", command)


def _compiled(scratch: Path) -> str:
    program = scratch / "floor"
    if not program.exists():
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise UnavailableError("no C compiler")
        build = [compiler, "-O2", "-o", str(program), str(HERE / "floor.c")]
        subprocess.run(build, check=True)
    return str(program)


def release_path(masters: embedded.Masters) -> str:
    """The fastest compare-and-delete that the masters have, as floor.c wants it."""
    script = _commands.COMPARE_AND_DELETE
    if masters[0].ask("DELIFEQ no token").startswith(":"):
        return "DELIFEQ"
    if masters[0].ask("DELEX no IFEQ token").startswith(":"):
        return "DELEX"
    for master in masters:
        master.ask(f'SCRIPT LOAD "{script.text.decode()}"')
    return f"EVALSHA:{script.sha1.decode()}"


# -- this library ------------------------------------------------------------------------------


def ours(name: str, engine: str, **options: Any) -> Contestant:
    """redlock-fast with this engine and these options of FastRedlock."""

    def command(load: Load) -> list[str]:
        try:
            _engine.load(engine)
        except ConfigError as error:
            raise UnavailableError(str(error)) from None
        options["engine"] = engine
        return [sys.executable, str(DRIVER), "redlock-fast", _setting(load, **options)]

    return Contestant(name, command)


def _setting(load: Load, **options: Any) -> str:
    return json.dumps({"urls": load.masters.urls, "warmup": load.warmup, "cycles": load.cycles, **options})


# -- its peers ---------------------------------------------------------------------------------


def peer(name: str, version: str) -> Contestant:
    """Another library, as released, in a virtual environment of its own; with hiredis, as we have."""

    def command(load: Load) -> list[str]:
        python = environment(f"{name}=={version}", "hiredis")
        return [python, str(DRIVER), name, _setting(load)]

    return Contestant(name, command, peer=True)


def environment(*requirements: str) -> str:
    """The Python of a cached environment with these packages, made on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tag = f"{requirements[0].replace('==', '-')}-py{sys.version_info.major}{sys.version_info.minor}"
    folder = cache / "redlock-fast" / "peers" / tag
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *requirements], capture_output=True, text=True)
        if done.returncode:
            raise UnavailableError(f"pip install {requirements[0]}: {last_line(done.stderr)}")
        ready.touch()
    return str(python)


CONTESTANTS = (
    floor(1),
    ours("native", "native"),
    ours("native-all", "native", decide="all"),
    ours("python", "python"),
    peer("redlock-py", "1.0.8"),
    peer("pottery", "3.0.1"),
)
