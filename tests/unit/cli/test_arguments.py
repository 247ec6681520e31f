"""The command line without masters: settings, tables, words, what is imported, codes."""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import redlock_fast
from redlock_fast import Retry, cli
from redlock_fast.cli import exit_codes, output, tables
from redlock_fast.cli.settings import load
from redlock_fast.errors import ConfigError
from redlock_fast.locks.environment import OPTIONS
from redlock_fast.masters.key_scan import escape_pattern

A, B, C = "redis://a", "redis://b", "redis://c"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("REDLOCK_FAST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(
        f'[redlock-fast]\nmasters = ["{A}", "{B}"]\nttl = 20\nkey_prefix = "app:"\n'
        "retry = {min_delay = 0.1}\n"
        "[others]\nmasters = 5\n"
    )
    return path


def flags(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"masters": None, "config": None, "key_prefix": None, "ttl": None, **given})


# --- settings -------------------------------------------------------------------------------------


def test_a_file(file: Path) -> None:
    settings = load(flags(config=str(file)))
    assert settings.masters == [A, B]
    assert settings.options == {"ttl": 20, "key_prefix": "app:", "retry": Retry(min_delay=0.1)}
    assert settings.client(ttl=30.0, node_timeout=1.0)["ttl"] == 20
    assert settings.client(ttl=30.0, node_timeout=1.0)["node_timeout"] == 1.0


def test_the_environment_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_FAST_CONFIG", str(file))
    assert load(flags()).masters == [A, B]
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", f" {B},{C}\n{A} ")
    assert load(flags()).masters == [B, C, A]
    assert load(flags()).options["ttl"] == 20


def test_flags_win_over_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", A)
    monkeypatch.setenv("REDLOCK_FAST_CONFIG", "/nowhere")
    settings = load(flags(config=str(file), masters=C, ttl=5.0, key_prefix=""))
    assert settings.masters == [C]
    assert (settings.options["ttl"], settings.options["key_prefix"]) == (5.0, "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file"),
        ("masters = [", "no TOML"),
        ("masters = " + "[" * 5_000, "no TOML: nested too deep"),
        ("[redlock_fast]\nmasters = []", r"no section \[redlock-fast\]"),
        ("[redlock-fast]\nttl = 5", "no masters: give"),
        ("[redlock-fast]\nmasters = 'redis://:secret@a'", "a list of URLs"),
        ("[redlock-fast]\nmasters = [1]", "a list of URLs"),
        ("[redlock-fast]\ntll = 5", "unknown: tll; .* may have masters, ttl, node_timeout"),
        ("[redlock-fast]\nclock = 5", "unknown: clock"),
        ("[redlock-fast]\nretry = 5", "retry must be a table"),
        ("[redlock-fast]\nretry = {min = 5}", "retry must be a table"),
    ],
)
def test_bad_files(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "settings.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as error:
        load(flags(config=str(path)))
    assert "secret" not in str(error.value)


def test_every_option_of_a_client_may_stand_in_a_file() -> None:
    assert {"ttl", "node_timeout", "key_prefix", "restart_guard", "max_ttl", "engine"} <= set(OPTIONS)
    assert not {"masters", "clock", "unknown", "return"} & set(OPTIONS)


# --- words and tables -----------------------------------------------------------------------------


def test_say_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    output.print_error("closed")


def test_a_pattern_of_one_name() -> None:
    assert escape_pattern(rb"a*b?c[d]e\f") == rb"a\*b\?c\[d\]e\\f"


ROWS = [["a", "1.5 s", "x"], ["[bold]b", "10.0 s", "-"]]


def test_a_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(["name", "ttl", "note"], ROWS)
    assert capsys.readouterr().out == "name        ttl  note\na         1.5 s  x\n[bold]b  10.0 s  -\n"
    tables.show(["name", "ttl"], [])
    assert capsys.readouterr().out == "name  ttl\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    tables.show(["name", "ttl", "note"], ROWS)
    assert "[bold]b" in terminal.getvalue()
    assert "──" in terminal.getvalue()


def test_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setitem(sys.modules, "rich", None)
    tables.show(["name", "ttl", "note"], ROWS)
    assert terminal.getvalue().splitlines()[0] == "name        ttl  note"


WIDE = [["orders:" + "x" * 60, "0b5e6789", "yes", *["12.5 s"] * 9], ["o", "0b5e6789", "no", *["-"] * 9]]
HEAD = ["lock", "token", "quorum", *(f"ttl {number}" for number in range(9))]


@pytest.mark.parametrize("rich", [True, False])
@pytest.mark.parametrize("columns", ["80", "60"])
def test_a_wide_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, rich: bool, columns: str) -> None:
    """No line is wider, each part begins with the names, and no character of a cell is lost."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    tables.show(HEAD, WIDE)
    shown = re.sub(r"\x1b\[\d*m", "", terminal.getvalue())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= int(columns)
    parts = sum("lock" in line for line in lines)
    assert parts == sum("orders:" in line for line in lines) >= 2
    assert all(shown.count(name) == 1 for name in HEAD[1:])
    assert shown.count("x") == 60 * parts
    assert shown.count("12.5 s") == 9


def test_a_row_of_a_pipe_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    tables.show(HEAD, WIDE)
    assert len(capsys.readouterr().out.splitlines()) == 3


# --- the command ----------------------------------------------------------------------------------

HELP = (
    "import sys\n"
    "from redlock_fast import cli\n"
    "try: cli.main(['--help'])\n"
    "except SystemExit as end: assert not end.code\n"
)


def test_help_imports_little_more_than_the_package() -> None:
    """150 ms are its budget, of which the package takes nearly all."""
    script = (
        "import sys, redlock_fast; before = set(sys.modules)\n" + HELP + "print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in ("exec", "status", "locks", "bench", "demo"))
    imported = set(done.stdout.splitlines()[-1].split())
    assert {name for name in imported if name.startswith("redlock_fast.")} == {
        "redlock_fast.cli",
        "redlock_fast.cli.arguments",
        "redlock_fast.cli.exit_codes",
        "redlock_fast.cli.output",
    }
    heavy = {"redis", "hiredis", "asyncio", "ssl", "rich", "tomllib", "json", "ctypes", "subprocess"}
    assert not heavy & imported
    assert len(imported) < (25 if sys.version_info >= (3, 14) else 20), (
        imported
    )  # argparse imports more there


def test_help_takes_little_more_than_the_package() -> None:
    def cost(script: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    package = helped = math.inf
    for _ in range(10):  # the least of each: what else the machine does only adds to it
        package, helped = min(package, cost("import redlock_fast")), min(helped, cost(HELP))
        if helped < 1.6 * package:
            return
    raise AssertionError(f"{helped:.3f} s of CPU; the package {package:.3f} s")


COMPLETED = """
source /dev/stdin
COMP_WORDS=(redlock-fast "$@"); COMP_CWORD=$#
_shtab_redlock_fast
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash, which completes words here, is missing")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["st"], {"status"}),
        (["masters", "re"], {"restore"}),
        (["demo", "--engine", "n"], {"native"}),
        (["exec", "--f"], {"--fencing"}),
    ],
)
def test_a_shell_completes_words(
    capsys: pytest.CaptureFixture[str], words: list[str], completed: set[str]
) -> None:
    """Catches: a script on stderr, or one that bash cannot read."""
    pytest.importorskip("shtab", reason="package shtab is not installed: pip install shtab")
    for shell in ("zsh", "fish", "bash"):
        with pytest.raises(SystemExit, match="0"):
            cli.main(["--print-completion", shell])
        script = capsys.readouterr().out
        assert "restore" in script
    asked = ["bash", "-c", COMPLETED, "bash", *words]
    done = subprocess.run(asked, input=script, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == completed


def test_completion_without_shtab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit, match="64"):
        cli.main(["--print-completion", "bash"])
    assert "pip install 'redlock-fast[cli]'" in capsys.readouterr().err


def test_a_wrong_argument_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches: a word that the terminal breaks at its edge."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(SystemExit, match="64"):
        cli.main(["status", "--no-such-option", "and-a-word-that-has-hyphens"])
    usage, head, rest = capsys.readouterr().err.partition("redlock-fast status: error")
    lines = (head + rest).splitlines()
    assert usage
    assert max(map(len, lines)) <= 40
    assert lines[-1].split()[-1] == "and-a-word-that-has-hyphens"


@pytest.mark.parametrize("command", cli.MODULES)
def test_help_has_units_defaults_an_example_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    printed = capsys.readouterr().out
    assert f"  redlock-fast {command} " in printed.split("example")[1]
    assert max(map(len, printed.splitlines())) <= 80
    assert not re.search(r"\w-$", printed, re.MULTILINE), "no word is broken"
    assert "\n  64        wrong usage" in printed.split("exit codes:")[1]
    for option in ("--ttl", "--timeout", "--seconds", "--grace"):
        assert option not in printed or f"{option} SECONDS" in printed
    assert printed.count("(default:") >= 2


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"redlock-fast {redlock_fast.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "redis://me:secret@host"],
        ["locks", "--limit", "0"],
        ["bench", "--seconds", "61"],
        ["bench", "--threads", "x"],
        ["exec", "a", "--grace", "nan", "--", "true"],
        ["demo", "more"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(exit_codes.USAGE)):
        cli.main(arguments)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"usage: redlock-fast {arguments[0]} " in printed.err
    assert "secret" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("exec r --ttl x -- true", "argument --ttl: must be a number, not 'x'"),
        ("exec r --timeout x -- true", "argument --timeout: must be a number, not 'x'"),
        ("exec r -E 0.5 -- true", "argument -E/--conflict-exit-code: must be an integer, not '0.5'"),
        ("bench --threads x", "argument --threads: must be an integer, not 'x'"),
    ],
)
def test_text_in_place_of_a_number(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(exit_codes.USAGE)):
        cli.main(arguments.split())
    assert complaint in capsys.readouterr().err


def test_a_bug_is_no_conflict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.MODULES, "status", ".exit_codes")  # which cannot be run
    assert cli.main(["status"]) == exit_codes.INTERNAL
    assert "AttributeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "shown"), [(5, "5 s"), (7200, "2 h"), (90_000, "25 h"), (200_000, "2 d"), (130, "2 min")]
)
def test_uptimes(seconds: int, shown: str) -> None:
    from redlock_fast.cli.status import _duration

    assert _duration(seconds) == shown
