"""Each field of the hub's structs names its guard, docs/internals/hub.md explains each guard, and functions
that release the mutex say so in their name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src"
PAGE = SRC.parent / "docs" / "internals" / "hub.md"
HEADERS = ("hub.h", "hub_internal.h", "link.h")
GUARDS = {"constant", "mutex", "leader", "leader and mutex", "atomic", "list mutex", "local"}
#: The line that opens a struct of one of the headers, and its end.
STRUCT = re.compile(r"^(?:typedef )?struct\b[^;\n]*\{.*?^\}[^;]*;", re.MULTILINE | re.DOTALL)
GUARD = re.compile(r"/\* ([a-z ]+?)(?::| \*/)")
FUNCTION = re.compile(r"^[a-z][^\n;=]*?(\w+)\([^;{}]*\)[^;{}]*\{(.*?)^\}", re.MULTILINE | re.DOTALL)


def guard_of(line: str) -> str:
    found = GUARD.search(line)
    return found[1] if found else ""


def fields(header: str) -> Iterator[tuple[str, str]]:
    """Each line that declares fields, and its guard: its own, or that of its struct."""
    text = re.sub(r"^\s*/\*.*?\*/$", "", (SRC / header).read_text(), flags=re.MULTILINE | re.DOTALL)
    for struct in STRUCT.findall(text):
        opening, *body, _ = struct.splitlines()
        for line in filter(str.strip, body):
            yield line.strip(), guard_of(line) or guard_of(opening)


@pytest.mark.parametrize("header", HEADERS)
def test_every_field_names_its_guard(header: str) -> None:
    found = list(fields(header))
    assert len(found) > 20
    assert [line for line, guard in found if guard not in GUARDS] == []


def test_the_page_explains_every_guard_that_is_used_and_no_other() -> None:
    used = {guard for header in HEADERS for _, guard in fields(header)}
    section = PAGE.read_text().partition("## Guards")[2].partition("\n## ")[0]
    assert used == GUARDS == set(re.findall(r"^\| `([a-z ]+)` \|", section, re.MULTILINE))


def test_functions_that_release_the_mutex_say_so() -> None:
    """A function that releases a mutex that it did not take ends with _unlocks, or _and_unlock."""
    seen = set()
    for file in SRC.glob("[!_]*.c"):
        for name, body in FUNCTION.findall(file.read_text()):
            first = re.search(r"\b(lock_exclusive|hub_lock|hub_unlock|\w+_unlocks)\(", body)
            if first and first[1] not in ("lock_exclusive", "hub_lock"):
                seen.add(name)
    assert {"hub_round_unlocks", "wait_decided_and_unlock"} <= seen
    assert [name for name in seen if not re.search(r"_unlocks$|_and_unlock$|^unlock_", name)] == []
