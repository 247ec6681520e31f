"""Where versions of Python and of servers are: on this machine, and in folders that have a Debian system."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
#: Runs the words behind it in the root ``$0``. Its mounts end with it.
IN_ROOT = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
IN_A_ROOT = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Variables that would make an installation or an engine another one.
NOT_PASSED_ON = ("PYTHON", "REDLOCK_FAST_", "VIRTUAL_ENV", "MAKE", "MFLAGS", "PYTEST_")


class Failed(Exception):
    """A command failed: which one, and what it printed."""


@dataclass(frozen=True)
class Place:
    """This machine, or the system below ``root``. All paths are those inside of the place."""

    root: Path = Path("/")

    def outside(self, path: Path) -> Path:
        """Where this process finds the path."""
        return self.root / path.relative_to("/")

    @property
    def here(self) -> bool:
        return self.root == Path("/")

    @property
    def system(self) -> str:
        """Its name, such as "Debian GNU/Linux 12 (bookworm)"."""
        release = self.root / "etc/os-release"
        found = re.search(r'^PRETTY_NAME="?([^"\n]*)', release.read_text() if release.exists() else "", re.M)
        return found[1] if found else sys.platform

    @property
    def path(self) -> list[Path]:
        """Where its programs are."""
        if not self.here:
            return list(map(Path, IN_A_ROOT))
        # Not the environment that runs this: it may have a redis-server.
        own = Path(sys.prefix) / "bin" if sys.prefix != sys.base_prefix else None
        return [Path(name) for name in os.get_exec_path() if Path(name) != own and Path(name).name != "shims"]

    def pythons(self) -> dict[str, Path]:
        """The path by the version: "3.11", or "3.13t" without the GIL."""
        more = [*self.outside(Path("/opt")).glob("*/bin")]
        if self.here:
            more += Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
            more.append(Path(sys.base_prefix, "bin"))  # of this Python, which may not be on PATH
        inside = [Path("/") / folder.relative_to(self.root) for folder in sorted(more)]
        found: dict[str, Path] = {}
        for program in self._programs([*self.path, *inside]):
            name = re.fullmatch(r"python(3\.(\d+)t?)", program.name)
            if name and (3, int(name[2])) >= OLDEST and self._works(program):
                found.setdefault(name[1], program)
        return dict(sorted(found.items(), key=lambda item: release(item[0])))

    def servers(self) -> dict[str, Path]:
        """The path by kind and version: "Redis 7.0"."""
        found: dict[str, Path] = {}
        for program in self._programs(self.path):
            if program.name in ("redis-server", "valkey-server"):
                version = server_version(self.run(str(program), "--version"))
                found.setdefault(version.rpartition(".")[0], program)
        return found

    def redis(self) -> Path | None:
        """Its first redis-server."""
        return next((path for name, path in self.servers().items() if name.startswith("Redis")), None)

    def _programs(self, folders: Sequence[Path]) -> Iterator[Path]:
        for folder in dict.fromkeys(folders):
            if self.outside(folder).is_dir():
                yield from (folder / path.name for path in sorted(self.outside(folder).iterdir()))

    def _works(self, python: Path) -> bool:
        """Whether this Python has venv: Debian has that in a separate package."""
        return self.result([str(python), "-c", "import venv, ensurepip"])[0] == 0

    def run(self, *words: str) -> str:
        """What the command printed. Raises Failed with that if its exit code is not 0."""
        code, printed = self.result(words)
        if code:
            raise Failed(f"{' '.join(words)}: exit code {code}\n{printed}")
        return printed

    def result(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None, folder: Path = Path("/")
    ) -> tuple[int, str]:
        """The exit code of the command in this place, and what it printed."""
        done = subprocess.run(
            self._command(words, variables or {}, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return done.returncode, done.stdout

    def _command(self, words: Sequence[str], variables: Mapping[str, str], folder: Path) -> list[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
        given = {**kept, "PATH": os.pathsep.join(map(str, self.path)), **variables}
        enter = [] if self.here else ["unshare", "--mount", "sh", "-c", IN_ROOT, str(self.root)]
        shell = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder)]
        return [*enter, "env", "-i", *(f"{name}={value}" for name, value in given.items()), *shell, *words]


def release(version: str) -> tuple[int, bool]:
    """Orders "3.9", "3.13", "3.13t", "3.14"."""
    return int(version.rstrip("t").partition(".")[2]), version.endswith("t")


def server_version(printed: str) -> str:
    """Kind and version of a server, from what its ``--version`` prints: "Redis 7.0.15"."""
    found = re.search(r"(Redis|Valkey) server v=([\w.]+)", printed)
    if found is None:
        raise ValueError(f"no server's version: {shlex.quote(printed[:100])}")
    return f"{found[1]} {found[2]}"
