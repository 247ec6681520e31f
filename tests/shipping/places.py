"""Where things are built and tried: copies of the tree, and virtual environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Every archive has these, and each build writes them again.
MADE = ("PKG-INFO", "setup.cfg")
NOT_SOURCES = ("*.so", "*.egg-info", "_*.c", "__pycache__", "build", "dist", "site")
#: Left by builds and tests in an unpacked sdist.
LITTER = (*MADE, *NOT_SOURCES, ".[!c]*", ".coverage*", "secrets")
#: Variables that would make a build, or an engine, another one than it is for users.
NOT_OURS = ("PYTHON", "REDLOCK_FAST_")
TAIL = 4000


class Failed(Exception):
    """A command failed, or something is not as it should be."""


class Environment:
    """A virtual environment. With ``alone``, its commands find no program but its own."""

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        self._bin = folder / "bin"
        self.path = str(self._bin)
        if not alone:
            self.path += os.pathsep + os.environ["PATH"]

    def pip(self, *words: str | Path, cwd: Path | None = None, **variables: str) -> str:
        return self.run("pip", "--disable-pip-version-check", *words, cwd=cwd, **variables)

    def run(self, program: str, *words: str | Path, cwd: Path | None = None, **variables: str) -> str:
        """What the program of this environment printed; Failed with the end of it where its code is not 0."""
        command = [str(self._bin / program), *map(str, words)]
        # Not in the tree, whose package would be found in place of the installed one.
        cwd = cwd or self._bin
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**kept, "PATH": self.path, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-TAIL:]}")
        return done.stdout

    def found(self, programs: Sequence[str]) -> list[str]:
        """Which of these its commands would find."""
        return [program for program in programs if shutil.which(program, path=self.path)]


def copy_of_the_tree(folder: Path) -> Path:
    """The files that git tracks or could add; all but build output without git, as in an unpacked sdist."""
    known = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if known.returncode or not (ROOT / ".git").exists():
        return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LITTER)))
    for name in filter(None, known.stdout.split("\0")):
        if (ROOT / name).exists():  # one that is deleted is known until the commit
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return tree


def time_of_the_tree() -> str:
    """For SOURCE_DATE_EPOCH: the last commit's, or that of the file which every sdist gives its time."""
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if commit.returncode == 0 and (ROOT / ".git").exists():
        return commit.stdout.strip()
    return str(int((ROOT / "pyproject.toml").stat().st_mtime))
