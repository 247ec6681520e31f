"""Tricks of a master that is hostile, each in a process of its own: its work is not the client's.

``python -m support.attacks NAME`` prints a port, and ends with its stdin.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from support.hostile import ATTACKS, LONG_REPLY, Attack, Hostile, Talking, endless
from support.python_process import PythonProcess
from support.scripted import Words
from support.watching import invalidate

TESTS = Path(__file__).parent.parent
#: Seconds between two bytes that drip; that a master behaves before it closes, more than a brief connection.
DRIP, BEHAVES = 0.003, 1.1

GRANTS = {b"ACQUIRE": b"+OK\r\n", b"DELIFEQ": b":1\r\n"}
#: Keys that no client watches, all that one push may name; and one each.
STORM = invalidate(*[b"orders:%d" % number for number in range(5000)])
SMALL_PUSH = b">2\r\n+x\r\n+y\r\n"
PUSHES = b"".join(invalidate(b"orders:%d" % number) for number in range(1000))


def drip(data: bytes) -> Attack:
    """``data`` byte by byte, again and again."""

    def attack() -> Iterator[bytes]:
        for byte in itertools.cycle(data):
            yield bytes((byte,))
            time.sleep(DRIP)

    return attack


def then(data: bytes, seconds: float = 0.0) -> Attack:
    """``data``, and the end of the connection so many seconds later."""

    def attack() -> Iterator[bytes]:
        yield data
        time.sleep(seconds)
        raise ConnectionError

    return attack


def silence() -> Iterator[bytes]:
    """It reads no more, either."""
    threading.Event().wait()
    yield b""


class Beside(Talking):
    """It grants all, and attacks at the same time."""

    def __init__(self, attack: Attack) -> None:
        self._beside = attack
        self._sending = threading.Lock()
        self._attacked: set[socket.socket] = set()
        super().__init__(GRANTS)

    def _answer(self, sock: socket.socket, words: Words) -> None:
        with self._sending:
            super()._answer(sock, words)
        if b"NX" in words and sock not in self._attacked:
            self._attacked.add(sock)
            self._start(lambda: self._flood(sock))

    def _flood(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for piece in self._beside():
                with self._sending:
                    sock.sendall(piece)


class Flapping(Hostile):
    """Closes each connection at once."""

    def __init__(self) -> None:
        super().__init__(silence, b"")

    def _serve(self, sock: socket.socket) -> None:
        sock.close()


class Brief(Talking):
    """Grants all, and closes each connection after BEHAVES seconds."""

    def __init__(self) -> None:
        super().__init__(GRANTS)

    def _serve(self, sock: socket.socket) -> None:
        timer = threading.Timer(BEHAVES, lambda: sock.shutdown(socket.SHUT_RDWR))
        timer.daemon = True
        timer.start()
        super()._serve(sock)
        timer.cancel()


def in_place(attack: Attack, trigger: bytes = b"ACQUIRE") -> Callable[[], Hostile]:
    return lambda: Hostile(attack, trigger)


def granting(**others: bytes) -> Callable[[], Hostile]:
    """Grants all, but answers these commands otherwise."""
    return lambda: Talking({**GRANTS, **{name.encode(): reply for name, reply in others.items()}})


POLITE_MASTER, SILENT_MASTER = "polite", "silent"
TRICKS: dict[str, Callable[[], Hostile]] = {
    POLITE_MASTER: granting(),
    SILENT_MASTER: in_place(silence),
    # In place of a reply
    **{name: in_place(ATTACKS[name]) for name in ("endless replies", "endless grants", "wide", "dribble")},
    **{name: in_place(ATTACKS[name]) for name in ("endless line", "pushes", "big pushes", "attributes")},
    "key storm": in_place(endless(STORM)),
    "drip array": in_place(drip(b"*1300\r\n" + b":1\r\n" * 1000)),
    "drip map": in_place(drip(b"%600\r\n" + b"+k\r\n:1\r\n" * 500)),
    "drip attributes": in_place(drip(b"|1\r\n+k\r\n:1\r\n")),
    "drip nested": in_place(drip(b"*4\r\n%1\r\n+k\r\n" * 3 + b"*1000\r\n" + b"_\r\n" * 1000)),
    "drip push": in_place(drip(STORM)),
    # Between replies that are right
    "pushes beside": lambda: Beside(endless(SMALL_PUSH)),
    "key pushes beside": lambda: Beside(endless(PUSHES)),
    "key storm beside": lambda: Beside(endless(STORM)),
    "attributes beside": lambda: Beside(ATTACKS["attributes"]),
    "drip push beside": lambda: Beside(drip(SMALL_PUSH)),
    # Out of step
    "two replies": granting(ACQUIRE=b"+OK\r\n+OK\r\n"),
    "wrong type": granting(ACQUIRE=b":1\r\n"),
    "long errors": granting(ACQUIRE=LONG_REPLY, DELIFEQ=LONG_REPLY),
    "errors": granting(ACQUIRE=b"-ERR \x1b[2J no\r\n", DELIFEQ=b"-ERR no\r\n"),
    "read-only": granting(ACQUIRE=b"-READONLY no\r\n"),
    "cut": in_place(then(b"$100\r\nxx")),
    "closes": in_place(then(b"")),
    "flushes": granting(ACQUIRE=b">2\r\n$10\r\ninvalidate\r\n_\r\n"),
    # At dialling
    "flapping": Flapping,
    "brief": Brief,
    "silent at HELLO": in_place(silence, b"HELLO"),
    "drip at HELLO": in_place(drip(b"%600\r\n" + b"+k\r\n:1\r\n" * 500), b"HELLO"),
    "endless at INFO": in_place(endless(b"+OK\r\n"), b"INFO"),
    "huge at INFO": granting(INFO=b"$60000\r\n%b\r\n" % (b"a:\x1b\r\n" * 12000)),
    "pushes at ROLE": in_place(ATTACKS["pushes"], b"ROLE"),
}


class Process:
    """A trick that runs: its ``url``."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "support.attacks", name]
        paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        self._process = PythonProcess(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
        )
        assert self._process.stdout
        self.url = f"redis://127.0.0.1:{int(self._process.stdout.readline())}"

    def spent(self) -> float:
        """Seconds of a processor that it has used."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.kill()
        with self._process:  # closes its pipes, and waits
            pass


def main(name: str) -> None:
    print(TRICKS[name]().port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
