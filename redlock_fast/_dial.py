"""From a master's settings to a connected, authenticated socket, and the commands for the server at its end.

Connecting is redis-py's: TCP, TLS, unix sockets, AUTH and ACL users, SELECT, HELLO 3, credential
providers.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

from ._bounded import BoundedSocket
from ._commands import LOOK, MARKER, Dialect, Mark, dialect, scripts
from ._guard import Guard
from ._interview import CannotConnect, Server, ask, interview
from ._resp import ProtocolError, without_arguments
from ._target import Target

#: Of an error, for people.
MAX_TEXT = 500


def dial(
    to: Target, timeout: float, key_prefix: bytes, guard: Guard, *, known: bool, push: bool
) -> tuple[socket.socket, Server, Dialect]:
    """Connect, authenticate, ask what the server can do. CannotConnect says why not.

    ``timeout``: seconds, for the connection and for each reply. ``known``: it is not the first contact.
    ``push``: have it tell when watched keys change, where it can.
    """
    connection = None
    try:
        connection, protocol = _connected(to, timeout)
        server = interview(connection, protocol, key_prefix)
        mark = guard.mark(server.run_id, server.durable)
        server = _prepared(connection, server, mark, guard.assume_fresh and not known)
        if push and protocol == 3:
            server = _tracking(connection, server)
        sock: socket.socket = connection._sock.release()
        connection._sock = None  # it is ours now: redis-py must not close it
        return sock, server, dialect(server.can, mark)
    except CannotConnect:
        raise
    except ProtocolError as error:
        raise CannotConnect(f"protocol error: {error}") from None
    except Exception as error:  # whatever redis-py or a credential provider makes of it
        text = without_arguments(str(error))[:MAX_TEXT]
        raise CannotConnect(text or type(error).__name__) from None
    finally:
        if connection is not None:
            connection.disconnect()


def _connected(to: Target, timeout: float) -> tuple[Any, int]:
    """RESP3; RESP2 where the server has no HELLO."""
    from redis.exceptions import ResponseError

    try:
        return _connection(to, timeout, to.protocol or 3), to.protocol or 3
    except ResponseError:
        if to.protocol is not None:
            raise
    return _connection(to, timeout, 2), 2


def _connection(to: Target, timeout: float, protocol: int) -> Any:
    connection = to.connect(timeout, protocol)
    connect = connection._connect
    connection._connect = lambda: BoundedSocket(connect(), timeout)
    try:
        connection.connect()
    except BaseException:
        connection.disconnect()
        raise
    return connection


def _prepared(connection: Any, server: Server, mark: Mark | None, fresh: bool) -> Server:
    """Load scripts (where that is forbidden, EVAL does it), look at the marker."""
    commands: list[tuple[bytes | str, ...]] = [
        ("SCRIPT", "LOAD", script.text) for script in scripts(server.can, mark)
    ]
    if mark is not None:
        if fresh:
            commands.append((b"SET", MARKER, mark.trusted, b"NX"))
        commands.append((b"EVAL", LOOK.text, b"1", MARKER, *mark.words))
    replies = ask(connection, commands)
    if mark is None:
        return server
    left = replies[-1]
    if isinstance(left, Exception):
        raise CannotConnect(f"restart_guard='marker' cannot use its key {MARKER.decode()!r} there: {left}")
    return replace(server, guarded=left / 1000)


def _tracking(connection: Any, server: Server) -> Server:
    """Have the server remember which keys this connection watches: each only where it is asked to."""
    (reply,) = ask(connection, [("CLIENT", "TRACKING", "ON", "OPTIN")])
    return replace(server, can=replace(server.can, push=not isinstance(reply, Exception)))
