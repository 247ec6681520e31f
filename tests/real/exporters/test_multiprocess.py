"""Metrics of a server with several workers: a scrape of any worker has the counts of all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.forking import needs_fork
from support.waiting import DEADLINE, eventually, pauses

from redlock_fast.embedded import Masters

TESTS = Path(__file__).parents[2]
Sample = Callable[..., float | None]


def sample(page: str, name: str, **labels: str) -> float | None:
    """The value of ``redlock_fast_NAME`` with these labels; None if the page has none."""
    wanted = {"client": "shop", "group": "", **labels}
    for family in text_string_to_metric_families(page):
        for one in family.samples:
            if one.name == f"redlock_fast_{name}" and one.labels == wanted:
                return float(one.value)
    return None


def listens(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:  # the file exists a moment before
        return sock.connect_ex(str(address)) == 0


@pytest.fixture
def environment(valkey: Masters, tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "files"
    folder.mkdir()
    here = {"MASTERS": " ".join(valkey.urls[:3]), "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    return {**os.environ, **here, "PYTHONPATH": str(TESTS)}


@pytest.fixture
def server(environment: dict[str, str], tmp_path: Path) -> Iterator[httpx.Client]:
    """gunicorn with two workers that were forked from a process with the client."""
    pytest.importorskip("gunicorn", reason="gunicorn is not installed: pip install -e '.[integrations-test]'")
    address = tmp_path / "http"
    module = "support.worker_gunicorn"
    options = ["--preload", "--workers", "2", "--bind", f"unix:{address}", "--config", f"python:{module}"]
    command = [sys.executable, "-m", "gunicorn", *options, f"{module}:application"]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    transport = httpx.HTTPTransport(uds=str(address))
    try:
        eventually(lambda: listens(address) or process.poll() is not None, "it serves")
        assert process.poll() is None, log.read_text()
        with httpx.Client(transport=transport, base_url="http://shop", timeout=60.0) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def test_gunicorn(server: httpx.Client) -> None:
    requests, pids = 0, set()

    def both() -> bool:
        nonlocal requests
        pids.add(server.get(f"/{requests}").text)
        requests += 1
        return len(pids) == 2 and requests >= 20

    eventually(both, "both workers have locked")

    def scraped(name: str, **labels: str) -> float | None:
        for pause in pauses("a scrape", DEADLINE):
            page = server.get("/metrics")
            if page.status_code == 200:
                return sample(page.text, name, **labels)
            time.sleep(pause)  # prometheus_client cannot read a file that a new worker has just created
        raise AssertionError("unreachable")

    def all_counted() -> bool:
        return scraped("acquires_total", outcome="acquired") == requests + 1

    eventually(all_counted, "each lock is counted once, also that of the process that forked")
    request = {"kind": "plain", "label": "request", "outcome": "released"}
    eventually(lambda: scraped("hold_time_seconds_count", **request) == requests, "all are measured")
    assert scraped("hold_time_seconds_bucket", **request, le="+Inf") == requests
    assert scraped("hold_time_seconds_count", **{**request, "label": "preload"}) == 1
    assert scraped("grant_seconds_count") == requests + 1
    assert scraped("quorum") == 2
    assert scraped("held") == 0
    kept_pid = int(server.get("/keep").text)
    eventually(lambda: scraped("held") == 1, "a worker holds a lock")
    before = scraped("acquires_total", outcome="acquired") or 0.0
    os.kill(kept_pid, signal.SIGKILL)
    eventually(lambda: scraped("held") == 0, "the gauges of a dead worker go")
    assert (scraped("acquires_total", outcome="acquired") or 0.0) >= before, "its counts stay"


PROGRAM = """
    import os
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
    from redlock_fast import FastRedlock
    from redlock_fast.prometheus import RedlockCollector

    metrics = RedlockCollector(every=3600)
    with FastRedlock(os.environ["MASTERS"].split(), node_timeout=5.0, connect_timeout=20.0) as client:
        metrics.add(client, "shop", durations=True)
        children = []
        for number in range(2):
            with client.lock("r"):
                pass
            children.append(os.fork())
            if not children[-1]:
                with client.lock(f"child {number}"):
                    pass
                raise SystemExit
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    metrics._files.write()
    MultiProcessCollector(registry := CollectorRegistry())
    print(generate_latest(registry).decode())
"""


@needs_fork
def test_children_of_fork(environment: dict[str, str]) -> None:
    """What the parent counted is not counted again. The exit writes the counts, also of closed clients."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    page = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert sample(page, "acquires_total", outcome="acquired") == 4
    assert sample(page, "releases_total", outcome="released") == 4
    assert sample(page, "wait_time_seconds_count", kind="plain", label="", outcome="acquired") == 4


NEXT_CLIENTS = """
    import os
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
    from redlock_fast import FastRedlock
    from redlock_fast.prometheus import RedlockCollector

    metrics = RedlockCollector(every=3600)

    def use(locks):
        with FastRedlock(os.environ["MASTERS"].split(), node_timeout=5.0, connect_timeout=20.0) as client:
            metrics.add(client, "shop", durations=True)
            for _ in range(locks):
                with client.lock("r"):
                    pass
            metrics._files.write()
        return client

    closed = use(3)
    child = os.fork()
    use(2)  # of a client that still exists: what it counted since the last write is known
    closed = None
    use(1)  # of one that is gone
    if not child:
        raise SystemExit
    assert os.waitpid(child, 0)[1] == 0
    MultiProcessCollector(registry := CollectorRegistry())
    print(generate_latest(registry).decode())
"""


@needs_fork
def test_the_next_client_counts_on(environment: dict[str, str]) -> None:
    """Catches: a count that falls, which a rate over the sum of all workers takes for many new locks."""
    command = [sys.executable, "-c", textwrap.dedent(NEXT_CLIENTS)]
    page = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert sample(page, "acquires_total", outcome="acquired") == 3 + 2 * (2 + 1)
    waits = {"kind": "plain", "label": "", "outcome": "acquired"}
    assert sample(page, "wait_time_seconds_count", **waits) == 3 + 2 * (2 + 1)
    assert sample(page, "wait_time_seconds_bucket", **waits, le="+Inf") == 3 + 2 * (2 + 1)


def test_folder_that_is_missing(environment: dict[str, str]) -> None:
    Path(environment["PROMETHEUS_MULTIPROC_DIR"]).rmdir()
    command = [sys.executable, "-c", "from redlock_fast.prometheus import RedlockCollector as C; C()"]
    done: Any = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "ConfigError: PROMETHEUS_MULTIPROC_DIR must be an existing directory" in done.stderr
