"""No loop stands inside of a ``try`` that must undo something: CPython 3.13 and 3.14 leave a gap there.

At the end of a turn they may run a signal handler. Where the turn ends with a condition, the jump back is
missing in the exception table, so the ``try`` does not catch what the handler raises. A loop in a function
that the ``try`` calls has no such gap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "redlock_fast"
#: What runs in the callers' threads. Modules with a .pxd are compiled, and have no such gap.
PLACES = ("algorithm", "engine/pure", "locks", "sharded", "threads")
#: No turn of these loops ends with a condition; or they run in a thread of the library, which gets no signal.
CHECKED = {
    "engine/pure/hub.py:_serve",
    "engine/pure/hub.py:submit",
    "locks/auto_extend.py:_extend",
    "threads/leader.py:_lead",
    "threads/leader.py:_run",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without those of other functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from inside(child)


def undoes(node: ast.Try) -> bool:
    names = [handler.type.id for handler in node.handlers if isinstance(handler.type, ast.Name)]
    return bool(node.finalbody) or "BaseException" in names


def loops_in_try(tree: ast.AST) -> Iterator[str]:
    """The functions that have one."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in inside(function):
                if isinstance(node, ast.Try) and undoes(node):
                    below = (one for statement in node.body for one in (statement, *inside(statement)))
                    if any(isinstance(one, (ast.For, ast.While)) for one in below):
                        yield function.name


def test_no_loop_is_left_unprotected() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{name}"
        for place in PLACES
        for path in (PACKAGE / place).rglob("*.py")
        if not path.with_suffix(".pxd").exists()
        for name in loops_in_try(ast.parse(path.read_text()))
    }
    assert found == CHECKED


def test_a_loop_is_seen() -> None:
    source = "def f():\n try:\n  for x in y:\n   if x: g()\n finally:\n  h()\ndef g():\n for x in y:\n  h()"
    assert list(loops_in_try(ast.parse(source))) == ["f"]
