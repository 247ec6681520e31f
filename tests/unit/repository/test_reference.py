"""Each method that a user calls says in its docstring how it is called, and what it raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cases import cases

import redlock_fast
from redlock_fast import FastRedlock
from redlock_fast.locks.factory import LockFactory

PACKAGE = Path(__file__).parents[3] / "redlock_fast"

#: The classes of the reference, by file.
CLASSES = {
    "threads/lock.py": ("Lock",),
    "threads/client.py": ("FastRedlock",),
    "aio/lock.py": ("AsyncLock",),
    "aio/client.py": ("AsyncFastRedlock",),
    "aio/rlock.py": ("AsyncRLock",),
    "locks/rlock.py": ("Reentrant", "RLock"),
    "locks/rwlock.py": ("ReadWriteLock",),
    "locks/lock_state.py": ("LockState",),
    "locks/client_base.py": ("BaseClient",),
    "locks/factory.py": ("LockFactory",),
}
#: Of the bases, what users call; the rest is for other modules of the package.
OF_BASES = {"LockState": {"locked", "remaining", "check", "detach"}, "BaseClient": {"health", "stats"}}


def methods() -> Iterator[tuple[str, str]]:
    """The name and the docstring of each method that a user calls."""
    for path, classes in CLASSES.items():
        for node in ast.parse((PACKAGE / path).read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                for function in node.body:
                    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(
                        node.name, function
                    ):
                        yield f"{node.name}.{function.name}", ast.get_docstring(function) or ""


def is_public(owner: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    name = function.name
    if name.startswith("_") or name not in OF_BASES.get(owner, {name}):
        return False
    return not function.decorator_list  # properties and overloads


METHODS = dict(methods())


@cases("name", METHODS)
def test_it_has_an_example(name: str) -> None:
    """In the form of an interpreter's session, which is Python."""
    _, found, rest = METHODS[name].partition("\nExamples:\n")
    assert found
    lines = [line.strip() for line in rest.partition("\n\n")[0].splitlines()]
    assert lines[0].startswith(">>> ")
    assert all(line.startswith((">>> ", "... ")) for line in lines)
    example = "\n".join(line[4:] for line in lines)
    compile(example, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@cases("name", METHODS)
def test_it_says_what_it_raises(name: str) -> None:
    """A table in the reference comes from a section; a sentence says that there is none."""
    docstring = METHODS[name]
    assert "\nRaises:\n" in docstring or "never raises" in docstring.lower()
    assert "Raises " not in docstring, "the section says it"


@cases("path", sorted(PACKAGE.rglob("*.py")))
def test_examples_are_shown_as_code(path: Path) -> None:
    """Griffe knows ``Examples:``; under ``Example:`` a session becomes three nested quotations."""
    assert re.findall(r"^ *Example:$", path.read_text(), re.MULTILINE) == []


def test_there_are_methods() -> None:
    assert {"Lock.acquire", "AsyncFastRedlock.acquire", "RLock.extend", "LockState.check"} <= set(METHODS)


PAGES = PACKAGE.parent / "docs" / "reference"


def documented(page: str, name: str) -> set[str]:
    """The public names of a class that its page of the reference shows: its own, and the inherited ones."""
    text = (PAGES / page).read_text()
    block = text.split(f"::: redlock_fast.{name}\n")[1].split(":::")[0]
    inherited = re.search(r"inherited_members: \[(.*?)\]", block)
    assert inherited is not None
    kind = getattr(redlock_fast, name)
    shown = (kind, LockFactory) if issubclass(kind, LockFactory) else (kind,)  # see docs/signatures.py
    own = {one for each in shown for one in vars(each) if not one.startswith("_")}
    return own | set(inherited[1].split(", "))


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("client.md", "FastRedlock"),
        ("client.md", "Lock"),
        ("asyncio.md", "AsyncFastRedlock"),
        ("asyncio.md", "AsyncLock"),
    ],
)
def test_an_object_shows_what_the_reference_documents(page: str, name: str) -> None:
    """``resource`` is in the docstring of the class. Catches: a method for the package alone, without "_"."""
    made: Any = FastRedlock if name in ("FastRedlock", "Lock") else redlock_fast.AsyncFastRedlock
    shown: Any = made(["redis://127.0.0.1:1"])
    if "Fast" not in name:
        shown = shown.lock("r")
    public = {one for one in dir(shown) if not one.startswith("_")}
    assert public - {"resource"} == documented(page, name)
