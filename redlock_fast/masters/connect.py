"""Opens a connection to a master: authenticated, probed, with the commands for its server.

redis-py connects: TCP, TLS, unix sockets, AUTH and ACL users, SELECT, HELLO 3, credential providers.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # if its import fails once, Python never finds the encoding again
import os
import socket
from collections.abc import Iterator
from typing import Any

from ..algorithm.machine import boot_time
from ..engine.contract import PROTOCOL_ERROR
from ..wire.commands import Dialect, scripts
from ..wire.dialect import (
    CHECK_MARKER,
    NO_ACKNOWLEDGEMENT,
    WRITTEN,
    Acknowledgement,
    RestartMarker,
    dialect,
)
from ..wire.resp import ProtocolError
from ..wire.text import clean
from .address import Target
from .bounded_socket import Pushed, connect_bounded
from .connect_errors import connect_error
from .membership import record_key, seen
from .probe import ConnectError, Flushed, Server, probe, send_commands, with_witness
from .settings import ConnectorSettings

#: A connection and its login take at most so many timeouts: several addresses, TLS, a few replies; and the
#: Sentinels before. After that the attempt hangs.
ATTEMPT_TIMEOUTS = 10
#: The longest WAIT for replicas, in milliseconds.
MAX_WAIT = 1000
#: Options that name files, by the attribute of a connection of redis-py that has the path.
FILE_OPTIONS = {
    "ca_certs": "ssl_ca_certs", "ca_path": "ssl_ca_path", "certfile": "ssl_certfile", "keyfile": "ssl_keyfile"
}  # fmt: skip


class ProbedConnection:
    """A new connection to a master, and what its server said of itself."""

    def __init__(self, connection: Any, database: str, server: Server, commands: Dialect) -> None:
        self.server = server
        self.dialect = commands
        #: Connections with the same run_id that lead to other servers: the number of a master, and its count
        #: of connections.
        self.distinct: set[tuple[int, int]] = set()
        self._connection: Any = connection
        self._database = database

    def get(self, key: bytes, database: str) -> bytes | None:
        """The value of ``key`` in ``database``; None: there is no such key. Raises ConnectError."""
        value = self._ask(database, b"GET", key)
        return value if isinstance(value, bytes) else None

    def put(self, key: bytes, value: bytes, ttl: int, database: str) -> None:
        """Set ``key`` in ``database`` for ``ttl`` milliseconds. Raises ConnectError."""
        self._ask(database, b"SET", key, value, b"PX", b"%d" % ttl)

    def _ask(self, database: str, *words: bytes | str) -> Any:
        """The reply to a command in ``database``. A user without SELECT has one database."""
        commands: list[tuple[bytes | str, ...]] = [words]
        if database != self._database:
            commands = [("SELECT", database), words, ("SELECT", self._database)]
        with _connect_errors():
            replies = send_commands(self._connection, commands)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies[len(replies) // 2]

    def take(self) -> socket.socket:
        """The socket, which ``close`` does not close from now on. Raises ConnectError."""
        with _connect_errors():
            sock: socket.socket = self._connection._sock.release()
            self._connection._sock = None
            return sock

    def close(self) -> None:
        self._connection.disconnect()


@contextlib.contextmanager
def _connect_errors() -> Iterator[None]:
    """Turn every exception of redis-py, or of a credential provider, into a ConnectError."""
    try:
        yield
    except ConnectError:
        raise
    except Pushed:
        raise Flushed("its keys were flushed while it was probed") from None
    except ProtocolError as error:
        raise ConnectError(f"{PROTOCOL_ERROR}: {error}") from None
    except Exception as error:
        raise connect_error(error) from None


def acknowledgement(replicas: int, node_timeout: float, key_prefix: bytes) -> Acknowledgement:
    """What is asked of ``replicas`` replicas, where an attempt waits ``node_timeout`` seconds for a master.

    A request may be submitted just after another WAIT was sent. So two of them, and the round trips, must fit
    into an attempt; a release that follows them must, too.
    """
    wait = max(1, min(MAX_WAIT, int(node_timeout * 1000 / 3)))
    return Acknowledgement(replicas, wait, key_prefix + WRITTEN) if replicas else NO_ACKNOWLEDGEMENT


def connect(to: Target, settings: ConnectorSettings, known: Server | None) -> ProbedConnection:
    """Connect to a master, authenticate, and probe its server. Raises ConnectError.

    ``settings``: ``connect_timeout`` is for the connection and for each reply; unless ``wait`` is "poll", the
    server notifies of changed keys, if it can; unless ``check_masters`` is "off", its record of masters is
    read; ``replicas`` of it must have a grant before that counts. ``known``: the server at the last contact.
    """
    guard, key_prefix = settings.guard, settings.key_prefix
    with _connect_errors():
        connection, protocol = _connected(to, settings.connect_timeout)
        try:
            if to.topology is not None:
                key_prefix = to.topology.own_prefix(to.number, key_prefix)
            server = probe(connection, protocol, key_prefix, to.topology is not None)
            if server.shared or (known and known.data):
                server = with_witness(connection, server, key_prefix)
            marker = guard.marker(server, known, getattr(connection, "failed_over", None), key_prefix)
            server = server._replace(
                can=server.can._replace(push=settings.wait != "poll" and server.witness),
                where=(getattr(connection, "host", ""), getattr(connection, "port", 0)),
            )
            record = record_key(key_prefix) if settings.check_masters != "off" else None
            fresh = guard.assume_fresh and not known and not server.promoted
            by_marker = guard.mode == "marker"
            replicas = settings.replicas if to.replicas is None else to.replicas
            waits = acknowledgement(replicas, settings.node_timeout, key_prefix)
            commands = dialect(server.can, marker if by_marker else None, waits)
            server = _prepared(connection, server, commands, marker, fresh, by_marker, record)
            return ProbedConnection(connection, to.database, server, commands)
        except BaseException:
            connection.disconnect()
            raise


def _connected(to: Target, timeout: float) -> tuple[Any, int]:
    """A connection with RESP3, or with RESP2 if the server has no HELLO."""
    from redis.exceptions import ResponseError

    try:
        return connection_of(to, timeout, to.protocol or 3), to.protocol or 3
    except ResponseError:
        if to.protocol is not None:
            raise
    return connection_of(to, timeout, 2), 2


def connection_of(to: Target, timeout: float, protocol: int) -> Any:
    """A connection of redis-py that is connected and authenticated, on a bounded socket.

    ``timeout``: seconds, for the connection and for each reply. Raises ConnectError if the attempt does not
    end, because a credential provider hangs, for example; see ``bounded_calls``.
    """
    return to.calls.run(
        lambda: _connection_of(to, timeout, protocol),
        ATTEMPT_TIMEOUTS * timeout,
        lambda late: late.disconnect(),
    )


def _connection_of(to: Target, timeout: float, protocol: int) -> Any:
    connection = to.connect(timeout, protocol)
    connect = connection._connect
    connection._connect = lambda: connect_bounded(connection, connect, timeout)
    try:
        connection.connect()
    except BaseException as error:
        connection.disconnect()
        no_file = isinstance(error.__context__, FileNotFoundError | PermissionError)
        if no_file and isinstance(error, Exception):
            raise connect_error(error, _unreadable_files(connection)) from None
        raise
    return connection


def _unreadable_files(connection: Any) -> str:
    """The options of ``connection`` whose file cannot be read. The errors of OpenSSL do not name them.

    Without the paths: by mistake an option may be the key itself.
    """
    paths = {option: getattr(connection, name, None) for name, option in FILE_OPTIONS.items()}
    unreadable = [option for option, path in paths.items() if path and not os.access(path, os.R_OK)]
    return f" (cannot read the file of {', '.join(unreadable)})" if unreadable else ""


def _prepared(
    connection: Any,
    server: Server,
    dialect: Dialect,
    marker: RestartMarker | None,
    fresh: bool,
    by_marker: bool,
    record: bytes | None,
) -> Server:
    """Load the scripts of ``dialect``, check the marker, and read the key ``record``.

    Where SCRIPT LOAD is forbidden, EVAL loads them later. ``by_marker``: a user that may not use the key of
    the marker cannot use the master. Otherwise it then counts as one whose marker is new.
    """
    commands: list[tuple[bytes | str, ...]] = [("SCRIPT", "LOAD", script.text) for script in scripts(dialect)]
    if marker is not None:
        if fresh:
            commands.append((b"SET", marker.key, marker.trusted, b"NX"))
        commands.append((b"EVAL", CHECK_MARKER.text, b"1", marker.key, *marker.words))
    if record is not None:
        commands.append((b"GET", record))
    read_at = boot_time()
    replies = send_commands(connection, commands)
    if record is not None:
        server = server._replace(seen=seen(replies.pop()), read_at=read_at)
    if marker is None:
        return server
    left = replies[-1]
    if isinstance(left, Exception) and by_marker:
        raise connect_error(left, f" (restart_guard='marker' needs its key {clean(marker.key)!r})")
    if isinstance(left, Exception):
        left = marker.wait
    return server._replace(guarded=left / 1000)
