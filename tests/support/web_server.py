"""A web server with two worker processes, and requests to it while masters fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from support.waiting import DEADLINE, eventually
from support.web_apps import TTL

from redlock_fast.embedded import Masters

GUNICORN = [
    "--workers=2",
    "--threads=4",
    "--preload",
    "--no-control-socket",
    "--bind=fd://{fd}",
    "--log-level=warning",
]
UVICORN = ["--workers=2", "--factory", "--fd={fd}", "--log-level=warning", "--no-access-log"]
TESTS = Path(__file__).parents[1]
CALLERS = 6


@contextmanager
def serving(command: Sequence[str], masters: Masters, log: Path) -> Iterator[str]:
    """The URL of a server that runs ``command``. Connections wait until the server is up."""
    with started(command, masters, log) as (url, process):
        yield url
        process.terminate()
        assert process.wait(DEADLINE) in (0, -15)


@contextmanager
def started(
    command: Sequence[str], masters: Masters, log: Path
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same, and its process, which is killed unless it has ended."""
    log.touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by connections
        fd = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", *(word.format(fd=fd) for word in command)],
            env={**os.environ, "MASTERS": " ".join(masters.urls), "WORK_LOG": str(log)},
            cwd=TESTS,
            pass_fds=[fd],
            start_new_session=True,
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", process
        finally:
            process.kill()
            process.wait()


class Traffic:
    """Threads that send requests for one order, through ``paths`` in turn, until ``done()``."""

    def __init__(self, url: str, paths: Sequence[str]) -> None:
        self.answers: list[httpx.Response] = []
        self._url, self._paths = url, paths
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=[number]) for number in range(CALLERS)]

    def _call(self, number: int) -> None:
        path = self._paths[number % len(self._paths)]
        close = {"Connection": "close"}  # each request may reach each process
        options: dict[str, Any] = {"headers": close, "trust_env": False, "verify": False, "timeout": DEADLINE}
        with httpx.Client(base_url=self._url, **options) as client:  # verify would read certificates
            while not self._ended.is_set():
                self.answers.append(client.post(path))

    def processes(self) -> set[int]:
        return {answer.json()["process"] for answer in self.answers if answer.status_code == 200}

    def count(self, status: int) -> int:
        others = [answer.text for answer in self.answers if answer.status_code not in (200, 409)]
        assert not others, others
        return sum(answer.status_code == status for answer in self.answers)

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def check_exclusion(log: Path) -> int:
    """The number of works in the file. Each ended before the next began."""
    lines = log.read_text().split("\n")[:-1]
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert begin.removeprefix("begin ") == end.removeprefix("end "), "two requests were inside at once"
    return len(lines) // 2


def first_granted(client: httpx.Client, path: str) -> httpx.Response:
    """The first answer that is no refusal: a busy machine may grant a short lease too late."""
    answers: list[httpx.Response] = []

    def granted() -> bool:
        answers.append(client.post(path))
        return answers[-1].status_code not in (409, 503)

    eventually(granted, f"{path} is granted", deadline=40.0)
    return answers[-1]


def check_disconnection(command: Sequence[str], masters: Masters, log: Path) -> None:
    """A client disconnects while a thread works for its view: no request begins before that has ended."""
    options: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": DEADLINE}
    with serving(command, masters, log) as url, httpx.Client(base_url=url, **options) as client:
        with socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 80)) as leaving:
            leaving.sendall(b"POST /thread/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            eventually(lambda: log.read_text().startswith("begin"), "the thread works", deadline=40.0)
        for _ in range(20):
            assert client.post("/thread/1").status_code == 409
        log.with_name("go").touch()
        assert first_granted(client, "/thread/1").status_code == 200
    assert check_exclusion(log) == 2


def check_server(command: Sequence[str], masters: Masters, log: Path, paths: Sequence[str]) -> None:
    """One request at a time works, in two processes and while a master dies; the others get 409.

    Without a quorum requests get 503, and they work again when the masters are back.
    """
    with serving(command, masters, log) as url:
        with Traffic(url, paths) as traffic:
            eventually(lambda: traffic.count(200) >= 3, "requests work", deadline=40.0)
            masters[0].kill()
            before = traffic.count(200)
            eventually(
                lambda: (
                    traffic.count(200) >= before + 10
                    and traffic.count(409) >= 5
                    and len(traffic.processes()) == 2
                ),
                "both processes work after the death of a master, and refuse requests",
                deadline=40.0,
            )
        assert {a.headers.get("Retry-After") for a in traffic.answers if a.status_code == 409} == {
            f"{TTL:.0f}"
        }
        assert check_exclusion(log) == traffic.count(200)
        with httpx.Client(base_url=url, trust_env=False, timeout=DEADLINE) as client:
            late = first_granted(client, "/late/1")
            assert (late.status_code, "Retry-After" in late.headers) == (500, False), late.text
            for master in list(masters)[1:3]:
                master.pause()
            down = client.post(paths[0])
            assert (down.status_code, down.headers["Retry-After"]) == (503, f"{TTL:.0f}")
            assert "detail" in down.json()
            assert not any(str(master.port) in down.text for master in masters), "no addresses"
            for master in list(masters)[1:3]:
                master.resume()
            eventually(lambda: client.post(paths[0]).status_code == 200, "the masters are back")
