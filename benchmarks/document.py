"""Pastes results into a document, between two HTML comments."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: For contributors: not on the site.
INTERNALS = DOCS / "internals"
PERFORMANCE = DOCS / "performance.md"
#: All tables, and the diary of builds.
NOTES = ROOT / "benchmarks" / "NOTES.md"
#: The blocks of each document.
BLOCKS = {
    PERFORMANCE: ("bench",),
    NOTES: ("thresholds", "bench", "scaling", "contention", "contention-peers", "waiters"),
}


def paste(path: Path, block: str, body: str) -> None:
    """Replace the text between ``<!-- block:begin -->`` and ``<!-- block:end -->`` in a file."""
    path.write_text(replaced(path.read_text(), block, body))


def replaced(text: str, block: str, body: str) -> str:
    """``text`` with a new body in its block; ValueError unless the block is there exactly once."""
    begin, end = f"<!-- {block}:begin -->", f"<!-- {block}:end -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed) or begin in tail or end in tail:
        raise ValueError(f"there must be one {begin} … {end}")
    return f"{head}{begin}\n{body.strip()}\n{end}{tail}"
