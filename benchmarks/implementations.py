"""The implementations that are measured. Each turn is a new process.

So the threads and connections of one implementation do not disturb the next turn, and each peer has its own
dependencies.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleets import Fleet

from redlock_fast.engine import load
from redlock_fast.errors import ConfigError

HERE = Path(__file__).parent
DRIVER = HERE / "driver.py"
INSTALL_TIMEOUT = 180.0

#: What to do: "workload" and its numbers (see workloads.py); for the floor, "size".
Job = Mapping[str, Any]


class UnavailableError(Exception):
    """This implementation cannot run here; the text says why."""


@dataclass(frozen=True)
class Implementation:
    """``label``: its name in tables. ``peer``: may be missing, or fail, without being our fault."""

    label: str
    peer: bool = field(default=False, kw_only=True)

    def prepare(self, install: bool) -> None:
        """Install and compile, before anything is measured. Raises UnavailableError."""

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        """The arguments of the process that does ``job`` and prints JSON."""
        raise NotImplementedError


@dataclass(frozen=True)
class Floor(Implementation):
    """The C program: ``size`` locks in each write, no client at all."""

    size: int

    def prepare(self, install: bool) -> None:
        compiled_floor()

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        numbers = [job["warmup"], job["seconds"], self.size]
        return [compiled_floor(), *map(str, numbers), fleet.release_path, *map(str, fleet.ports)]


@functools.cache
def compiled_floor() -> str:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise UnavailableError("no C compiler")
    program = cache() / "floor"
    made = cache() / f"floor-{os.getpid()}"  # renamed when ready: another run may be using the old one
    build = [compiler, "-O2", "-o", str(made), str(HERE / "floor.c")]
    try:
        done = subprocess.run(build, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"floor.c: {error}") from None
    if done.returncode:
        raise UnavailableError(f"floor.c: {last_line(done.stderr)}")
    made.replace(program)
    return str(program)


@dataclass(frozen=True)
class Ours(Implementation):
    """redlock-fast with this engine and these options of the client."""

    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    needs: str = ""

    def prepare(self, install: bool) -> None:
        try:
            load(self.engine)
            if self.needs:
                __import__(self.needs)
        except (ConfigError, ImportError) as error:
            raise UnavailableError(str(error)) from None

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        options = {"engine": self.engine, **self.options}
        return [sys.executable, *driver("redlock-fast", job, fleet, options=options)]


@dataclass(frozen=True)
class Bare(Implementation):
    """Callers that share prepared commands, without a client (see bare.py)."""

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        options = {"callers": job["callers"], "release_path": fleet.release_path}
        return [sys.executable, *driver("bare", job, fleet, options=options)]


@dataclass(frozen=True)
class Import(Implementation):
    """A fresh interpreter that imports redlock_fast, and lists the heavy modules that came with it."""

    code: str

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        return [sys.executable, "-c", self.code]


@dataclass(frozen=True)
class Waiting(Implementation):
    """A waiter in another process, notified by push; with its own masters."""

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        return [sys.executable, str(HERE / "waiting.py"), "--json", "--rounds", str(job["rounds"])]


@dataclass(frozen=True)
class Peer(Implementation):
    """Another library as released, with its dependencies. ``besides``: packages that users could add."""

    package: str
    version: str
    besides: tuple[str, ...] = ()
    peer: bool = field(default=True, kw_only=True)

    def prepare(self, install: bool) -> None:
        self.python(install)

    def command(self, job: Job, fleet: Fleet) -> list[str]:
        return [self.python(install=False), *driver(self.package, job, fleet)]

    def python(self, install: bool) -> str:
        """The Python of its environment. Raises UnavailableError."""
        return environment(f"{self.package}=={self.version}", *self.besides, install=install)


def driver(library: str, job: Job, fleet: Fleet, **more: Any) -> list[str]:
    if job["workload"] == "stopped":
        more["pid"] = fleet.pids[-1]
    return [str(DRIVER), json.dumps({"library": library, "urls": fleet.urls, **job, **more})]


def environment(*requirements: str, install: bool) -> str:
    """The Python of a cached environment with these packages, made on first use."""
    words = [requirement.replace("==", "-") for requirement in requirements]
    tag = "-".join((*words, f"py{sys.version_info.major}{sys.version_info.minor}"))
    folder = cache() / "environments" / tag
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return str(python)
    if not install:
        raise UnavailableError("not installed yet (make bench does it)")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *requirements], capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"no environment for it: {error}") from None
    if done.returncode:
        raise UnavailableError(f"pip install {requirements[0]}: {last_line(done.stderr)}")
    ready.touch()
    return str(python)


def cache() -> Path:
    """The folder of the environments and of the compiled floor; it outlives a run."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "redlock-fast"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
