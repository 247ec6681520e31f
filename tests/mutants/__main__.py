"""Apply each mutant to a copy of this tree and run the tests that must convict it.

    python -m mutants [--only NAME]... [--area AREA] [--list] [--lanes N]

Exit 1 when one survives. The native engine is linked again from the C that ``make build`` left behind.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from mutants.catalogue import MUTANTS, Mutant
from uncompiled import NOT_COPIED, ROOT

#: pytest's exit codes: a test failed, or its collection did.
CONVICTED = (1, 2)
GOOD = ("convicted", "argued")
#: Plugins that only take time to load.
PYTEST = ("-m", "pytest", "-x", "-o", "addopts=", "-q", "--import-mode=importlib")
PYTEST += tuple(
    f"-pno:{name}"
    for name in ("asyncio", "cacheprovider", "celery", "xdist", "benchmark", "pytest_cov", "sybil")
)


class Tree:
    """A copy of this tree to change, one file at a time. ``native``: with what is built, else without."""

    def __init__(self, scratch: Path, native: bool) -> None:
        self.path = scratch / ("native" if native else "python")
        self.native = native
        ignored = [*NOT_COPIED]
        if native:
            ignored = [pattern for pattern in NOT_COPIED if pattern not in ("*.so", "_*.c")]
        shutil.copytree(ROOT, self.path, ignore=shutil.ignore_patterns(*ignored))
        self.changes = 0

    def write(self, file: str, text: str) -> None:
        """Python distinguishes a new source from the compiled one by the time, to the second."""
        self.changes += 1
        path = self.path / file
        path.write_text(text)
        when = time.time() + self.changes
        os.utime(path, (when, when))

    def link(self) -> None:
        """The native engine from the C as it is here."""
        flags = ["-O1", "-w", "-fPIC", "-std=c11", "-D_GNU_SOURCE", "-pthread", "-Isrc"]
        flags.append(f"-I{sysconfig.get_path('include')}")
        glue = self.path / "_native.o"
        if not glue.exists():
            self.run("cc", *flags, "-c", "src/_native.c", "-o", str(glue), check=True)
        sources = [str(path) for path in sorted((self.path / "src").glob("*.c")) if path.stem != "_native"]
        target = f"redlock_fast/engine/_native{sysconfig.get_config_var('EXT_SUFFIX')}"
        self.run("cc", *flags, "-shared", str(glue), *sources, "-o", target, check=True)

    def run(self, *words: str, seconds: float | None = None, check: bool = False) -> int:
        """The exit code; -1: it took too long."""
        engine = "native" if self.native else "python"
        env = {
            **os.environ,
            "PYTHONPATH": str(self.path),
            "REDLOCK_FAST_TEST_ENGINES": engine,
            "REDLOCK_FAST_TEST_TWICE": "1",  # with clients for threads and for asyncio
        }
        with (self.path / "output").open("wb") as output:
            try:
                done = subprocess.run(
                    words,
                    cwd=self.path,
                    env=env,
                    timeout=seconds,
                    check=check,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            except subprocess.TimeoutExpired:
                return -1
        return done.returncode

    def convicts(self, mutant: Mutant | None, tests: str, seconds: float) -> bool:
        """Whether the tests fail with this change; without one, whether they fail as they are."""
        before = (self.path / mutant.file).read_text() if mutant else ""
        try:
            if mutant:
                self.write(mutant.file, before.replace(mutant.old, mutant.new))
            if self.native:
                self.link()
            code = self.run(sys.executable, *PYTEST, *tests.split(), seconds=seconds)
        finally:
            if mutant:
                self.write(mutant.file, before)
        if code not in (0, -1, *CONVICTED):
            raise SystemExit(f"pytest ended with {code}: {tests}\n{(self.path / 'output').read_text()}")
        return code != 0


class Lane:
    """Judges one mutant at a time, in its own copies of the tree."""

    #: Whether the tests pass without a change, by the kind of tree.
    _healthy: ClassVar[dict[tuple[bool, str], bool]] = {}

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._trees: dict[bool, Tree] = {}

    def verdict(self, mutant: Mutant) -> str:
        """How it ends: one of GOOD, or "SURVIVED", or "UNSOUND" where the tests fail anyhow."""
        if mutant.native not in self._trees:
            self._trees[mutant.native] = Tree(self._scratch, mutant.native)
        tree = self._trees[mutant.native]
        for judge in mutant.tests.split():
            if tree.convicts(mutant, judge, mutant.seconds):
                return "convicted" if self._passes(tree, judge, mutant.seconds) else "UNSOUND"
        return "argued" if mutant.argued else "SURVIVED"

    def _passes(self, tree: Tree, judge: str, seconds: float) -> bool:
        known = tree.native, judge
        if known not in self._healthy:
            self._healthy[known] = not tree.convicts(None, judge, 10 * seconds)
            if not self._healthy[known]:
                print((tree.path / "output").read_text(errors="replace")[-3000:])
        return self._healthy[known]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this one; may be repeated")
    parser.add_argument("--area", help="a package of redlock_fast, or c")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="so many at the same time")
    arguments = parser.parse_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if mutant.name in (arguments.only or (mutant.name,)) and arguments.area in (None, mutant.area)
    ]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.area:10} {mutant.name:36} {mutant.file:34} {mutant.tests}")
        return 0
    survivors, by_area = [], Counter[str]()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.lanes) as pool:
        idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for number in range(arguments.lanes):
            idle.put(Lane(Path(scratch, str(number))))

        def judged(mutant: Mutant) -> tuple[str, float]:
            lane, start = idle.get(), time.monotonic()
            try:
                return lane.verdict(mutant), time.monotonic() - start
            finally:
                idle.put(lane)

        for mutant, (word, seconds) in zip(chosen, pool.map(judged, chosen), strict=True):
            print(f"{word:9} {mutant.area:10} {mutant.name:36} {seconds:6.1f} s", flush=True)
            by_area[mutant.area] += 1
            if word not in GOOD:
                survivors.append((mutant, word))
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} convicted or argued")
    for area, count in by_area.items():
        left = sum(mutant.area == area for mutant, _ in survivors)
        print(f"  {area:10} {count - left} of {count}")
    for mutant, word in survivors:
        print(f"{word}: {mutant.name} ({mutant.file}): {mutant.old!r} -> {mutant.new!r}; {mutant.tests}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
