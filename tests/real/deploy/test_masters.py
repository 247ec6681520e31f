"""deploy/valkey: with these settings masters forget nothing, and services can lock and nothing else."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis
import yaml
from redis.exceptions import NoPermissionError
from support.deployment import DEPLOY, SECRETS, VALKEY, Deployed, deployed, make_secrets
from support.keys import CACHING, calls
from support.makers import MakePlain
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import FastRedlock, QuorumUnavailable, cli
from redlock_fast.algorithm import attempts

#: Granted for something else than what tests here do: health checks, and databases other than 0.
OTHERWISE = {"ping", "select"}


@pytest.fixture(scope="module", params=["valkey", "redis"])
def these(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(request.param, tmp_path_factory.mktemp("deploy")) as masters:
        yield masters


@pytest.fixture(scope="module")
def admin(these: Deployed) -> list[redis.Redis]:
    return these.nodes("admin")


def granted(these: Deployed) -> set[str]:
    """Commands of the services' user."""
    (line,) = (
        line for line in (these.secrets / "users.acl").read_text().splitlines() if "user redlock" in line
    )
    return set(re.findall(r"\+(\S+)", line))


# --- what they remember -------------------------------------------------------------------------------


def test_there_is_nothing_to_warn_of(these: Deployed, caplog: pytest.LogCaptureFixture) -> None:
    """Not even without the guard: that is what would be logged as master-may-forget."""
    with caplog.at_level(logging.WARNING, "redlock_fast"), these.client(restart_guard="off") as client:
        with client.lock("r"):
            pass
        eventually(lambda: all(one.state == "connected" for one in client.health()), "all are connected")
        for health in client.health():
            assert (health.state, health.persistence, health.eviction) == (
                "connected",
                "aof always",
                "noeviction",
            )
            assert health.push
    assert not caplog.records


def test_what_was_locked_is_locked_after_a_crash_of_all(these: Deployed) -> None:
    with these.client(restart_guard="durable") as client:
        lock = client.lock("r", fencing=True)
        assert lock.acquire()
        for master in these.masters:
            master.restart()  # by SIGKILL
        eventually(lambda: [m.connections for m in client.health()] == [2, 2, 2], "they are back")
        assert [m.guard for m in client.health()] == [0, 0, 0], "they vote at once"
        assert client.acquire("r", blocking=False) is None
        assert lock.release()


# --- permissions of each user -------------------------------------------------------------------------


def adopt_lock(make: Callable[[], Any], asked: Callable[[], int]) -> None:
    """One holds it, another waits until a push reports that it is free."""
    holder, waiter = make(), make()
    assert holder.acquire()
    before = asked()
    waiting = start(lambda: waiter.acquire(timeout=DEADLINE))
    eventually(lambda: asked() > before, "the masters are to tell")
    assert holder.release()
    assert waiting.result(2 * DEADLINE)
    assert waiter.release()


def use_everything(client: FastRedlock, admin: list[redis.Redis]) -> None:
    """Every verb that there is."""

    def asked() -> int:
        return sum(calls(admin, *CACHING))

    with client.lock("plain") as lock:
        lock.extend()
        assert client.locked("plain")
    adopt_lock(lambda: client.lock("plain"), asked)
    adopt_lock(lambda: client.lock("fair", fair=True), asked)
    with client.lock("fair", fair=True), mock.patch.object(attempts, "REARM", 0.02):  # repeats its place
        assert not answered(lambda: client.lock("fair", fair=True).acquire(timeout=0.3))
    adopt_lock(lambda: client.semaphore("slots", 1), asked)
    adopt_lock(lambda: client.rwlock("both").write(), asked)
    with client.lock("fenced", fencing=True):
        pass
    admin[0].delete("{fenced}:f")  # its counter starts again, far above the others, which are raised
    with client.lock("fenced", fencing=True) as lock:
        lock.extend()
    with client.rwlock("both").read() as reader:
        reader.extend()
        # Which leaves its intent for a while.
        assert not answered(lambda: client.rwlock("both").write().acquire(timeout=0.2))
    writer = client.rwlock("other").write()
    assert writer.acquire()
    writer.downgrade()
    assert writer.release()
    with client.rlock("again") as again, again:
        again.extend()
    with client.multilock(["one", "two"]) as several:
        several.extend()
    batch = client.acquire_many(["a", "b"])
    held = [lock for lock in batch if lock is not None]
    assert client.extend_many(held) == [True, True]
    assert client.release_many(held) == [True, True]
    for node in admin:
        node.script_flush()
    with client.multilock(["one", "two"]):  # by EVAL
        pass


def test_the_services_user_can_do_all_that_the_client_does(these: Deployed, admin: list[redis.Redis]) -> None:
    for node in admin:
        node.config_resetstat()
        node.acl_log_reset()
    for options in ({}, {"restart_guard": "marker", "assume_fresh": True}, {"wait": "poll"}):
        with these.client(**options) as client:
            if "wait" not in options:
                use_everything(client, admin)
            with client.lock("r"):
                pass
            assert not any(health.causes for health in client.health())
    with these.client(replicas=1) as client, pytest.raises(QuorumUnavailable, match="NOREPLICAS 0 of 1"):
        client.lock("r").acquire(blocking=False)
    assert [node.acl_log() for node in admin] == [[], [], []], "nothing was denied"
    executed = {name.removeprefix("cmdstat_") for node in admin for name in node.info("commandstats")}
    words = granted(these)
    if not any("|" in name for name in executed):  # Redis 6.2 counts no subcommands
        words = {word.partition("|")[0] for word in words}
    assert words - executed - OTHERWISE == set(), "nothing is granted that no command needs"


@pytest.mark.parametrize("server", ["valkey", "redis"])
def test_the_services_user_can_wait_for_a_replica(server: str, tmp_path: Path, plain: MakePlain) -> None:
    """Catches: grants with ``replicas`` that always fail: WAIT, or the write before it, is refused."""
    with deployed(server, tmp_path, count=2) as these:
        primary, replica = these.nodes("admin")
        # The operators' user makes no master a replica.
        replica.execute_command("ACL", "SETUSER", "admin", "+replicaof")
        for name, value in ("masteruser", "admin"), ("masterauth", these.password("admin")):
            replica.config_set(name, value)
        primary.config_set("repl-diskless-sync-delay", 0)
        replica.execute_command("REPLICAOF", "127.0.0.1", these.masters[0].port)
        eventually(lambda: primary.set("followed", "1") and replica.exists("followed"), "it follows")
        client = plain([f"{these.urls()[0]}?replicas=1"], ttl=30.0)
        for options in ({}, {"fencing": True}, {"fair": True}):
            lock = client.client.lock("replicated", **options)
            assert client.wait(lock.acquire())
            assert client.wait(lock.extend())
            assert replica.exists("replicated")
            assert client.wait(lock.release())
        assert not client.client.health()[0].causes
        assert primary.acl_log() == [], "nothing was denied"


FORBIDDEN = [
    "FLUSHALL", "FLUSHDB", "KEYS *", "SCAN 0", "CONFIG SET appendfsync no", "CONFIG REWRITE",
    "CONFIG RESETSTAT", "SHUTDOWN NOSAVE", "REPLICAOF 127.0.0.1 1", "ACL LIST", "CLIENT KILL TYPE normal",
    "CLIENT LIST", "MONITOR", "SCRIPT FLUSH", "RENAME r s", "PERSIST r", "SUBSCRIBE c", "SAVE",
    "BGREWRITEAOF",
]  # fmt: skip


def test_the_services_user_can_do_nothing_else(these: Deployed, admin: list[redis.Redis]) -> None:
    node = these.nodes("redlock")[0]
    for line in FORBIDDEN:
        with pytest.raises(NoPermissionError):
            node.execute_command(*line.split())
    with pytest.raises(NoPermissionError, match="flushall"):
        these.nodes("admin")[0].flushall()
    script = node.register_script("return redis.call('keys', '*')")
    with pytest.raises(redis.ResponseError, match=r"(?i)permission|can't run this command"):
        script()
    admin[0].acl_log_reset()


def test_no_client_without_a_password(these: Deployed) -> None:
    master = these.masters[0]
    assert master.ask("PING").startswith("-NOAUTH")
    for login in ("x", "default x", "redlock x", "admin x"):
        assert master.ask(f"AUTH {login}").startswith("-WRONGPASS")
    assert "nopass" not in these.nodes("admin")[0].acl_getuser("default")["flags"]


def test_a_team_with_names_of_its_own(these: Deployed, admin: list[redis.Redis]) -> None:
    """As users.acl says how."""
    template = (VALKEY / "users.acl").read_text()
    for pattern in (keys := ["~team:*", "~{team:*"]):
        assert pattern in template
    commands = [f"+{word}" for word in sorted(granted(these))]
    for node in admin:
        node.execute_command("ACL", "SETUSER", "team", "on", ">secret", *keys, "-@all", *commands)
        node.acl_log_reset()
    urls = [f"redis://team:secret@127.0.0.1:{master.port}" for master in these.masters]
    marked: dict[str, Any] = {"restart_guard": "marker", "assume_fresh": True}
    with FastRedlock(urls, key_prefix="team:", decide="all", node_timeout=5.0, **marked) as client:
        use_everything(client, admin)
    assert [node.acl_log() for node in admin] == [[], [], []]
    with redis.Redis.from_url(urls[0]) as node, pytest.raises(NoPermissionError):
        node.set("others:1", "x")
    for node in admin:
        node.acl_deluser("team")
        node.acl_log_reset()


def test_the_command_line(
    these: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", " ".join(these.urls()))
    monkeypatch.setenv("REDLOCK_FAST_CONFIG", str(Path(__file__).parents[2] / "support" / "fresh.toml"))
    assert cli.main(["status"]) == 0
    assert "usable: 3 of 3" in capsys.readouterr().out
    monkeypatch.setenv("REDLOCK_FAST_MASTERS", " ".join(these.urls("admin")))
    with these.client() as client, client.lock("orders:42"):
        assert cli.main(["locks", "orders:*"]) == 0
    assert "orders:42" in capsys.readouterr().out


def test_a_new_password_takes_no_restart(these: Deployed, admin: list[redis.Redis]) -> None:
    file, before = these.secrets / "redlock-password", these.secrets / "redlock-password-before"

    def good(password: str) -> bool:
        answers = {master.ask(f"AUTH redlock {password}")[:10] for master in these.masters}
        assert answers <= {"+OK", "-WRONGPASS"}
        return answers == {"+OK"}

    def load() -> None:
        make_secrets(these.secrets, these.server)
        for node in admin:
            node.acl_load()

    old = these.password("redlock")
    file.rename(before)
    load()
    new = these.password("redlock")
    assert new != old
    assert (good(new), good(old)) == (True, True)
    before.unlink()
    load()
    assert (good(new), good(old)) == (True, False)


def test_secrets_are_made_once(tmp_path: Path) -> None:
    make_secrets(tmp_path / "s")
    files = {file.name: file.read_text() for file in (tmp_path / "s").iterdir()}
    assert sorted(files) == ["admin-password", "redlock-password", "users.acl"]
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    assert not any(files[name].strip() in files["users.acl"] for name in files if "password" in name)
    assert len(set(files.values())) == 3
    make_secrets(tmp_path / "s")
    assert files == {file.name: file.read_text() for file in (tmp_path / "s").iterdir()}


# --- health checks --------------------------------------------------------------------------------------


def health_checks() -> dict[str, list[str]]:
    """What containers are asked with, by name."""
    files = (DEPLOY / "compose" / "compose.yaml", DEPLOY / "kubernetes" / "base" / "statefulset.yaml")
    compose, stateful_set = (yaml.safe_load(file.read_text()) for file in files)
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    found = {name: container[name]["exec"]["command"] for name in container if name.endswith("Probe")}
    kind, line = compose["services"]["redlock-1"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    return found | {"compose": ["sh", "-c", line.replace("$$", "$")]}


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="no redis-cli on PATH")
def test_health_checks(these: Deployed, tmp_path: Path) -> None:
    """Liveness probes accept any reply; the other probes need a usable master."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    stand_in = tmp_path / "valkey-cli"
    stand_in.touch(mode=0o700)

    def healthy(command: list[str], port: int, password: str) -> bool:
        (secrets / "redlock-password").write_text(f"{password}\n")
        stand_in.write_text(f'#!/bin/sh\nexec redis-cli -p {port} "$@"\n')
        line = [word.replace(SECRETS, str(secrets)) for word in command]
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(line, env={"PATH": path}, capture_output=True, timeout=60).returncode == 0

    checks, port = health_checks(), these.masters[0].port
    assert set(checks) == {"startupProbe", "livenessProbe", "readinessProbe", "compose"}
    with socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = closed.getsockname()[1]
    for name, command in checks.items():
        assert healthy(command, port, these.password("redlock")), name
        assert healthy(command, port, "wrong") == (name in ("startupProbe", "livenessProbe"))
        assert not healthy(command, closed_port, these.password("redlock")), name
