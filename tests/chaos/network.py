"""A network that does worse than delay: it partitions, and injects faults into single pieces."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Callable

from chaos.worker import KEY
from support.proxy import Pipe, Proxy, reset_socket
from support.scripted import Words, take_commands

from redlock_fast.wire.commands import bulk

REQUESTS, REPLIES = True, False

#: What no server says: a client that reads one of these must close the connection.
GARBAGE = (
    b"?\r\n",
    b"\0\xff\0\xff",
    b"$99999999999999999999\r\n",
    b"*-5\r\n",
    b"HTTP/1.1 400\r\n",
    b":1x\r\n",
)

#: Seconds.
STALL = 0.3, 1.5
BEFORE_RESET, BETWEEN_BYTES, AFTER_RELEASE, FOR_A_SET = 0.01, 0.0003, 0.02, 0.5

#: Injects a fault into a piece of bytes; False if the piece is not a suitable one.
Trick = Callable[["Network", Pipe, bytes], bool]


class Network(Proxy):
    """The way to one master.

    ``blocked``: directions whose bytes are kept back, as by a partition, until ``heal``. ``error``:
    what the master is made to answer to every acquire. ``played``: how often each fault was injected.
    """

    def __init__(self, upstream: int, seed: int) -> None:
        self.blocked: frozenset[bool] = frozenset()
        self.error = b""
        self.played: Counter[str] = Counter()
        self.chance = random.Random(seed)
        self.late_sets: dict[bytes, tuple[socket.socket, bytes]] = {}
        self._tricks: list[tuple[bool, Trick]] = []
        self._stuck: list[tuple[Pipe, bytes]] = []
        super().__init__(upstream)

    def add_trick(self, direction: bool, trick: Trick) -> None:
        """Inject a fault into the next piece that it suits."""
        self._order(lambda: self._tricks.append((direction, trick)))

    def heal(self) -> None:
        """End all faults: what was kept back arrives."""
        self._order(self._heal)

    def lose_late_sets(self) -> None:
        """Drop the held-back SETs without a later release: their lease or their client ended first."""
        self._order(self._lose_late_sets)

    def close(self) -> None:
        super().close()
        self._lose_late_sets()

    # --- in the proxy's thread ---

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe.from_client in self.blocked:
            self.played["kept back"] += 1
            self._stuck.append((pipe, data))
            return
        for entry in self._tricks if data else ():
            direction, trick = entry
            if direction == pipe.from_client and trick(self, pipe, data):
                self._tricks.remove(entry)
                self.played[trick.__name__] += 1
                return
        if pipe.from_client:
            data = self._with_error(data) if self.error else data
            self._send_late_sets(data)
        self.carry(pipe, data)

    def _heal(self) -> None:
        self.blocked, self.error = frozenset(), b""
        self._tricks.clear()
        stuck, self._stuck = self._stuck, []
        for pipe, data in stuck:
            if pipe in self._pipes:
                self.arrived(pipe, data)

    def _lose_late_sets(self) -> None:
        for sock, _ in self.late_sets.values():
            sock.close()
        self.late_sets.clear()

    def _with_error(self, data: bytes) -> bytes:
        commands = whole_commands(data)
        if not any(map(is_acquire, commands)):
            return data
        self.played["error"] += 1
        script = b"return redis.error_reply('%b')" % self.error
        return b"".join(encode((b"EVAL", script, b"0") if is_acquire(one) else one) for one in commands)

    def _send_late_sets(self, data: bytes) -> None:
        """A SET that was kept back goes out once its release went another way."""
        for token in [token for token in self.late_sets if token in data]:
            sock, words = self.late_sets.pop(token)
            lane = Pipe(sock, sock, REQUESTS)
            lane.ended = True  # its replies are not read
            self._pipes.add(lane)
            self.carry(lane, words, AFTER_RELEASE)
            self.carry(lane, None, FOR_A_SET)
            self.played["late SET"] += 1


# --- tricks --------------------------------------------------------------------------------------


def lose_reply(network: Network, pipe: Pipe, data: bytes) -> bool:
    """The master executed it; its reply is lost."""
    network.carry(pipe, None, BEFORE_RESET)
    return True


def cut_reply(network: Network, pipe: Pipe, data: bytes) -> bool:
    """A reset in the middle of a reply."""
    network.carry(pipe, data[: len(data) // 2])
    network.carry(pipe, None)
    return True


def garble(network: Network, pipe: Pipe, data: bytes) -> bool:
    network.carry(pipe, network.chance.choice(GARBAGE) + data)
    return True


def stall(network: Network, pipe: Pipe, data: bytes) -> bool:
    """The connection delivers late, also what is written to it after this; a new one does not."""
    network.carry(pipe, data, network.chance.uniform(*STALL))
    return True


def dribble(network: Network, pipe: Pipe, data: bytes) -> bool:
    """Byte by byte."""
    for place in range(len(data)):
        network.carry(pipe, data[place : place + 1], BETWEEN_BYTES * place)
    return True


def delay_set(network: Network, pipe: Pipe, data: bytes) -> bool:
    """The client's connection breaks; the SET that was on its way arrives after its release did."""
    commands = whole_commands(data)
    number = next((n for n, words in enumerate(commands) if is_acquire(words)), None)
    if number is None:
        return False
    server, words = pipe.sink, commands[number]
    server.sendall(b"".join(map(encode, commands[:number])))
    network.late_sets[words[2]] = (server, encode(words))
    network.forget(pipe)
    reset_socket(pipe.source)
    return True


# --- commands ------------------------------------------------------------------------------------


def whole_commands(data: bytes) -> list[Words]:
    """The commands in ``data``; none if it does not begin and end with one."""
    rest = bytearray(data)
    try:
        commands = take_commands(rest)
    except AssertionError:
        return []
    return [] if rest else commands


def is_acquire(words: Words) -> bool:
    """Of the lock. A client also sets its mark, again on each new connection, and its probe sets keys."""
    return words[0] == b"SET" and words[1] == KEY.encode() and b"NX" in words


def encode(words: Words) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))
