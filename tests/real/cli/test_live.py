"""Live views on a real terminal: they end by q, Ctrl-C and signals, and leave the terminal as it was."""

from __future__ import annotations

import signal

import pytest
from support.commands import Command
from support.terminal import Terminal, on_terminal, spawn
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

WATCH = "locks", "--watch", "0.1"
IN_PROGRAM = """
import sys
{before}
from redlock_fast.cli.live import watch
def read():
    raise OSError("a frame that fails")
watch(read, list, 1.0, instead="")
"""


@pytest.mark.parametrize(
    ("end", "code"), [(b"q", 0), (b"\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_it_ends(valkey: Masters, end: bytes | signal.Signals, code: int) -> None:
    with on_terminal(*WATCH, environment=Command(valkey).environment) as terminal:
        terminal.shows("master")
        if isinstance(end, bytes):
            terminal.press(b"x" + end)
        else:
            terminal.process.send_signal(end)
        assert terminal.ends() == code
    assert b"Traceback" not in terminal.output


def test_locks_come_and_go(valkey: Masters) -> None:
    with (
        FastRedlock(valkey.urls, node_timeout=5.0, connect_timeout=20.0) as client,
        on_terminal(*WATCH, environment=Command(valkey).environment) as terminal,
    ):
        terminal.shows("master")
        with client.lock("orders:42", 60.0):
            terminal.shows("orders:42")
        terminal.shows_no("orders:42")


def test_the_size_changes(valkey: Masters) -> None:
    with (
        FastRedlock(valkey.urls, node_timeout=5.0, connect_timeout=20.0) as client,
        client.lock("orders:42", 60.0),
        on_terminal(*WATCH, environment=Command(valkey).environment, columns=120) as terminal,
    ):
        terminal.shows("orders:42")
        assert _in_one_line(terminal)
        terminal.resize(40)
        eventually(lambda: terminal.lines() and not _in_one_line(terminal), "the table is divided")
        terminal.shows("orders:42")
        terminal.press(b"q")
        assert terminal.ends() == 0


def _in_one_line(terminal: Terminal) -> bool:
    return any("ttl 1" in line and "ttl 5" in line for line in terminal.lines())


@pytest.mark.parametrize(
    ("before", "text"), [("", "a frame that fails"), ("sys.modules['rich.live'] = None", "redlock-fast[cli]")]
)
def test_an_exception(valkey: Masters, before: str, text: str) -> None:
    program = "-c", IN_PROGRAM.format(before=before)
    with on_terminal(program=program, environment=Command(valkey).environment) as terminal:
        terminal.shows(text)
        assert terminal.ends() == 1


@pytest.mark.parametrize("before", ["", "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"])
def test_the_terminal_goes_away(valkey: Masters, before: str) -> None:
    """Also for a process that ignores SIGHUP: it reads the end of the terminal in place of keys."""
    program = f"{before}\nimport sys\nfrom redlock_fast.cli import main\nsys.exit(main())"
    environment = Command(valkey).environment | {"TERM": "xterm"}
    with spawn(["-c", program, *WATCH], environment) as (process, ours, theirs):
        theirs.close()
        seen = b""
        while b"master" not in seen:
            seen += ours.read(65536)
        ours.close()
        assert process.wait(3 * DEADLINE) == 128 + signal.SIGHUP


def test_a_terminal_that_cannot_draw(valkey: Masters) -> None:
    environment = Command(valkey).environment | {"TERM": "dumb"}
    with spawn(["-m", "redlock_fast", *WATCH], environment) as (process, ours, _):
        assert process.wait(3 * DEADLINE) == 64
        assert b"TERM=dumb; leave --watch out" in ours.read(65536)


@pytest.mark.parametrize("arguments", [WATCH, ("locks",), ("top", "--once")], ids=" ".join)
def test_a_terminal_of_another_encoding(valkey: Masters, arguments: tuple[str, ...]) -> None:
    with (
        FastRedlock(valkey.urls, node_timeout=5.0, connect_timeout=20.0) as client,
        client.lock("caf\u00e9 \u96ea", 60.0),
        on_terminal(
            *arguments, environment=Command(valkey).environment | {"PYTHONIOENCODING": "latin-1"}
        ) as terminal,
    ):
        eventually(lambda: b"caf\xe9 \\u96ea" in terminal.output, "what it has not is escaped")
        if arguments == WATCH:
            terminal.press(b"q")
        assert terminal.ends() == 0


def test_without_a_terminal(valkey: Masters) -> None:
    code, out, err = Command(valkey).run("top")
    assert (code, out) == (64, "")
    assert err == "redlock-fast: a live view needs a terminal; use --once or --json\n"
    code, _, err = Command(valkey).run(*WATCH)
    assert (code, err) == (64, "redlock-fast: a live view needs a terminal; leave --watch out\n")
    code, _, err = Command(valkey).run(*WATCH, "--json")
    assert code == 64
    assert "`top --json`" in err
