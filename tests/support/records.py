"""What long runs have shown: a JSON file in docs/internals/, and the table of a page that is made from it."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import INTERNALS, ROOT, paste

Record = dict[str, Any]


class Records:
    """The last record under each name, in ``NAME.json`` of docs/internals; its table is in ``NAME.md``."""

    def __init__(
        self, name: str, rows: Callable[[dict[str, Record]], list[str]], docs: Path = INTERNALS
    ) -> None:
        self._name, self._rows = name, rows
        self._file, self._page = docs / f"{name}.json", docs / f"{name}.md"

    def read(self) -> dict[str, Record]:
        found: dict[str, Record] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found

    def put(self, name: str, record: Record) -> None:
        """Replace one record and write the table again: a run that is broken off keeps what it has shown."""
        records = {**self.read(), name: record}
        whole = self._file.with_suffix(".new")
        whole.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
        whole.replace(self._file)
        self.write_page()

    def write_page(self) -> None:
        paste(self._page, self._name, "\n".join(self._rows(self.read())))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table; a column that has only numbers is aligned to the right."""
    columns = list(zip(*rows, strict=True)) or [()] * len(head)
    numeric = [bool(cells) and all(isinstance(cell, int) for cell in cells) for cells in columns]
    rule = ["--:" if right else "---" for right in numeric]
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells] for cells in rows]
    return [f"| {' | '.join(cells)} |" for cells in (list(head), rule, *texts)]


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def commit() -> str:
    """The commit of this tree; ``-dirty`` where files differ from it, "" outside of a repository.

    The results themselves do not count: a run writes them while it goes on.
    """
    if not (ROOT / ".git").exists():
        return ""
    head = _git("rev-parse", "--short=9", "HEAD").strip()
    results = [f":!{path.relative_to(ROOT)}" for path in (*INTERNALS.glob("*.json"), *_pages())]
    return head + ("-dirty" if _git("status", "--porcelain", "--", ".", *results) else "")


def _pages() -> list[Path]:
    return [INTERNALS / "versions.md", INTERNALS / "nightly.md"]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
