"""What the lock protects: a number that two holders at the same time would spoil."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


class FileCounter:
    """Accepts every write."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def create(self) -> None:
        self._path.touch()
        self.write(0, None)

    def read(self, fence: int | None = None) -> int:
        return int(self._path.read_text())

    def write(self, value: int, fence: int | None) -> bool:
        with open(self._path, "r+b", buffering=0) as file:
            file.write(b"%12d" % value)  # always as long, in one write: never seen in part
        return True


class FencedCounter:
    """Refuses a write with a fencing token that is lower than one it has seen."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create(self) -> None:
        self._change("CREATE TABLE counter (value INTEGER, fence INTEGER)")
        self._change("INSERT INTO counter VALUES (0, 0)")

    def read(self, fence: int | None = None) -> int:
        self._change("UPDATE counter SET fence = max(fence, ?)", fence or 0)
        with contextlib.closing(self._connect()) as database:
            return int(database.execute("SELECT value FROM counter").fetchone()[0])

    def write(self, value: int, fence: int | None) -> bool:
        return self._change("UPDATE counter SET value = ?, fence = ?2 WHERE fence <= ?2", value, fence) == 1

    def _change(self, statement: str, *values: int | None) -> int:
        with contextlib.closing(self._connect()) as database, database:
            return database.execute(statement, values).rowcount

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)


Counter = FileCounter | FencedCounter


def counter(path: str, fenced: bool) -> Counter:
    return FencedCounter(path) if fenced else FileCounter(path)
