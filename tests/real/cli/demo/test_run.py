"""``redlock-fast demo``: as users run it, and each of its parts."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import command_lines
from support.moments import moments
from support.python_process import PythonProcess
from support.signalling import interrupt
from support.waiting import eventually, start

from redlock_fast import cli
from redlock_fast.cli.demo import run as _demo
from redlock_fast.cli.demo import worker as _demo_worker
from redlock_fast.cli.demo import worker_pool as _demo_pool
from redlock_fast.embedded import Masters
from redlock_fast.errors import ConfigError, RedlockError

PATIENCE = 60.0
#: How often a worker that runs here tries to acquire the lock.
TURNS = 5
#: Demos that are tried. A busy machine may hold up one of them for half of its time, but not each.
ATTEMPTS = 5


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return PythonProcess(
        [sys.executable, "-m", "redlock_fast", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the temporary files of a demo. pytest's own may have a path that is too long for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as path:
        yield Path(path)


@contextlib.contextmanager
def working(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A demo whose two workers have begun, and the command lines of those."""
    with command("demo", "--seconds", "600", "--workers", "2", TMPDIR=str(folder)) as demo:
        try:

            def begun() -> bool:
                assert demo.poll() is None
                return any(counter.read_text() > "0" for counter in folder.rglob("counter"))

            eventually(begun, "the workers count")
            workers = [line for line in processes(str(folder)) if "redlock_fast.cli.demo.worker" in line]
            assert len(workers) == 2
            yield demo, workers
        finally:
            demo.kill()


def processes(mark: str) -> list[str]:
    """The command lines that contain ``mark``."""
    return [line for line in command_lines() if mark in line]


def test_the_counter_is_read_while_a_worker_writes_it() -> None:
    """Of 999 and 1000, a reading between the bytes may find 9990."""

    class Counter:
        readings = iter(["9990", "1000", "1000", "1000"])

        def read_text(self) -> str:
            return next(self.readings)

    assert _demo._read(Counter()) == 1000  # type: ignore[arg-type]


# -- as users run it ---------------------------------------------------------------------------


def test_the_demo_passes_and_leaves_nothing(engine_name: str, folder: Path) -> None:
    for _ in range(ATTEMPTS):
        demo = command("demo", "--seconds", "0.5", "--json", "--engine", engine_name, TMPDIR=str(folder))
        out, progress = demo.communicate(timeout=PATIENCE)
        result = json.loads(out)
        if 0 < result["cycles_after_kill"] < result["cycles"]:
            break
    assert demo.returncode == 0, out + progress
    assert result["passed"] is True
    assert result["failures"] == []
    assert result["engine"] == engine_name
    assert result["counter"] == result["cycles"] > result["cycles_after_kill"] > 0
    assert (result["masters"], result["alive"]) == (5, 4)
    assert result["keys_left"] == result["lost"] == 0
    assert 0 < result["acquire_us"]["p50"] <= result["acquire_us"]["p99"]
    assert result["acquire_us"]["p50"] < result["cycle_us"]["p50"]
    assert result["paths"]
    assert progress == ""
    assert list(folder.iterdir()) == []
    assert processes(str(folder)) == []


@pytest.mark.usefixtures("redis_server")
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo", "--masters", "1", "--workers", "2", "--seconds", "0.3", "--server", "redis"]
    assert cli.main(arguments) == 0
    out, progress = capsys.readouterr()
    assert progress == "", "no progress bar in a pipe"
    assert "[#" not in out
    rows = out.splitlines()
    assert "release path       EVALSHA" in rows
    assert "masters            1 of 1 alive" in rows
    assert "workers            2 processes on one key for 0.3 s" in rows
    assert "keys left          0" in rows
    assert rows[-1].startswith("demo passed: ")


def test_interrupted(folder: Path) -> None:
    with working(folder) as (demo, workers):
        configs = "".join(config.read_text() for config in folder.rglob("config"))
        ports = [int(port) for port in re.findall(r'^port "(\d+)"', configs, re.MULTILINE)]
        assert not any("redis://" in line for line in workers), "URLs have passwords"
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 130
    assert "redlock-fast: interrupted" in said
    assert "Traceback" not in said, said
    assert processes(str(folder)) == []
    assert list(folder.iterdir()) == []
    assert len(ports) == 5
    for port in ports:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))


def test_killed(folder: Path) -> None:
    with working(folder) as (demo, _):
        demo.kill()
        demo.wait()
        eventually(lambda: processes(str(folder)) == [], "the workers end")


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_no_server(tmp_path: Path, engine: str) -> None:
    demo = command("demo", "--server", "redis", "--engine", engine, PATH=str(tmp_path))
    out, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, out) == (64, "")
    assert said.startswith("redlock-fast: no Redis server found: install one")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    demo = command("demo", "--server", str(tmp_path / "server"))
    out, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, out) == (64, "")
    assert said == f"redlock-fast: server: '{tmp_path}/server' is not an executable file\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["demo", "--masters", "0"],
        ["demo", "--workers", "x"],
        ["demo", "--seconds", "0"],
        ["demo", "--seconds", "nan"],
        ["demo", "--engine", "rust"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="64"):
        cli.main(arguments)
    assert "usage: redlock-fast" in capsys.readouterr().err


# -- what it does when a promise is broken -----------------------------------------------------

GOOD: dict[str, Any] = {
    "cycles": 1000,
    "counter": 1000,
    "keys_left": 0,
    "lost": 0,
    "cycles_after_kill": 400,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"cycles_after_kill": None}, []),
        ({"counter": 999}, ["the counter is 999 after 1,000 lock cycles"]),
        ({"counter": 1001}, ["the counter is 1,001 after 1,000 lock cycles"]),
        ({"keys_left": 3}, ["3 keys left on the masters"]),
        ({"lost": 1}, ["1 locks lost while they were held"]),
        ({"cycles_after_kill": 0}, ["no lock was acquired after a master was killed"]),
        ({"cycles": 0, "counter": 0, "cycles_after_kill": 0}, ["no lock was acquired"]),
    ],
)
def test_what_is_a_failure(change: dict[str, Any], words: list[str]) -> None:
    assert _demo.failures(GOOD | change) == words


def test_a_key_left_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_demo, "KEYS_TIMEOUT", 0.0)
    together = _demo._together

    def and_a_key(masters: Masters, *others: Any) -> dict[str, Any]:
        masters[0].ask("SET forgotten key")
        return together(masters, *others)

    monkeypatch.setattr(_demo, "_together", and_a_key)
    assert cli.main(["demo", "--seconds", "0.2", "--masters", "1", "--workers", "1"]) == 1  # kills none
    assert capsys.readouterr().out.endswith("\n\ndemo failed: 1 keys left on the masters\n")


def test_a_worker_that_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RedlockError, match="worker of the demo failed"):
        _demo_pool.WorkerPool(2, urls=["nonsense"], engine="auto", seconds=1).__enter__()
    assert "ConfigError" in capfd.readouterr().err


def test_a_worker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_demo_pool, "START_TIMEOUT", -1.0)
    with pytest.raises(RedlockError, match="does not come to its end"):
        _demo_pool.WorkerPool(1, urls=["redis://127.0.0.1:1"], engine="auto", seconds=1).__enter__()


def test_an_interrupt_at_any_moment_of_listen() -> None:
    """It reaches the caller, and a thread that reads from a worker can still pass on a message."""
    pool = _demo_pool.WorkerPool(1, urls=[], seconds=PATIENCE)
    files = _demo_pool.__file__, queue.__file__, threading.__file__
    raised: list[BaseException] = []

    def listen() -> None:
        try:
            pool.listen(0.001)
        except BaseException as error:
            raised.append(error)

    def pass_on() -> None:
        assert [type(error) for error in raised] in ([], [KeyboardInterrupt])
        raised.clear()
        cycles = pool.cycles + 1
        start(lambda: pool._messages.put((0, {"cycles": cycles}))).result(PATIENCE)
        pool.listen()
        assert pool.cycles == cycles

    assert moments(listen, interrupt, pass_on, files.__contains__) >= 2


# -- parts -------------------------------------------------------------------------------------


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = _demo.ProgressBar(10.0)
    for elapsed in (0.0, 0.05, 5.0, 99.0):
        bar.show(elapsed, "text")
    bar.end()
    shown = [part.rstrip() for part in terminal.getvalue().split("\r")]
    assert shown == [
        "",
        "[                        ]   0%  text",
        "[############            ]  50%  text",
        "[########################] 100%  text",
        "",
        "",
    ]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The output of a worker that runs here, not in a process of its own."""
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(_demo_worker, "send_message", lambda **message: said.append(message))
    return said


def run_worker(monkeypatch: pytest.MonkeyPatch, urls: list[str], **setting: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{json.dumps(urls)}\n\n"))
    monkeypatch.setattr(sys, "argv", ["worker", json.dumps({"engine": "auto", "seconds": TURNS} | setting)])
    # A second passes with each turn of the worker, however long it takes.
    monkeypatch.setattr(_demo_worker, "time", SimpleNamespace(monotonic=itertools.count(100.0).__next__))
    _demo_worker.main()


def test_a_worker_counts_what_it_could_not_do(
    monkeypatch: pytest.MonkeyPatch, words: list[dict[str, Any]], tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("7")
    monkeypatch.setattr(_demo_worker, "WAIT", 0.05)
    with Masters(3) as masters:
        run_worker(monkeypatch, urls=masters.urls, counter=str(counter))
        assert words[0] == {"ready": True}
        assert words[-1]["result"]["paths"] == ["DELIFEQ"]
        cycles = words[-1]["result"]["cycles"]
        assert counter.read_text() == str(7 + cycles)
        assert 0 < words[-2]["cycles"] <= cycles

        def lose(path: str) -> None:
            for master in masters:
                master.ask("DEL demo")

        monkeypatch.setattr(_demo_worker, "increment", lose)
        run_worker(monkeypatch, urls=masters.urls, counter=str(counter))
        assert words[-1]["result"]["lost"] > 0

        for master in masters:
            master.ask("SET demo taken")
        run_worker(monkeypatch, urls=masters.urls, counter=str(counter))
        assert words[-1]["result"]["contended"] > 0

        monkeypatch.setattr(_demo_worker, "CONNECT", 0.1)
        masters[0].kill()
        masters[1].kill()
        run_worker(monkeypatch, urls=masters.urls, counter=str(counter))
        assert words[-1]["result"]["unavailable"] > 0


def test_words_are_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    _demo_worker.send_message(cycles=1, ready=True)
    assert capsys.readouterr().out == '{"cycles": 1, "ready": true}\n'


def test_an_interrupt_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(_demo, "run", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "\nredlock-fast: interrupted\n"


def test_an_engine_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> type:
        raise ConfigError("engine 'native' is not built here")

    monkeypatch.setattr("redlock_fast.cli.demo.run.load", missing)
    assert cli.main(["demo", "--engine", "native"]) == 64
