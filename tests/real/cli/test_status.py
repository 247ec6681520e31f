"""``redlock-fast status``, ``locks`` and ``bench``: what they say of real masters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.commands import Command, running
from support.keys import TTL, nothing_left, paused
from support.waiting import DEADLINE, PATIENT, eventually

from redlock_fast import FastRedlock, QuorumUnavailable, cli
from redlock_fast.cli.status import ask
from redlock_fast.embedded import Masters

Raw = Callable[[Masters], list[redis.Redis]]


def result(command: Command, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = command.run(*arguments, "--json")
    assert err == ""
    return code, json.loads(out)


# --- status ---------------------------------------------------------------------------------------


def test_status(masters: Masters, engine_name: str) -> None:
    code, status = result(Command(masters, engine_name), "status")
    assert (code, status["usable"], status["quorum"], status["problem"]) == (0, True, 3, "")
    assert [one["name"] for one in status["masters"]] == [f"127.0.0.1:{m.port}/0" for m in masters]
    for one in status["masters"]:
        assert (one["state"], one["role"], one["eviction"]) == ("connected", "master", "noeviction")
        assert one["version"]
        assert one["round_trip"] > 0
        native = one["server"] == "valkey" and int(one["version"].split(".")[0]) >= 9
        assert one["release_path"] == ("DELIFEQ" if native else "EVALSHA")
        assert one["push"] is True
    nothing_left(masters)


def test_status_in_an_outage_that_only_running_clients_see(
    masters: Masters, connected: Callable[..., FastRedlock], engine_name: str, tmp_path: Path
) -> None:
    """Three masters came back empty. Catches: "usable: 5 of 5 masters", and no running client gets a lock."""
    running_client = connected(masters, max_ttl=600.0)
    for number in (0, 1, 2):
        masters[number].kill()
        masters[number].restart()
    eventually(lambda: all(one.guard for one in running_client.health()[:3]), "it keeps them out")
    with pytest.raises(QuorumUnavailable):
        running_client.acquire("r", blocking=False)
    options: dict[str, Any] = {"max_ttl": 600.0, **PATIENT}
    command = Command(masters, engine_name).with_options(tmp_path, assume_fresh=False, **options)
    code, status = result(command, "status")
    assert (code, status["usable"]) == (75, False)
    assert "clients that ran before give these no vote" in status["problem"]
    assert all(500.0 < seconds <= 600.0 for seconds in status["kept_out"][:3])
    code, out, _ = command.run("status")
    assert code == 75
    assert out.count("clients that ran before give it no vote for") >= 3
    assert "NOT usable: " in out
    assert result(command.with_options(tmp_path, assume_fresh=True, **PATIENT), "status")[0] == 0


def test_status_without_a_minority(valkey: Masters) -> None:
    valkey[1].kill()
    valkey[2].ask("REPLICAOF 127.0.0.1 1")
    try:
        code, out, err = Command(valkey).run("status")
    finally:
        valkey[2].ask("REPLICAOF NO ONE")
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].split()[:5] == ["master", "state", "role", "server", "round"]
    assert [row.split()[1] for row in rows[1:6]] == ["connected", "down", "down", "connected", "connected"]
    assert f"127.0.0.1:{valkey[2].port}/0: it is a slave, not a master" in out
    assert rows[-2].startswith("owner: ")
    assert rows[-2].endswith(":MainThread")
    assert rows[-1] == "usable: 3 of 5 masters, a quorum is 3"


def test_status_without_a_quorum(valkey: Masters, raw: Raw) -> None:
    """Two are down, and one answers but takes no lock: only an acquire shows that."""
    valkey[0].kill()
    valkey[1].kill()
    node = raw(valkey)[2]
    node.config_set("maxmemory", 1)
    try:
        code, out, _ = Command(valkey).run("status")
    finally:
        node.config_set("maxmemory", 0)
    assert code == 69, "as of every command without a quorum"
    assert "OOM" in out
    assert out.splitlines()[-1].startswith("NOT usable: 3 of 5 masters, a quorum is 3; no quorum of 3 of 5")
    nothing_left(valkey)


def test_status_of_masters_that_refuse_the_user(valkey: Masters) -> None:
    """They are up: the word for them is not "down", and the first word of the cause says why."""
    where = [f"redis://wrong:secret@127.0.0.1:{master.port}" for master in valkey]
    code, status = result(Command(None), "status", *(f"--masters={url}" for url in where))
    assert (code, status["usable"]) == (69, False)
    assert {one["state"] for one in status["masters"]} == {"refused"}
    assert all(one["error"].startswith("WRONGPASS ") for one in status["masters"])
    assert "secret" not in json.dumps(status)


def test_status_of_guarded_masters(valkey: Masters, tmp_path: Path) -> None:
    """They are well, but give no vote yet."""
    file = tmp_path / "locks.toml"
    file.write_text(f"[redlock-fast]\nmasters = {valkey.urls}\nrestart_guard = 'strict'\nmax_ttl = 80000\n")
    code, status = result(Command(None), "status", "--config", str(file))
    assert (code, status["usable"], status["refused"]) == (69, False, False)
    assert all(one["state"] == "connected" and one["guard"] > 0 for one in status["masters"])
    assert "it may have forgotten locks" in status["problem"]


def test_status_that_is_refused(valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters answer, but a name that no client knows is taken on all of them."""
    monkeypatch.setattr("os.urandom", bytes)
    for node in raw(valkey):
        node.set(f"redlock-fast:status:{bytes(8).hex()}", "of others", px=60_000)
    with FastRedlock(valkey.urls, engine="python", **PATIENT) as client:
        status = ask(client)
    assert (status.usable, status.refused, status.problem) == (False, True, "a free lock was refused")
    monkeypatch.setattr("redlock_fast.cli.status.ask", lambda client: status)
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", " ".join(valkey.urls))
    assert cli.main(["status"]) == 1


def test_tables_fit_80_columns(valkey: Masters, raw: Raw) -> None:
    """Each row of a pipe is whole. With COLUMNS, and on a terminal, no line is longer than that."""
    long = "orders:" + "x" * 100
    for node in raw(valkey):
        node.set(long, "a token of a lock", px=60_000)
    command = Command(valkey)
    for arguments in (["status"], ["locks"], ["bench", "--seconds", "0.1"]):
        lines = command.run(*arguments, COLUMNS="80")[1].splitlines()
        table = [line for line in lines if "/0: " not in line]  # not the faults of masters on a busy machine
        assert max(map(len, table)) <= 80, table
    assert long in command.run("locks")[1]
    rows = command.run("status", COLUMNS="80")[1].split("\n\n")[:2]
    assert [row.splitlines()[1].split()[0] for row in rows] == [f"127.0.0.1:{valkey[0].port}/0"] * 2
    assert "".join(rows).count("release") == 1


def test_no_progress_bar_in_a_pipe(valkey: Masters, tmp_path: Path) -> None:
    command = Command(valkey).with_options(tmp_path, **PATIENT)  # a lock that is not granted is exit code 1
    code, out, err = command.run("bench", "--seconds", "0.1")
    assert (code, err) == (0, "")
    assert "[#" not in out


@pytest.mark.parametrize("command", [["exec", "job", "--", "true"], ["status"], ["bench"], ["demo"]])
def test_a_wrong_engine_in_the_environment(valkey: Masters, command: list[str]) -> None:
    """Catches: exit code 1, which means of exec that the lock is taken, and a traceback."""
    said = "redlock-fast: REDLOCK_FAST_ENGINE must be 'auto', 'native' or 'python', not 'fast'\n"
    assert Command(valkey, "fast").run(*command) == (64, "", said)


# --- locks ----------------------------------------------------------------------------------------


@pytest.fixture
def held(valkey: Masters) -> Iterator[None]:
    """Some locks, each on all masters."""
    options: dict[str, Any] = {**PATIENT, "key_prefix": "app*:", "decide": "all", "ttl": TTL}
    with FastRedlock(valkey.urls, **options) as client:
        client.connect()
        eventually(lambda: all(m.state == "connected" for m in client.health()), "all masters connect")
        for name in ("orders:1", "orders:2", "users:1"):
            assert client.acquire(name)
        assert client.lock("fenced", fencing=True).acquire()
        yield


@pytest.mark.usefixtures("held")
def test_locks(valkey: Masters, raw: Raw) -> None:
    nodes = raw(valkey)
    for node in nodes:
        node.set("app*:data", "x" * 129, px=60_000)
        node.set("app*:no end", "x")
        node.rpush("app*:list", "x")
        node.set("apples:1", "of others", px=60_000)
    nodes[4].delete("app*:orders:2")
    nodes[4].set("app*:orders:2", "other's", px=60_000)
    code, found = result(Command(valkey), "locks", "--key-prefix", "app*:")
    assert code == 0
    assert found["complete"] is True
    tokens = {one["lock"]: one["token"] for one in found["locks"]}
    assert tokens.keys() == {"fenced", "orders:1", "orders:2", "users:1"}
    assert tokens["users:1"] == nodes[0].get("app*:users:1").hex()[:8]  # type: ignore[union-attr]
    owners = {one["lock"]: one["owner"] for one in found["locks"] if one["token"] != "oth"}
    assert owners["users:1"].endswith(":MainThread")
    assert "other's" not in tokens.values(), "no whole token is shown, be it ever so short"
    by_lock = [
        (one["lock"], one["quorum"], [ttl is not None for ttl in one["ttl"]]) for one in found["locks"]
    ]
    assert by_lock[2:4] == [
        ("orders:2", True, [True] * 4 + [False]),
        ("orders:2", False, [False] * 4 + [True]),
    ]
    assert 0 < found["locks"][0]["ttl"][0] <= TTL


@pytest.mark.usefixtures("held")
def test_locks_by_pattern_and_limit(valkey: Masters) -> None:
    command = Command(valkey)
    code, out, _ = command.run("locks", "orders:*", "--key-prefix", "app*:")
    rows = [line.split() for line in out.splitlines() if line.startswith("orders")]
    assert (code, [row[0] for row in rows]) == (0, ["orders:1", "orders:2"])
    assert all(row[3] == "yes" and row.count("s") == 5 for row in rows)
    code, out, _ = command.run("locks", "--key-prefix", "app*:", "--limit", "1")
    assert "There is more" in out
    code, out, _ = command.run("locks", "nobody's")
    assert (code, out.splitlines()[-1]) == (0, "nothing is held")


@pytest.mark.usefixtures("held")
def test_locks_where_masters_are_down(valkey: Masters) -> None:
    """What they would say is not known: neither yes nor no."""
    for number in (0, 1):
        valkey[number].kill()
    code, found = result(Command(valkey), "locks", "app*:users:*")
    assert (code, found["locks"][0]["quorum"]) == (0, True)
    assert "refused" in found["masters"][0]["error"]
    with paused(valkey, 2):
        code, found = result(Command(valkey), "locks", "app*:users:*")
    assert (code, found["locks"][0]["quorum"], found["complete"]) == (69, None, False)


@pytest.mark.parametrize("down", [3, 5])
def test_locks_without_a_quorum(valkey: Masters, down: int) -> None:
    """Catches: "nothing is held", without a reply of any master."""
    for master in valkey[:down]:
        master.kill()
    code, out, err = Command(valkey).run("locks")
    assert code == 69
    assert out.count("Connection refused") == down
    assert "held" not in out
    many = "none" if down == 5 else "only 2"
    assert err == f"redlock-fast: {many} of 5 masters could be asked, a quorum is 3: any lock may be held\n"
    for arguments in (["locks"], ["top", "--once"]):
        code, found = result(Command(valkey), *arguments)
        assert (code, found["locks"], found["complete"]) == (69, [], False), "the object alone says so, too"


def test_names_cannot_harm_a_terminal(valkey: Masters, raw: Raw) -> None:
    for node in raw(valkey):
        node.set("\x1b[31mred\n\xff", b"\x1b[31m", px=60_000)
    out = Command(valkey).run("locks")[1]
    assert "\\x1b[31mred\\nÿ  -      1b5b3  yes" in out


# --- bench ----------------------------------------------------------------------------------------


def test_bench(valkey: Masters, engine_name: str) -> None:
    command = Command(valkey, engine_name)
    small = ("--seconds", "0.3", "--threads", "3", "--tasks", "5")
    code, out, _ = command.run("bench", *small, "--json")
    numbers = json.loads(out)
    assert (numbers["engine"], numbers["masters"]) == (engine_name, 5)
    assert [numbers[name]["callers"] for name in ("one", "threads", "tasks")] == [1, 3, 5]
    for name in ("one", "threads", "tasks"):
        one = numbers[name]
        assert one["locks"] > 0
        assert 0 < one["acquire_us"]["p50"] <= one["acquire_us"]["p99"] <= one["cycle_us"]["p99"]
    assert code == any(numbers[name]["failed"] for name in ("one", "threads", "tasks"))
    nothing_left(valkey)


def test_the_table_of_bench(valkey: Masters) -> None:
    code, out, _ = Command(valkey).run("bench", "--seconds", "0.1", "--threads", "2", "--tasks", "2")
    rows = out.splitlines()
    assert code in (0, 1)
    assert len(rows) == 4
    assert rows[0].split()[:2] == ["callers", "locks/s"]
    assert [row[: row.index("  ")] for row in rows[1:]] == ["one", "2 threads", "2 tasks"]


def test_bench_without_a_quorum(valkey: Masters) -> None:
    for number in range(3):
        valkey[number].kill()
    code, out, err = Command(valkey).run("bench")
    assert (code, out) == (69, "")
    assert "refused" in err


def test_bench_that_is_interrupted(valkey: Masters) -> None:
    with running(Command(valkey).start("bench", "--seconds", "60")) as process:
        eventually(lambda: any(int(m.ask("DBSIZE")[1:]) for m in valkey), "it is at work")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 130
        assert "Traceback" not in err
    nothing_left(valkey)


def test_a_reader_that_has_enough(valkey: Masters) -> None:
    """It is gone before the command writes."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "redlock_fast", "locks"]
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            command, env=Command(valkey).environment, stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")
