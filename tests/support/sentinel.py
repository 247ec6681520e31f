"""Sentinels: real ones, and one with scripted replies."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import redis
from support.listening import Listening
from support.scripted import Words
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Master

#: Milliseconds. A busy machine may not run a healthy master for some hundred.
DOWN_AFTER = 2000
#: Options of servers that are to be failed over in a test's time.
QUICK_REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


def replicate(fleet: Sequence[Master], port: int) -> None:
    """Make the others replicas of the first, which they reach on ``port``. They then have its data.

    WAIT also counts a replica that is loading. If that one is promoted, nothing shows that it was a replica.
    """
    master, *replicas = fleet
    for replica in replicas:
        assert replica.ask(f"REPLICAOF 127.0.0.1 {port}") == "+OK"
    eventually(lambda: master.ask("SET followed 1") == "+OK", "it takes writes", deadline=60.0)
    eventually(
        lambda: all(replica.ask("EXISTS followed") == ":1" for replica in replicas),
        "all follow",
        deadline=60.0,
    )


def promote(replica: Master, other: Master) -> None:
    """Promote ``replica``, and make ``other`` its replica, as Sentinels do."""
    assert replica.ask("REPLICAOF NO ONE") == "+OK"
    assert other.ask(f"REPLICAOF 127.0.0.1 {replica.port}") == "+OK"


class Sentinel:
    """A real one, which watches ``master`` as the service ``name``.

    ``others``: how many other services it watches, with the same master. ``down_after``: milliseconds after
    which a silent master is down. ``quorum``: how many Sentinels must find that.
    """

    def __init__(
        self,
        binary: str,
        folder: Path,
        name: str,
        master: Master,
        others: int = 0,
        down_after: int = DOWN_AFTER,
        quorum: int = 1,
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.name = name
        config = folder / f"sentinel-{self.port}.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {name} 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {name} {down_after}\n"
            f"sentinel failover-timeout {name} 3000\n"
            + "".join(f"sentinel monitor {name}-{n} 127.0.0.1 {master.port} 1\n" for n in range(others))
        )
        self._process = subprocess.Popen(
            [binary, str(config), "--sentinel"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._client = redis.Redis(port=self.port, socket_timeout=DEADLINE, protocol=2)

    def __enter__(self) -> Self:
        try:
            eventually(self._answers, "the Sentinel answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._client.close()

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self._client.ping())
        return False

    def knows_replicas(self) -> int:
        return len(self._client.sentinel_slaves(self.name))

    def master(self) -> int:
        """The port of the present master."""
        return int(self._client.sentinel_masters()[self.name]["port"])

    def knows_sentinels(self) -> int:
        """How many others watch the same service."""
        return len(self._client.sentinel_sentinels(self.name))

    def url(self, rest: str = "") -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{self.name}{rest}"


class Sentinels:
    """Three real ones, of which two fail ``master`` over. Otherwise as `Sentinel`."""

    def __init__(
        self, binary: str, folder: Path, name: str, master: Master, down_after: int = DOWN_AFTER
    ) -> None:
        self._name = name
        self._start = lambda: Sentinel(binary, folder, name, master, down_after=down_after, quorum=2)
        self._all: list[Sentinel] = []
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._exit as stack:
            for _ in range(3):
                self._all.append(stack.enter_context(self._start()))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def wait_complete(self, replicas: int) -> None:
        """Wait until each has found the others, and so many replicas."""
        eventually(
            lambda: all(one.knows_sentinels() == 2 and one.knows_replicas() == replicas for one in self._all),
            "the Sentinels find each other and the replicas",
            deadline=60.0,
        )

    def master(self) -> int:
        """The port of the present master; 0 while they disagree."""
        ports = {one.master() for one in self._all}
        return ports.pop() if len(ports) == 1 else 0

    def url(self, rest: str = "") -> str:
        places = ",".join(f"127.0.0.1:{one.port}" for one in self._all)
        return f"redis+sentinel://{places}/{self._name}{rest}"


class ScriptedSentinel(Listening):
    """Answers each command with what ``answer`` makes of it; hangs up where that is None."""

    def __init__(self, answer: Callable[[Words], bytes | None]) -> None:
        super().__init__(lambda words: b"+OK\r\n" if words[0] in (b"CLIENT", b"AUTH") else answer(words))


def master_reply(name: str, port: int, flags: str = "master") -> bytes:
    """What SENTINEL MASTER says."""
    facts = {
        **{"name": name, "ip": "127.0.0.1", "port": port, "runid": "x", "flags": flags},
        **{"num-other-sentinels": 0, "quorum": 1, "config-epoch": 0, "num-slaves": 0},
    }
    words = [str(word).encode() for pair in facts.items() for word in pair]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
