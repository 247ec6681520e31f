"""``redlock-fast break``: it deletes what it showed, and its holder finds the loss."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.commands import Command, running
from support.python_process import PythonProcess
from support.waiting import PATIENT, PROCESS_DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.algorithm.tokens import owner_part
from redlock_fast.embedded import Masters

Raw = Callable[[Masters], list[redis.Redis]]

HOLDER = """
import sys
from redlock_fast import FastRedlock, LockLost
client = FastRedlock(sys.argv[1].split(), node_timeout=5.0, connect_timeout=20.0)
lock = client.lock("job", ttl=3.0, auto_extend=True, owner="the night job")
assert lock.acquire()
print("held", flush=True)
assert lock.lost.wait(60)
try:
    lock.check()
except LockLost:
    print("lost", flush=True)
"""


def broken(masters: Masters, name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = Command(masters).run("break", name, "--json", "--yes", *arguments)
    return code, json.loads(out) | {"said": err}


def test_its_holder_in_another_process_finds_the_loss(valkey: Masters, raw: Raw) -> None:
    command = [sys.executable, "-c", HOLDER, " ".join(valkey.urls)]
    with running(PythonProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        code, found = broken(valkey, "job")
        assert (code, found["broken"]) == (0, True)
        assert {one["owner"] for one in found["holders"]} == {"the night job"}
        assert "there may be two holders" in found["said"]
        assert holder.stdout.readline() == "lost\n"
    assert not any(node.exists("job") for node in raw(valkey))
    code, found = broken(valkey, "job")
    assert (code, found["broken"]) == (1, False)
    assert "nothing is held" in found["said"]


@pytest.mark.parametrize("kind", ["fair", "writer", "semaphore"])
def test_other_kinds(valkey: Masters, kind: str) -> None:
    with FastRedlock(valkey.urls, key_prefix="app:", decide="all", ttl=60.0, **PATIENT) as client:
        lock = {
            "fair": lambda: client.lock("x", fair=True),
            "writer": lambda: client.rwlock("x").write(),
            "semaphore": lambda: client.semaphore("x", 3),
        }[kind]()
        assert lock.acquire()
        code, found = broken(valkey, "x", "--key-prefix", "app:")
        assert (code, len(found["holders"])) == (0, 1)
        assert found["holders"][0]["owner"] == lock.owner
        assert lock.release() is False


def test_what_holds_nothing_stays(valkey: Masters, raw: Raw) -> None:
    """Values without an end are data. Counters and locks of other names are not asked for."""
    for node in raw(valkey):
        node.set("x", "data")
        node.set("{x}:f", "7", px=60_000)
        node.set("xy", "another lock", px=60_000)
    code, found = broken(valkey, "x")
    assert (code, found["holders"]) == (1, [])
    assert all(node.exists("x", "{x}:f", "xy") == 3 for node in raw(valkey))


def test_it_asks_on_a_terminal(valkey: Masters, raw: Raw) -> None:
    """A hostile owner is shown without control characters, and the random part is not shown."""
    token = os.urandom(20) + owner_part("a\x1b[2Jb")
    for node in raw(valkey):
        node.set("x", token, px=60_000)
    for answer, code in ((b"y\n", 1), (b"yes\n", 0)):
        ours, theirs = pty.openpty()
        process = PythonProcess(
            [sys.executable, "-m", "redlock_fast", "break", "x"],
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=Command(valkey).environment,
        )  # fmt: skip
        os.write(ours, answer)
        out, err = process.communicate(timeout=PROCESS_DEADLINE)
        os.close(ours)
        os.close(theirs)
        assert process.returncode == code, err
        assert b"a\\x1b[2Jb" in out
        assert b"\x1b" not in out + err
        assert token[:20].hex().encode() not in out
        assert b"Type yes" in err
    assert not any(node.exists("x") for node in raw(valkey))


def test_without_a_quorum(valkey: Masters, raw: Raw) -> None:
    for node in raw(valkey):
        node.set("x", "t" * 20, px=60_000)
    for master in list(valkey)[:3]:
        master.kill()
    code, found = broken(valkey, "x")
    assert (code, found["broken"]) == (69, False)


def test_wait_until_the_lease_has_ended(valkey: Masters) -> None:
    with FastRedlock(valkey.urls, decide="all", ttl=60.0, **PATIENT) as client:
        lock = client.lock("x", ttl=1.5)
        assert lock.acquire()
        end = time.monotonic() + lock.remaining()
        assert broken(valkey, "x", "--wait")[0] in (0, 1)
        eventually(lambda: time.monotonic() >= end, "the lease ends")
        assert not lock.locked()


@pytest.mark.parametrize("use", ["r", "i", "e"])
def test_entries_of_sorted_sets_are_broken(valkey: Masters, raw: Raw, use: str) -> None:
    """A clock of the masters was set back, so these outlive their clients. Catches: only keys are broken."""
    later = (int(time.time()) + 7200) * 1000
    for node in raw(valkey)[:3]:
        node.zadd(f"{{book}}:{use}", {"a token of nobody": later, "another": later})
        if use == "e":
            node.zadd("{book}:q", {"a token of nobody": 1, "another": 2})
    code, found = broken(valkey, "book")
    assert (code, found["broken"], len(found["holders"])) == (0, True, 2)
    assert not any(node.exists(f"{{book}}:{use}", "{book}:q") for node in raw(valkey))
    with FastRedlock(valkey.urls, **PATIENT) as client:
        with client.rwlock("book").read(), client.lock("book", fair=True, timeout=0):
            pass
        with client.rwlock("book", timeout=0).write():
            pass


def test_keys_of_other_programs_beside_a_lock(valkey: Masters, raw: Raw) -> None:
    """Their names are like those of entries. Catches: a type that is no set is a master that failed."""
    for node in raw(valkey):
        node.set("{job}:r", "of another program")
        node.set("job", "a token", px=60_000)
    code, found = broken(valkey, "job")
    assert (code, found["broken"], len(found["holders"])) == (0, True, 1)
    assert all(node.get("{job}:r") == b"of another program" for node in raw(valkey))
