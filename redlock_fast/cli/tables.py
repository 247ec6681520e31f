"""Tables. On a terminal they fit its width, made with rich if that is installed. A pipe gets whole rows."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

Rows = Sequence[Sequence[str]]
#: The columns, and the rows.
Table = tuple[Sequence[str], Rows]

NUMBER = re.compile(r"[\d,.]+( \S+)?")
#: Characters between two columns, and at least of the first column.
GAP, LEAST = 2, 12


def show(columns: Sequence[str], rows: Rows) -> None:
    """Print a table. One that is too wide becomes several, each with the first column."""
    width = _width()
    terminal = sys.stdout.isatty()
    for place, (head, body) in enumerate(_parts(columns, rows, width)):
        if place:
            print()
        if not (terminal and _with_rich(head, body)):
            for line in plain(head, body, width):
                print(line)


def _width() -> int:
    """Of the terminal, or of $COLUMNS; 0: no limit, for grep and awk."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else 0


def _parts(columns: Sequence[str], rows: Rows, width: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The columns in as few tables as fit into ``width``."""
    widths = _widths(columns, rows)
    first = _first_width(widths, width)
    taken: list[int] = []
    for number in range(1, len(columns)):
        used = first + sum(GAP + widths[one] for one in (*taken, number))
        if width and taken and used > width:
            yield _only(columns, rows, taken)
            taken = []
        taken.append(number)
    yield _only(columns, rows, taken)


def _only(columns: Sequence[str], rows: Rows, taken: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    head, *body = ([row[0], *(row[number] for number in taken)] for row in (columns, *rows))
    return head, body


def _widths(columns: Sequence[str], rows: Rows) -> list[int]:
    return [max(map(len, column)) for column in zip(columns, *rows, strict=True)]


def _first_width(widths: Sequence[int], width: int) -> int:
    """Of the first column, whose cells are folded: a name may have any length."""
    left = width - sum(GAP + one for one in widths[1:])
    return min(widths[0], max(left, width // 3, LEAST)) if width else widths[0]


def plain(columns: Sequence[str], rows: Rows, width: int = 0) -> list[str]:
    """The lines of a table; columns are two spaces apart."""
    widths = _widths(columns, rows)
    widths[0] = _first_width(widths, width)
    right = _right(columns, rows)
    lines = []
    for row in (columns, *rows):
        name, *more = (row[0][at : at + widths[0]] for at in range(0, max(1, len(row[0])), widths[0]))
        cells = (
            cell.rjust(wide) if flush else cell.ljust(wide)
            for cell, wide, flush in zip([name, *row[1:]], widths, right, strict=True)
        )
        lines += [(" " * GAP).join(cells).rstrip(), *more]
    return lines


def _right(columns: Sequence[str], rows: Rows) -> list[bool]:
    """For each column, whether all cells are numbers, with or without units."""
    return [
        any(map(NUMBER.fullmatch, column)) and all(cell == "-" or NUMBER.fullmatch(cell) for cell in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(columns))
    ]


def _with_rich(columns: Sequence[str], rows: Rows) -> bool:
    try:
        from rich.console import Console

        drawn = _rich_table(columns, rows)
    except ImportError:
        return False
    Console(highlight=False).print(drawn)
    return True


def rich_tables(tables: Sequence[Table], width: int) -> Iterator[Any]:
    """The tables as rich draws them in ``width`` columns, each with an empty line after it.

    One that is too wide becomes several. Raises ImportError without rich.
    """
    for columns, rows in tables:
        for head, body in _parts(columns, rows, width):
            yield _rich_table(head, body)
            yield ""


def _rich_table(columns: Sequence[str], rows: Rows) -> Any:
    from rich import box
    from rich import table as rich
    from rich.text import Text

    # With the divider of the box, columns are GAP apart, as plain ones are.
    table: Any = rich.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for place, (name, flush) in enumerate(zip(columns, _right(columns, rows), strict=True)):
        table.add_column(name, justify="right" if flush else "left", overflow="fold", no_wrap=place > 0)
    for row in rows:
        table.add_row(*map(Text, row))  # no markup: names of locks may have brackets
    return table
