"""``redlock-fast top``: what it shows of real masters, and the picture of it in the documents."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command, first_line, running
from support.keys import TTL
from support.terminal import on_terminal
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import FastRedlock
from redlock_fast.cli.locks import Search
from redlock_fast.cli.settings import Settings
from redlock_fast.cli.tables import rich_tables
from redlock_fast.cli.top import Monitor, _figures, tables_of
from redlock_fast.embedded import Masters
from redlock_fast.masters.key_scan import Servers

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "top.svg"
WIDTH = 80


def test_locks_and_masters_come_and_go(valkey: Masters) -> None:
    with (
        FastRedlock(valkey.urls, **PATIENT) as client,
        on_terminal("top", "--interval", "0.1", environment=Command(valkey).environment) as terminal,
    ):
        eventually(lambda: terminal.text().count(" up ") == 5, "all masters are up")
        with client.lock("orders:42", TTL):
            terminal.shows("orders:42")
        terminal.shows_no("orders:42")
        valkey[1].kill()
        terminal.shows("Connection refused")
        valkey[1].restart()
        terminal.shows_no("Connection refused")
        assert all(len(line) <= 80 for line in terminal.lines())
        terminal.press(b"q")
        assert terminal.ends() == 0


def test_frames_as_json(masters: Masters) -> None:
    """A stopped master has no figures. The others have rates from the second frame on."""
    command = Command(masters)
    masters[0].pause()
    with FastRedlock(masters.urls, **PATIENT) as client, client.lock("orders:42", TTL):
        code, out, err = command.run("top", "--once", "--json")
    assert (code, err) == (0, "")
    frame = json.loads(out)
    stopped, *others = frame["masters"]
    assert (stopped["error"] != "", stopped["round_trip"], stopped["faults"]) == (True, None, 1)
    assert all(one["error"] == "" and one["round_trip"] > 0 and one["attempts"] is None for one in others)
    [lock] = frame["locks"]
    assert (lock["lock"], lock["quorum"], lock["queue"], lock["ttl"][0]) == ("orders:42", True, 0, None)
    masters[0].resume()
    with running(command.start("top", "--json", "--interval", "0.1")) as process:
        first_line(process)
        with FastRedlock(masters.urls, **PATIENT) as client, client.lock("orders:43", TTL):
            eventually(lambda: _acquired(first_line(process)), "a rate", deadline=3 * DEADLINE)
        process.terminate()


def _acquired(line: str) -> bool:
    return any(one["attempts"] for one in json.loads(line)["masters"])


def test_no_quorum(valkey: Masters) -> None:
    for n in range(3):
        valkey[n].kill()
    code, out, err = Command(valkey).run("top", "--once")
    assert (code, out.count("Connection refused")) == (69, 3)
    assert "only 2 of 5 masters could be asked" in err


def test_urls_that_ask_for_resp3(valkey: Masters) -> None:
    """The command reads RESP2, whatever the clients of the same URLs use."""
    urls = " ".join(f"{url}?protocol=3" for url in valkey.urls)
    command = Command(valkey)
    command.environment["REDLOCK_FAST_MASTERS"] = urls
    code, out, _ = command.run("top", "--once", "--json")
    assert code == 0
    assert [one["error"] for one in json.loads(out)["masters"]] == [""] * 5


def test_callers_in_the_queue_of_a_fair_lock(valkey: Masters) -> None:
    """The keys that they watch are no locks."""
    clients = [FastRedlock(valkey.urls, **PATIENT) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        one, *others = [stack.enter_context(client) for client in clients]
        stack.enter_context(one.lock("orders:42", TTL, fair=True))
        waiting = [start(client.lock("orders:42", TTL, fair=True).acquire) for client in others]
        eventually(lambda: _queue(valkey) == 2, "they are in the queue", deadline=3 * DEADLINE)
        _, out, _ = Command(valkey).run("locks", "--json")
        assert [found["lock"] for found in json.loads(out)["locks"]] == ["orders:42"]
    for acquire in waiting:
        assert acquire.exception(DEADLINE) or acquire.result()


def _queue(masters: Masters) -> int:
    _, out, _ = Command(masters).run("top", "orders:*", "--once", "--json")
    queue: int = json.loads(out)["locks"][0]["queue"]
    return queue


@pytest.mark.parametrize(
    "reply", [b"", b"cmdstat_set:calls=x", b"cmdstat_set:calls=" + b"9" * 50, 7, None, [b"x"]]
)
def test_a_master_that_reports_nonsense(reply: Any) -> None:
    class Hostile:
        def ask(self, commands: list[Any], errors: bool = False) -> list[Any]:
            return [reply] * len(commands)

    figures = _figures(Hostile())  # type: ignore[arg-type]
    assert figures.waiting is None
    assert all(calls < 10**18 for calls in figures.calls.values())


def test_the_picture_in_the_documents(valkey: Masters) -> None:
    """It has the columns that the command draws now. REDLOCK_FAST_DRAW=1 draws it again."""
    from rich.console import Console, Group

    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    reading = Settings(valkey.urls, {"connect_timeout": 20.0}).reading()
    with (
        FastRedlock(valkey.urls, owner="web-1:4711:checkout", **PATIENT) as client,
        Servers(reading.targets, reading.timeout) as servers,
    ):
        monitor = Monitor(servers, Search(reading, "*", 100, 5.0))
        monitor.frame()
        for number in range(20):
            with client.lock(f"warm-up:{number}"):
                pass
        for number in (17, 42):
            assert client.lock(f"orders:{number}", TTL).acquire(timeout=DEADLINE)
        valkey[3].kill()
        tables = tables_of(monitor.frame(), b"")
        console.print(Group(*rich_tables(tables, WIDTH)))
    drawn = console.export_svg(title="redlock-fast top", unique_id="top")
    svg = re.sub(r"@font-face \{[^}]*\}", "", drawn)  # of another site
    if os.environ.get("REDLOCK_FAST_DRAW"):
        PICTURE.write_text(svg)
    headings = (word for columns, _ in tables for name in columns for word in name.split())
    names = {*headings} - {"error"}  # which is also in texts
    assert _words(svg, names) == _words(PICTURE.read_text(), names)


def _words(svg: str, names: set[str]) -> list[str]:
    """The words of a picture that are names of columns, in their order."""
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)).replace("&#160;", " ")
    return [word for word in text.split() if word in names and not word.isdigit()]
