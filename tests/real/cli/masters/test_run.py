"""``redlock-fast masters`` on real masters: its phases, what it refuses, and what is left if it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from support.commands import Command, first_line, running
from support.python_process import PythonProcess, run_python
from support.thorough import MORE
from support.waiting import PATIENT, PROCESS_DEADLINE, eventually

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable, ShardedRedlock, cli
from redlock_fast.cli import exit_codes
from redlock_fast.embedded import Masters
from redlock_fast.masters.marks import MARK_KEY, Mark, encode_mark
from redlock_fast.masters.membership import CONFIRMED_FOR, KEY, Record, decode, encode

Raw = Callable[[Masters], list[redis.Redis]]
#: Seconds. The command waits so long before phase 2.
MAX_TTL = 0.3

ROOT = Path(__file__).parents[4]
#: The permissions that a plan does not use.
WRITES = ("set", "eval", "client|kill")

#: Around the block of the recipe.
SHORT_LEASES = f"""
import inspect, signal, sys, time
from redlock_fast.locks.client_base import BaseClient

options = inspect.unwrap(BaseClient.__init__).__kwdefaults__
options.update(ttl={MAX_TTL}, max_ttl={MAX_TTL}, connect_timeout=20.0)
"""
WAIT_FOR_SIGTERM = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with client:
    assert client.connect()
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""
#: What the script of the recipe calls. ``sleep`` removes the mark of a client that is late.
PROGRAMS = {
    "redlock-fast": "from redlock_fast.cli import main\nexit(main())",
    "kubectl": """
import json, os, signal, subprocess, sys, time
from pathlib import Path
import redis
from redlock_fast.masters.marks import MARK_KEY, Mark, encode_mark
from redlock_fast.masters.membership import KEY, decode

here = Path(__file__).parent
said = here / "environment"
setting = json.loads(said.read_text()) if said.exists() else {}
action, what, where, *changes = sys.argv[1:]
assert where == "deployment/orders", sys.argv
if (action, what) == ("set", "env"):
    for one in changes:
        if one.endswith("-"):
            del setting[one[:-1]]
        else:
            name, _, value = one.partition("=")
            setting[name] = value
    said.write_text(json.dumps(setting))
    with redis.Redis.from_url(os.environ["REDLOCK_FAST_MASTERS"].split()[0]) as node:
        record = decode(node.get(KEY))
        if "old" in record.steps:
            node.set(MARK_KEY + b"late", encode_mark(Mark(record.epoch, "old", "late")), px=60_000)
else:
    assert (action, what) == ("rollout", "status"), sys.argv
    new = subprocess.Popen(
        [sys.executable, str(here / "application.py")],
        env=os.environ | setting,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert new.stdout.readline() == b"ready\\n"
    old = int((here / "pid").read_text())
    os.kill(old, signal.SIGTERM)
    (here / "pid").write_text(f"{new.pid}")
""",
    "sleep": """
import os
import redis
from redlock_fast.masters.marks import MARK_KEY

with redis.Redis.from_url(os.environ["REDLOCK_FAST_MASTERS"].split()[0]) as node:
    node.delete(MARK_KEY + b"late")
""",
}

#: Runs a command once for each number of writes, each time in a fork that is killed after that write.
KILLED = """
import os, signal, sys
import redis  # here: each fork has it then
from redlock_fast import cli
from redlock_fast.cli.masters import records, run as _

write = records.write_record
command = sys.argv[1:]

def run(kill):
    left = [kill]
    def counted(server, *arguments):
        done = write(server, *arguments)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    records.write_record = counted
    sys.stdout = sys.stderr = open(os.devnull, "w")
    os._exit(cli.main(["masters", *command]))

kill = 1
while True:
    pid = os.fork()
    if not pid:
        run(kill)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        assert status == 0, (command, kill, status)
        break
    kill += 1
print(kill)
"""


class Operator:
    """Gives commands to change the first three of five masters to all of them."""

    def __init__(self, masters: Masters, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path.write_text(f"[redlock-fast]\nmax_ttl = {MAX_TTL}\nconnect_timeout = 5.0\n")
        self.environment = {
            "REDLOCK_FAST_CONFIG": str(path),
            "REDLOCK_FAST_MASTERS": " ".join(masters.urls[:3]),
            "REDLOCK_FAST_NEW_MASTERS": " ".join(masters.urls),
        }
        self._capsys = capsys

    def says(self, action: str, *arguments: str) -> dict[str, Any]:
        """The JSON object that a command prints. Its exit code is ``code``."""
        self._capsys.readouterr()
        code = cli.main(["masters", action, "--json", *arguments])
        out, err = self._capsys.readouterr()
        result: dict[str, Any] = json.loads(out)
        assert result["code"] == code, err
        assert result["command"] == action
        return result

    def phase(self, action: str, *arguments: str) -> tuple[int, str | None]:
        result = self.says(action, *arguments)
        return result["code"], result["phase"]


@pytest.fixture
def operator(
    valkey: Masters, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Operator:
    made = Operator(valkey, tmp_path / "settings.toml", capsys)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def record_of(node: redis.Redis) -> Record:
    data = node.get(KEY)
    assert isinstance(data, bytes)
    return decode(data)


def put_mark(node: redis.Redis, client: str, step: str) -> None:
    """As a client does."""
    mark = Mark(record_of(node).epoch, step, f"owner of {client}")
    node.set(MARK_KEY + client.encode(), encode_mark(mark), px=60_000)


def test_a_whole_change(operator: Operator, valkey: Masters, raw: Raw) -> None:
    nodes = raw(valkey)
    assert operator.phase("plan") == (0, "old list")
    assert not any(node.exists(KEY) for node in nodes)
    assert operator.phase("finish") == (exit_codes.FAILED, "old list")
    assert operator.phase("start") == (0, "phase 1")
    ids = [record_of(node).id for node in nodes]
    assert len(set(ids)) == 5
    put_mark(nodes[0], "a", "old")
    put_mark(nodes[4], "b", "joint")
    status = operator.says("status")
    assert (status["code"], status["next"], status["next_phase"]) == (exit_codes.NOT_YET, "finish", 1)
    assert status["wait"] > 2 * MAX_TTL
    assert 30.0 < status["expires"] <= 60.0
    assert status["counts"] == {"old": 1, "joint": 1, "new": 0, "refused": 0, "unknown": 0}
    assert [one["owner"] for one in status["clients"]] == ["owner of a", "owner of b"]
    assert operator.phase("finish") == (exit_codes.NOT_YET, "phase 1")
    nodes[0].delete(MARK_KEY + b"a")
    assert operator.phase("finish", "--phase", "2") == (exit_codes.FAILED, "phase 1")
    assert operator.phase("finish") == (0, "phase 2")
    put_mark(nodes[4], "b", "joint")
    assert operator.phase("finish", "--phase", "1") == (0, "phase 2")
    assert operator.phase("finish") == (exit_codes.NOT_YET, "phase 2")
    put_mark(nodes[4], "b", "new")
    assert operator.phase("finish") == (0, "new list")
    status = operator.says("status")
    assert (status["code"], status["next"], status["next_phase"], status["expires"]) == (0, None, None, 0.0)
    assert operator.phase("abort") == (exit_codes.FAILED, "new list")
    for node, id in zip(nodes, ids, strict=True):
        assert (record_of(node).id, record_of(node).steps, len(record_of(node).new)) == (id, ("new",), 5)


def test_a_master_of_a_group_is_replaced(operator: Operator, valkey: Masters) -> None:
    """docs/scaling.md. Catches: a page that leaves out ``start``, without which clients refuse to work."""
    lists = [{"group": valkey.urls[:3]}, {"group": [*valkey.urls[:2], valkey.urls[3]]}]
    sides = ("--from", ",".join(lists[0]["group"]), "--to", ",".join(lists[1]["group"]))
    options: Any = {"ttl": MAX_TTL, "max_ttl": MAX_TTL, "check_masters": "auto", **PATIENT}
    with ShardedRedlock(lists[0], **options) as old, old.lock("r"):
        pass
    with (
        ShardedRedlock(lists[1], joint_with=lists[0], **options) as early,
        pytest.raises(ConfigError, match="it expects the masters"),
    ):
        early.acquire("r")
    assert operator.phase("start", *sides) == (0, "phase 1")
    with ShardedRedlock(lists[1], joint_with=lists[0], **options) as joint, joint.lock("r"):
        pass
    assert operator.phase("finish", *sides, "--phase", "1") == (0, "phase 2")
    with ShardedRedlock(lists[1], **options) as new, new.lock("r"):
        pass
    assert operator.phase("finish", *sides, "--phase", "2") == (0, "new list")


def test_two_changes_of_one_list(operator: Operator, masters: Masters, raw: Raw) -> None:
    """A start is killed when only a new master has its record; then another change begins and goes on.

    Catches: a clean-up of the first one that undoes the second one; then two lists are in use.
    """
    nodes, old = raw(masters), " ".join(masters.urls[:3])
    first = ("--from", old, "--to", " ".join([*masters.urls[:2], masters.urls[3]]))
    second = ("--from", old, "--to", " ".join([*masters.urls[:2], masters.urls[4]]))
    assert operator.phase("start", *first) == (0, "phase 1")
    left = nodes[3].get(KEY)
    assert operator.phase("abort", *first) == (0, "old list")
    for node in nodes[:3]:
        node.delete(KEY)
    nodes[3].set(KEY, left)
    assert operator.phase("start", *second) == (0, "phase 1")
    before = [node.get(KEY) for node in nodes]
    for command in ("start", "finish", "abort"):
        assert operator.says(command, *first)["code"] == exit_codes.FAILED
    assert [node.get(KEY) for node in nodes] == before
    assert operator.phase("finish", "--phase", "1", *second) == (0, "phase 2")
    assert operator.says("abort", *first)["code"] == exit_codes.FAILED
    assert operator.phase("finish", "--phase", "2", *second) == (0, "new list")


def test_a_new_master_that_kept_the_id_of_an_aborted_change(
    operator: Operator, valkey: Masters, raw: Raw
) -> None:
    """It is away when the change begins again. Catches: two ids of a master, and no command that goes on."""
    nodes = raw(valkey)
    assert operator.phase("start") == (0, "phase 1")
    assert operator.phase("abort") == (0, "old list")
    kept = nodes[4].get(KEY)
    valkey[4].kill()
    assert operator.phase("start") == (0, "phase 1")
    valkey[4].restart()
    nodes[4].set(KEY, kept)
    assert operator.says("status")["code"] == 0
    assert operator.phase("finish", "--phase", "1") == (0, "phase 2")
    assert operator.phase("finish", "--phase", "2") == (0, "new list")
    assert record_of(nodes[4]).id in record_of(nodes[0]).addresses
    assert record_of(nodes[4]).terms == record_of(nodes[0]).terms


def test_status_without_the_new_list(
    operator: Operator, valkey: Masters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an operator sees that knows of no change: whether one is under way, and its lists."""
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", "")
    new = " ".join(valkey.urls)
    before = operator.says("status")
    assert (before["code"], before["to"], [one["epoch"] for one in before["masters"]]) == (0, [], [None] * 3)
    assert operator.phase("start", "--to", new) == (0, "phase 1")
    during = operator.says("status")
    addresses = [f"127.0.0.1:{master.port}/0" for master in valkey]
    assert (sorted(during["from"]), sorted(during["to"])) == (sorted(addresses[:3]), sorted(addresses))
    assert {one["steps"] for one in during["masters"]} == {"old or joint"}
    capsys.readouterr()
    assert cli.main(["masters", "status"]) == 0
    shown = capsys.readouterr().out
    assert "a change is under way: give status with both lists\n  --from 127.0.0.1:" in shown
    for number in (0, 1):
        valkey[number].kill()
    assert operator.says("status")["code"] == exit_codes.UNAVAILABLE


def test_phase_1_is_aborted_when_the_new_masters_are_gone(
    operator: Operator, valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = " ".join([valkey.urls[0], *valkey.urls[3:]])
    assert operator.phase("start", "--to", new) == (0, "phase 1")
    for number in (3, 4):
        valkey[number].kill()
    seen = operator.says("status", "--to", new)
    assert (seen["code"], "gone for ever, give abort" in seen["why"]) == (exit_codes.UNAVAILABLE, True)
    assert operator.phase("abort", "--to", new) == (0, "old list")
    assert record_of(raw(valkey)[1]).steps == ("new",)


def test_the_way_back_when_the_new_masters_are_gone_for_ever(
    operator: Operator, valkey: Masters, raw: Raw
) -> None:
    """After phase 1 clients need both lists. Catches: an outage that no command ends."""
    new = ("--to", " ".join([valkey.urls[0], *valkey.urls[3:]]))
    assert operator.phase("start", *new) == (0, "phase 1")
    assert operator.phase("finish", *new) == (0, "phase 2")
    for number in (3, 4):
        valkey[number].kill()
    refused = operator.says("abort", *new)
    assert (refused["code"], "give abort --yes" in refused["why"]) == (exit_codes.UNAVAILABLE, True)
    assert operator.says("abort", "--yes", *new)["code"] == 0
    assert operator.says("abort", "--yes", *new)["code"] == 0
    assert record_of(raw(valkey)[1]).steps == ("new",)
    assert len(record_of(raw(valkey)[1]).new) == 3


def test_a_master_that_is_down_has_another_name(operator: Operator, valkey: Masters) -> None:
    """Catches: a new id for a master whose address in the records is spelled in another way."""
    assert operator.phase("start") == (0, "phase 1")
    assert operator.phase("abort") == (0, "old list")
    valkey[2].kill()
    renamed = " ".join(url.replace("127.0.0.1", "localhost") for url in valkey.urls[:3])
    both = " ".join(url.replace("127.0.0.1", "localhost") for url in valkey.urls)
    assert operator.phase("start", "--from", renamed, "--to", both) == (0, "phase 1")


def test_restore(operator: Operator, valkey: Masters, raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    """A minority is down, one more master lost its record, and no client knows it."""
    nodes = raw(valkey)
    give = ("--from", " ".join(valkey.urls), "--yes")
    options: Any = {"ttl": MAX_TTL, "max_ttl": MAX_TTL, "check_masters": "auto", **PATIENT}
    assert operator.says("restore", *give)["why"] == (
        "no master that answers has a record in force: clients write the first one"
    )
    with FastRedlock(valkey.urls, **options) as client:
        client.connect()
        eventually(lambda: all(node.exists(KEY) and record_of(node).in_force for node in nodes), "in force")
    assert operator.says("restore", *give)["why"] == "every master that answers has its record"
    kept = record_of(nodes[2])
    for number in (0, 1):
        valkey[number].kill()
    nodes[2].delete(KEY)
    with FastRedlock(valkey.urls, **options) as new:
        new.connect(0.1)
        eventually(lambda: "masters restore" in new.health()[2].no_vote, "it names the command")
        with pytest.raises((QuorumUnavailable, ConfigError), match="masters restore"):
            new.lock("r", timeout=0.5).acquire()
        result = operator.says("restore", *give)
        assert result["code"] == 0, result
        assert record_of(nodes[2]).of(kept.id) == kept
        lock = new.lock("r", timeout=20.0)
        assert lock.acquire()
        lock.release()
    capsys.readouterr()
    assert cli.main(["masters", "restore", *give[:2]]) == exit_codes.USAGE
    assert "give --yes" in capsys.readouterr().err


def test_restore_does_nothing_during_a_change(operator: Operator, valkey: Masters, raw: Raw) -> None:
    """Catches: the record of one phase that is written over what another phase has begun."""
    assert operator.phase("start") == (0, "phase 1")
    raw(valkey)[0].delete(KEY)
    result = operator.says("restore", "--yes")
    assert (result["code"], "a change of the masters is under way" in result["why"]) == (1, True)
    assert not raw(valkey)[0].exists(KEY)


def test_the_way_back(operator: Operator, valkey: Masters, raw: Raw) -> None:
    nodes = raw(valkey)
    assert operator.phase("start") == (0, "phase 1")
    put_mark(nodes[1], "b", "joint")
    assert operator.phase("abort") == (exit_codes.NOT_YET, "phase 1")
    assert operator.phase("finish") == (0, "phase 2")
    assert operator.phase("start") == (exit_codes.FAILED, "phase 2")
    put_mark(nodes[1], "b", "new")
    assert operator.phase("abort") == (exit_codes.NOT_YET, "phase 2")
    put_mark(nodes[1], "b", "joint")
    assert operator.phase("abort") == (0, "phase 1")
    put_mark(nodes[1], "b", "old")
    assert operator.phase("abort") == (0, "old list")
    assert {len(record_of(node).new) for node in nodes} == {3}
    assert operator.phase("start") == (0, "phase 1")


@pytest.mark.parametrize(
    ("before", "command", "end"),
    [
        ([], "start", "phase 1"),
        (["start"], "finish --phase 1", "phase 2"),
        (["start", "finish"], "finish --phase 2", "new list"),
        (["start", "finish"], "abort --phase 2", "phase 1"),
        (["start"], "abort --phase 1", "old list"),
    ],
)
def test_killed_after_each_write(
    operator: Operator, valkey: Masters, raw: Raw, before: list[str], command: str, end: str
) -> None:
    """Each run but the last one is killed, after one write more. In the end it is as if it was run once."""
    for one in before:
        assert operator.says(one)["code"] == 0
    process = run_python(
        [sys.executable, "-c", KILLED, *command.split()],
        env=os.environ | operator.environment,
        capture_output=True,
        text=True,
        timeout=PROCESS_DEADLINE,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) >= 2, "runs"
    assert operator.phase("status") == (0, end)
    assert len({record_of(node).terms for node in raw(valkey)}) == 1


@pytest.mark.parametrize("quorum", [False, True])
def test_a_record_that_was_lost_in_the_wait(
    operator: Operator, valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch, quorum: bool
) -> None:
    """Clients gave it back. Before that the master may have had an earlier record, which other clients saw.

    So the command waits again, unless the other masters are a quorum of each list.
    Catches: a phase that is read again after the wait by its terms only.
    """
    nodes, sleep = raw(valkey), time.sleep
    assert operator.phase("start") == (0, "phase 1")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        for node in nodes[: 1 if quorum else 2] if len(waited) == 1 else ():
            record = record_of(node)
            assert record.steps == ("joint",)
            node.set(KEY, encode(record.of(record.id)))
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", wait)
    assert operator.phase("finish") == (0, "phase 2")
    assert len([one for one in waited if one > CONFIRMED_FOR * MAX_TTL]) == (1 if quorum else 2)
    assert all(record_of(node).stamp for node in nodes)


def test_two_commands_at_the_same_time(operator: Operator, valkey: Masters, raw: Raw) -> None:
    """Whichever wins, the records agree afterwards, or the next command makes them agree."""
    assert operator.phase("start") == (0, "phase 1")
    command = Command(None)
    running = [command.start("masters", action, **operator.environment) for action in ("finish", "abort")]
    for process in running:
        _, complaints = process.communicate(timeout=PROCESS_DEADLINE)
        expected = (0, exit_codes.FAILED, exit_codes.UNAVAILABLE, exit_codes.NOT_YET)
        assert process.returncode in expected, complaints
    code, phase = operator.phase("abort")
    while phase not in ("old list", "new list"):
        assert code == 0, phase
        code, phase = operator.phase("abort")
    assert len({record_of(node).terms for node in raw(valkey)}) == 1


def test_a_master_that_is_down(
    operator: Operator, valkey: Masters, raw: Raw, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets the record when it is back and the command is given again; a majority that is down ends it."""
    valkey[1].kill()
    valkey[4].kill()
    assert operator.phase("start") == (0, "phase 1")
    valkey[0].kill()
    said = operator.says("finish")
    assert said["code"] == exit_codes.UNAVAILABLE
    assert [bool(one["error"]) for one in said["masters"]] == [True, True, False, False, True]
    seen = operator.says("status")
    assert (seen["code"], seen["phase"]) == (exit_codes.UNAVAILABLE, None)
    assert "abort" not in seen["why"], "there is no quorum of the old list"
    capsys.readouterr()
    assert cli.main(["masters", "status"]) == exit_codes.UNAVAILABLE
    assert "\nphase: unknown, no quorum of a list answered\n" in capsys.readouterr().out
    for place in (0, 1, 4):
        valkey[place].restart()
    nodes = raw(valkey)
    assert not nodes[1].exists(KEY)
    assert operator.phase("start") == (0, "phase 1")
    assert len({record_of(node).terms for node in nodes}) == 1
    assert len({record_of(node).id for node in nodes}) == 5


def test_the_old_masters_are_stopped_after_the_end(
    operator: Operator, valkey: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", " ".join(valkey.urls[:2]))
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", " ".join(valkey.urls[2:]))
    for command in ("start", "finish", "finish"):
        assert operator.says(command)["code"] == 0
    for number in (0, 1):
        valkey[number].kill()
    for command in ("status", "finish"):
        assert operator.phase(command) == (0, "new list")


def test_masters_that_refuse_the_operator_are_named(
    operator: Operator, valkey: Masters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("REDLOCK_FAST_MASTERS", "REDLOCK_FAST_NEW_MASTERS"):
        wrong = re.sub(r"redis://(?:[^@\s]*@)?", "redis://operator:geheim@", os.environ[name])
        monkeypatch.setenv(name, wrong)
    for command in ("plan", "start", "status", "finish", "abort"):
        for more in ([], ["--json"]):
            assert cli.main(["masters", command, *more]) == exit_codes.UNAVAILABLE
            out, err = capsys.readouterr()
            assert "WRONGPASS" in out + err
            assert f"127.0.0.1:{valkey[0].port}" in out + err
            assert "geheim" not in out + err


def test_an_operator_with_the_rules_of_the_page(
    operator: Operator, valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are enough, and each of them is needed."""
    page = (ROOT / "docs" / "changing-masters.md").read_text()
    (rules,) = re.findall(r"^ACL SETUSER (.*)$", page, re.MULTILINE)
    name, *given = rules.split()
    nodes = raw(valkey)
    for variable in ("REDLOCK_FAST_MASTERS", "REDLOCK_FAST_NEW_MASTERS"):
        login = re.sub(r"redis://(?:[^@\s]*@)?", f"redis://{name}:secret@", os.environ[variable])
        monkeypatch.setenv(variable, login)

    def permit(*rules: str) -> None:
        for node in nodes:
            node.execute_command("ACL", "SETUSER", name, "reset", *rules)
            node.acl_log_reset()

    try:
        permit(*given)
        for command in ("plan", "start", "status", "finish", "finish", "status"):
            assert operator.says(command)["code"] == 0
        refused = {entry["object"] for node in nodes for entry in node.acl_log()}
        assert refused <= {"client|setinfo"}, "redis-py names itself if it may"
        put_mark(nodes[0], "a", "new")
        for rule in (rule for rule in given if rule[0] == "+"):
            permit(*given, f"-{rule[1:]}")
            operator.says("plan")
            refused = {entry["object"] for node in nodes for entry in node.acl_log()}
            assert rule[1:] in {*refused, *WRITES}, f"{rule} is not needed"
    finally:
        for node in nodes:
            node.acl_deluser(name)


def _start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return PythonProcess(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(not MORE, reason="the recipe starts a dozen processes: make coverage has this test")
def test_the_recipe_for_kubernetes(operator: Operator, valkey: Masters, raw: Raw, tmp_path: Path) -> None:
    """Its script, with a kubectl that replaces one process. A late client leaves during ``sleep``."""
    page = (ROOT / "docs" / "changing-masters.md").read_text()
    page = page.partition("## In Kubernetes\n")[2].partition("\n## ")[0]
    (script,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (application,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for number in range(1, 5):
        script = script.replace(f"redis://10.0.0.{number}", valkey.urls[number - 1])
        application = application.replace(f"redis://10.0.0.{number}", valkey.urls[number - 1])
    assert "10.0.0" not in script + application
    (tmp_path / "application.py").write_text(f"{SHORT_LEASES}{application}{WAIT_FOR_SIGTERM}")
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\n{program}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | operator.environment
    environment["PATH"] = os.pathsep.join([str(tmp_path), os.environ["PATH"], os.defpath])
    environment["PYTHONPATH"] = str(ROOT)
    nodes = raw(valkey)
    with running(_start([sys.executable, str(tmp_path / "application.py")], environment)) as first:
        assert first_line(first) == "ready"
        (tmp_path / "pid").write_text(f"{first.pid}")
        try:
            with running(_start(["sh", "-c", script], environment)) as ran:
                out, err = ran.communicate(timeout=PROCESS_DEADLINE)
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert ran.returncode == 0, out + err
    assert "finish: 1 client is at step 'old'" in err
    terms = {record_of(node).terms for node in nodes[:4]}
    assert len(terms) == 1
    assert {address for _, address in record_of(nodes[0]).new} == {
        f"127.0.0.1:{valkey[number].port}/0" for number in (0, 1, 3)
    }


def test_what_is_wrong_with_the_lists(
    operator: Operator, valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = raw(valkey)
    assert cli.main(["masters", "plan", "--to", " ".join(valkey.urls[:3])]) == exit_codes.USAGE
    another_database = f"{valkey.urls[0].removesuffix('/0')}/1 {valkey.urls[3]}"
    assert cli.main(["masters", "start", "--to", another_database]) == exit_codes.USAGE
    one_server = operator.says("start", "--to", f"{valkey[0].unix_url} {valkey.urls[3]}")
    assert one_server["code"] == exit_codes.FAILED
    assert "one server" in one_server["why"]
    monkeypatch.delenv("REDLOCK_FAST_NEW_MASTERS")
    assert cli.main(["masters", "plan"]) == exit_codes.USAGE
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", " ".join(valkey.urls[:4]))
    assert operator.phase("start") == (0, "phase 1")
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", " ".join(valkey.urls))
    for command in ("plan", "start", "status", "finish", "abort"):
        said = operator.says(command)
        assert (said["code"], said["next"]) == (exit_codes.FAILED, None)
        assert said["phase"] == "phase 1 of another change"
        assert "finish or abort that one, with its --to" in said["why"]
    Path(os.environ["REDLOCK_FAST_CONFIG"]).write_text("[redlock-fast]\nmax_ttl = 7\n")
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", " ".join(valkey.urls[:4]))
    assert operator.says("start")["why"] == "max_ttl is 7 s here, and 0.3 s in the records"
    nodes[4].set(KEY, encode(record_of(nodes[0]))[:-5])
    monkeypatch.setenv("REDLOCK_FAST_NEW_MASTERS", valkey.urls[4])
    assert "damaged" in operator.says("plan")["masters"][3]["error"]


def test_without_the_permission_to_cut_connections(operator: Operator, valkey: Masters, raw: Raw) -> None:
    """A client that keeps its connection does not compare its lists: the phase does not count as written."""
    nodes = raw(valkey)
    for node in nodes:
        node.acl_setuser("weak", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client|kill"])
    try:
        for name in ("REDLOCK_FAST_MASTERS", "REDLOCK_FAST_NEW_MASTERS"):
            os.environ[name] = re.sub(r"redis://(?:[^@\s]*@)?", "redis://weak:x@", os.environ[name])
        assert operator.phase("start") == (0, "phase 1"), "it forbids no step, so it needs no cut"
        said = operator.says("finish")
        assert said["code"] == exit_codes.UNAVAILABLE
        assert "client|kill" in said["why"]
    finally:
        for node in nodes:
            node.acl_deluser("weak")


def test_a_table_for_people(operator: Operator, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["masters", "plan"]) == 0
    out = capsys.readouterr().out
    assert "next: start" in out
    assert "5. redlock-fast masters finish --phase 2" in out
    assert cli.main(["masters", "plan", "--phase", "1"]) == exit_codes.USAGE
    capsys.readouterr()
    assert cli.main(["masters", "start"]) == 0
    out, err = capsys.readouterr()
    assert "phase 1, epoch 1: clients may be at step old or joint" in out
    assert "writing phase 1, epoch 1" in err


def test_a_table_of_80_columns(
    operator: Operator,
    valkey: Masters,
    raw: Raw,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert operator.phase("start") == (0, "phase 1")
    (node, *_) = raw(valkey)
    for number in range(12):
        put_mark(node, f"{number}", "old")
    for command in ("plan", "status", "start", "finish"):
        cli.main(["masters", command])
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines()), default=0) <= 80, out
        if command == "status":
            assert "12 old, 0 joint, 0 new" in out
            assert "and 2 more" in out
            assert re.search(r"the marks of clients that were killed expire within [0-9]+ s", out)


def test_a_mark_of_a_hostile_client_is_shown_as_text(operator: Operator, valkey: Masters, raw: Raw) -> None:
    node = raw(valkey)[0]
    assert operator.phase("start") == (0, "phase 1")
    node.set(MARK_KEY + b"x\x1b[2J", b"1 1 joint \x1b[2J" + b"o" * 90, px=60_000)
    node.set(MARK_KEY + b"y", b"no mark", px=60_000)
    node.rpush(MARK_KEY + b"z", "no mark")
    (found,) = operator.says("status")["clients"]
    assert "\x1b" not in found["owner"] + found["id"]
