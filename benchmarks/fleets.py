"""Starts the masters of a scenario."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from redlock_fast import embedded
from redlock_fast.masters.membership import record_key
from redlock_fast.wire import dialect as _dialect

HERE = Path(__file__).parent

#: What a late master adds to every round trip, in seconds.
LATE = 0.020

#: Seconds after a turn in which the last keys may still disappear.
SETTLING = 0.3


class Fleet:
    """Real masters, and the ``urls`` by which implementations reach them."""

    def __init__(self, masters: embedded.Masters, urls: list[str]) -> None:
        self.masters = masters
        self.urls = urls
        self.ports = [master.port for master in masters]
        self.pids = [master.pid for master in masters]
        self.release_path = release_path(masters)

    @property
    def path(self) -> str:
        return self.release_path.partition(":")[0]

    @property
    def server(self) -> str:
        asked = subprocess.run([self.masters.binary, "--version"], capture_output=True, text=True, timeout=10)
        return " ".join(asked.stdout.split()[:3])

    def before(self) -> None:
        for master in self.masters:
            master.ask("CONFIG RESETSTAT")

    def after(self) -> int:
        """Remove what a turn left behind; return how many keys that was, without records of the list."""
        for master in self.masters:
            master.resume()
        deadline = time.monotonic() + SETTLING
        while (left := self.keys()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for master in self.masters:
            master.ask("FLUSHALL")
        return left

    def keys(self) -> int:
        """The number of keys on all masters, without the records of their list."""
        record = record_key(b"").decode()
        return sum(int(one.ask("DBSIZE")[1:]) - int(one.ask(f"EXISTS {record}")[1:]) for one in self.masters)

    def tries(self) -> int:
        """The largest number of SETs that a master executed since ``before``."""
        return max(map(_sets, self.masters))


def _sets(master: embedded.Master) -> int:
    with redis.Redis(unix_socket_path=master.socket_path) as client:
        return int(client.info("commandstats").get("cmdstat_set", {}).get("calls", 0))


def release_path(masters: embedded.Masters) -> str:
    """The fastest compare-and-delete that the masters have, as floor.c wants it."""
    script = _dialect.COMPARE_AND_DELETE
    if masters[0].ask("DELIFEQ no token").startswith(":"):
        return "DELIFEQ"
    if masters[0].ask("DELEX no IFEQ token").startswith(":"):
        return "DELEX"
    for master in masters:
        master.ask(f'SCRIPT LOAD "{script.text.decode()}"')
    return f"EVALSHA:{script.sha1.decode()}"


@contextlib.contextmanager
def started(kind: str, server: str = "auto") -> Iterator[Fleet]:
    """A fleet by its name: a number of masters, or five masters that are "script", "redis" or "late".

    Raises the errors of embedded.Masters.
    """
    n = 5
    options: tuple[str, ...] = ()
    if kind == "script":
        options = ("--rename-command", "DELIFEQ", "")
    elif kind == "redis":
        server = "redis"
    elif kind != "late":
        n = int(kind)
    with embedded.Masters(n, server=server, options=options, password="") as masters:
        if kind != "late":
            yield Fleet(masters, masters.urls)
            return
        with late(masters[-1].port) as port:
            yield Fleet(masters, [*masters.urls[:-1], f"redis://127.0.0.1:{port}"])


@contextlib.contextmanager
def late(port: int) -> Iterator[int]:
    """Yield the port of a proxy that makes every round trip to that server LATE longer."""
    command = [sys.executable, str(HERE / "latency_proxy.py"), str(port), str(LATE / 2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdin
        assert proxy.stdout
        try:
            yield int(proxy.stdout.readline())
        finally:
            proxy.stdin.close()  # the proxy ends with its stdin
            proxy.wait(10)
