"""Runs Python in a copy of this tree in which nothing is compiled: what users without a compiler have.

    python tests/uncompiled.py -m pytest tests/unit

And the lines of the modules that are compiled from Python are there to be traced. The engine of the tests is
the one in Python, unless REDLOCK_FAST_TEST_ENGINES names more: deselect the tests of the others, which fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What was built, or is no source.
NOT_COPIED = (".[!c]*", ".coverage*", "*.so", "_*.c", "build", "dist", "site", "*.egg-info", "__pycache__")


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of this tree, as long as it is needed."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        yield tree


def main(words: list[str]) -> int:
    with copied() as tree:
        env = {"REDLOCK_FAST_TEST_ENGINES": "python", **os.environ, "PYTHONPATH": str(tree)}
        return subprocess.run([sys.executable, *words], cwd=tree, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
