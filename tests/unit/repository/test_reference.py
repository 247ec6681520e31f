"""Each method that a user calls says in its docstring how it is called, and what it raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.cases import cases

PACKAGE = Path(__file__).parents[3] / "redlock_fast"

#: The classes of the reference, by file.
CLASSES = {
    "threads/client.py": ("Lock", "FastRedlock"),
    "aio/client.py": ("AsyncLock", "AsyncFastRedlock"),
    "aio/rlock.py": ("AsyncRLock",),
    "locks/rlock.py": ("Reentrant", "RLock"),
    "locks/rwlock.py": ("ReadWriteLock",),
    "locks/lock_state.py": ("LockState",),
    "locks/client_base.py": ("BaseClient",),
}
#: Of the bases, what users call; the rest is for other modules of the package.
OF_BASES = {"LockState": {"locked", "remaining", "check", "detach"}, "BaseClient": {"health", "stats"}}
INTERNAL = {"renewal", "loop_binding"}


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
    if name.startswith("_") or name in INTERNAL or name not in OF_BASES.get(owner, {name}):
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
    assert {"Lock.acquire", "AsyncFastRedlock.synchronized", "RLock.extend", "LockState.check"} <= set(
        METHODS
    )
