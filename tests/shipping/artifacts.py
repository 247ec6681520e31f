"""The source archive and the wheels that are made of it, and what must be in them."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from .elf import weaknesses
from .places import MADE, Environment, Failed

#: Of the repository only. Of the tests the archive has this directory, with which wheels are built and tried.
NOT_IN_THE_ARCHIVE = (".git", ".ci/", "Makefile", "benchmarks/", "fuzz/", "proof/", "tests/")
OF_THE_TESTS = "tests/shipping/"
PLUGIN = "pytest_redlock_fast.py"
IN_THE_WHEEL = (".py", ".pyi", ".pxd", "py.typed")


def source_archive(tools: Environment, tree: Path, folder: Path) -> Path:
    tools.run("python", "-m", "build", "--no-isolation", "--sdist", "--outdir", folder, tree, cwd=tree)
    return only(folder, "*.tar.gz")


def wheel(tools: Environment, tree: Path, folder: Path, native: str, **variables: str) -> Path:
    """``native``: for REDLOCK_FAST_BUILD_NATIVE."""
    words = ("wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, tree)
    tools.pip(*words, REDLOCK_FAST_BUILD_NATIVE=native, **variables)
    return only(folder, "*.whl")


def wheel_without_binaries(tools: Environment, archive: Path, folder: Path, native: str) -> Path:
    """The wheel that ``--no-binary`` builds; the index has nothing but this archive."""
    found = ("--no-index", "--find-links", archive.parent, "--no-binary", "redlock-fast", "redlock-fast")
    words = ("wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, *found)
    tools.pip(*words, REDLOCK_FAST_BUILD_NATIVE=native)
    return only(folder, "*.whl")


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Failed(f"one {pattern} expected in {folder}, there are {[path.name for path in found]}")
    return found[0]


def same_bytes(one: Path, other: Path) -> None:
    if one.read_bytes() != other.read_bytes():
        raise Failed(f"{one} and {other} are built of the same sources, and differ")


def has_binaries_of(wheel: Path, tree: Path) -> bool:
    """Whether each binary of the wheel was also built in the tree, with the same bytes."""
    with zipfile.ZipFile(wheel) as file:
        binaries = [name for name in file.namelist() if name.endswith(".so")]
        return all(
            (tree / name).exists() and (tree / name).read_bytes() == file.read(name) for name in binaries
        )


def archive_is_complete(archive: Path, expected: set[str]) -> None:
    """All that the tree had, and of what was made since only what every archive has."""
    with tarfile.open(archive) as file:
        there = {member.name.partition("/")[2] for member in file if member.isfile()}
    made = {name for name in there if name in MADE or ".egg-info/" in name}
    _same_names(archive.name, expected, there - made)


def wheel_is_complete(path: Path, tree: Path, *, native: bool) -> None:
    """The package and the pytest plugin, and nothing else: no tests, no C.

    Compiled: the engine and what has a .pxd, or nothing.
    """
    expected = {name for name in files_below(tree / "redlock_fast") if name.endswith(IN_THE_WHEEL)}
    with zipfile.ZipFile(path) as file:
        there = {name for name in file.namelist() if ".dist-info/" not in name}
    compiled = {name for name in there if name.endswith(".so")}
    modules = {"engine/_native", *(name.removesuffix(".pxd") for name in expected if name.endswith(".pxd"))}
    found = {name.removeprefix("redlock_fast/").partition(".")[0] for name in compiled}
    _same_names(path.name, modules if native else set(), found)
    python = {PLUGIN, *(f"redlock_fast/{name}" for name in expected)}
    _same_names(path.name, python, there - compiled)


def wheel_is_hardened(path: Path) -> None:
    """Compiled for Linux; see ``HARDENING`` in setup.py."""
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            if name.endswith(".so") and (found := weaknesses(file.read(name), guarded="_native" in name)):
                raise Failed(f"{path.name}: {name}: {', '.join(found)}")


def files_below(tree: Path) -> set[str]:
    names = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    return {one for one in names if one.startswith(OF_THE_TESTS) or not one.startswith(NOT_IN_THE_ARCHIVE)}


def _same_names(what: str, expected: set[str], there: set[str]) -> None:
    if expected != there:
        missing, needless = sorted(expected - there), sorted(there - expected)
        raise Failed(f"{what}: missing {missing}, needless {needless}")
