"""``redlock-fast locks``: a hostile master costs its own column, in bounded time and memory."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

import pytest
from support.hostile import Attack, Hostile, Talking, X, array, bulk, dribble, endless
from support.python_process import run_python
from support.waiting import eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

#: Runs the command, and says last how much memory (KiB, on Linux) it has had.
#: Prints its largest memory in kB. (getrusage counts that of the parent before exec, too.)
MEASURED = """
import pathlib, sys
from redlock_fast.cli import main
code = main(sys.argv[1:])
status = pathlib.Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else ["VmHWM: 0"]
print(*(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""
MOST_KIB = 400 << 10
PAGE = b"*2\r\n" + bulk(b"7")


#: Replies to SCAN, each with the error text for that master.
SCANS: dict[str, tuple[Attack, str]] = {
    "huge array": (endless(b"$1\r\nx\r\n", b"*2\r\n$1\r\n7\r\n*2147483647\r\n"), "unexpected reply"),
    "wide array": (endless(b":1\r\n", b"*100000\r\n"), "unexpected reply"),
    "huge name": (endless(X, b"*2\r\n$1\r\n7\r\n*1\r\n$2147483647\r\n"), "unexpected reply"),
    "large names": (endless(b"$65536\r\n%b\r\n" % X, PAGE + b"*100000\r\n"), "MiB"),
    "deep": (endless(b"*1\r\n"), "unexpected reply"),
    "endless line": (endless(X, b"+"), "line is too long"),
    "slow": (dribble, "timed out"),
    "garbage": (endless(b"\x1b[2J\x00\xff\r\n"), "not a number"),
}
#: Replies to one command each.
REPLIES: dict[str, tuple[dict[bytes, bytes], str]] = {
    "endless cursors": ({b"SCAN": PAGE + b"*0\r\n"}, ""),
    "no page": ({b"SCAN": b":1\r\n"}, "unexpected reply"),
    "names of other types": ({b"SCAN": PAGE + b"*2\r\n:1\r\n*1\r\n:2\r\n"}, "unexpected"),
    "cursor of another type": ({b"SCAN": b"*2\r\n*0\r\n*0\r\n"}, "unexpected"),
    "silence": ({b"SCAN": b""}, "timed out"),
    "values of other types": ({b"GETRANGE": b"*1\r\n:1\r\n", b"PTTL": bulk(b"x")}, ""),
    "long values": ({b"GETRANGE": bulk(X), b"PTTL": b":%d\r\n" % (2**63 - 1)}, ""),
    "long numbers": ({b"GETRANGE": bulk(b"t" * 20), b"PTTL": b":%d\r\n" % 10**400}, "more than 64 bits"),
    "largest number": ({b"GETRANGE": bulk(b"t" * 20), b"PTTL": b":%d\r\n" % (2**63 - 1)}, ""),
    "values without end": ({b"GETRANGE": b"*100000\r\n"}, "timed out"),
}


@pytest.fixture
def held(valkey: Masters) -> Iterator[list[str]]:
    """A lock on three masters; their URLs."""
    urls = valkey.urls[:3]
    with FastRedlock(urls, decide="all", node_timeout=10.0, connect_timeout=20.0) as client:
        client.connect()
        eventually(lambda: all(m.state == "connected" for m in client.health()), "all masters connect")
        with client.lock("orders:1", 60):
            yield urls


def check(urls: list[str], bad: Hostile, said: str) -> None:
    arguments = ["--masters", ",".join([*urls, f"redis://127.0.0.1:{bad.port}"])]
    with contextlib.closing(bad):
        done = run_python(
            [sys.executable, "-c", MEASURED, "locks", "--json", "--timeout", "5", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    *errors, memory = done.stderr.split()
    assert errors == []
    assert int(memory) < MOST_KIB
    found = json.loads(done.stdout)
    assert next(one["quorum"] for one in found["locks"] if one["lock"] == "orders:1") is True
    assert [master["error"] for master in found["masters"][:3]] == ["", "", ""]
    assert said in found["masters"][3]["error"]
    assert len(found["locks"]) <= 2000
    assert found["masters"][3]["error"].isprintable()


@pytest.mark.parametrize("name", SCANS)
def test_an_attack(held: list[str], name: str) -> None:
    attack, said = SCANS[name]
    check(held, Hostile(attack, b"SCAN"), said)


@pytest.mark.parametrize("name", REPLIES)
def test_a_lie(held: list[str], name: str) -> None:
    replies, said = REPLIES[name]
    check(held, Talking({b"SCAN": PAGE.replace(b"7", b"0") + array(b"orders:1"), **replies}), said)


def test_names_that_are_made_up(held: list[str]) -> None:
    """They leave out no lock that a quorum has."""
    names = [b"!%d" % number for number in range(5000)]
    page = PAGE.replace(b"7", b"0") + array(*names)
    replies = {b"SCAN": page, b"PTTL": b":9\r\n", b"GETRANGE": bulk(b"t" * 20)}
    check(held, Talking(replies), "")
