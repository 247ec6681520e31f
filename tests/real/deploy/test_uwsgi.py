"""uWSGI forks its workers in C, from a process that has a client and holds a lock."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.makers import Raw
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Masters
from redlock_fast.masters import client_state

pytest.importorskip("pyuwsgi", reason="no uWSGI: pip install 'redlock-fast[integrations-test]'")

TESTS = Path(__file__).parents[2]
WORKERS = 3
COMPILED = not client_state.__file__.endswith(".py")
#: Seconds: for the answer of a worker that may hang, and for workers to end before they are killed.
PATIENCE, MERCY = 1.0, 2.0


@contextmanager
def uwsgi(masters: Masters, folder: Path, *options: str, **environment: str) -> Iterator[httpx.Client]:
    """A client of the server. Workers that do not end are killed."""
    (folder / "counter").write_text("0")
    with socket.create_server(("127.0.0.1", 0)) as listener, (folder / "log").open("w") as log:
        command = ["import pyuwsgi; pyuwsgi.run()", f"--http-socket=fd://{listener.fileno()}", "--master"]
        command += ["--need-app", "--die-on-term", f"--processes={WORKERS}", f"--pythonpath={TESTS}"]
        process = subprocess.Popen(
            [sys.executable, "-c", *command, "--module=support.worker_uwsgi", *options],
            env=os.environ | {"MASTERS": " ".join(masters.urls), "FOLDER": str(folder)} | environment,
            pass_fds=[listener.fileno()],
            stderr=log,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=2 * DEADLINE) as client:
                yield client
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(MERCY)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tokens(folder: Path) -> dict[int, bytes]:
    """The tokens of the processes that got the lock when they loaded the application."""
    return {int(path.name): path.read_bytes() for path in folder.iterdir() if path.name.isdigit()}


@pytest.mark.parametrize("options", [(), ("--lazy-apps", "--enable-threads")], ids=["default", "lazy"])
def test_a_client_that_workers_use_first(
    valkey: Masters, tmp_path: Path, engine_name: str, options: tuple[str, ...]
) -> None:
    """It is made before the fork. Workers end after some requests, and others take their places."""
    more = ("--max-requests=4", "--min-worker-lifetime=1", *options)
    with uwsgi(valkey, tmp_path, *more, ENGINE=engine_name) as client:
        answers: list[dict[str, object]] = []

        def workers_were_replaced() -> bool:
            answers.append(client.get("/inherited").json())
            return len({answer["process"] for answer in answers}) > WORKERS

        eventually(workers_were_replaced, "workers are replaced", deadline=2 * DEADLINE)
        assert (tmp_path / "counter").read_text() == str(len(answers)), "no update is lost"


@pytest.mark.parametrize(
    "options",
    [(), ("--enable-threads",), ("--py-call-osafterfork",), ("--max-requests=4", "--min-worker-lifetime=1")],
    ids=["default", "threads", "told", "replaced"],
)
def test_workers_hold_nothing_of_the_process_that_forked_them(
    valkey: Masters, raw: Raw, tmp_path: Path, engine_name: str, options: tuple[str, ...]
) -> None:
    """Catches: a lock that each worker believes to hold; a worker that deletes its master's key; a worker
    that hangs, because a thread of its master had the GIL when it was forked.

    Only compiled code can prevent the last one. Where nothing is compiled, such a worker gives no answer.
    """
    with uwsgi(valkey, tmp_path, *options, ENGINE=engine_name, HOLDS="1") as client:
        answers = []
        for _ in range(2 * WORKERS):
            with contextlib.nullcontext() if COMPILED else contextlib.suppress(httpx.TimeoutException):
                timeout = 2 * DEADLINE if COMPILED else PATIENCE
                answers.append(client.get("/inherited", timeout=timeout).json())
        for answer in answers:
            assert (answer["held"], answer["token"], answer["released"], answer["taken"]) == (False,) * 4
            assert answer["reason"]

        def every_worker_has_answered() -> bool:
            answers.append(client.get("/inherited").json())
            return len({answer["process"] for answer in answers}) >= WORKERS

        if COMPILED:
            with ThreadPoolExecutor(WORKERS) as pool:
                eventually(
                    lambda: any(pool.map(lambda _: every_worker_has_answered(), range(WORKERS))),
                    "all workers answer",
                    deadline=3 * DEADLINE,
                )
    said = "unseen-fork: uWSGI forks its workers" in (tmp_path / "log").read_text()
    assert said is not COMPILED
    (token,) = tokens(tmp_path).values()
    assert [server.get("inherited") for server in raw(valkey)] == [token] * 5, "workers have ended"


def test_workers_that_load_the_application_themselves(
    valkey: Masters, tmp_path: Path, engine_name: str
) -> None:
    """With ``--lazy-apps`` one of them holds the lock. (uWSGI runs no exit handlers in a busy worker.)"""
    with uwsgi(valkey, tmp_path, "--lazy-apps", ENGINE=engine_name, HOLDS="1") as client:
        answers = [client.get("/").json() for _ in range(4 * WORKERS)]
        (holder,) = tokens(tmp_path)
        assert {answer["process"] for answer in answers if answer["held"]} <= {holder}
        assert (tmp_path / "counter").read_text() == str(len(answers))
    assert "unseen-fork" not in (tmp_path / "log").read_text()
