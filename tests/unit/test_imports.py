"""Imports point one way: each module imports only from floors below its own; see docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "redlock_fast"

#: From the ground up. A new file gets its floor here; a package has one floor for all its files.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "_quorum", "_clock", "_tokens", "_scripts", "_stats", "_text"),
    ("_commands", "_decorated", "_resp", "_messages", "_ledger"),
    ("_engine", "_bounded", "_linger", "_keys"),
    ("_guard", "_claim", "_line", "_places", "_sentinel", "_interview"),
    ("_pure_op", "_pure_watch", "_target", "telemetry"),
    ("_pure_vigil", "_pure_kept", "_dial"),
    ("_pure_link", "_seat"),
    ("_pure_tls", "_pure_hub"),
    ("_pure_desk", "_connector"),
    ("_pure", "_native", "_masters"),
    ("_effects", "_lease", "_rules"),
    ("_tries", "_refill", "_verdict"),
    ("_procedures",),
    ("_batches", "renewal"),
    ("_drive",),
    ("_at_exit", "_answer"),
    ("_pump",),
    ("_drive_aio",),
    ("_core",),
    ("_keeper",),
    ("_holder", "_renewal_threads", "_renewal_aio"),
    ("_lock",),
    ("_many", "_straight", "_straight_aio"),
    ("_sharding", "_latency"),
    ("kinds",),
    ("client", "aio"),
    ("sharded", "_metrics", "_refine"),
    ("prometheus", "otel"),
    ("redlock_fast",),  # __init__: the public names
    ("embedded", "compat", "_demo_crew", "_demo_worker", "_progress"),
    ("_demo",),
    ("cli",),
    ("__main__",),
)
FLOOR = {name: number for number, floor in enumerate(FLOORS) for name in floor}

#: What may import less than its floor allows.
ONLY = {"telemetry": {"errors", "_clock"}}

#: The one exception: the choice of an engine is made when it is asked for, inside this function.
LAZILY = {("_engine", "load"): {"_pure", "_native"}}


def modules(package: Path) -> dict[str, Path]:
    """The files of the package by dotted name below it; ``__init__`` files by the package's name."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = list(path.relative_to(package).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts[-1:] = [] if len(parts) > 1 else [package.name]
        found[".".join(parts) + ("" if path.suffix == ".py" else " (stub)")] = path
    return found


def imports(tree: ast.AST, depth: int, package: str) -> Iterator[tuple[str, str]]:
    """Names imported from the package, each with the function it is imported in ("" at the top).

    ``depth``: how many packages below ``package`` the file stands.
    """

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        for path in paths_of(node, depth, package):
            yield path, function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    return walk(tree, "")


def paths_of(node: ast.AST, depth: int, package: str) -> list[str]:
    """What one statement imports, as dotted names below the package; "" is the package itself."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names if alias.name.split(".")[0] == package]
        return [name.partition(".")[2] for name in names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = (node.module or "").split(".") if node.module else []
    if node.level == 0:
        if base[:1] != [package]:
            return []
        base = base[1:]
    elif node.level <= depth:
        return []  # within its own sub-package
    return [".".join([*base, alias.name]) for alias in node.names]


def violations(package: Path) -> list[str]:
    """Every import that does not go down, in words."""
    files = modules(package)
    known = {name.split(".")[0].removesuffix(" (stub)") for name in files}
    found = []
    for name, path in files.items():
        own = name.split(".")[0].removesuffix(" (stub)")
        if own not in FLOOR:
            found.append(f"{name} has no floor")
            continue
        depth = len(path.relative_to(package).parts) - 1
        for dotted, function in imports(ast.parse(path.read_text()), depth, package.name):
            first = dotted.split(".")[0]
            target = first if first in known else package.name
            if target == own or target in LAZILY.get((own, function), ()):
                continue
            if FLOOR.get(target, -1) >= FLOOR[own]:
                found.append(f"{name} imports {target}, which is not below it")
            elif own in ONLY and target not in ONLY[own]:
                found.append(f"{name} imports {target}, and may only {sorted(ONLY[own])}")
    return found


def test_imports_point_down() -> None:
    assert violations(PACKAGE) == []


def test_no_name_stands_on_two_floors() -> None:
    assert len(FLOOR) == sum(len(floor) for floor in FLOORS)


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("_quorum.py", "from ._engine import Votes", "_quorum imports _engine"),
        ("_pure.py", "from . import _native", "_pure imports _native"),
        ("_native.pyi", "from ._pure import x", "_native (stub) imports _pure"),
        ("_masters.py", "import redlock_fast._pure", "_masters imports _pure"),
        ("_masters.py", "from redlock_fast._pure import y", "_masters imports _pure"),
        ("_procedures.py", "from redlock_fast import _drive", "_procedures imports _drive"),
        ("_procedures.py", "def f():\n    from .client import Lock", "_procedures imports client"),
        ("_procedures.py", "if TYPE_CHECKING:\n    from .client import Lock", "_procedures imports client"),
        ("client.py", "from . import FastRedlock", "client imports redlock_fast"),
        ("client.py", "from .aio import x", "client imports aio"),
        ("_core.py", "from .kinds.fair import x", "_core imports kinds"),
        ("kinds/fair.py", "from ..client import Lock", "kinds.fair imports client"),
        ("_engine.py", "def other():\n    from ._pure import x", "_engine imports _pure"),
        ("_engine.py", "from .telemetry import x", "_engine imports telemetry"),
        ("telemetry.py", "from ._engine import x", "telemetry imports _engine"),
        ("kinds/fair.py", "from ..cli import main", "kinds.fair imports cli"),
        ("kinds/fair.py", "from .. import FastRedlock", "kinds.fair imports redlock_fast"),
        ("novelty.py", "", "novelty has no floor"),
    ],
)
def test_wrong_imports_are_seen(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    written = house(tmp_path)
    (written / file).write_text(source)
    assert [found for found in violations(written) if found.startswith(complaint)]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "_engine.py",
            "def load():\n    from ._pure import PureEngine\n    from ._native import NativeEngine",
        ),
        ("_masters.py", "from .telemetry import x\nfrom . import _engine\nimport redis.errors"),
        ("kinds/fair.py", "from .._lock import LockState\nfrom .queue import x\nfrom . import queue"),
        ("cli.py", "from . import __version__\nfrom redlock_fast import FastRedlock"),
        ("telemetry.py", "from .errors import x\nfrom ._clock import y"),
    ],
)
def test_right_imports_pass(tmp_path: Path, file: str, source: str) -> None:
    written = house(tmp_path)
    (written / file).write_text(source)
    assert violations(written) == []


def house(tmp_path: Path) -> Path:
    """An empty file for every module that has a floor."""
    package = tmp_path / "redlock_fast"
    (package / "kinds").mkdir(parents=True)
    for name in FLOOR:
        if name not in ("kinds", "redlock_fast"):
            (package / f"{name}.py").touch()
    for name in ("__init__", "kinds/__init__", "kinds/queue"):
        (package / f"{name}.py").touch()
    return package
