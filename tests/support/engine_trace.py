"""What an engine makes of what one master says, step by step: to be compared with what the other does."""

from __future__ import annotations

import fcntl
import socket
import termios
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from support.fleet import LONG, PLAIN, acquire, release

from redlock_fast.engine.contract import FAULT, Engine, Request, Wait
from redlock_fast.wire.commands import Dialect

PATIENCE = 10_000


class Step(NamedTuple):
    """After one piece: the connection, and the requests that were decided by now with their votes."""

    attached: bool
    owed: int
    pushes: int
    completed: dict[int, tuple[int, str | bytes]]


def lock_request(number: int) -> Request:
    return (release if number % 2 else acquire)(b"%d" % number, 1)


def observe(
    engine_class: type[Engine],
    pieces: Sequence[bytes],
    requests: int,
    commands: Dialect = PLAIN,
    request: Callable[[int], Request] = lock_request,
) -> list[Step]:
    """A step for each piece, and one for the end of the stream: by then every request is decided.

    No thread, no clock: the same bytes make the same steps.
    """
    engine = engine_class(1, lambda: None, lag_after=1e6)
    client, server = socket.socketpair()
    server.setblocking(False)
    completed: dict[int, tuple[int, str | bytes]] = {}
    steps = []
    try:
        engine.fileno()
        engine.attach(0, client, commands)
        for number in range(requests):
            engine.submit([request(number)], 1, LONG, Wait.ALL, 0.0, number)
        engine.flush()
        for piece in pieces:
            say(engine, server, piece, completed)
            steps.append(step(engine, completed))
        server.shutdown(socket.SHUT_WR)
        while engine.connection_state(0).attached:
            collect(engine, completed)
        collect(engine, completed)
        steps.append(step(engine, completed))
    finally:
        engine.close_loop_fd()
        engine.close()
        server.close()
    return steps


def say(engine: Engine, server: socket.socket, piece: bytes, completed: dict[int, Any]) -> None:
    """Send a piece, until it was read or the connection broke."""
    for _ in range(PATIENCE):
        if piece:
            try:
                piece = piece[server.send(piece) :]
            except BlockingIOError:
                pass
            except OSError:
                return
        collect(engine, completed)
        if not engine.connection_state(0).attached or not (piece or unread(server)):
            return
    raise AssertionError("the engine does not read")


def unread(server: socket.socket) -> bool:
    """Whether something of what was sent still waits for the other side."""
    return any(fcntl.ioctl(server, termios.TIOCOUTQ, bytes(4)))


def collect(engine: Engine, completed: dict[int, Any]) -> None:
    for number, (votes,) in engine.on_ready():
        detail = votes.details.get(0, "")
        # The engines have words of their own for what broke a connection.
        broken = votes.values[0] == FAULT and isinstance(detail, str) and "bytes" not in detail
        completed[number] = (votes.values[0], "broken" if broken else detail)


def step(engine: Engine, completed: dict[int, Any]) -> Step:
    state = engine.connection_state(0)
    return Step(state.attached, state.pending, state.pushes, dict(completed))
