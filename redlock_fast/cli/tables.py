"""Tables: made with rich on a terminal, if it is installed; otherwise plain columns, for grep and awk."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

Rows = Sequence[Sequence[str]]

NUMBER = re.compile(r"[\d,.]+( \S+)?")


def show(columns: Sequence[str], rows: Rows) -> None:
    """Print a table."""
    if sys.stdout.isatty() and _with_rich(columns, rows):
        return
    for line in plain(columns, rows):
        print(line)


def plain(columns: Sequence[str], rows: Rows) -> list[str]:
    """The lines of a table; columns are two spaces apart."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    right = _right(columns, rows)
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (columns, *rows)
    ]


def _right(columns: Sequence[str], rows: Rows) -> list[bool]:
    """For each column, whether all cells are numbers, with or without units."""
    return [
        any(map(NUMBER.fullmatch, column)) and all(cell == "-" or NUMBER.fullmatch(cell) for cell in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(columns))
    ]


def _with_rich(columns: Sequence[str], rows: Rows) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table: Any = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, flush in zip(columns, _right(columns, rows), strict=True):
        table.add_column(name, justify="right" if flush else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # no markup: names of locks may have brackets
    Console(highlight=False).print(table)
    return True
