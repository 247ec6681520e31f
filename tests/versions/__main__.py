"""``python -m tests.versions``: the tests on every version of Python and of the servers that is at hand.

Versions are on this machine, and in Debian systems in the folders ``--roots FOLDER/*``, which
``python -m tests.versions.roots`` makes. Each result goes to versions.json and versions.md of docs/internals.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

from tests.shipping.places import copy_of_the_tree
from tests.support.records import Records, commit

from . import run
from .claims import passed
from .combinations import FULL, Selection, combinations
from .places import Failed, Place


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--roots", type=Path, metavar="FOLDER", help="has Debian systems; needs root")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keeps environments for the next run")
    parser.add_argument("--only", action="append", metavar="NAME", help="one of --list; may be repeated")
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument("--full", action="store_true", help="every test that a change of the library runs")
    tests.add_argument("--tests", nargs="+", metavar="PATH", help="these only; the table says so")
    parser.add_argument("--list", action="store_true", help="say what would run")
    parser.add_argument("-n", "--workers", type=int, default=8)
    options = parser.parse_args()
    roots = sorted(options.roots.resolve().glob("*/")) if options.roots else []
    chosen = [
        one
        for one in combinations([Place(), *map(Place, roots)])
        if not options.only or one.name in options.only
    ]
    if options.list:
        for one in chosen:
            print(f"{one.name:14} {one.place.system}, {one.python} {one.server} {' '.join(one.pins)}")
        return 0
    if not chosen:
        parser.error("no such combination: see --list")
    records = Records("versions", run.rows)
    with tempfile.TemporaryDirectory(prefix="redlock-fast-versions-") as scratch:
        inside = (options.work or Path(scratch)).resolve()
        work = {one.place: one.place.outside(inside) for one in chosen}
        for folder in work.values():
            shutil.rmtree(folder / "tree", ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            copy_of_the_tree(folder / "tree")
        failed, tree = 0, commit()
        for one in chosen:
            if options.full:
                one = dataclasses.replace(one, tests=FULL)
            elif options.tests:
                one = dataclasses.replace(one, tests=Selection(" ".join(options.tests), tuple(options.tests)))
            try:
                record = run.tried(one, inside, options.workers, tree)
            except Failed as error:  # no row: nothing was tried
                failed += 1
                print(f"{one.name:14} not installed: {error}", flush=True)
                continue
            records.put(one.name, record)
            failed += not passed(record)
            print(f"{one.name:14} {run.summary(record)}", flush=True)
        for folder in work.values():
            shutil.rmtree(folder / "tree" if options.work else folder, ignore_errors=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
