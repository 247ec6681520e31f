"""What other lock libraries do on the masters: as the commands that they send; and the libraries themselves,
where there are environments that the benchmark has made for them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

#: Compare and delete.
DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class PeerLibrary:
    """All of them: SET NX PX with a text for a token, and a script that compares before it deletes."""

    def __init__(self, nodes: list[redis.Redis]) -> None:
        self.nodes = nodes

    def lock(self, key: str, token: str, milliseconds: int = 60_000) -> int:
        """On how many masters it is locked now."""
        return sum(bool(node.set(key, token, nx=True, px=milliseconds)) for node in self.nodes)

    def unlock(self, key: str, token: str) -> int:
        """On how many it was unlocked."""
        replies: list[Any] = [node.eval(DELETE, 1, key, token) for node in self.nodes]
        return sum(replies)


def python_of(package: str) -> str:
    """The interpreter of an environment with that package; skips the test where there is none."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tag = f"py{sys.version_info.major}{sys.version_info.minor}"
    for folder in (base / "redlock-fast" / "peers").glob(f"{package}-[0-9]*-{tag}"):
        if (folder / "ready").exists():
            return str(folder / "bin" / "python")
    pytest.skip("needs the original library in an environment of its own (make bench makes it)")
