"""Names of hosts are encoded by a module that Python imports at the first connect, and only tries once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

import redlock_fast


class NoDescriptors:
    def find_spec(self, *_):
        raise ImportError("Too many open files")


sys.meta_path.insert(0, NoDescriptors())
"localhost".encode("idna")
"""


def test_a_first_connect_without_descriptors_costs_no_later_one() -> None:
    """Catches: unknown encoding: idna, for the rest of the process."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
