"""Names are the field's terms, see docs/glossary.md: metaphors do not come back."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.doc_pages import PAGES, name_of

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "redlock_fast"
#: As a part of an identifier, in any case: ``_seat``, ``Seats``, ``new_bell``.
# fmt: off
IDENTIFIERS = frozenset({
    "bell", "desk", "dial", "dialled", "dialling", "electorate", "farewell", "haste", "hasten", "hasty",
    "heir", "interview", "journal", "keeper", "ledger", "lingering", "lookout", "pump", "seat", "seats",
    "seated", "shelf", "stagger", "strangers", "tend", "told", "twin", "twins", "vigil", "vigils",
    "whom",
})
#: Terms of the field that have one of these words in them.
ALLOWED = frozenset({"lingering_close", "LingeringSockets", "_lingering_sockets", "lingering_sockets"})
#: Whole identifiers whose words are English.
WHOLE = frozenset({
    "abandon", "ask_back", "becomes", "claim", "let_go", "let_go_all", "look_after", "retreat", "rival",
    "unwatch",
})
#: In the tests, as a part of an identifier. These hide the subject, or what happens to it.
IN_TESTS = frozenset({
    "anew", "anybody", "asleep", "crowd", "dialled", "everybody", "meanwhile", "nobody", "somebody",
    "someone", "stranger", "strangers", "told", "who", "whoever", "whom",
})
# fmt: on
#: Tests whose identifiers are not checked yet.
UNCHECKED = ("real/cli/", "unit/masters/test_bounded_socket.py", "unit/masters/test_records.py")
#: In comments and docstrings, as words. The subject of a sentence is a thread, a request, a master, a client.
COMMENTS = re.compile(
    r"\b(seats?|desk|vigils?|lookout|bell|haste|hasten|ledger|electorate|told|meanwhile|let go|anew|for good"
    r"|who|whoever|whom|somebody|nobody|anybody|everybody)\b",
    re.IGNORECASE,
)


def words(identifier: str) -> Iterator[str]:
    """The words of an identifier, in lower case."""
    for part in identifier.split("_"):
        yield from (word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", part))


@functools.cache
def banned(identifier: str) -> bool:
    if identifier in ALLOWED:
        return False
    return identifier.strip("_") in WHOLE or not IDENTIFIERS.isdisjoint(words(identifier))


@functools.cache
def banned_in_tests(identifier: str) -> bool:
    return not IN_TESTS.isdisjoint(words(identifier))


def complaints(source: str, banned: Callable[[str], bool] = banned) -> list[str]:
    """Each banned word with its line."""
    found: list[str] = []
    if not (COMMENTS.search(source) or any(map(banned, set(re.findall(r"[A-Za-z_]\w*", source))))):
        return found  # most have none of the words at all
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and banned(token.string):
            found.append(f"{token.start[0]}: {token.string}")
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string):
            found += [f"{token.start[0]}: {match[0]}" for match in COMMENTS.finditer(token.string)]
    return found


def sources(folder: Path = PACKAGE) -> list[str]:
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
    return sorted(paths)


def test_no_metaphors() -> None:
    found = {path: complaints((PACKAGE / path).read_text()) for path in sources()}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert len(found) > 100


@pytest.mark.parametrize("folder", ["tests", "fuzz", "benchmarks"])
def test_tests_name_the_subject(folder: str) -> None:
    """The tests may name a bell or a ledger in code: only the words for a subject are checked there."""
    found = {}
    for path in sorted(set(sources(ROOT / folder)) - {"unit/repository/test_words.py"}):
        check = (lambda name: False) if path.startswith(UNCHECKED) else banned_in_tests
        if lines := complaints((ROOT / folder / path).read_text(), check):
            found[path] = lines
    assert found == {}


def test_pages_have_no_metaphors() -> None:
    """A ledger is allowed: there is one in an example."""
    found = {
        name_of(page): {match[0].lower() for match in COMMENTS.finditer(page.read_text())} - {"ledger"}
        for page in PAGES
    }
    assert {page: words for page, words in found.items() if words} == {}


def test_no_file_is_named_by_a_metaphor() -> None:
    named = {path: Path(path).with_suffix("").parts for path in sources()}
    assert [path for path, parts in named.items() if any(map(banned, parts))] == []


def test_types_of_fields_have_no_metaphors() -> None:
    for path in PACKAGE.rglob("*.pxd"):
        assert [name for name in re.findall(r"[A-Za-z_]\w*", path.read_text()) if banned(name)] == [], path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class Seat: ...", ["1: Seat"]),
        ("x._keeper = new_bell()", ["1: _keeper", "1: new_bell"]),
        ("# It is on the lookout.", ["1: lookout"]),
        ('"""A vigil."""', ["1: vigil"]),
        ("def let_go(self): ...", ["1: let_go"]),
        ("total = extended + lingering_close", []),
        ("text = 'a seat'", []),
    ],
)
def test_what_is_found(source: str, found: list[str]) -> None:
    assert complaints(source) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_who_waits(): ...", ["1: test_who_waits"]),
        ("class SomebodyElse: ...", ["1: SomebodyElse"]),
        ("# Nobody waits.", ["1: Nobody"]),
        ("new_bell, whole, whose, line = 'nobody'", []),
    ],
)
def test_what_is_found_in_tests(source: str, found: list[str]) -> None:
    assert complaints(source, banned_in_tests) == found
